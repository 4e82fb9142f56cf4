"""What the documentation shows was really printed; what it claims of values, limits, errors and frames holds."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

import corral.errors
from corral import Corral, ExecutionResult, Limits, Tool, define_tool
from corral.errors import CorralError
from corral.guest import FrameKind, FrameReader, decode_value
from corral.guest.python.frames import NO_NONCE
from corral.running.executions import Executions
from corral.running.for_models import ForModels
from corral.running.remote import Remote
from corral.running.sync import SyncCorral
from corral.sandboxes import CPythonSandbox, DenoSandbox
from tests.docs.examples import run_as_main, shared_engines
from tests.docs.markdown import ROOT, Block, anchors, blocks, links, pages, table

pytestmark = pytest.mark.anyio

DOCS = ROOT / "docs"
# Their examples are commands that are tried in tests/cli and tests/docs/test_tutorial.py.
OTHERS = {DOCS / "cli.md", DOCS / "tutorial.md"}

ALL = [block for page in pages() if page not in OTHERS for block in blocks(page)]
PYTHON = [block for block in ALL if block.language == "python"]
SHOWN = sorted({block.title for block in PYTHON if block.title})


def following(block: Block, *languages: str) -> Block:
    """The next block of the same page, which is in one of these languages."""
    found = next(each for each in ALL if each.page == block.page and each.line > block.line)
    assert found.language in languages, found.place
    return found


# --- names

MEMBERS: dict[str, set[str]] = {
    "Corral": {*dir(Corral)},
    "Corral.model": {*dir(ForModels)},
    "Corral.remote": {*dir(Remote)},
    "Corral.executions": {*dir(Executions)},
    "Corral.sync": {*dir(SyncCorral)},
    "ExecutionResult": {*dir(ExecutionResult), *(field.name for field in dataclasses.fields(ExecutionResult))},
}
_MEMBER = re.compile(rf"\b({'|'.join(sorted(MEMBERS, reverse=True))})\.([a-z]\w*)")


def test_members_that_pages_name_exist() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {match[0]}"
        for page in pages()
        for match in _MEMBER.finditer(page.read_text(encoding="utf-8"))
        if match[2] not in MEMBERS[match[1]]
    ]
    assert missing == []


# --- programs in Python


def test_every_python_block_is_a_file_or_a_fragment() -> None:
    files = [block for block in PYTHON if block.title]
    texts = {title: (ROOT / title).read_text(encoding="utf-8") for title in SHOWN}
    assert [block.place for block in files if block.text != texts[block.title or ""]] == []
    fragments = [block for block in PYTHON if block.title is None]
    assert [block.place for block in fragments if block.info.split() != ["python", "fragment"]] == []
    wrong: list[str] = []
    for block in fragments:
        try:
            compile(block.text, block.place, "exec", flags=0x2000)  # top-level await is allowed
        except SyntaxError as error:
            wrong.append(f"{block.place}: {error}")
    assert wrong == []


def test_every_file_of_docs_src_is_shown_somewhere() -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "docs_src").glob("*.py")}
    assert files <= set(SHOWN)
    assert "examples/quickstart.py" in SHOWN


OF_OTHERS = {
    f"docs_src/{name}.py"
    for name in """
        agent_shells anthropic_agent anthropic_pauses durable_jobs durable_workflow google_adk_agent
        google_adk_pauses langchain_agent langchain_pauses limits mcp_out notebooks one_sandbox openai_agent
        openai_agents_agent openai_agents_pauses openai_pauses processes pydantic_ai_agent pydantic_ai_own
        pydantic_ai_pauses python_packages sessions shells wasm
    """.split()
}
"""Files that import other frameworks, start processes of their own, or wait for limits: most of what all files take."""


@pytest.mark.parametrize(
    "files",
    [
        pytest.param([file for file in SHOWN if file not in OF_OTHERS], id="corral"),
        pytest.param(
            [file for file in SHOWN if file in OF_OTHERS],
            id="frameworks",
            marks=pytest.mark.matrix("tests of their rooms run the same calls in the gate; here the pages' own files"),
        ),
    ],
)
def test_files_print_what_stands_below_them(
    files: list[str],
    warm_deno: DenoSandbox,
    warm_cpython: CPythonSandbox,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ends: dict[str, tuple[str, str]] = {}
    with shared_engines(warm_deno, warm_cpython):
        for file in files:
            raised = run_as_main(ROOT / file)
            stdout, stderr = capfd.readouterr()
            ends[file] = stdout, stderr + raised
    shown = [block for block in PYTHON if block.title in files]
    assert {block.place: ends[block.title or ""] for block in shown} == {
        block.place: (following(block, "text").text, "") for block in shown
    }


EXTRAS = {
    "corral.bridges.http": "corral[http]",
    "corral.calls.rates_redis": "corral[redis]",
    "corral.bridges.peers": "corral[hosts]",
    "corral.bridges.peers_redis": "corral[redis]",
    "corral.egress": "corral[egress]",
    "corral.integrations.mcp": "corral[mcp]",
    "corral.sources.mcp": "corral[mcp]",
    "corral.sources.openapi": "corral[openapi]",
    "dbos": "pip install dbos",
    "fastapi": "pip install fastapi",
    "langchain_core": "corral[langchain]",
    "numpy": "pip install numpy",
    "taskiq": "pip install taskiq",
    "mcp": "corral[mcp]",
    **{
        f"corral.integrations.{name.replace('-', '_')}": f"corral[{name}]"
        for name in ("anthropic", "google-adk", "langchain", "openai", "openai-agents", "pydantic-ai")
    },
}
_IMPORT = re.compile(r"^ *(?:from|import) ([\w.]+)", re.MULTILINE)
OF_PAGES = {block.page for block in PYTHON if block.page.parent == DOCS} - {DOCS / "model.md"}


def test_a_page_says_what_its_examples_need_before_they_need_it() -> None:
    unsaid: list[str] = []
    for block in (each for each in PYTHON if each.page in OF_PAGES):
        text = block.page.read_text(encoding="utf-8")
        before = text[: text.index(block.text)].replace(",", "] corral[")
        modules = _IMPORT.findall(block.text)
        unsaid += [f"{block.place}: {module}" for module in modules if EXTRAS.get(module, "") not in before]
    assert unsaid == []


def test_the_table_of_extras_has_them_all() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(row[0] for row in table(ROOT / "README.md", "extra")) == sorted(project["optional-dependencies"])


# --- programs in TypeScript


def stations() -> list[Tool]:
    spec = importlib.util.spec_from_file_location("stations", ROOT / "docs_src" / "stations.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.TOOLS)


PROGRAMS = [block for block in ALL if block.page.name == "programs.md" and block.language in {"typescript", "markdown"}]


async def test_programs_give_what_stands_below_them(warm_deno: DenoSandbox) -> None:
    found: dict[str, object] = {}
    shown: dict[str, object] = {}
    async with Corral(tools=stations(), sandbox=warm_deno, check=False) as corral:
        for block in PROGRAMS:
            result = await corral.execute(block.text)
            expected = following(block, "json", "text")
            if expected.language == "json":
                found[block.place], shown[block.place] = (result.error, result.value), (None, json.loads(expected.text))
            else:
                found[block.place], shown[block.place] = result.model_text(), expected.text.removesuffix("\n")
    assert found == shown


def test_programs_are_written_where_they_are_tested() -> None:
    assert {block.page.name for block in ALL if block.language in {"typescript", "ts"}} == {"programs.md"}


# --- declarations, limits, errors, frames, links


def test_schemas_become_the_types_in_the_table() -> None:
    wrong: list[str] = []
    for each, declaration, *_ in table(DOCS / "declarations.md", "a schema"):
        schema = {"type": "object", "properties": {"v": json.loads(each)}, "required": ["v"]}
        declared = Corral([define_tool(name="t", input_schema=schema, execute=print)], check=False).model.declarations()
        without_comments = re.sub(r" *//.*", "", declared)
        if not re.search(rf"v: {re.escape(declaration)};? }}\): Promise", " ".join(without_comments.split())):
            wrong.append(f"{each}: {declared}")
    assert wrong == []


def test_every_limit_stands_in_the_table_with_its_default() -> None:
    shown = {row[0]: row[1] for row in table(DOCS / "limits.md", "limit")}
    defaults = {name: field.default for name, field in Limits.model_fields.items()}
    assert {name: type(defaults[name])(value) for name, value in shown.items()} == defaults


def test_the_memory_that_is_added_is_what_the_page_says() -> None:
    text = (DOCS / "limits.md").read_text(encoding="utf-8")
    deno, cpython = (
        (ROOT / "src/corral/sandboxes" / name).read_text(encoding="utf-8") for name in ("deno.py", "cpython.py")
    )
    options = (ROOT / "src/corral/sandboxes/framed/guest_files.py").read_text(encoding="utf-8")
    assert "_GARBAGE_MB = 96\n" in deno
    assert "VmData at ready + memory_mb + 96 MB" in text
    assert "_HEAP_RESERVE_MB = 32\n" in options
    assert "`memory_mb` + 32 MB" in text
    assert "_GARBAGE_MB = 8\n" in cpython
    assert "VmData of the server at ready + memory_mb + 8 MB" in text


def test_every_error_stands_in_the_table_with_its_code_and_its_branch() -> None:
    classes = [getattr(corral.errors, name) for name in corral.errors.__all__ if name != "error_class"]
    rows = [(row[0].removeprefix("— ").strip("`"), row[1]) for row in table(DOCS / "errors.md", "class")]
    assert sorted(rows) == sorted((each.__name__, each.code) for each in classes)
    branch = CorralError
    for row, (name, _) in zip(table(DOCS / "errors.md", "class"), rows, strict=True):
        found: type[CorralError] = getattr(corral.errors, name)
        if not row[0].startswith("—"):
            branch = found
        assert issubclass(found, branch)


def test_errors_in_a_python_program_are_also_the_classes_of_the_table() -> None:
    rows = table(DOCS / "errors.md", "a call raises")
    checks = [
        f"issubclass({name}, {each})"
        for name, also in rows
        if name != "NotAwaited"
        for each in re.findall(r"\w+Error", also)
    ]
    program = f"""
