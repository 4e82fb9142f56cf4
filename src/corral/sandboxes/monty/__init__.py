"""Python programs in Monty, Pydantic's interpreter, in a separate process without a jail. See docs/design/monty.md."""

from corral.sandboxes.monty.provider import MontySandbox

__all__ = ["MontySandbox"]
