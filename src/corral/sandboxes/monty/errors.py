"""Errors of Monty as a model should read them: at the places it wrote, with what Monty lacks called by its name."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable, Mapping, Sequence

from pydantic_monty import Frame, MontyRuntimeError, MontySyntaxError

from corral.errors import CALL_ERRORS, AccessDenied, MemoryExceeded, ProgramFailed, ProgramRejected
from corral.guest.python.hints import MAX_SEGMENT, hint
from corral.types import CallError, ExecutionError, Exit, Position, Program

SCRIPT = "<python-input-0>"
"""Monty's name for the first text of a session."""
EXCEPTIONS: Mapping[str, type[Exception]] = {
    "ToolNotFound": AttributeError,
    "InvalidArguments": ValueError,
} | {error.__name__: PermissionError for error in CALL_ERRORS if issubclass(error, AccessDenied)}
"""Exceptions of failed calls; all others raise RuntimeError. Monty knows only Python's own classes."""
_MAX_TEXT = 8000
_MAX_FRAMES = 20
_WRAPPER = "_corral_program"
"""The function that stands around a program that has a `return` of its own."""
_FULL = "CPythonSandbox, which runs all of Python"
_PARSER = "The monty syntax parser does not yet support "
_INTERNAL = "Internal error in monty: "
_MODULE = re.compile(r"No module named '([\w.]{1,100})'")
_NAME_OF_MODULE = re.compile(r"cannot import name '(\w{1,100})' from '([\w.]{1,100})'")
_MEMBER_OF_MODULE = re.compile(r"module '([\w.]{1,100})' has no attribute '(\w{1,100})'")
_MEMBER_OF_TYPE = re.compile(r"(?:type object )?'([\w.]{1,100})'(?: object)? has no attribute '(\w{1,100})'")
_UNMAKEABLE = re.compile(r"cannot create '(\w{1,100})' instances")
_NAME = re.compile(r"name '(\w{1,100})' is not defined")

_INSTEAD = (
    ("update modes ('+') are", "read the file, change what was read, and write it with mode 'w'"),
    ("exclusive creation mode is", "ask Path(...).exists() first, and open with mode 'w'"),
    ("'encoding' argument is", "files are UTF-8; for another encoding read and write bytes, with modes 'rb' and 'wb'"),
    (
        "read_text() takes no ",
        "files are UTF-8; leave out the encoding, or decode what read_bytes gives",
    ),
    (
        "write_text() takes exactly one argument",
        "files are UTF-8; leave out the encoding, or write_bytes what is encoded",
    ),
    ("argument is not yet supported", "leave it out"),
    ("iterating an unread _io.", "iterate over readlines()"),
    ("print() 'file' argument must be", "use its write(...)"),
)
"""Messages about files, by a part of them, and what to write."""


def exception_for(error: CallError) -> Exception:
    """The exception that a failed call raises in the program. Its text begins with the error's name."""
    return EXCEPTIONS.get(error.name, RuntimeError)(f"{error.name}: {error.message}")


def failure(
    error: MontySyntaxError | MontyRuntimeError,
    program: Program,
    *,
    raised: Callable[[str], CallError | None],
    forgotten: Callable[[], str | None],
    memory_mb: int,
    ran: bool,
) -> Exit:
    """The exit of a program that Monty could not read, or that raised. `ran`: it has made calls.

    `raised` knows the errors of calls by their texts in the program, `forgotten` the tool whose call was not awaited.
    """
    inner = error.exception()
    name, message = type(inner).__name__, str(inner)
    frames = error.traceback()
    own = [frame for frame in frames if frame.filename == SCRIPT]
    unread = (frames or isinstance(error, MontySyntaxError)) and all(frame.function_name is None for frame in frames)
    if unread and not ran:
        return _rejected(name, message, frames, program)
    code = ProgramFailed.code
    if isinstance(inner, MemoryError):
        code, name = MemoryExceeded.code, MemoryExceeded.__name__
        message = f"the program needed more than the {memory_mb} MB of memory it may use"
    elif (of_call := raised(message)) is not None:
        code, name, message = of_call.code, of_call.name, of_call.message
    elif isinstance(inner, TypeError | AttributeError) and "coroutine" in message:
        name, message = "NotAwaited", _not_awaited(message, forgotten())
    else:
        message = f"{_explained(name, message)}{_hint(name, message, own, program)}"
    position = _position(own, program)
    return Exit(
        status="failed",
        exit_code=1,
        error=ExecutionError(
            code=code,
            name=name,
            message=message[:_MAX_TEXT],
            line=position and position.line,
            column=position and position.column,
            stack=_stack(own, program) or None,
        ),
    )


