"""Turns imports into calls to the loader, and exports into the program's entry: engines run a function, not a module.

No other `import` may reach the engine, since it would bypass the loader's allowlist.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from tree_sitter import Node

from corral.errors import ProgramRejected
from corral.programs.edits import Edits, Places
from corral.programs.syntax.parsing import arguments_of, is_a, part
from corral.programs.syntax.typescript import (
    ENTRY_NAMES,
    FUNCTION_VALUES,
    child_of_type,
    finder,
    imported_names,
    statements,
    text_of,
    unwrapped,
    walk,
)
from corral.programs.typescript.names import Names
from corral.programs.typescript.strip import Findings

_IMPORT_WORD = re.compile(rb"(?<![\w$])import(?![\w$])")
_CALL_BEHIND = re.compile(
    rb"(?:\s|[\x80-\xff]|(?://|<!--|-->)(?:(?!\xe2\x80[\xa8\xa9])[^\r\n])*|/\*.*?\*/)*+(?:[(.]|/\*|\Z)", re.DOTALL
)
_IDENTIFIERS = finder("[(identifier) (shorthand_property_identifier)] @name")
_HARMLESS = frozenset({"comment", "string_fragment", "regex_pattern", "property_identifier"})
_MAX_TRIVIA = 1000
"""Maximum number of bytes read after an `import`; anything longer counts as a call."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The export to run."""

    value: str
    """JavaScript expression for the export, evaluated after all statements have run."""
    name: str | None = None
    """Variable that holds the export, if the program named one."""
    function: Node | None = None
    """The function, if the export contains it."""
    callable: bool = True
    """True if a function is called; a class is not."""


def rewrite_modules(
    root: Node,
    findings: Findings,
    edits: Edits,
    names: Names,
    redeclared: frozenset[int],
    types: Sequence[tuple[int, int]],
    *,
    keeps_all: bool = False,
) -> tuple[tuple[str, ...], Entry | None]:
    """Rewrites every import and export. Returns the imported modules, in order, and the entry.

    `redeclared` are the offsets of imports whose names are declared again, `types` the erased ranges. `keeps_all`:
    later cells can use an import that this one does not use.
    """
    imports: list[tuple[int, str | None]] = []
    entry = None
    spans = [(node.start_byte, node.end_byte) for node in findings.imports]
    used = _used_names(root, [*types, *spans]) if spans else frozenset[str]()
    top_level = {node.start_byte for node in root.children}
    for node in findings.imports:
        if node.start_byte in top_level and not node.has_error:
            keyword = "var" if node.start_byte in redeclared else "const"
            imports.append((node.start_byte, _rewrite_import(node, edits, names, keyword, None if keeps_all else used)))
    for node in findings.exports:
        if node.start_byte in top_level and not node.has_error:
            exported, specifier = _rewrite_export(node, edits, names)
            entry = exported or entry
            imports.append((node.start_byte, specifier))
    imports += [(node.start_byte, _rewrite_import_call(node, edits, names)) for node in findings.import_calls]
    for node in findings.import_metas:
        edits.replace(node.start_byte, node.end_byte, names.load.encode())
    specifiers = dict.fromkeys(specifier for _, specifier in sorted(imports, key=itemgetter(0)) if specifier)
    return tuple(specifiers), entry


def _used_names(root: Node, apart: Sequence[tuple[int, int]]) -> frozenset[str]:
    """Returns the names that a program uses outside the ranges `apart`: its types and imports."""
    gone = sorted(apart)
    starts = [start for start, _ in gone]
    used: set[str] = set()
    for node in _IDENTIFIERS(root).get("name", ()):
        before = bisect_right(starts, node.start_byte) - 1
        if before < 0 or node.start_byte >= gone[before][1]:
            used.add(text_of(node))
    return frozenset(used)


def _rewrite_import(node: Node, edits: Edits, names: Names, keyword: str, used: frozenset[str] | None) -> str | None:
    """Turns an import into a `const` or `var` declaration with a call to the loader. Returns its specifier.

    An unused import declares nothing, and can fail without effect. `used` is None if all are.
    """
    clause = child_of_type(node, "import_clause", "import_require_clause")
    if clause is not None and _imports_only_types(clause):
        edits.blank(node.start_byte, node.end_byte, first=b";")
        return None
    source = part(node, "source")
    if source is not None and clause is not None and used is not None and used.isdisjoint(imported_names(clause)):
        edits.blank(node.start_byte, source.start_byte, first=b";")
        _load(node, source, edits, names, unused=True)
        return text_of(source)[1:-1]
    _replace(edits, node.children[0], keyword if clause else "")
    if word := child_of_type(node, "from"):
        _replace(edits, word, "=")
    if source is None and clause is not None:
        source = part(clause, "source")
    if source is None:
        return None
    if b"\n" in (source.text or b""):
        raise _misplaced(edits.text, node.start_byte)
    if clause is not None and clause.type == "import_require_clause":
        _replace(edits, child_of_type(clause, "require"), f"await {names.load}")
    else:
        if clause is not None:
            _rewrite_clause(clause, edits, f"await {names.load}({text_of(source)})")
        _load(node, source, edits, names)
    return text_of(source)[1:-1]


