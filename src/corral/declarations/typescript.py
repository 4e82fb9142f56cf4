"""Tools as TypeScript declarations: what a model reads, and what its program is checked against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from math import inf
from typing import Literal

from corral.declarations.jsdoc import comment
from corral.declarations.languages import TYPESCRIPT
from corral.declarations.shapes import UNKNOWN, Shape
from corral.declarations.signatures import Signature, ToolShape, TypeNames, name_definitions, read_signatures
from corral.declarations.typescript_types import LINE_CHARACTERS, indented, property_key, type_expression
from corral.types import ToolName

__all__ = ["declare_typescript", "print_typescript", "typescript_call"]


def declare_typescript(tools: Mapping[ToolName, ToolShape], *, unknown: Literal["unknown", "any"] = "unknown") -> str:
    """Declares `tools`, its alias `codemode`, and a type for each definition that the schemas refer to.

    The text is the same whatever the order of the tools. It never throws: what a type cannot express is widened, up
    to `unknown`, and whatever the texts and names in the schemas contain stays a text or a name.
    """
    return (
        print_typescript(read_signatures(tools, TYPESCRIPT), unknown=unknown)
        + "declare const codemode: typeof tools;\n"
    )


def print_typescript(
    signatures: Mapping[ToolName, Signature], *, unknown: str = "unknown", line_characters: float = LINE_CHARACTERS
) -> str:
    """Declares `tools`, and the types that it mentions. `line_characters` is how long a type on one line may be."""
    names = name_definitions(signatures.values(), TypeNames())
    show = partial(type_expression, names=names, unknown=unknown, line_characters=line_characters)
    types = [
        f"{comment(definition.doc)}type {name} = {show(definition.shape or UNKNOWN)};\n"
        for definition, name in sorted(names.items(), key=lambda item: item[1])
    ]
    methods = {
        name: f"{comment(each.doc)}{property_key(name.name)}{_parameters(each, show)};"
        for name, each in signatures.items()
    }
    return "".join((*types, f"declare const tools: {_tree(methods)};\n"))


def typescript_call(name: ToolName, signature: Signature) -> str:
    """One line that says how a tool is called that mentions no definitions and has no comments."""
    return f"tools.{name}{_parameters(signature, partial(type_expression, names={}, line_characters=inf))}"


def _parameters(signature: Signature, show: Callable[[Shape], str]) -> str:
    optional = "" if signature.needs_input else "?"
    return f"(input{optional}: {show(signature.input)}): Promise<{show(signature.output)}>"


def _tree(methods: Mapping[ToolName, str]) -> str:
    """The type of `tools`: methods without a namespace first, then an object for each namespace."""
    entries: list[str] = []
    for namespace, group in groupby(methods.items(), key=lambda item: item[0].namespace):
        members = [method for _, method in group]
        entries += members if namespace is None else [f"{property_key(namespace)}: {_block(members)};"]
    return _block(entries)


def _block(entries: list[str]) -> str:
    return "\n".join(("{", *map(indented, entries), "}")) if entries else "{}"
