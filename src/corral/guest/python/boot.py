"""Entry point of the Python guests' fork server: `python boot.py CODE ARGUMENTS...`.

CODE contains the code of modules, each after the modules that it imports. `serve` of the last one gets the arguments.

The server has one thread, so no lock is held when it forks. The standard library's fork hooks would only make each
child copy pages, and its network modules are not needed.
"""

import marshal
import os
import sys
from types import ModuleType
from typing import Any


def boot() -> None:
    """Loads the modules and serves."""
    register = getattr(os, "register_at_fork", None)  # Windows has no forks
    os.register_at_fork = _ignore
    sys.modules["ssl"] = None  # type: ignore[assignment]
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123
        modules = marshal.load(file)  # noqa: S302
    scope: dict[str, Any] = {}
    for name, code in modules:
        sys.modules[name] = module = ModuleType(name)
        scope = vars(module)
        exec(code, scope)  # noqa: S102
    for name in ("ssl", *dict(modules)):
        del sys.modules[name]
    if register is not None:
        os.register_at_fork = register
    scope["serve"](sys.argv[2:])


def _ignore(**_: object) -> None:
    """Replaces `os.register_at_fork`."""


if __name__ == "__main__":
    boot()