forgotten = tools.nothing(a=1)
try:
    forgotten + 1
except Exception as error:
    forgotten = type(error).__name__, isinstance(error, TypeError), isinstance(error, AttributeError)
[forgotten, {", ".join(checks)}]
"""
    assert Corral(sandbox="cpython", check=False).sync.execute(program, language="python").value == [
        ["NotAwaited", True, True],
        *([True] * len(checks)),
    ]


def test_monty_has_the_modules_of_the_page_and_no_others() -> None:
    [listed] = re.findall(r"In Monty: parts of (.*?)\. What", (DOCS / "python.md").read_text("utf-8"), re.DOTALL)
    names = [name for name in sorted(sys.stdlib_module_names) if not name.startswith("_")]
    tries = "".join(
        f"try:\n    import {name}\n    found.append('{name}')\nexcept ImportError:\n    pass\n" for name in names
    )
    result = Corral(sandbox="monty", check=False).sync.execute(f"found = []\n{tries}found", language="python")
    assert result.raise_for_error().value == re.findall(r"`(\w+)`", listed)
    assert f"{len(result.value)} modules of the standard library" in (DOCS / "python.md").read_text("utf-8")


def test_every_option_of_a_corral_is_described() -> None:
    options = [row[0] for row in table(DOCS / "quickstart.md", "option of `Corral`")]
    assert options == list(inspect.signature(Corral).parameters)


def test_every_field_of_a_result_is_described() -> None:
    text = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    for field in dataclasses.fields(ExecutionResult):
        assert f"`{field.name}`" in text


HEX = [block for block in ALL if block.language == "hex"]


def test_the_examples_of_frames_are_frames_and_every_kind_is_named() -> None:
    assert len(HEX) >= 4
    for block in HEX:
        kind = next(kind for kind in FrameKind if kind == bytes.fromhex(block.text)[4])
        nonce = NO_NONCE if kind == FrameKind.READY else bytes(range(16))
        [frame] = FrameReader(nonce, {kind: 1000}).feed(bytes.fromhex(block.text))
        expected = following(block, "json")
        assert frame.payload == expected.text.strip().encode(), block.place
        assert decode_value(frame.payload, tagged=frame.tagged) is not None, block.place
        assert frame.tagged == ("$" in expected.text), block.place
    rows = table(DOCS / "frames.md", "kind")
    assert {(int(row[0]), row[1]) for row in rows} == {(int(kind), kind.name) for kind in FrameKind}


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and target.is_relative_to(ROOT) and (not anchor or anchor in anchors(target))


def test_links_lead_somewhere() -> None:
    every = [(page, link) for page in pages() for link in links(page)]
    assert len(every) > 500
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in every if not leads_somewhere(page, link)] == []


def test_every_claim_of_the_readme_names_what_holds_it() -> None:
    rows = table(DOCS / "claims.md", "claim | held by")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [features] = re.findall(r"## What you get\n(.*?)\n## ", text, re.DOTALL)
    claims = [each.strip(".") for each in re.findall(r"^- \*\*(.+?)\*\*", features, re.MULTILINE)]
    assert len(claims) == len(re.findall(r"^- ", features, re.MULTILINE))
    assert {*claims} <= {row[0] for row in rows}
    held = re.findall(
        r"`((?:tests|bench|examples|docs_src|scripts)/[^`]*)`", (DOCS / "claims.md").read_text(encoding="utf-8")
    )
    assert len(held) > len(rows)
    assert [each for each in held if not (ROOT / each).exists()] == []


def test_messages_in_troubleshooting_are_messages_of_corral() -> None:
    lines = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").splitlines()
    seen = [line.split(" | ")[0] for line in lines if line.startswith("| ")]
    quoted = {text for each in seen for text in re.findall(r"`([^`]+)`", each) if " " in text}
    assert len(quoted) > 8
    of_others = {"Too many open files", "No such file or directory"}
    sources = "".join(each.read_text(encoding="utf-8") for each in (ROOT / "src/corral").rglob("*.py"))
    assert {each for each in quoted - of_others if each.partition('"')[0] not in sources} == set()


def test_every_page_begins_with_a_sentence() -> None:
    """A page's first paragraph is a sentence, not a list, a block or a heading."""
    odd = [
        str(page.relative_to(ROOT))
        for page in sorted(DOCS.glob("*.md"))
        if page.name != "README.md" and not re.match(r"# .+\n\n[`\[A-Z*]", page.read_text(encoding="utf-8"))
    ]
    assert odd == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [(page.parent / path).resolve() for link in links(page) if (path := link.partition("#")[0])]
    assert set(pages()) <= reached


def test_every_variable_that_is_read_is_listed() -> None:
    names = re.compile(r'(?:environ\.get\(|environ\[|getenv\()"([A-Z_]+)"|"((?:CORRAL|TOOL_BRIDGE)_[A-Z]{3}[A-Z_]*)"')
    files = [each for each in (ROOT / "src/corral").rglob("*.py") if not {"doctor", "testing"} & {*each.parts}]
    sources = [each.read_text(encoding="utf-8") for each in files]
    read = {first or second for text in sources for first, second in names.findall(text)}
    listed = set(re.findall(r"`([A-Z_]+)`", (DOCS / "operations.md").read_text(encoding="utf-8")))
    assert "CORRAL_MCP_TOKEN" in read
    assert read <= listed
