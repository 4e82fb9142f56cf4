"""Tools as TypeScript declarations: what a model reads, and what its program is checked against."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from corral.declarations.jsdoc import comment
from corral.declarations.languages import TYPESCRIPT
from corral.declarations.shapes import UNKNOWN, Definition
from corral.declarations.signatures import Signature, ToolShape, TypeNames, name_definitions, read_signatures
from corral.declarations.traits import traits
from corral.declarations.typescript_types import indented, property_key, type_expression
from corral.types import ToolName

__all__ = ["declare_typescript"]


def declare_typescript(tools: Mapping[ToolName, ToolShape]) -> str:
    """Declares `tools`, its alias `codemode`, and a type for each definition that the schemas refer to.

    The text is the same whatever the order of the tools. It never throws: what a type cannot express is widened, up
    to `unknown`, and whatever the texts and names in the schemas contain stays a text or a name.
    """
    signatures = read_signatures(tools, TYPESCRIPT)
    names = name_definitions(signatures.values(), TypeNames())
    types = [
        f"{comment(definition.doc)}type {name} = {type_expression(definition.shape or UNKNOWN, names)};\n"
        for definition, name in sorted(names.items(), key=lambda item: item[1])
    ]
    methods = {name: _method(name.name, each, names) for name, each in signatures.items()}
    return "".join((*types, f"declare const tools: {_tree(methods)};\n", "declare const codemode: typeof tools;\n"))


def _method(name: str, signature: Signature, names: Mapping[Definition, str]) -> str:
    optional = "?" if traits(signature.input).accepts_empty else ""
    given, returned = (type_expression(shape, names) for shape in (signature.input, signature.output))
    return f"{comment(signature.doc)}{property_key(name)}(input{optional}: {given}): Promise<{returned}>;"


def _tree(methods: Mapping[ToolName, str]) -> str:
    """The type of `tools`: methods without a namespace first, then an object for each namespace."""
    entries: list[str] = []
    for namespace, group in groupby(methods.items(), key=lambda item: item[0].namespace):
        members = [method for _, method in group]
        entries += members if namespace is None else [f"{property_key(namespace)}: {_block(members)};"]
    return _block(entries)


def _block(entries: list[str]) -> str:
    return "\n".join(("{", *map(indented, entries), "}")) if entries else "{}"