def locate(program: Program, line: int, column: int) -> Position:
    """A place in `program.code`, its column in characters, as the model wrote it. What is behind it is its end."""
    lines = program.code.split("\n")
    if line > len(lines):
        line, column = len(lines), len(lines[-1]) + 1
    before = lines[line - 1][: column - 1]
    return program.locate(line, len(before) + sum(character > "\uffff" for character in before) + 1)


def _hint(name: str, message: str, frames: Sequence[Frame], program: Program) -> str:
    """Without the values, which Monty does not show."""
    if not frames or name not in ("TypeError", "AttributeError"):
        return ""
    frame = frames[-1]
    lines = program.code.split("\n")[frame.line - 1 : frame.end_line]
    if not lines or len(lines) > MAX_SEGMENT:
        return ""
    lines[-1] = lines[-1][: frame.end_column - 1]
    lines[0] = lines[0][frame.column - 1 :]
    return hint(name, message, "\n".join(lines), {})


def _rejected(name: str, message: str, frames: Sequence[Frame], program: Program) -> Exit:
    if name == "NotImplementedError":
        message = f"Monty does not run {message.removeprefix(_PARSER)}: write it without, or use {_FULL}"
    position = _position(frames, program)
    return Exit(
        status="rejected",
        exit_code=1,
        error=ExecutionError(
            code=ProgramRejected.code,
            name=name,
            message=message[:_MAX_TEXT],
            line=position and position.line,
            column=position and position.column,
        ),
    )


def _position(frames: Sequence[Frame], program: Program) -> Position | None:
    return locate(program, frames[-1].line, frames[-1].column) if frames else None


def _stack(frames: Sequence[Frame], program: Program) -> str:
    """Outermost first. Of too many those in the middle are left out, which recursion repeats."""
    half = _MAX_FRAMES // 2
    shown = frames if len(frames) <= _MAX_FRAMES else [*frames[:half], *frames[-half:]]
    lines: list[str] = []
    for frame in shown:
        function = frame.function_name or "<module>"
        line = locate(program, frame.line, frame.column).line
        lines.append(f'  File "program.py", line {line}, in {"<module>" if function == _WRAPPER else function}')
    return "\n".join(lines)


def _not_awaited(message: str, tool: str | None) -> str:
    if tool is None:
        return f"{message}: an async function was called without `await`"
    return f"tools.{tool}(...) was not awaited: write `await tools.{tool}(...)`"


def _explained(name: str, message: str) -> str:
    """The message, and what is there instead where it was Monty that lacks something."""
    if message.startswith(_INTERNAL):
        return f"Monty cannot do this: {message.removeprefix(_INTERNAL)}; use {_FULL}"
    if name == "NotImplementedError" and message.startswith(_PARSER):
        return f"Monty does not run {message.removeprefix(_PARSER)}: write it without, or use {_FULL}"
    if name == "ModuleNotFoundError" and (found := _MODULE.search(message)):
        module = found[1].partition(".")[0]
        has = "CPythonSandbox" if module in sys.stdlib_module_names else f'CPythonSandbox(packages=["{module}"])'
        return f"Monty has no module {module}; {has} has"
    remedy = next((instead for part, instead in _INSTEAD if part in message), None)
    if remedy is not None and name in ("TypeError", "ValueError", "NotImplementedError"):
        return f"{message}: {remedy}, or use {_FULL}"
    if (found := _NAME_OF_MODULE.search(message)) and _may_have(found[2], found[1]):
        return _lacking(found[2], found[1])
    if name == "AttributeError" and (found := _MEMBER_OF_MODULE.search(message)) and _may_have(found[1], found[2]):
        return _lacking(found[1], found[2])
    found = _MEMBER_OF_TYPE.fullmatch(message)
    if name == "AttributeError" and found and hasattr(_known(found[1]), found[2]):
        return f"Monty's {found[1]} has no {found[2]}; CPythonSandbox's has"
    if name == "TypeError" and (found := _UNMAKEABLE.fullmatch(message)) and callable(_known(found[1])):
        return f"Monty has no way to make a {found[1]}; CPythonSandbox has"
    if name == "NameError" and (found := _NAME.search(message)) and hasattr(builtins, found[1]):
        return f"Monty has no built-in {found[1]}; CPythonSandbox has"
    return message


def _may_have(module: str, member: str) -> bool:
    """True if Python's own module has the name, or is not loaded here, so that it cannot be known."""
    return module not in sys.modules or hasattr(sys.modules[module], member)


def _known(path: str) -> object:
    """Python's own object of this name, if its module is loaded here."""
    module, _, name = ("pathlib.PosixPath" if path == "PosixPath" else path).rpartition(".")
    return getattr(sys.modules.get(module or "builtins"), name, None)


def _lacking(module: str, member: str) -> str:
    instead = "; calls run at the same time in `await asyncio.gather(...)`" if module == "asyncio" else ""
    return f"Monty's module {module} has no {member}{instead}; CPythonSandbox has all of it"
