"""The arrow of the pipeline can be read off the imports: they point one way, and none hides in a function."""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain, takewhile
from pathlib import Path
from typing import get_args

import pytest

from corral.languages import LANGUAGES
from corral.types import Language

SOURCE = Path(__file__).parents[1] / "src" / "corral"
MODULES = sorted(SOURCE.rglob("*.py"))
ROOMS = Path(__file__).parents[1] / "docs" / "design" / "rooms.md"
INDIRECT = re.compile(r"\s*(?:What|Whether|Which|Who|Whose|Where|When|Why|How|For how|For what|Those)\b")
"""Openings of a clause, where a docstring names its subject or says what the code does."""
MOST_LINES = 1_000
of_check = pytest.mark.matrix("`scripts/check` runs it each time; here once more with all tests")

# The parts from the lowest to the highest, and what each may import besides itself. Every part may import `logs`;
# "__init__" is the public API.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "containment": set(),
    "logs": set(),
    "npm": set(),
    "concurrency": {"errors"},
    "rendering": {"errors"},
    "arguments": {"errors", "rendering"},
    "texts": {"concurrency"},
    "plugins": {"arguments", "errors"},
    "types": {"arguments", "errors", "containment", "npm", "rendering", "texts"},
    "audit": {"arguments", "concurrency", "errors", "rendering", "types"},
    "jail": {"concurrency", "errors", "containment", "types"},
    "languages": {"types"},
    "programs": {"concurrency", "errors", "texts", "types"},
    "results": {"concurrency", "errors", "containment", "rendering", "types"},
    "egress": {"arguments", "audit", "concurrency", "errors", "rendering", "types"},
    "events": {"concurrency", "errors", "rendering", "results", "types"},
    "guest": {"concurrency", "errors", "jail", "programs", "types"},
    "tools": {"arguments", "concurrency", "errors", "guest", "jail", "rendering", "types"},
    "policy": {"arguments", "concurrency", "errors", "rendering", "tools", "types"},
    "model": {
        "arguments",
        "concurrency",
        "errors",
        "events",
        "jail",
        "languages",
        "rendering",
        "results",
        "tools",
        "types",
    },
    "sessions": {"arguments", "concurrency", "errors", "containment", "jail", "results", "tools", "types"},
    "ledger": {"arguments", "audit", "concurrency", "errors", "guest", "types"},
    "sources": {"arguments", "concurrency", "egress", "errors", "rendering", "tools", "types"},
    "calls": {
        "arguments",
        "audit",
        "concurrency",
        "errors",
        "events",
        "guest",
        "languages",
        "model",
        "policy",
        "rendering",
        "results",
        "tools",
        "types",
    },
    "checking": {
        "concurrency",
        "errors",
        "guest",
        "containment",
        "jail",
        "model",
        "programs",
        "rendering",
        "texts",
        "tools",
        "types",
    },
    "sandboxes": {
        "arguments",
        "concurrency",
        "errors",
        "guest",
        "containment",
        "jail",
        "languages",
        "npm",
        "plugins",
        "rendering",
        "sessions",
        "types",
    },
    "bridges": {"arguments", "calls", "concurrency", "errors", "guest", "plugins", "tools", "types"},
    "packages": {"arguments", "concurrency", "errors", "containment", "jail", "npm", "sandboxes", "sessions", "types"},
    "running": {
        "arguments",
        "audit",
        "bridges",
        "calls",
        "checking",
        "concurrency",
        "errors",
        "events",
        "guest",
        "containment",
        "jail",
        "languages",
        "ledger",
        "model",
        "npm",
        "packages",
        "plugins",
        "policy",
        "programs",
        "rendering",
        "results",
        "sandboxes",
        "sessions",
        "texts",
        "tools",
        "types",
    },
    "__init__": {
        "audit",
        "calls",
        "checking",
        "concurrency",
        "errors",
        "events",
        "model",
        "packages",
        "results",
        "running",
        "sessions",
        "sources",
        "tools",
        "types",
    },
    "compilers": {"__init__", "errors", "packages", "programs"},
    "doctor": {
        "__init__",
        "checking",
        "concurrency",
        "containment",
        "errors",
        "jail",
        "plugins",
        "programs",
        "results",
        "sandboxes",
        "sessions",
        "tools",
        "types",
    },
    "integrations": {
        "__init__",
        "arguments",
        "bridges",
        "concurrency",
        "egress",
        "errors",
        "events",
        "model",
        "rendering",
        "results",
        "sessions",
        "sources",
        "tools",
        "types",
    },
    "cli": {
        "__init__",
        "audit",
        "calls",
        "checking",
        "concurrency",
        "containment",
        "doctor",
        "errors",
        "events",
        "languages",
        "ledger",
        "packages",
        "plugins",
        "policy",
        "programs",
        "rendering",
        "results",
        "running",
        "sandboxes",
        "sessions",
        "tools",
        "types",
    },
}
PRODUCTS: dict[str, set[str]] = {
    "protocols": {
        "arguments",
        "bridges",
        "calls",
        "concurrency",
        "egress",
        "errors",
        "guest",
        "model",
        "rendering",
        "sources",
        "tools",
        "types",
    },
    "chat": {
        "__init__",
        "arguments",
        "bridges",
        "calls",
        "cli",
        "concurrency",
        "errors",
        "events",
        "integrations",
        "rendering",
        "results",
        "tools",
        "types",
    },
    "cluster": {
        "__init__",
        "arguments",
        "cli",
        "concurrency",
        "containment",
        "errors",
        "guest",
        "jail",
        "sandboxes",
        "types",
    },
    "shells": {
        "__init__",
        "arguments",
        "audit",
        "cli",
        "concurrency",
        "egress",
        "errors",
        "guest",
        "containment",
        "jail",
        "plugins",
        "sandboxes",
        "sessions",
        "tools",
        "types",
    },
    "testing": {
        "__init__",
        "audit",
        "bridges",
        "calls",
        "errors",
        "guest",
        "containment",
        "ledger",
        "model",
        "policy",
        "sandboxes",
        "shells",
        "tools",
        "types",
    },
}
"""Parts that the core reaches only by entry points; in the same form."""
PARTS = ALLOWED | PRODUCTS

