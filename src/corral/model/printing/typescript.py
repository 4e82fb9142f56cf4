"""Tools as TypeScript declarations: what a model reads, and what its program is checked against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby

from corral.model.printing.abbreviations import abbreviate
from corral.model.printing.named_types import share
from corral.model.printing.signatures import Signature, ToolShape, TypeNames, name_definitions, read_signatures
from corral.model.printing.typescript_types import commented, indented, property_key, told, type_expression
from corral.model.shapes.descriptions import told_of_tool
from corral.model.shapes.shape import UNKNOWN, Object, Shape
from corral.model.shapes.traits import members_of
from corral.model.shapes.type_systems import TYPESCRIPT
from corral.tools.names import RESERVED_ROOT_NAMES
from corral.types import ToolName

_WITH_OPTIONS = {ToolName(None, name) for name in RESERVED_ROOT_NAMES}
"""Corral's own tools, which take their first member by itself and the others after it; no other has these names."""
_ALIAS = "declare const codemode: typeof tools;\n"


def declare_typescript(tools: Mapping[ToolName, ToolShape], *, checked: bool = False) -> str:
    """Declares `tools`, its alias `codemode`, and a type for each definition that the schemas refer to.

    The text is the same whatever the order of the tools. It never throws: what a type cannot express is widened, up
    to `unknown`, and whatever the texts and names in the schemas contain stays a text or a name.

    Args:
        tools: by the names that programs call them by.
        checked: for a compiler and not for a reader: without texts; what nothing is known of is `any`, and a tool that
            takes nothing may be called with `{}`.
    """
    signatures = share(read_signatures(tools, TYPESCRIPT), TYPESCRIPT, texts=not checked)
    return print_typescript(signatures, checked=checked) + _ALIAS


def print_typescript(signatures: Mapping[ToolName, Signature], *, checked: bool = False) -> str:
    """Declares `tools`, and the types that it mentions."""
    names = name_definitions(signatures.values(), TypeNames())
    show = partial(type_expression, names=names, unknown="any" if checked else "unknown")
    types = [
        f"{commented(told(definition.doc))}type {name} = {show(definition.shape or UNKNOWN)};\n"
        for definition, name in sorted(names.items(), key=lambda item: item[1])
    ]
    legend = abbreviate({name: each.doc for name, each in signatures.items()})
    methods = {
        name: f"{commented(told_of_tool(legend.docs[name]))}{_method(name, each, show, checked=checked)};"
        for name, each in signatures.items()
    }
    return "".join((*types, commented(legend.lines), f"declare const tools: {_tree(methods)};\n"))


def typescript_call(name: ToolName, signature: Signature) -> str:
    """One line that says how a tool is called that mentions no definitions and has no comments."""
    return f"tools.{name}{_parameters(signature, partial(type_expression, names={}))}"


def _method(name: ToolName, signature: Signature, show: Callable[[Shape], str], *, checked: bool) -> str:
    options = members_of(signature.input) if checked and name in _WITH_OPTIONS else ()
    options = [each for each in options if isinstance(each, Object)]
    return f"{property_key(name.name)}{_parameters(signature, show, options, checked=checked)}"


def _parameters(
    signature: Signature, show: Callable[[Shape], str], options: Iterable[Object] = (), *, checked: bool = False
) -> str:
    optional = "" if signature.needs_input else "?"
    if signature.is_elided and isinstance(signature.input, Object):
        signature = signature._replace(input=replace(signature.input, additional=UNKNOWN))
    given = "" if signature.is_empty and not checked else f"input{optional}: {show(signature.input)}"
    given += "".join(f", options?: Partial<{show(each)}>" for each in options)
    output = show(signature.output)
    if signature.is_stream:
        return f"({given}): AsyncIterable<{output}>"
    return f"({given}): Promise<{'void' if output == 'null' else output}>"


def _tree(methods: Mapping[ToolName, str]) -> str:
    """The type of `tools`: methods without a namespace first, then an object for each namespace."""
    entries: list[str] = []
    for namespace, group in groupby(methods.items(), key=lambda item: item[0].namespace):
        members = [method for _, method in group]
        entries += members if namespace is None else [f"{property_key(namespace)}: {_block(members)};"]
    return _block(entries)


def _block(entries: list[str]) -> str:
    return "\n".join(("{", *map(indented, entries), "}")) if entries else "{}"
