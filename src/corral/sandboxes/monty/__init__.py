"""Python in Monty, an interpreter of Pydantic's that reaches nothing but what it is handed.

There is no jail: the interpreter is the boundary, in a process of its own, bounded in memory by itself and in processor
time from outside. It starts in milliseconds and runs a part of Python; docs/design/monty.md tells which."""

from corral.sandboxes.monty.provider import MontySandbox

__all__ = ["MontySandbox"]
