"""Finds a program's imports, rewrites imports of tools, which are a global, and adds forgotten ones."""

from __future__ import annotations

import builtins
import importlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tree_sitter import Node

from corral.errors import CALL_ERRORS
from corral.programs.edits import Edits, Places
from corral.programs.python.functions import TOOLS
from corral.programs.python.names import Names, TooMuch
from corral.programs.syntax.parsing import enclosing, is_a, part, text_of
from corral.programs.syntax.python import finder
from corral.types import Diagnostic

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
"""Module for nested event loops, which programs do not need here."""


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


class Imported(NamedTuple):
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
        imported = imported_by(statement)
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
    return bool(uses) and (not hasattr(builtins, word) or all(_is_awaited(each.node) for each in uses))


def is_annotation(node: Node) -> bool:
    return is_a(enclosing(node, ("type", "block", "module")), "type")


def _is_awaited(name: Node) -> bool:
    return name.parent is not None and part(name.parent, "function") == name and is_a(name.parent.parent, "await")


def replace_line(edits: Edits, start: int, end: int, new: str) -> None:
    """Replaces a range of several lines with one line; the other lines become empty."""
    first = edits.text.find(b"\n", start, end)
    edits.replace(start, end if first < 0 else first, new.encode())
    while first >= 0:
        following = edits.text.find(b"\n", first + 1, end)
        edits.replace(first + 1, end if following < 0 else following, b"")
        first = following


def imported_by(statement: Node) -> list[Imported]:
    """Returns the bindings of an import statement; empty for relative imports."""
    module = part(statement, "module_name")
    if module is not None and module.type == "relative_import":
        return []
    imported: list[Imported] = []
    for each in statement.children_by_field_name("name"):
        alias, node = text_of(part(each, "alias")) or None, part(each, "name") or each
        source = (text_of(node), None) if module is None else (text_of(module), text_of(node))
        imported.append(Imported(*source, alias, node))
    if module is not None and not imported:
        imported.append(Imported(text_of(module), "*", None, module))
    return imported


def _is_of_tools(imported: Imported) -> bool:
    top = imported.module.partition(".")[0]
    if imported == Imported(_NESTING, None, None, imported.node):
        return True
    if imported.name in TOOLS:
        return imported.module in _HOMES
    if imported.name in ERRORS:
        return imported.module in _ERROR_HOMES
    return top in TOOLS


def _assignment(imported: Imported) -> str | None:
    """Returns the assignment for an import of tools; None if it binds only globals."""
    if imported.name in ERRORS:
        return None if imported.alias is None else f"{imported.alias} = {imported.name}"
    below = [*imported.module.split(".")[1:], *([imported.name] if imported.name is not None else [])]
    if imported.name in TOOLS:
        below = []
    if imported.alias is None and (imported.name is None or not below):
        return None
    return f"{imported.alias or imported.name} = {'.'.join(['tools', *below])}"


def _text(imported: Imported) -> str:
    return f"import {imported.module}" + (f" as {imported.alias}" if imported.alias else "")


_MODULES = frozenset(
    """
    asyncio base64 bisect calendar collections contextlib copy csv dataclasses decimal difflib enum fractions functools
    hashlib heapq html io itertools json logging math operator os pathlib pprint random re secrets statistics string sys
    textwrap time traceback types typing urllib uuid zoneinfo
    """.split()
)
"""Modules that are imported if the program reads members that they have."""
_SUBMODULES = {"urllib": ("parse",)}
_IMPORTED_FROM = """
    asyncio gather
    collections defaultdict Counter OrderedDict deque namedtuple
    contextlib contextmanager asynccontextmanager suppress
    copy deepcopy
    dataclasses dataclass field asdict astuple
    datetime date timedelta timezone
    decimal Decimal
    enum Enum IntEnum StrEnum
    fractions Fraction
    functools partial reduce lru_cache cmp_to_key
    itertools groupby chain combinations permutations product islice zip_longest accumulate pairwise
    math sqrt ceil floor
    operator itemgetter attrgetter
    pathlib Path
    pprint pprint pformat
    statistics mean median stdev
    textwrap dedent
    types SimpleNamespace
    typing Any Optional Union List Dict Tuple Set Callable Iterable Iterator Sequence Mapping Literal TypedDict
    typing NamedTuple Awaitable cast
    uuid uuid4
    zoneinfo ZoneInfo
"""
_NAMES: Mapping[str, str] = {
    name: module for module, *names in map(str.split, _IMPORTED_FROM.strip().splitlines()) for name in names
}
"""Modules by name. Lower-case names are imported only if all of their uses are calls or decorators."""
_WORD = re.compile(rf"\b(?:{'|'.join(sorted({*_MODULES, *_NAMES, 'datetime'}))})\b".encode())
_STAR = re.compile(STAR + rb"|\bglobals\(\)|\bexec\(")
_CLASS = re.compile(rb"(?<![\w.'\"])[A-Z\x80-\xff][\w\x80-\xff]*\b(?=[ \t]*(?:[)\](,.|\[:}\n#]|\Z))")
"""Uses of names that look like classes."""
_KNOWN = frozenset({*vars(builtins), *ERRORS})
_BOTH = (
    "`datetime` at {place} is not imported, and the program uses it both as the module and as the class in it:"
    " write `from datetime import datetime, timedelta` and then `datetime.now()` and `timedelta(...)`."
)
_OTHER_CLASSES = frozenset({"timedelta", "date", "timezone", "UTC", "tzinfo", "datetime", "MINYEAR", "MAXYEAR"})
"""Members of the module `datetime`; any other member belongs to the class."""


