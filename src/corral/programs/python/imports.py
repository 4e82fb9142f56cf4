"""Finds a program's imports, and rewrites imports of tools, which are a global and not a module."""

from __future__ import annotations

import builtins
from collections.abc import Collection
from typing import NamedTuple

from tree_sitter import Node

from corral.errors import CALL_ERRORS
from corral.programs.edits import Edits
from corral.programs.python.functions import TOOLS
from corral.programs.python.names import Name, Names, TooMuch
from corral.programs.python.positions import Places
from corral.programs.syntax.parsing import enclosing, is_a, part, text_of
from corral.programs.syntax.python import finder

STAR = rb"\bfrom[ \t]+(?!(?:tools|codemode)\b)[\w.]+[ \t]+import[ \t]*\(?[ \t]*\*"
"""`import *` of a module other than the tools."""
_STARS = "A second `import *` of tools at {place}: import them by name, or write `await tools.namespace.name(...)`."
_OWN = "`tools` at {place} is a global; do not define it: call the tools as they are declared."
ERRORS = frozenset(error.__name__ for error in CALL_ERRORS)
"""Error classes of calls: globals of every program."""
_ERROR_HOMES = frozenset({*TOOLS, "corral", "corral.errors", "tools.errors", "__main__"})
"""Modules from which programs import error classes, which are globals."""
_SILENT = frozenset({"expression_statement", "pass_statement", "comment"})
_IDENTIFIERS = finder("(identifier) @name")
_MAX_WORDS = 1000

_HOMES = frozenset({*TOOLS, "corral", "__main__"})
"""Modules from which programs import the tools."""

_NESTING = "nest_asyncio"
"""A module for nested event loops, which programs do not need here."""


class ToolImport(NamedTuple):
    """A tool that a program imports: its path, its local name, and its node."""

    path: str
    name: str
    node: Node


class Imports(NamedTuple):
    """The imports of a program."""

    modules: tuple[str, ...]
    """The top-level names of the modules, in order of appearance."""
    tools: list[ToolImport]
    holders: list[str]
    """Other names for the tools as a whole; `*` if any tool may be bound."""
    replaced: list[tuple[int, int]]
    """Sorted spans of rewritten imports of tools, and of removed declarations of them."""


class _Imported(NamedTuple):
    module: str
    name: str | None
    alias: str | None
    node: Node


def rewrite_imports(
    statements: list[Node], edits: Edits, root: Node, names: Names, added: Collection[str], places: Places
) -> Imports:
    """Adds the edits that turn imports of tools into assignments. Returns all imports.

    `added` are the names bound by added imports. Raises ProgramRejected if `*` imports several namespaces: only the
    declarations could tell which namespace has a name.
    """
    stars = dict[str, Node]()
    modules: dict[str, None] = {}
    tools: list[ToolImport] = []
    holders: list[str] = []
    replaced: list[tuple[int, int]] = []
    for statement in statements:
        imported = _imported(statement)
        own = [each for each in imported if _is_of_tools(each)]
        modules.update((top, None) for each in imported if each not in own and (top := each.module.partition(".")[0]))
        if not own or (statement.type == "import_from_statement" and len(own) < len(imported)):
            continue
        kept = [_text(each) for each in imported if each not in own]
        for each in own:
            if each.name == "*":
                stars.setdefault(each.module, each.node)
                if len(stars) > 1:
                    raise places.rejected(_STARS, each.node.start_byte)
                starred = _star_names(root, names, added)
                holders += ["*"] if starred is None else []
                for word in starred or ():
                    path = ".".join([*each.module.split(".")[1:], word])
                    tools.append(ToolImport(path, word, each.node))
                    kept.append(f"{word} = tools.{path}")
                continue
            assigned = _assignment(each)
            kept += [assigned] if assigned is not None else []
            name, _, path = (assigned or "").partition(" = tools")
            if path:
                tools.append(ToolImport(path[1:], name, each.node))
            elif name and each.name not in ERRORS:
                holders.append(name)
        replace_line(edits, statement.start_byte, statement.end_byte, "; ".join(kept) or "pass")
        replaced.append((statement.start_byte, statement.end_byte))
    for each in root.named_children:
        if each.type == "class_definition" and text_of(part(each, "name")) in TOOLS:
            if not _is_stub(each):
                raise places.rejected(_OWN, each.start_byte)
            replace_line(edits, each.start_byte, each.end_byte, "pass")
            replaced.append((each.start_byte, each.end_byte))
    return Imports(tuple(modules), tools, holders, sorted(replaced))


