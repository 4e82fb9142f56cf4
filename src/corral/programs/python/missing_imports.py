"""Adds forgotten imports of standard library modules, and of unambiguous names from them."""

from __future__ import annotations

import builtins
import importlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.python.imports import ERRORS, STAR, is_annotation
from corral.programs.python.names import Names, TooMuch
from corral.programs.python.positions import Places
from corral.programs.syntax.parsing import is_a, part, text_of
from corral.types import Diagnostic

_MODULES = frozenset(
    {
        *("asyncio", "base64", "bisect", "calendar", "collections", "contextlib", "copy", "csv", "dataclasses"),
        *(
            "decimal",
            "difflib",
            "enum",
            "fractions",
            "functools",
            "hashlib",
            "heapq",
            "html",
            "io",
            "itertools",
            "json",
        ),
        *("logging", "math", "operator", "os", "pathlib", "pprint", "random", "re", "secrets", "statistics", "string"),
        *("sys", "textwrap", "time", "traceback", "types", "typing", "urllib", "uuid", "zoneinfo"),
    }
)
"""Modules that are imported if the program reads members that they have."""
_SUBMODULES = {"urllib": ("parse",)}
_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("defaultdict", "Counter", "OrderedDict", "deque", "namedtuple"), "collections"),
    **dict.fromkeys(("dataclass", "field", "asdict", "astuple"), "dataclasses"),
    **dict.fromkeys(("date", "timedelta", "timezone"), "datetime"),
    "Decimal": "decimal",
    "Fraction": "fractions",
    **dict.fromkeys(("Enum", "IntEnum", "StrEnum"), "enum"),
    **dict.fromkeys(("partial", "reduce", "lru_cache", "cmp_to_key"), "functools"),
    **dict.fromkeys(
        ("groupby", "chain", "combinations", "permutations", "product", "islice", "zip_longest"), "itertools"
    ),
    **dict.fromkeys(("accumulate", "pairwise"), "itertools"),
    **dict.fromkeys(("mean", "median", "stdev"), "statistics"),
    **dict.fromkeys(("sqrt", "ceil", "floor"), "math"),
    **dict.fromkeys(("itemgetter", "attrgetter"), "operator"),
    "deepcopy": "copy",
    "dedent": "textwrap",
    "Path": "pathlib",
    "SimpleNamespace": "types",
    "ZoneInfo": "zoneinfo",
    "uuid4": "uuid",
    **dict.fromkeys(("pprint", "pformat"), "pprint"),
    **dict.fromkeys(("contextmanager", "asynccontextmanager", "suppress"), "contextlib"),
    **dict.fromkeys(("Any", "Optional", "Union", "List", "Dict", "Tuple", "Set", "Callable", "Iterable"), "typing"),
    **dict.fromkeys(
        ("Iterator", "Sequence", "Mapping", "Literal", "TypedDict", "NamedTuple", "Awaitable", "cast"), "typing"
    ),
    "gather": "asyncio",
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


class Forgotten(NamedTuple):
    """Imports added to a program: modules, names, and warnings about them."""

    modules: tuple[str, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()
    names: tuple[str, ...] = ()


def add_imports(root: Node, text: bytes, edits: Edits, places: Places) -> Forgotten:
    """Imports standard library names that a program uses but does not bind.

    Raises ProgramRejected if `datetime` is not imported and used both as the module and as the class.
    """
    words = sorted({match[0].decode() for match in _WORD.finditer(text)})
    if not words or _STAR.search(text):
        return Forgotten()
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
        return Forgotten()
    if lines:
        _insert(root, edits, list(lines))
    modules = dict.fromkeys(line.split()[1].partition(".")[0] for line in lines)
    return Forgotten(tuple(modules), tuple(remarks), tuple(line.split()[-1].partition(".")[0] for line in lines))


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


def _is_awaited(use: Node) -> bool:
    return use.parent is not None and is_a(use.parent.parent, "await")