class _Forgotten(NamedTuple):
    """Imports added to a program: modules, names, and warnings about them."""

    modules: tuple[str, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()
    names: tuple[str, ...] = ()


def add_imports(root: Node, text: bytes, edits: Edits, places: Places, bound: Collection[str] = ()) -> _Forgotten:
    """Imports standard library names that a program uses but does not bind, and are not `bound` before.

    Raises ProgramRejected if `datetime` is not imported and used both as the module and as the class.
    """
    words = sorted({match[0].decode() for match in _WORD.finditer(text)}.difference(bound))
    if not words or _STAR.search(text):
        return _Forgotten()
    names = Names(root, text)
    lines: dict[str, None] = {}
    remarks: list[Diagnostic] = []
    try:
        for word in words:
            uses = _unbound(names, word)
            line = _import_of(word, uses, places) if uses else None
            if line is not None:
                lines[line] = None
                message = f"`{line}` was added: the program uses it without importing it."
                remarks.append(places.remark("warning", "import_added", message, uses[0].start_byte))
    except TooMuch:
        return _Forgotten()
    if lines:
        _insert(root, edits, list(lines))
    modules = dict.fromkeys(line.split()[1].partition(".")[0] for line in lines)
    return _Forgotten(tuple(modules), tuple(remarks), tuple(line.split()[-1].partition(".")[0] for line in lines))


def free_classes(root: Node, text: bytes, added: Collection[str], imported: Iterable[str]) -> tuple[str, ...]:
    """Returns class-like names that a program uses outside annotations but does not bind.

    `added` are names bound by added imports. Names `imported` from the tools become `tools.Name`.
    """
    words = dict.fromkeys(match[0].decode(errors="replace") for match in _CLASS.finditer(text))
    if _STAR.search(text):
        return ()
    names = Names(root, text)
    try:
        unbound = [each for each in words if _is_of_class(each) and each not in added and _unbound(names, each)]
        return (*unbound, *(f"tools.{each}" for each in imported if _is_of_class(each)))
    except TooMuch:
        return ()


def _is_of_class(name: str) -> bool:
    """True if a name looks like a class and is not a builtin."""
    return not (name[0] == "_" or name[0].islower() or name in _KNOWN)


def _unbound(names: Names, word: str) -> list[Node]:
    """Returns uses of an unbound name outside annotations, which are not evaluated."""
    occurrences = names.of(word)
    if any(each.binds for each in occurrences) or names.is_declared_elsewhere(word):
        return []
    return [each.node for each in occurrences if not is_annotation(each.node)]


def _import_of(word: str, uses: list[Node], places: Places) -> str | None:
    """Returns the import that fits all uses of a name, if there is one."""
    members = [_member_of(use) for use in uses]
    if word == "datetime":
        return _import_of_datetime(uses, members, places)
    if word in _MODULES and all(members) and all(_has(word, member) for member in members if member):
        below = [each for each in _SUBMODULES.get(word, ()) if each in members]
        return f"import {word}.{below[0]}" if below else None if word in _SUBMODULES else f"import {word}"
    if word not in _NAMES:
        return None
    is_class = word[0].isupper()
    if not all(is_class or _is_called(use) or (word == "date" and _member_of(use)) for use in uses):
        return None
    return None if any(map(_is_awaited, uses)) and word != "gather" else f"from {_NAMES[word]} import {word}"


def _import_of_datetime(uses: list[Node], members: list[str | None], places: Places) -> str | None:
    of_module = [use for use, member in zip(uses, members, strict=True) if member in _OTHER_CLASSES]
    if len(of_module) == len(uses):
        return "import datetime"
    if of_module:
        raise places.rejected(_BOTH, of_module[0].start_byte)
    of_class = all(
        _is_called(use) or (member and _has("datetime", "datetime", member)) or _is_class(use)
        for use, member in zip(uses, members, strict=True)
    )
    return "from datetime import datetime" if of_class else None


def _insert(root: Node, edits: Edits, lines: Iterable[str]) -> None:
    """Inserts imports at the start, after `from __future__` imports."""
    futures = [each for each in root.named_children if each.type == "future_import_statement"]
    if futures:
        end = futures[-1].end_byte
        edits.wrap(end, end, b"", f"; {'; '.join(lines)}".encode())
    else:
        edits.insert(0, "".join(f"{line}\n" for line in lines).encode())


def _member_of(use: Node) -> str | None:
    """Returns the attribute that is read from a name."""
    return text_of(part(use.parent, "attribute")) if part(use.parent, "object") == use else None


def _has(module: str, *members: str) -> bool:
    """True if a standard library module has this member on the host, as it does for programs."""
    value: object = importlib.import_module(module)
    for member in members:
        if not hasattr(value, member):
            return module in _SUBMODULES and member in _SUBMODULES[module]
        value = getattr(value, member)
    return True


def _is_called(use: Node) -> bool:
    return part(use.parent, "function") == use or is_a(use.parent, "decorator")


def _is_class(use: Node) -> bool:
    """True if a name is the second argument of `isinstance`."""
    call = None if use.parent is None else use.parent.parent
    return text_of(part(call, "function")) == "isinstance"
