"""Guest of one program that calls tools over HTTP, on a machine that only runs a command and returns its output.

It is the last part of a file that ends with a call of `run_elsewhere`. The program's output goes to standard output and
standard error unchanged. The last line of standard output is a mark, followed by the outcome.
"""

from __future__ import annotations
import __future__

import ast
import asyncio
import builtins
import inspect
import json
import os
import sys
from types import ModuleType
from typing import Any

from corral.guest.python.calls import PROGRAM
from corral.guest.python.errors import error_parts, syntax_error_parts
from corral.guest.python.failures import failure_classes
from corral.guest.python.transports.http import connect_from_environment
from corral.guest.python.values import Encoded, TooLarge, UnencodableValue, encode

_RESULT = "_corral_result"
"""Name of the global that holds the program's result."""
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | __future__.annotations.compiler_flag
_MAX_TEXT = 8000


def run_elsewhere(job: dict[str, Any]) -> None:
    """Runs a program and writes its outcome: the mark, its kind, 1 if it is tagged, and JSON."""
    limits = job["limits"]
    try:
        tools = connect_from_environment(tools=job["tools"], max_input_bytes=limits["tool_input_bytes"]).tools
    except ImportError as error:  # raised by the protocol's imports
        kind, content = "error", _parts(("bridge_error", "BridgeError", str(error), "", None))
    else:
        os.environ.clear()
        os.environ.update(job["env"] or {})
        sys.argv = ["program.py"]
        kind, content = _outcome(job, tools, limits["value_bytes"])
    sys.stdout.flush()
    sys.stderr.flush()
    data = b"\n%b %b %d %b\n" % (job["mark"].encode(), kind.encode(), content.tagged, content.text)
    while data:
        data = data[os.write(1, data) :]
    os._exit(0)


def _outcome(job: dict[str, Any], tools: object, value_bytes: int) -> tuple[str, Encoded]:
    source: str = job["code"]
    try:
        types, code = (compile(each, PROGRAM, "exec", _FLAGS, dont_inherit=True) for each in (job["types"], source))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return "rejected", _parts(syntax_error_parts(error, source))
    module = ModuleType("__main__")
    scope = vars(module)
    scope.update(failure_classes(), tools=tools, codemode=tools, exit=sys.exit, quit=sys.exit)
    scope.update({"__builtins__": builtins, "__file__": PROGRAM, _RESULT: None})
    sys.modules["__main__"] = module
    try:
        exec(types, scope)  # noqa: S102
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, scope))  # noqa: S307
        else:
            exec(code, scope)  # noqa: S102
        value = scope.get(_RESULT)
        return "value", encode(asyncio.run(value) if inspect.iscoroutine(value) else value, "result", value_bytes)
    except TooLarge as error:
        return "error", _parts(("output_exceeded", "OutputExceeded", str(error), "", None))
    except UnencodableValue as error:
        return "error", _parts(("program_failed", "ValueError", str(error), "", None))
    except SystemExit as error:
        return ("error", _parts(error_parts(error))) if error.code else ("value", Encoded(b"null", False, False))
    except BaseException as error:
        return "error", _parts(error_parts(error))


def _parts(parts: tuple[str | None, ...]) -> Encoded:
    shown = [None if part is None else part[:_MAX_TEXT] for part in parts]
    return Encoded(json.dumps(shown).encode(), tagged=False, replaced=False)
