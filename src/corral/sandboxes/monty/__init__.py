"""Python in Monty, Pydantic's interpreter, in its own process without a jail; docs/design/monty.md has the details."""

from corral.sandboxes.monty.provider import MontySandbox

__all__ = ["MontySandbox"]