def _is_stub(node: Node) -> bool:
    """True for a copied declaration of the tools, whose body does nothing."""
    body = part(node, "body")
    match node.type:
        case "class_definition":
            members = [] if body is None else [each for each in body.named_children if each.type != "comment"]
            return all(map(_is_stub, members)) and any(each.type not in _SILENT for each in members)
        case "decorated_definition":
            return _is_stub(part(node, "definition") or body or node)
        case "function_definition":
            return body is not None and all(each.type in _SILENT and _is_stub(each) for each in body.named_children)
        case "expression_statement":
            return node.named_children[0].type in ("ellipsis", "string")
        case _:
            return node.type in _SILENT


def _star_names(root: Node, names: Names, added: Collection[str]) -> list[str] | None:
    """Returns the names that `from tools import *` binds: those that the program uses but does not bind.

    A builtin counts only if all of its uses are awaited calls. Returns None if the program is too large.
    """
    words = dict.fromkeys(text_of(each) for each in _IDENTIFIERS(root).get("name", ()))
    known = {*TOOLS, *ERRORS, *added}
    if len(words) > _MAX_WORDS:
        return None
    try:
        return [
            word for word in sorted(words) if word not in known and not word.startswith("_") and _is_tool(names, word)
        ]
    except TooMuch:
        return None


def _is_tool(names: Names, word: str) -> bool:
    occurrences = names.of(word)
    if any(each.binds for each in occurrences) or names.is_declared_elsewhere(word):
        return False
    uses = [each for each in occurrences if not is_annotation(each.node)]
    return bool(uses) and (not hasattr(builtins, word) or all(map(_is_awaited, uses)))


def is_annotation(node: Node) -> bool:
    return is_a(enclosing(node, ("type", "block", "module")), "type")


def _is_awaited(name: Name) -> bool:
    call = name.node.parent
    return call is not None and part(call, "function") == name.node and is_a(call.parent, "await")


def replace_line(edits: Edits, start: int, end: int, new: str) -> None:
    """Replaces a range of several lines with one line; the other lines become empty."""
    first = edits.text.find(b"\n", start, end)
    edits.replace(start, end if first < 0 else first, new.encode())
    while first >= 0:
        following = edits.text.find(b"\n", first + 1, end)
        edits.replace(first + 1, end if following < 0 else following, b"")
        first = following


def _imported(statement: Node) -> list[_Imported]:
    module = part(statement, "module_name")
    if module is not None and module.type == "relative_import":
        return []
    imported: list[_Imported] = []
    for each in statement.children_by_field_name("name"):
        alias, node = text_of(part(each, "alias")) or None, part(each, "name") or each
        source = (text_of(node), None) if module is None else (text_of(module), text_of(node))
        imported.append(_Imported(*source, alias, node))
    if module is not None and not imported:
        imported.append(_Imported(text_of(module), "*", None, module))
    return imported


def _is_of_tools(imported: _Imported) -> bool:
    top = imported.module.partition(".")[0]
    if imported == _Imported(_NESTING, None, None, imported.node):
        return True
    if imported.name in TOOLS:
        return imported.module in _HOMES
    if imported.name in ERRORS:
        return imported.module in _ERROR_HOMES
    return top in TOOLS


def _assignment(imported: _Imported) -> str | None:
    """Returns the assignment for an import of tools; None if it binds only globals."""
    if imported.name in ERRORS:
        return None if imported.alias is None else f"{imported.alias} = {imported.name}"
    below = [*imported.module.split(".")[1:], *([imported.name] if imported.name is not None else [])]
    if imported.name in TOOLS:
        below = []
    if imported.alias is None and (imported.name is None or not below):
        return None
    return f"{imported.alias or imported.name} = {'.'.join(['tools', *below])}"


def _text(imported: _Imported) -> str:
    return f"import {imported.module}" + (f" as {imported.alias}" if imported.alias else "")
