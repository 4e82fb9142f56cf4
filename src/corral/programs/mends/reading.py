"""Repairs programs with one possible meaning: misspelt tools, conventions of other frameworks, a JSON tool call.

A repair never changes which tool is called: a name is resolved only if a single tool matches. Each repair adds a
warning.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from pydantic_core import from_json

from corral.errors import ProgramRejected
from corral.programs.edits import Edits, NotAwaited, relocated
from corral.programs.mends import python, typescript
from corral.programs.mends.names import ToolNames
from corral.programs.reading import read_program
from corral.programs.recover import without_thoughts
from corral.texts import PositionMap, located
from corral.types import Diagnostic, Language, Program

_MAX_CHARS = 8_000
"""Maximum characters of a program that is repaired."""
_AROUND_JSON = re.compile(r"```(?:json|tool_call)?[ \t]*\n(.*)\n[ \t]*```|<tool_call>(.*)</tool_call>", re.DOTALL)
_WORDS = re.compile(r"(?<![\w$.])([A-Za-z_$][\w$]*)(?=\s*[.(])")
_FUNCTION = re.compile(rb"^(?:export[ ]+)?(?:async[ ]+)?(?:def|function)[ ]+(\w+)", re.MULTILINE)
_USES = re.compile(r"(?<![\w$.])(?:tools|codemode)\s*\.")
_ODD_INPUT = re.compile(r"""\(\s*[fb]?["'`\d]|(?<![\w.])[a-z]+[A-Z]\w*["']?\s*[:=,}]""")
"""Argument by position, or a camel-case name that can be a misspelt member."""
_AWAITED = re.compile(r"\bawait[\s(]+(?:tools|codemode)\s*\.")
_MENDERS = {"typescript": typescript, "python": python}
_WRITERS: Mapping[Language, Callable[[object], str]] = {
    "typescript": partial(json.dumps, ensure_ascii=False),
    "python": repr,
}
_NAME = ("name", "tool", "tool_name", "function")
_INPUT = ("arguments", "parameters", "args", "input", "tool_input", "params", "kwargs")
_BESIDE = frozenset({"id", "type", "call_id", "tool_call_id"})


def read_meant(source: str, language: Language, names: ToolNames, bound: frozenset[str] | None = None) -> Program:
    """Returns the program in a model's answer, prepared to run, with all certain repairs.

    `bound`: as for `read_program`.

    Raises:
        ProgramRejected: the answer cannot be a program, or takes too long to parse.
    """
    call = _called_tool(source, language, names)
    if call is None:
        try:
            mended = _mended(read_program(source, language, bound), names, bound)
        except NotAwaited as error:
            if error.program is None or (mended := _mended(error.program, names, bound)) is error.program:
                raise
        return _with_hidden(mended, names)
    program, remark = call
    mended = read_program(program, language, bound)
    return replace(mended, source=source, diagnostics=(remark, *mended.diagnostics))


def _called_tool(source: str, language: Language, names: ToolNames) -> tuple[str, Diagnostic] | None:
    """Returns a program and a warning for a source that is one JSON tool call.

    Raises:
        ProgramRejected: no tool matches the call's name.
    """
    text = without_thoughts(source).strip() if len(source) <= _MAX_CHARS else ""
    if (inside := _AROUND_JSON.fullmatch(text)) is not None:
        text = (inside[1] or inside[2] or "").strip()
    if not text.startswith(("{", "[")):
        return None
    try:
        value: object = from_json(text)
    except ValueError:
        return None
    call = _call_in(value)
    if call is None:
        return None
    name, input = call
    if (path := names.resolve(name.removeprefix("functions.").removeprefix("tools."))) is None:
        raise ProgramRejected(
            "The source is a tool call as JSON, not a program, and no single tool matches its name. Write a program:"
            f" `await tools.{names.nearest(name)}(...)`."
        )
    shown = _WRITERS[language](input)
    message = f"The source was a tool call as JSON, and was run as `await tools.{path}(...)`. Send programs."
    remark = Diagnostic(severity="warning", code="mended", message=message)
    return f"await tools.{path}({shown if input else ''})", remark


def _call_in(value: object) -> tuple[str, dict[str, object]] | None:
    """Returns the name and input of a JSON tool call."""
    if isinstance(value, list):
        calls = cast("list[object]", value)
        first = calls[0] if len(calls) == 1 else None
        return None if isinstance(first, list) else _call_in(cast("object", first))
    if not isinstance(value, dict):
        return None
    call = cast("dict[str, Any]", value)
    if isinstance(inner := call.get("function"), dict) and set(call) <= {"function", *_BESIDE}:
        return _call_in(cast("dict[str, Any]", inner))
    if list(call) == ["tool_calls"]:
        listed: object = call["tool_calls"]
        return _call_in(listed)
    named = [key for key in _NAME if isinstance(call.get(key), str)]
    inputs = [key for key in _INPUT if key in call]
    if len(named) != 1 or len(inputs) != 1 or not set(call) <= {*named, *inputs, *_BESIDE}:
        return None
    input: object = call[inputs[0]]
    if isinstance(input, str):
        try:
            input = from_json(input or "{}")
        except ValueError:
            return None
    return (call[named[0]], cast("dict[str, object]", input)) if isinstance(input, dict) else None


def _mended(program: Program, names: ToolNames, bound: frozenset[str] | None) -> Program:
    """Returns the program with all certain repairs.

    Raises:
        ProgramRejected: the program defines the tools itself, or is invalid after the repairs.
    """
    typed = program.typed
    if typed is None or len(typed.text) > _MAX_CHARS or not _may_need_some(typed.text.decode(), program, names):
        return program
    if bound and any(names.may_be_bare(each) for each in bound.intersection(_WORDS.findall(typed.text.decode()))):
        return program  # an earlier cell can have defined it
    mender = _MENDERS[program.language]
    edits = Edits(typed.text, mender.LINE_END)
    mends = mender.mends_of(typed, names, edits)
    if not mends:
        return program
    text, positions = edits.apply()
    back = (positions, *typed.positions)
    try:
        mended = read_program(text.decode(), program.language, bound)
    except ProgramRejected as error:
        if error.line is None:
            raise
        place = located(back, error.line, error.column or 1)
        raise ProgramRejected(str(error), line=place.line, column=place.column) from error
    return _with_remarks(program, mended, back, mends)


def _with_hidden(program: Program, names: ToolNames) -> Program:
    """Adds a warning if the program calls no tool and one of its functions hides a tool."""
    references = program.references
    if program.typed is None or references is None or references.named or references.computed:
        return program
    defined = {each.decode() for each in _FUNCTION.findall(program.typed.text[:_MAX_CHARS])}
    if not (hidden := sorted(each for each in defined if names.is_last_name(each))):
        return program
    message = (
        f"No tool was called: `{hidden[0]}` is the program's own function. For the tool, write"
        f" `await tools.{names.resolve(hidden[0]) or hidden[0]}(...)` and define no function of that name."
    )
    remark = Diagnostic(severity="warning", code="hidden_tool", message=message)
    return replace(program, diagnostics=(*program.diagnostics, remark))


def _may_need_some(text: str, program: Program, names: ToolNames) -> bool:
    references = program.references
    if references is not None and any(str(each.path) not in names.paths for each in references.named):
        return True
    words = set(_WORDS.findall(text))
    if words & _MENDERS[program.language].WORDS or any(names.may_be_bare(each) for each in words):
        return True
    return (
        len(_USES.findall(text)) > len(_AWAITED.findall(text))
        or _MENDERS[program.language].SIGN.search(text) is not None
        or ".tools" in text
        or _ODD_INPUT.search(text) is not None
    )


def _with_remarks(program: Program, mended: Program, back: tuple[PositionMap, ...], mends: list[str]) -> Program:
    counted = ((message, f" ({count} times)" if count > 1 else "") for message, count in Counter(mends).items())
    remarks = [Diagnostic(severity="warning", code="mended", message=message + times) for message, times in counted]
    again = {"no_result", *(each.code for each in mended.diagnostics)}
    mended = relocated(mended, partial(located, back))
    return replace(
        mended,
        source=program.source,
        positions=(*mended.positions, *back),
        diagnostics=(
            *(each for each in program.diagnostics if each.code not in again),
            *remarks,
            *mended.diagnostics,
        ),
        typed=None if mended.typed is None else replace(mended.typed, positions=(*mended.typed.positions, *back)),
    )