DECODERS: dict[str, set[str]] = {
    "bashkit": {"shells/memory_worker.py"},
    "bz2": set(),
    "email": set(),
    "gzip": {"chat/entrance.py"},
    "html": {"chat/entrance.py", "programs/reading.py", "rendering/html.py", "rendering/timeline.py"},
    "lzma": set(),
    "marshal": {
        "jail/launcher.py",
        "jail/launcher_client.py",
        "guest/python/boot.py",
        "guest/runtime.py",
    },
    "pickle": {"tools/tool.py", "jail/workers/wire.py"},
    "plistlib": set(),
    "shelve": set(),
    "shutil.unpack_archive": set(),
    "tarfile": {"sessions/files.py"},
    "xml": set(),
    "yaml": {"sources/openapi/documents.py"},
    "zipfile": set(),
    "zlib": {"protocols/connect.py", "egress/client.py", "guest/wasm/server.py"},
}
"""Modules that may import what unpacks, parses or runs bytes, most of which come from others.

A new one bounds sizes before it decodes, and does in a worker what these bounds do not make cheap.
"""
MADE_PATTERNS = {
    "rendering/masking.py": 1,
    "programs/python/functions.py": 2,
    "programs/typography.py": 1,
    "sources/openapi/documents.py": 1,
    "texts.py": 1,
}
"""Modules that make patterns of what is no literal, and how many: of words, of escaped secrets, and of patterns that are
literals elsewhere. None is a pattern of somebody else.
"""
_OF_PATTERNS = {"compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"}


@pytest.fixture(autouse=True, scope="module")
def trees_uncollected() -> Iterator[None]:
    """Keeps garbage collection from looking at half a million nodes again and again, here and in later tests."""
    gc.disable()
    yield
    nodes.cache_clear()
    gc.enable()


@cache
def nodes(module: Path) -> list[ast.AST]:
    """All nodes of a module."""
    return [*ast.walk(ast.parse(module.read_text(encoding="utf-8")))]


def part_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(module: Path) -> Iterator[str]:
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and node.module == "corral":
            yield from ("__init__" for _ in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("corral."):
            yield (node.module or "").split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("corral."))


def modules_imported(module: Path) -> Iterator[tuple[str, ...]]:
    """The modules of ours that one imports, as the parts of their paths; a package stands for its `__init__`."""
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "corral":
            path = tuple((node.module or "").split("."))[1:]
            for alias in node.names:
                inner = SOURCE.joinpath(*path, alias.name)
                if inner.is_dir() or inner.with_suffix(".py").exists():
                    yield (*path, alias.name)
                elif path and SOURCE.joinpath(*path).with_suffix(".py").exists():
                    yield path
                else:
                    yield (*path, "__init__")


def siblings() -> dict[tuple[str, ...], dict[str, set[str]]]:
    """For each folder, which of its modules and folders import which others of them."""
    found: dict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module in MODULES:
        own = module.relative_to(SOURCE).with_suffix("").parts
        for other in modules_imported(module):
            pairs = zip(own[:-1], other[:-1], strict=False)
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            if own[common] != other[common]:
                found[own[:common]][own[common]].add(other[common])
    return found


def cycle_in(graph: Mapping[str, set[str]]) -> set[str]:
    """The nodes that are on a cycle, or lead to one; empty if there is none."""
    rest = {*graph, *chain.from_iterable(graph.values())}
    while ready := {node for node in rest if not graph.get(node, set()) & rest}:
        rest -= ready
    return rest


@of_check
def test_imports_point_downwards_only() -> None:
    wrong = {
        f"{module.relative_to(SOURCE)} imports {other}"
        for module in MODULES
        for other in set(imported_parts(module)) - PARTS[part_of(module)] - {part_of(module), "logs"}
    }
    assert not wrong


