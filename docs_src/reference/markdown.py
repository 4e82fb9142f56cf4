"""A public name as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import griffe
from docs_src.reference.names import Found

__all__ = ["section"]

_COLUMNS = 100
_KINDS = griffe.ParameterKind
_PUBLIC_BASES = {"RemoteSource": "ToolSource"}
"""Public bases of internal classes, which stand in their place."""


def section(found: Found) -> list[str]:
    """The lines about a name, its methods included."""
    source = found.source
    lines = [f"## {found.heading}", "", "```python fragment"]
    if source.is_class:
        lines += _class(found)
    elif source.is_function:
        for each in source.overloads or [source]:
            lines += _function(Found(found.name, each), "")
    else:
        lines += [f"{found.name} = {source.value}"]
    lines += ["```", "", *_text(found.docstring)]
    if source.is_class:
        lines += _fields(found)
    for method in found.methods():
        lines += ["", f"### {method.title}", "", "```python fragment", *_function(method, ""), "```", ""]
        lines += _text(method.docstring)
    return _squeezed(lines)


def _class(found: Found) -> Iterator[str]:
    source = found.source
    shown = [str(base) for base in source.bases if not str(base).startswith(("_", "Frozen", "Generic"))]
    bases = ", ".join(_PUBLIC_BASES.get(base, base) for base in shown)
    yield f"class {found.name}({bases}):" if bases else f"class {found.name}:"
    made = source.members.get("__init__")
    fields = [each for each in found.fields() if "property" not in each.labels]
    if made is not None and not found.is_data:
        yield from _function(Found("__init__", made, found), "    ")
    elif found.is_data and fields:
        for each in fields:
            default = "" if each.value is None else f" = {_default(each.value)}"
            yield _quoted(f"    {each.name}: {each.annotation}{default}")
    else:
        yield "    ..."


def _default(value: Any) -> str:
    """A field's default, as far as it says something."""
    text = str(value)
    return "..." if re.match(r"(?:\w+\.)?[fF]ield\(", text) else text


def _function(found: Found, indent: str) -> Iterator[str]:
    """The signature as a stub, over several lines if it is long."""
    source = found.source
    for mark in source.decorators:
        if str(mark.value) in ("classmethod", "staticmethod", "asynccontextmanager", "contextmanager"):
            yield f"{indent}@{mark.value}"
    start = f"{indent}{'async ' if 'async' in source.labels else ''}def {found.name}("
    end = f") -> {source.returns}: ..." if source.returns is not None else "): ..."
    parameters = _parameters(found.parameters())
    whole = f"{start}{', '.join(parameters)}{end}"
    if len(whole) <= _COLUMNS:
        yield _quoted(whole)
        return
    yield start
    yield from (_quoted(f"{indent}    {each},") for each in parameters)
    yield f"{indent}{end}"


def _quoted(signature: str) -> str:
    """The signature with texts in double quotes, as in the source."""
    return re.sub(r"'([^'\"\\]*)'", r'"\1"', signature)


def _parameters(parameters: Sequence[griffe.Parameter]) -> list[str]:
    shown: list[str] = []
    before: griffe.ParameterKind | None = None
    for each in parameters:
        if before is _KINDS.positional_only and each.kind is not before:
            shown.append("/")
        if each.kind is _KINDS.keyword_only and before not in (_KINDS.keyword_only, _KINDS.var_positional):
            shown.append("*")
        stars = {_KINDS.var_positional: "*", _KINDS.var_keyword: "**"}.get(each.kind or _KINDS.keyword_only, "")
        annotation = f": {each.annotation}" if each.annotation is not None else ""
        has_default = each.default is not None and not stars
        equals = " = " if annotation else "="
        shown.append(f"{stars}{each.name}{annotation}{f'{equals}{each.default}' if has_default else ''}")
        before = each.kind
    return [*shown, "/"] if before is _KINDS.positional_only else shown


def _fields(found: Found) -> Iterator[str]:
    told = [each for each in found.fields() if each.docstring]
    if told:
        yield ""
    for each in told:
        yield f"- `{each.name}`: {' '.join(each.docstring.value.split())}"


def _text(docstring: griffe.Docstring | None) -> Iterator[str]:
    """A docstring; what it raises and takes as lists."""
    for part in docstring.parse("google", warnings=False) if docstring else ():
        match part:
            case griffe.DocstringSectionText(value=text):
                yield from ("", *text.split("\n"))
            case griffe.DocstringSectionRaises(value=raised):
                yield from ("", "Raises:", "")
                yield from (f"- `{each.annotation}`: {' '.join(each.description.split())}" for each in raised)
            case griffe.DocstringSectionParameters(value=taken):
                yield ""
                yield from (f"- `{each.name}`: {' '.join(each.description.split())}" for each in taken)
            case griffe.DocstringSectionAdmonition(title=title, value=note):
                yield from ("", f"{title}: {' '.join(note.description.split())}")
            case _:  # of no docstring so far
                raise ValueError(f"there is no rule for {part.kind}")


def _squeezed(lines: Sequence[str]) -> list[str]:
    """The lines without repeated or trailing empty ones."""
    kept: list[str] = []
    for line in lines:
        if line.strip() or (kept and kept[-1].strip()):
            kept.append(line.rstrip())
    while kept and not kept[-1]:
        kept.pop()
    return kept
