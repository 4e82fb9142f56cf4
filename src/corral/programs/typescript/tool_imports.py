"""Rewrites imports of tools, which are a global: `import { tools } from "…"`, `import { x } from "tools"`.

The error classes of calls are globals too: `import { ToolError } from "corral"`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tree_sitter import Node

from corral.errors import CALL_ERRORS
from corral.programs.edits import Edits
from corral.programs.syntax.parsing import part
from corral.programs.syntax.typescript import (
    FUNCTIONS,
    child_of_type,
    declaration_of,
    statements,
    text_of,
    unwrapped,
    walk,
)

_TOOLS = ("tools", "codemode")
_DEFINITIONS = frozenset({"class_declaration", "internal_module", "object", "class"})
_TOOL_GLOBALS = re.compile(rb"\b(?:codemode|globalThis)\b")
"""Names through which the program's own `tools` may call the real ones."""
_ERRORS = frozenset(error.__name__ for error in CALL_ERRORS)
_HOME = re.compile(r"(?:@?[\w.-]*/)*(?:@?corral|@?tools|@?codemode)(?:/[\w-]+)?(?:\.[cm]?[jt]s)?")
"""Modules from which programs import single tools."""


class ToolImport(NamedTuple):
    """A tool that a program imports by name; with the path None, all tools under another name."""

    path: str | None
    node: Node


class _Binding(NamedTuple):
    imported: str | None
    """None for the whole module."""
    local: str
    node: Node


def rewrite_tool_imports(
    imports: Sequence[Node], edits: Edits, redeclared: frozenset[int]
) -> tuple[list[ToolImport], frozenset[int]]:
    """Adds the edits that turn imports of tools into reads of the global.

    Returns the imported tools, and the offsets of these imports. `redeclared` are the offsets of imports whose names
    are declared again.
    """
    tool_imports: list[ToolImport] = []
    rewritten: set[int] = set()
    for node in imports:
        source, clause = part(node, "source"), child_of_type(node, "import_clause")
        if source is None or clause is None or node.has_error:
            continue
        bindings = bindings_of(clause)
        home = _HOME.fullmatch(text_of(source)[1:-1]) is not None
        is_plain = any(map(_is_all, bindings)) and all(map(_is_global, bindings))
        if not bindings or not (home or is_plain):
            continue
        rewritten.add(node.start_byte)
        keyword = "var" if node.start_byte in redeclared else "const"
        bound = [each for each in bindings if each.local not in _TOOLS and each.local != _value(each)]
        of_tools = [each for each in bound if each.imported not in _ERRORS]
        tool_imports += [ToolImport(None if _is_all(each) else each.imported, each.node) for each in of_tools]
        code = "".join(f"{keyword} {each.local} = {_value(each)}; " for each in bound)
        edits.blank(node.start_byte, node.end_byte, first=b";")
        edits.wrap(node.start_byte, node.start_byte, code.encode(), b"")
    return tool_imports, frozenset(rewritten)


def own_tools(root: Node) -> Node | None:
    """Returns the program's own declaration of `tools` that replaces the real one."""
    for statement in statements(root):
        declaration = declaration_of(statement)
        if declaration.type in ("class_declaration", "internal_module"):
            declared = [(part(declaration, "name"), declaration)]
        else:
            each = [one for one in declaration.named_children if one.type == "variable_declarator"]
            declared = [(part(one, "name"), part(one, "value")) for one in each]
        for name, value in declared:
            if value is None or text_of(name) not in _TOOLS or unwrapped(value).type not in _DEFINITIONS:
                continue
            if any(each.type in FUNCTIONS for each in walk(value)) and not _TOOL_GLOBALS.search(root.text or b""):
                return statement
    return None


def bindings_of(clause: Node) -> list[_Binding]:
    """Returns what an import binds, without types."""
    bindings: list[_Binding] = []
    for each in clause.named_children:
        if each.type == "identifier":
            bindings.append(_Binding(None, text_of(each), each))
        elif each.type == "namespace_import":
            bindings.append(_Binding(None, text_of(each.named_children[-1]), each))
        elif each.type == "named_imports":
            for specifier in each.named_children:
                name, alias = part(specifier, "name"), part(specifier, "alias")
                if name is not None and specifier.children[0].type not in ("type", "typeof"):
                    imported = None if text_of(name) == "default" else text_of(name)
                    bindings.append(_Binding(imported, text_of(alias or name), name))
    return bindings


def _is_all(binding: _Binding) -> bool:
    """True if a binding is the tools, whatever the module."""
    return binding.imported in _TOOLS or (binding.imported is None and binding.local in _TOOLS)


def _is_global(binding: _Binding) -> bool:
    return _is_all(binding) or binding.imported in _ERRORS


def _value(binding: _Binding) -> str:
    if binding.imported is None or binding.imported in _TOOLS:
        return "tools"
    if binding.imported in _ERRORS:
        return binding.imported
    return f"tools.{binding.imported}" if binding.imported.isidentifier() else f"tools[{binding.imported}]"