def test_the_core_reaches_products_only_by_entry_points() -> None:
    assert not {part: products for part, others in ALLOWED.items() if (products := others & PRODUCTS.keys())}


def test_the_map_of_rooms_has_each_of_them_in_its_place() -> None:
    core, products = ROOMS.read_text(encoding="utf-8").split("## Products")[:2]
    for text, parts in ((core, ALLOWED), (products.partition("\n## ")[0], PRODUCTS)):
        rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
        assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == parts.keys() - {"__init__", "__main__"}


def test_the_allowed_imports_have_no_cycle() -> None:
    assert not cycle_in(PARTS)


@of_check
def test_inside_a_package_imports_point_one_way_too() -> None:
    assert not {"/".join(folder): cycle for folder, graph in siblings().items() if (cycle := cycle_in(graph))}


@of_check
def test_no_import_of_our_own_hides_in_a_function() -> None:
    hidden = {
        f"{module.relative_to(SOURCE)}: {function.name}: {ast.unparse(node)}"
        for module in MODULES
        for function in nodes(module)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and "corral" in ast.unparse(node)
    }
    assert not hidden


def test_no_module_has_grown_past_one_idea() -> None:
    lengths = {
        str(path.relative_to(SOURCE)): len(path.read_text(encoding="utf-8").splitlines())
        for path in [*MODULES, *SOURCE.rglob("*.ts"), *SOURCE.rglob("*.js")]
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


@of_check
def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    docstrings = [
        (module, node.value)
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    assert not [
        f"{module.relative_to(SOURCE)}:{text.lineno}: {text.value}"
        for module, text in docstrings
        if INDIRECT.match(str(text.value))
    ]


def tables() -> Iterator[tuple[str, set[str]]]:
    """The tables by language: annotated `Mapping[Language, ...]` and written as a dict."""
    for module in MODULES:
        for node in nodes(module):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.value, ast.Dict)
                and ast.unparse(node.annotation).startswith(("Mapping[Language,", "dict[Language,"))
                and node.value.keys
            ):
                keys = {each.value for each in node.value.keys if isinstance(each, ast.Constant)}
                yield f"{module.relative_to(SOURCE)}: {ast.unparse(node.target)}", {str(each) for each in keys}


@of_check
def test_every_table_knows_every_language() -> None:
    found = dict(tables())
    assert len(found) >= 6
    assert {name: keys for name, keys in found.items() if keys != {*get_args(Language)}} == {}
    assert {*LANGUAGES} == {*get_args(Language)}


@of_check
def test_nothing_branches_on_the_name_of_a_language() -> None:
    """A third language fills tables in; it must not have to find conditions."""
    branches = [
        f"{module.relative_to(SOURCE)}:{node.lineno}"
        for module in MODULES
        if not {"guest", "cli"} & {*Path(module.relative_to(SOURCE)).parts}
        for node in nodes(module)
        if isinstance(node, ast.Compare)
        and any(isinstance(each, ast.Constant) and each.value in get_args(Language) for each in node.comparators)
    ]
    assert branches == []


def imported_names(module: Path) -> Iterator[str]:
    """The names of all modules, and of what is taken from them, that a module imports; strings for `import_module` too."""
    for node in nodes(module):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str() as name, level=0):
                yield from (f"{name}.{alias.name}" for alias in node.names)
            case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str() as name)]):
                yield name
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str() as name)]):
                yield name
            case ast.Attribute(value=ast.Name(id="shutil"), attr=attribute):
                yield f"shutil.{attribute}"
            case _:
                pass


@of_check
def test_only_these_modules_decode_what_may_be_hostile() -> None:
    found: dict[str, set[str]] = {name: set() for name in DECODERS}
    for module in MODULES:
        own = {each for name in imported_names(module) for each in (name, name.split(".")[0])}
        for name in own & found.keys():
            found[name].add(str(module.relative_to(SOURCE)))
    assert found == DECODERS


def constants(module: Path) -> set[str]:
    """Names of a module that stand for literals, or for what is made of literals."""
    known: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if is_literal(value, known):
                known.add(name)
            case _:
                pass
    return known


def is_literal(value: ast.AST, known: set[str]) -> bool:
    """True for a literal, for names that stand for some, for escaped texts, and for what is made of those."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="escape")):
            return True
        case ast.Name(id=name):
            return name in known or name.isupper() or name in ("map", "sorted")
        case _:
            return all(is_literal(each, known) for each in ast.iter_child_nodes(value))


@of_check
def test_patterns_are_literals() -> None:
    """A pattern of somebody else takes as long as it likes to compile and to match: only workers do either."""
    found: Counter[str] = Counter()
    for module in MODULES:
        known = constants(module)
        for node in nodes(module):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="re" | "regex"), attr=name), args=[pattern, *_]) if (
                    name in _OF_PATTERNS and not is_literal(pattern, known)
                ):
                    found[f"{module.relative_to(SOURCE)}"] += 1
                case _:
                    pass
    assert found == Counter(MADE_PATTERNS)