def _rewrite_clause(clause: Node, edits: Edits, loaded: str) -> None:
    default = child_of_type(clause, "identifier")
    named = child_of_type(clause, "named_imports")
    namespace = child_of_type(clause, "namespace_import")
    if default is not None:
        after = "" if named else f"}} = {loaded}" if namespace else "}"
        edits.wrap(default.start_byte, default.end_byte, b"{default: ", after.encode())
        if named is not None:
            _replace(edits, named.children[0], "")
    if namespace is not None:
        _replace(edits, child_of_type(namespace, "*"), "")
        _replace(edits, child_of_type(namespace, "as"), "")
    for specifier in named.named_children if named is not None else ():
        if specifier.type == "import_specifier":
            _replace(edits, child_of_type(specifier, "as"), ":")


def _imports_only_types(clause: Node) -> bool:
    named = child_of_type(clause, "named_imports")
    specifiers = [each for each in named.named_children if each.type == "import_specifier"] if named else []
    return (
        bool(specifiers)
        and child_of_type(clause, "identifier") is None
        and all(each.child_count > 1 and each.children[0].type in ("type", "typeof") for each in specifiers)
    )


def _rewrite_import_call(node: Node, edits: Edits, names: Names) -> str | None:
    """Replaces the word in `import(…)` with the loader. Returns the specifier if it is a literal."""
    edits.replace(node.start_byte, node.end_byte, names.load.encode())
    return next((text_of(each)[1:-1] for each in arguments_of(node.parent)[:1] if each.type == "string"), None)


def _rewrite_export(node: Node, edits: Edits, names: Names) -> tuple[Entry | None, str | None]:
    """Turns an export into its declaration. Returns the entry, if it exports one, and the specifier it loads."""
    word = child_of_type(node, "export")
    if word is None:
        return None, None
    if (source := part(node, "source")) is not None:
        edits.blank(node.start_byte, source.start_byte, first=b";")
        _load(node, source, edits, names)
        return None, text_of(source)[1:-1]
    if (clause := child_of_type(node, "export_clause")) is not None:
        edits.blank(node.start_byte, node.end_byte, first=b";")
        return _named_default(clause), None
    default = child_of_type(node, "default")
    declared = part(node, "declaration")
    if declared is not None:
        _replace(edits, word, "")
        if default is None:
            return None, None
        _replace(edits, default, "")
        name = text_of(part(declared, "name") or declared)
        return Entry(name, name, callable="class" not in declared.type), None
    value = part(node, "value") or node.named_children[-1]
    if default is not None:
        _replace(edits, default, "=")
    _replace(edits, word, f"var {names.default}")
    edits.wrap(value.start_byte, value.end_byte, b"", b";")
    function = unwrapped(value)
    if function.type == "object" and (method := _method(function)) is not None:
        return Entry(f"{names.default}.{method[0]}.bind({names.default})", function=method[1]), None
    return (
        Entry(
            names.default,
            text_of(function) if function.type == "identifier" else None,
            function if function.type in FUNCTION_VALUES else None,
            callable=function.type != "class",
        ),
        None,
    )


def _method(value: Node) -> tuple[str, Node] | None:
    """Returns the entry method of an exported object, with its name."""
    for name in ENTRY_NAMES:
        for member in value.named_children:
            if member.type == "method_definition" and text_of(part(member, "name")) == name:
                return name, member
            key, held = part(member, "key"), part(member, "value")
            if held is not None and unwrapped(held).type in FUNCTION_VALUES and text_of(key) == name:
                return name, unwrapped(held)
    return None


def _named_default(clause: Node) -> Entry | None:
    for specifier in clause.named_children:
        alias, name = part(specifier, "alias"), part(specifier, "name")
        if alias is not None and name is not None and text_of(alias).strip("\"'") == "default":
            return Entry(text_of(name), text_of(name))
    return None


def _load(statement: Node, source: Node, edits: Edits, names: Names, *, unused: bool = False) -> None:
    end = b", true);" if unused else b");"
    edits.wrap(source.start_byte, source.end_byte, f"await {names.load}(".encode(), end)
    if attributes := child_of_type(statement, "import_attribute"):
        edits.blank(attributes.start_byte, attributes.end_byte)


def _replace(edits: Edits, node: Node | None, word: str) -> None:
    """Replaces a word; columns after it are kept unless the new word is longer."""
    if node is not None:
        edits.replace(node.start_byte, node.end_byte, word.ljust(node.end_byte - node.start_byte).encode())


