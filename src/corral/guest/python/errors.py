"""Formats a program's errors for its model: only the program's own frames, with their lines and columns."""

from __future__ import annotations

import errno
import linecache
import re
import sys
from collections import ChainMap
from types import CodeType, TracebackType
from typing import NamedTuple, cast

from corral.guest.python.calls import OWN, PROGRAM, Site
from corral.guest.python.failures import CorralError
from corral.guest.python.hints import MAX_SEGMENT, hint

_MAX_FRAMES = 20
_MAX_ERRORS = 5
"""Maximum number of a group's errors that are shown."""
_WRAPPER = "_corral_program"
"""Name of the function that wraps a program with its own `return`."""

_MAX_NOTES = 10
_ASYNC_DEF = ": write `async def`, and await its calls; a `lambda` cannot await, so make a function of it"
_OF_TEXTS = (
    (re.compile(r"the JSON object must be str"), ": results of tools are already parsed; leave `json.loads` out"),
    (
        re.compile(
            r"unsupported operand type.*(?:'(?:int|float)' and 'str'|'str' and '(?:int|float)')$"
            r"|Unknown format code '[a-zA-Z%]' for object of type 'str'|type str doesn't define __round__"
            r"|Cannot specify ',' with 's'"
        ),
        ": convert the string to a number with `float(...)`",
    ),
)
"""Advice for messages about strings, by how they begin."""
_NESTED_QUOTES = re.compile(r"""\b[rR]?[fF][rR]?(["']).*?\{[^{}]*\1[^{}]*\}""")
_TYPE_PARAMETERS = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+\w+\s*\[")
_TYPE_STATEMENT = re.compile(r"\s*type\s+\w+\s*(?:\[[^]]*\]\s*)?=")
_NOT_IN_MODULE = re.compile(r"cannot import name '(\w+)' from '(\w+)'")
_BATCHED = "write `[items[i : i + n] for i in range(0, len(items), n)]`"
_FILES = "Programs can read only Python's own files: call a tool that reads or writes."
_MOUNTS = "Programs see the files in {} and those of Python"
_NO_NETWORK = "Programs cannot access the network or start processes: call a tool."
_CLIENTS = frozenset(
    {"aiohttp", "boto3", "httpx", "openai", "psycopg2", "requests", "selenium", "urllib3", "websockets"}
)

session_places: list[tuple[str, str]] = []
"""Paths of these directories for programs, with their real paths if these differ."""
session_mounts: list[tuple[str, bool]] = []
"""Directories of the session, each with whether the program can change it."""
network: list[str] = []
"""Modules that can send requests; none if programs have no network access."""
packages: list[str] = []
"""Modules that programs may import, besides the standard library."""

Parts = tuple[str, str, str, str, str | None]
"""Code, name, message, stack and cause."""


class _Frame(NamedTuple):
    file: str
    line: int
    column: int
    function: str

    def __str__(self) -> str:
        return f'  File "{self.file}", line {self.line}:{self.column}, in {self.function}'


def error_parts(error: BaseException) -> Parts:
    """Returns the parts of an error that ended the program."""
    try:
        message = "\n".join([f"{_message(error)}{_hint(error)}", *_notes(error)])
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        name = type(error).__name__
        frames = _frames(error.__traceback__)
        first = error
        while isinstance(first, BaseExceptionGroup):  # a group has the position of its first error
            first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
            frames += _frames(first.__traceback__)
        if isinstance(error, SyntaxError) and error.lineno is not None and (error.filename or "").startswith(OWN):
            frames.append(_Frame(error.filename or PROGRAM, error.lineno, error.offset or 1, "<module>"))
        stack = "\n".join(map(str, frames))
        return _code(error), name, message, stack, None if cause is None else described(cause)
    except BaseException:  # the class is the program's, and may do anything
        return "program_failed", "Error", "the program raised an object that cannot be read", "", None


def syntax_error_parts(error: BaseException, code: str) -> Parts:
    """Returns the parts for source that does not compile."""
    if not isinstance(error, SyntaxError):
        text = "the program is nested too deeply" if isinstance(error, RecursionError | MemoryError) else str(error)
        return "program_rejected", "SyntaxError", text, "", None
    line, offset = error.lineno or 1, error.offset or 1
    lines = code.splitlines()
    before = lines[line - 1][: offset - 1] if line <= len(lines) else ""
    stack = str(_Frame(getattr(error, "filename", None) or PROGRAM, line, _utf16(before) + 1, "<module>"))
    advice = _ASYNC_DEF if "outside" in error.msg and "async" in error.msg else _of_version(error, lines, line)
    return "program_rejected", type(error).__name__, f"{error.msg}{advice}", stack, None


def missing_module(error: ModuleNotFoundError, file: str, line: int, column: int) -> Parts:
    """Returns the parts of the error for a missing module, which is reported before the program runs."""
    stack = str(_Frame(file, line, column, "<module>"))
    return "program_rejected", type(error).__name__, _message(error), stack, None


def _of_version(error: SyntaxError, lines: list[str], line: int) -> str:
    """Returns advice for syntax of newer Python versions."""
    shown = lines[line - 1] if line <= len(lines) else ""
    if sys.version_info >= (3, 12):
        return ""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if "f-string" in error.msg and "backslash" in error.msg:
        return f". This is Python {version}: assign the text with the backslash to a variable first"
    if "f-string" in error.msg and _NESTED_QUOTES.search(shown):
        return f". This is Python {version}: inside of the braces of an f-string, write the other kind of quotes"
    if _TYPE_PARAMETERS.match(shown):
        return f". This is Python {version}, without type parameters: leave the brackets out, and write `Any`"
    if _TYPE_STATEMENT.match(shown):
        return f". This is Python {version}, without the `type` statement: leave the word `type` out"
    return ""


def described(error: BaseException) -> str:
    """Formats an error on one line."""
    try:
        return f"{type(error).__name__}: {_message(error)}"
    except BaseException:
        return "an object that cannot be read"


def warning_text(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Formats a warning on one line, with its position if that is in the program."""
    del line
    place = f'File "{filename}", line {lineno}: ' if filename.startswith(OWN) else ""
    return f"{place}{category.__name__}: {message}\n"


def place_of(site: Site) -> str:
    """Formats the position of a call as a stack of one frame."""
    if not site.code.co_filename.startswith(OWN):
        return ""
    return str(_frame(site.code, site.instruction, site.code.co_firstlineno))


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the program ended itself with {error.code!r}"
    if isinstance(error, BaseExceptionGroup):
        errors = cast("BaseExceptionGroup[BaseException]", error).exceptions
        shown = [described(each) for each in errors[:_MAX_ERRORS]]
        return f"{error}: {'; '.join(shown)}{' …' if len(errors) > _MAX_ERRORS else ''}"
    if isinstance(error, MemoryError) and not error.args:
        return "the program needed more memory than it may use"
    if isinstance(error, ModuleNotFoundError):
        more = f" and {', '.join(packages)}" if packages else ""
        advice = f". {_requests()}" if (error.name or "").partition(".")[0] in _CLIENTS else ""
        top = (error.name or "").partition(".")[0]
        if top in sys.modules.get("tools", ()):  # type: ignore[operator]
            advice = f". For tools write `from tools import {top}`, or `await tools.{top}.name(...)`"
        elif top == "corral":
            advice = ". `tools`, `ToolError` and the other errors of calls are available without an import"
        return f"{error}: programs may import the standard library{more}{advice}"
    return f"{_as_shown(str(error))}{_advice(error)}"


def _as_shown(text: str) -> str:
    """Replaces real paths of the session by those that the program knows."""
    for place, real in session_places:
        text = text.replace(real, place)
    return text


def _advice(error: BaseException) -> str:
    """Returns advice for programs that try to use files, processes, the network or a terminal."""
    if type(error) is EOFError and error.args == ("EOF when reading a line",):
        return ": programs have no terminal. Put the value into the program, or call a tool."
    if type(error).__name__ == "URLError" and type(error).__module__ == "urllib.error":
        return "" if network else f". {_NO_NETWORK}"
    if isinstance(error, TypeError | ValueError):
        return next((advice for pattern, advice in _OF_TEXTS if pattern.match(str(error))), "")
    if isinstance(error, ImportError) and (match := _NOT_IN_MODULE.match(str(error))) is not None:
        if match[2] not in sys.stdlib_module_names:
            return ""
        version = f". This is Python {sys.version_info[0]}.{sys.version_info[1]}, whose `{match[2]}` lacks it"
        return f"{version}: {_BATCHED}" if match[1] == "batched" else version
    if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS):
        return f". {_elsewhere() if error.filename is None else _files()}"
    return ""


def _notes(error: BaseException) -> list[str]:
    """Returns notes that the program has added to an error."""
    return [str(each) for each in getattr(error, "__notes__", ())][:_MAX_NOTES]


def _requests() -> str:
    """Returns advice for programs that try to send requests."""
    return f"Send requests with {' or '.join(network)}." if network else _NO_NETWORK


def _elsewhere() -> str:
    """Returns advice for programs that try to use processes or the network."""
    return f"Programs cannot start processes. {_requests()}" if network else _NO_NETWORK


def _files() -> str:
    """Returns advice about the available files."""
    if not session_mounts:
        return _FILES
    places = [place if writable else f"{place} (read-only)" for place, writable in session_mounts]
    return f"{_MOUNTS.format(', '.join(places))}."


def _hint(error: BaseException) -> str:
    """Returns a hint about an error that the interpreter raised in the program's own code."""
    traceback = error.__traceback__
    if traceback is None or type(error) not in (TypeError, AttributeError, KeyError, IndexError):
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    file = frame.f_code.co_filename
    if not file.startswith(OWN):
        return ""
    for number, (first, last, start, end) in enumerate(frame.f_code.co_positions()):
        if number == traceback.tb_lasti // 2:
            if first is None or last is None or start is None or end is None or last - first > MAX_SEGMENT:
                return ""
            lines = [linecache.getline(file, line).encode("utf-8", "replace") for line in range(first, last + 1)]
            lines[-1] = lines[-1][:end]
            lines[0] = lines[0][start:]
            segment = b"".join(lines).decode("utf-8", "replace")
            return hint(type(error).__name__, str(error), segment, ChainMap(frame.f_locals, frame.f_globals))
    return ""


def _code(error: BaseException) -> str:
    if isinstance(error, CorralError):
        return str(error.code)  # the program might have replaced it
    return "memory_exceeded" if isinstance(error, MemoryError) else "program_failed"


def _frames(traceback: TracebackType | None) -> list[_Frame]:
    """Returns frames, outermost first. The middle of a long stack is left out, because recursion repeats it."""
    frames: list[_Frame] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename.startswith(OWN):
            frames.append(_frame(code, traceback.tb_lasti, traceback.tb_lineno))
            if len(frames) > _MAX_FRAMES:
                del frames[_MAX_FRAMES // 2]
        traceback = traceback.tb_next
    return frames


def _frame(code: CodeType, instruction: int, line: int) -> _Frame:
    column = 0
    for number, (first, _, start, _) in enumerate(code.co_positions()):
        if number == instruction // 2:
            line = first or line
            before = linecache.getline(code.co_filename, line).encode("utf-8", "replace")[: start or 0]
            column = _utf16(before.decode("utf-8", "ignore"))
            break
    name = code.co_qualname.replace(f"{_WRAPPER}.<locals>.", "").replace(_WRAPPER, "<module>")
    return _Frame(code.co_filename, line, column + 1, name)


def _utf16(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)