def guard_words(root: Node, edits: Edits) -> None:
    """Makes sure that no `import` reaches the engine.

    Text that looks like a call to it is blanked in comments and escaped in strings, so that it is harmless even if the
    engine parses the source differently.
    """
    text, replaced = edits.text, edits.replaced()
    for match in _IMPORT_WORD.finditer(text):
        start, end = match.span()
        before = bisect_right(replaced, start, key=itemgetter(0)) - 1
        if before >= 0 and start < replaced[before][1]:
            continue
        node = root.descendant_for_byte_range(start, end)
        kind = node.type if node is not None else ""
        if kind not in _HARMLESS:
            raise _misplaced(text, start)
        if node is None or not _CALL_BEHIND.match(text, end, end + _MAX_TRIVIA):
            continue
        if kind == "comment":
            edits.blank(start, end)
        elif kind in ("string_fragment", "regex_pattern"):
            if _is_tagged(node):
                message = "The tagged template at {place} contains `import(`. Use a string without a tag."
                raise Places(text).rejected(message, start)
            edits.replace(start, end, rb"\u0069mport")


def _is_tagged(fragment: Node) -> bool:
    template = fragment.parent
    return is_a(template, "template_string") and is_a(template.parent, "call_expression")


def _misplaced(text: bytes, offset: int) -> ProgramRejected:
    message = (
        "The `import` at {place} is not allowed there. Write `import … from …` at the top level, or `await import(…)`."
    )
    return Places(text).rejected(message, offset)


# --- CommonJS

COMMONJS_PREFIX = "const module = { exports: {} }, exports = module.exports; "
"""Declares the variables of CommonJS."""

_EXPORTS = re.compile(r"(?:module\.)?exports(?:\.([\w$]+))?")
_IS_MAIN = re.compile(
    rb"(?<![\w$.])(?:require\.main[ \t]*={2,3}[ \t]*module|module[ \t]*={2,3}[ \t]*require\.main)(?![\w$.])"
)


@dataclass(frozen=True, slots=True)
class _Assignment:
    target: str
    key: str | None
    """The property of `exports`; None for `exports` itself."""
    value: Node


def rewrite_commonjs(root: Node, edits: Edits) -> Entry | None:
    """Returns the export to run; None if the program does not assign to `exports`.

    Tests for the main module become `true`.
    """
    if b"module" not in edits.text and b"exports" not in edits.text:
        return None
    for match in _IS_MAIN.finditer(edits.text):
        node = root.descendant_for_byte_range(*match.span())
        if node is not None and node.type == "binary_expression":
            edits.replace(*match.span(), b"true".ljust(match.end() - match.start()))
    assignments = [each for node in walk(root, into_functions=False) if (each := _assignment(node))]
    if not assignments or _declares(root, assignments[0].target.partition(".")[0]):
        return None
    return _entry(assignments)


def assigns_exports(statement: Node) -> bool:
    """True if a statement is an assignment to `exports`."""
    return statement.type == "expression_statement" and _assignment(statement.named_children[0]) is not None


def _assignment(node: Node) -> _Assignment | None:
    if node.type != "assignment_expression":
        return None
    left, right = part(node, "left"), part(node, "right")
    if left is None or right is None or left.type != "member_expression":
        return None
    target = _EXPORTS.fullmatch("".join(text_of(left).split()))
    return _Assignment(target[0], target[1], right) if target else None


def _entry(assignments: list[_Assignment]) -> Entry:
    whole = next((each for each in reversed(assignments) if each.key is None), None)
    if whole is None:
        exports = {each.key: (each.target, each.value) for each in assignments if each.key is not None}
    else:
        value = unwrapped(whole.value)
        if value.type != "object":
            return _entry_at(whole.target, value)
        exports = {key: (f"{whole.target}.{key}", held) for key, held in _properties(value)}
    usual = next((name for name in ("default", *ENTRY_NAMES) if name in exports), None)
    key = next(iter(exports)) if usual is None and len(exports) == 1 else usual
    return _entry_at(*exports[key]) if key is not None else Entry("module.exports")


def _entry_at(target: str, value: Node) -> Entry:
    value = unwrapped(value)
    name = text_of(value) if value.type in ("identifier", "shorthand_property_identifier") else None
    return Entry(target, name, value if value.type in FUNCTION_VALUES else None, callable=value.type != "class")


def _properties(literal: Node) -> list[tuple[str, Node]]:
    properties: list[tuple[str, Node]] = []
    for each in literal.named_children:
        if each.type == "shorthand_property_identifier":
            properties.append((text_of(each), each))
        elif each.type in ("pair", "method_definition"):
            key = part(each, "key") or part(each, "name")
            value = part(each, "value") or each
            if key is not None and key.type == "property_identifier":
                properties.append((text_of(key), value))
    return properties


def _declares(root: Node, name: str) -> bool:
    candidates = (each for statement in statements(root) for each in (statement, *statement.named_children))
    return any(text_of(part(each, "name")) == name for each in candidates)
