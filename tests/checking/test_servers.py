"""The language servers: shut in, bounded, replaced when they die, and gone when nobody needs them."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import anyio
import pytest

from corral import Corral, ExecutionContext, Limits, tool
from corral.checking import Checker
from corral.checking import checker as checkers
from corral.checking.servers import language_server as servers
from corral.checking.servers import workspace as workspaces
from corral.checking.servers.language_server import LanguageServer
from corral.checking.servers.specs import SERVERS, ServerKind
from corral.checking.servers.workspace import Remark, Workspace
from corral.errors import StartFailed
from corral.events import Event, ProgramChecked
from corral.jail import Engine
from corral.jail.jail import unavailable_reason
from corral.tools import ToolRegistry
from corral.types import Language
from tests.checking.corpora import checked, valid_python_programs, wait_for
from tests.checking.tools import TOOLS
from tests.checking.typescript import valid_programs
from tests.processes import assert_ending, descendants, stop
from tests.surroundings import guests_change_user

__all__ = ["EITHER", "slow_to_start"]

LANGUAGES: tuple[Language, ...] = ("typescript", "python")
BOTH = pytest.mark.parametrize("language", LANGUAGES)
EITHER = pytest.mark.parametrize(
    "language",
    [
        "typescript",
        pytest.param("python", marks=pytest.mark.matrix("TypeScript's server, by the same code, in the gate")),
    ],
)
SECONDS = 60
NOBODY = "65534"
REGISTRY = ToolRegistry(*TOOLS)
WRONG = {"typescript": "return nowhere", "python": "nowhere"}
NUMBERS = itertools.count()
RIGHT = {"typescript": "return await tools.add({ a: 1, b: 2 })", "python": "await tools.add(a=1, b=2)"}
MB = 1 << 20


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    """Its servers are never harmed."""
    checker = Checker()
    for language in LANGUAGES:
        checker.start(language, REGISTRY)
        assert wait_for(checker, language, SECONDS)
    yield checker
    checker.close()


def server_of(checker: Checker, language: Language) -> LanguageServer:
    server = checker.server(language)
    assert server is not None
    return server


def pid_of(checker: Checker, language: Language) -> int:
    pid = server_of(checker, language).pid
    assert pid is not None
    return pid


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def rejects(checker: Checker, language: Language) -> bool | None:
    """Whether a wrong program is rejected; None if it is not checked. Each is another one, with no verdict kept."""
    program = f"{WRONG[language]}\n{'//' if language == 'typescript' else '#'} {next(NUMBERS)}"
    somebody = ExecutionContext(user_id=f"user {next(NUMBERS)}")  # of whom nothing is known
    verdict = checked(checker, program, language, REGISTRY, env=False, must=True, context=somebody)
    return None if verdict.unchecked else verdict.rejection is not None


# --- what shuts it in


@BOTH
def test_a_server_lives_in_the_best_jail_there_is(checker: Checker, language: Language) -> None:
    status = status_of(pid_of(checker, language))
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    assert (int(status["CapEff"], 16), int(status["CapPrm"], 16)) == (0, 0)
    assert os.geteuid() != 0 or set(status["Uid"].split()) == {NOBODY if guests_change_user() else "0"}
    assert unavailable_reason("namespaces") is not None or len(status["NSpid"].split()) > 1


@BOTH
def test_a_server_has_nothing_open_but_its_streams(checker: Checker, language: Language) -> None:
    pid = pid_of(checker, language)
    opened = [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]
    streams = {each for each in opened if each.startswith(("pipe:", "socket:"))}
    assert len(streams) >= 2
    assert sum(each.startswith("socket:") for each in streams) <= 1  # standard input and output
    assert [each for each in opened if each.startswith(("/etc", "/root", "/home"))] == []


def test_a_server_that_does_not_find_the_declarations_checks_nothing() -> None:
    [kind] = [each for each in SERVERS if each.language == "python"]
    checker = Checker([replace(kind, declarations="elsewhere/corral_tools_{slot}.pyi")])
    try:
        checker.start("python", REGISTRY)
        verdict = checked(checker, RIGHT["python"], "python", REGISTRY, env=False, must=True)
    finally:
        checker.close()
    assert verdict.unchecked == "ty does not find the module that declares the tools"


SECRET = "canary_4f1d9c"


@pytest.fixture(scope="module")
def canaries() -> Iterator[Path]:
    """A directory that anybody may read, with files that a compiler would quote."""
    directory = Path(tempfile.mkdtemp(prefix="corral-canary-", dir="/tmp"))
    directory.chmod(0o755)
    directory.joinpath("canary.ts").write_text(f'export const value = "{SECRET}" as const;\nexport default value;\n')
    directory.joinpath("canary.d.ts").write_text(f'declare const {SECRET}: "{SECRET}";\n')
    directory.joinpath("data.json").write_text(f'{{"{SECRET}": 1}}\n')
    directory.joinpath("canary.py").write_text(f"from typing import Literal\nvalue: Literal['{SECRET}'] = 5\n")
    directory.joinpath("package.json").write_text(f'{{"name": "{SECRET}", "main": "canary.ts"}}\n')
    yield directory
    shutil.rmtree(directory)


READING_TYPESCRIPT = [
    'import { value } from "DIRECTORY/canary";\nconst n: number = value;\n',
    'import { value } from "DIRECTORY/canary.ts";\nconst n: number = value;\n',
    'import { value } from "file://DIRECTORY/canary.ts";\nconst n: number = value;\n',
    'import { value } from "../../../../../../..DIRECTORY/canary";\nconst n: number = value;\n',
    'import value from "DIRECTORY";\nconst n: number = value;\n',
    'import data from "DIRECTORY/data.json" with { type: "json" };\nconst n: number = data;\n',
    'import data from "../../../../../..DIRECTORY/data.json" with { type: "json" };\nconst n: number = data;\n',
    'const { value } = await import("DIRECTORY/canary");\nconst n: number = value;\n',
    'const { value } = await import("file://DIRECTORY/canary.ts");\nconst n: number = value;\n',
    'type Told = typeof import("DIRECTORY/canary");\nconst n: number = null as any as Told["value"];\n',
    'import canary = require("DIRECTORY/canary");\nconst n: number = canary.value;\n',
    '/// <reference path="DIRECTORY/canary.d.ts" />\nconst n: number = SECRET;\n',
    '/// <reference path="DIRECTORY/canary.ts" />\nconst n: number = 1;\n',
    '/// <reference types="DIRECTORY/canary" />\nconst n: number = SECRET;\n',
    '/// <reference path="/etc/passwd" />\nexport {};\n',
    'import x from "/etc/hostname";\nconst n: number = x;\n',
    'import data from "../../../etc/passwd" with { type: "json" };\nconst n: number = data;\n',
    'const told = await import("file:///etc/passwd");\nconst n: number = told;\n',
]
READING_PYTHON = [
    "from etc import passwd\npasswd.nope\n",
    "from etc.passwd import root\nroot.nope\n",
    "import sys\nsys.path.insert(0, 'DIRECTORY')\nimport canary\ncanary.value.nope\n",
    "import sys\nsys.path = ['DIRECTORY']\nfrom canary import value\nvalue.nope\n",
    "from importlib import import_module\nimport_module('canary', 'DIRECTORY').value.nope\n",
    "from ......tmp import canary\ncanary.value.nope\n",
    "# /// script\n# [tool.ty.environment]\n# extra-paths = ['DIRECTORY']\n# ///\nimport canary\ncanary.value.nope\n",
    "# ty: extra-paths=['DIRECTORY']\nimport canary\ncanary.value.nope\n",
]


def remarks_on(checker: Checker, language: Language, text: str) -> list[Remark]:
    """All that a server says of a text, before any rule."""

    def ask(workspace: Workspace | None) -> list[Remark]:
        assert workspace is not None
        document = workspace.document("", time.monotonic() + SECONDS)
        document.write(text)
        return document.remarks()

    return server_of(checker, language).submit(None, ask).result(SECONDS)


def aimed(text: str, canaries: Path) -> str:
    """Names the directory, but not what is to be found out."""
    return text.replace("DIRECTORY", str(canaries)).replace("SECRET", "x" if "canary.ts" in text else "unknown")


@pytest.mark.parametrize("text", READING_TYPESCRIPT)
def test_a_program_in_typescript_has_no_file_of_the_host_read(checker: Checker, canaries: Path, text: str) -> None:
    told = " ".join(each.message for each in remarks_on(checker, "typescript", aimed(text, canaries)))
    assert SECRET not in told
    hostname = re.escape(Path("/etc/hostname").read_text().strip())
    assert not re.search(rf"root:|nologin|\b{hostname}\b", told)
    assert any(refused in told for refused in ("Cannot find", "not found", "not assignable", "Could not resolve")), told


@pytest.mark.parametrize("text", READING_PYTHON)
def test_a_program_in_python_has_no_file_of_the_host_read(checker: Checker, canaries: Path, text: str) -> None:
    told = " ".join(each.message for each in remarks_on(checker, "python", aimed(text, canaries)))
    assert SECRET not in told
    assert "root:" not in told


def test_without_a_jail_some_of_these_programs_would_read_it(canaries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspaces, "TIERS", ("none",))
    checker = Checker()
    checker.start("typescript", REGISTRY)
    assert wait_for(checker, "typescript", SECONDS)
    try:
        told = [str(remarks_on(checker, "typescript", aimed(text, canaries))) for text in READING_TYPESCRIPT]
        status = status_of(pid_of(checker, "typescript"))
    finally:
        checker.close()
    assert status["Seccomp"] == "0"
    assert any(SECRET in each for each in told)


# --- what it may take


@BOTH
def test_the_kernel_bounds_a_servers_memory(checker: Checker, language: Language) -> None:
    limits = Path(f"/proc/{pid_of(checker, language)}/limits").read_text(encoding="utf-8").splitlines()
    [bound] = [line for line in limits if line.startswith("Max data size")]
    assert bound.split()[3:5] == [str(server_of(checker, language).kind.data_bytes)] * 2


# What takes the compilers minutes, or all memory.
ENDLESS: dict[Language, str] = {
    "typescript": (
        "type D = 0|1|2|3|4|5|6|7|8|9;\ntype S = `${D}${D}${D}`;\n"
        "type Pairs<A, B = A> = A extends any ? B extends any ? [A, B] : never : never;\n"
        "const pair: Pairs<S> = 5 as any; return pair"
    ),
    "python": (
        "import random\nx = 0\n"
        + "".join(f"b{n} = random.random() > 0.5\n" for n in range(120))
        + "".join(f"if b{n}:\n    x = (x, {n})\n" for n in range(120))
        + "x.nope"
    ),
}
LONG: dict[Language, str] = {
    "typescript": "const rows = [\n" + "{ a: 1, b: 'x' },\n" * 11_500 + "];\nreturn rows.length",
    "python": "rows = [\n" + "    {'a': 1, 'b': ['x', 2]},\n" * 7_000 + "]\nlen(rows)",
}


@EITHER
def test_a_program_that_is_hard_to_check_is_bounded_and_others_are_checked_afterwards(
    language: Language, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "_PAUSES_SECONDS", (0.0,))
    checker = Checker()
    checker.start(language, REGISTRY)
    assert wait_for(checker, language, SECONDS)
    try:
        pid = pid_of(checker, language)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(checkers, "_CHECK_SECONDS", 0.2)
            assert checked(checker, ENDLESS[language], language, REGISTRY, env=False).unchecked
        assert_ending([pid])
        assert wait_for(checker, language, SECONDS)
        assert rejects(checker, language) is True
        assert len(LONG[language]) > 190_000
        checked(checker, LONG[language], language, REGISTRY, env=False)
        assert wait_for(checker, language, SECONDS)
        assert rejects(checker, language) is True
    finally:
        checker.close()


@pytest.mark.matrix("servers that take too much are replaced in the gate; what idle ones keep")
def test_idle_servers_keep_little_memory(checker: Checker) -> None:
    programs = {"typescript": valid_programs(), "python": valid_python_programs()}
    resident = 0
    for language in LANGUAGES:
        for program in list(programs[language].values())[:50]:
            assert checked(checker, program, language, REGISTRY, env=False, must=True).unchecked is None
        resident += int(status_of(pid_of(checker, language))["VmRSS"].split()[0]) * 1024
    assert resident <= 100 * MB, f"{resident / MB:.0f} MB"


# --- what becomes of one that dies


@pytest.fixture
async def corral(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Corral]:
    monkeypatch.setattr(servers, "_PAUSES_SECONDS", (0.0,))
    async with Corral(TOOLS, limits=Limits(wall_seconds=SECONDS), check=True) as corral:
        yield corral


def server_for(corral: Corral, language: Language) -> LanguageServer:
    return server_of(corral._runtime.checker, language)  # pyright: ignore[reportPrivateUsage]


def right(language: Language) -> str:
    """A program of which no verdict is known."""
    return f"{RIGHT[language]}{' #' if language == 'python' else ' //'} {next(NUMBERS)}"


async def assert_checked_by_the_next(corral: Corral, language: Language) -> None:
    with anyio.fail_after(SECONDS):
        result = await corral.execute(right(language), language=language)
    assert (result.value, result.checked) == (3, True)


async def assert_replaced(corral: Corral, language: Language, pid: int) -> None:
    assert (await corral.check(WRONG[language], language)).checked
    result = await corral.execute(right(language), language=language, check="required")
    assert (result.value, result.checked) == (3, True)
    assert server_for(corral, language).pid not in (None, pid)
    assert_ending([pid])


@pytest.mark.anyio
@EITHER
async def test_a_server_that_is_killed_is_replaced(corral: Corral, language: Language) -> None:
    assert (await corral.check(WRONG[language], language)).checked
    pid = pid_of(corral._runtime.checker, language)  # pyright: ignore[reportPrivateUsage]
    os.kill(pid, signal.SIGKILL)
    assert_ending([pid])
    await assert_checked_by_the_next(corral, language)
    await assert_replaced(corral, language, pid)


@pytest.mark.anyio
@EITHER
async def test_a_server_that_hangs_is_replaced(corral: Corral, language: Language) -> None:
    assert (await corral.check(WRONG[language], language)).checked
    pid = pid_of(corral._runtime.checker, language)  # pyright: ignore[reportPrivateUsage]
    stop(pid)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkers, "_FIRST_CHECK_SECONDS", 0.1)
        patch.setattr(checkers, "_CHECK_SECONDS", SECONDS)  # the next one has to start first
        await assert_checked_by_the_next(corral, language)
    await assert_replaced(corral, language, pid)


@pytest.mark.anyio
@EITHER
async def test_a_program_that_must_be_checked_makes_no_call_if_its_server_hangs(
    corral: Corral, language: Language
) -> None:
    with pytest.MonkeyPatch.context() as patch:  # on a busy machine too, this program starts no second server
        for name in ("_FIRST_CHECK_SECONDS", "_CHECK_SECONDS"):
            patch.setattr(checkers, name, SECONDS)
        assert (await corral.check(WRONG[language], language)).checked
    pid = pid_of(corral._runtime.checker, language)  # pyright: ignore[reportPrivateUsage]
    stop(pid)
    events: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkers, "_FIRST_CHECK_SECONDS", 0.1)
        patch.setattr(
            LanguageServer, "_opened", Mock(side_effect=StartFailed("not now"))
        )  # or the next one may be there in time
        with pytest.raises(StartFailed, match="could not be checked"):
            await corral.execute(right(language), language=language, check="required", on_event=events.append)
    server_for(corral, language).start()
    assert [event.type for event in events] == ["execution_started", "program_checked", "execution_finished"]
    assert isinstance(events[1], ProgramChecked)
    assert (events[1].verdict, bool(events[1].reason)) == ("unchecked", True)
    await assert_replaced(corral, language, pid)


@pytest.mark.anyio
async def test_closing_leaves_no_process_and_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    servers.spares.end()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(descendants())
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    async with Corral(TOOLS, check=True) as corral:
        for language in LANGUAGES:
            assert (await corral.check(WRONG[language], language)).checked
        assert {server_for(corral, language).pid for language in LANGUAGES} <= set(descendants())
        assert len(list(tmp_path.glob("corral-*/*/"))) >= 2
        left = set(descendants()) - before
    servers.spares.end()
    assert list(tmp_path.iterdir()) == []
    assert_ending(left)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 1


@pytest.mark.anyio
@EITHER
async def test_the_next_corral_of_a_process_takes_over_a_server_that_is_idle(language: Language) -> None:
    servers.spares.end()
    pids: list[int | None] = []
    for tools in (TOOLS, [tool(name="later")(later)], TOOLS):
        async with Corral(tools, check=True) as corral:
            verdict = await corral.check("await tools.later()" if tools is not TOOLS else WRONG[language], language)
            assert verdict.checked
            assert verdict.passed is (tools is not TOOLS)
            pids.append(server_for(corral, language).pid)
    assert len(set(pids)) == 1
    servers.spares.end()
    assert_ending([pid for pid in pids if pid])


def later() -> int:
    return 1


# --- one that has been taken over

FAKE = """
import json, os, sys, time
out = sys.stdout.buffer

def receive():
    length = 0
    while line := sys.stdin.buffer.readline().strip():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return json.loads(sys.stdin.buffer.read(length)) if length else sys.exit()

def framed(body):
    return b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body)

def say(data):
    out.write(data)
    out.flush()

def send(message):
    say(framed(json.dumps({"jsonrpc": "2.0", **message}).encode()))

asked = 0
while message := receive():
    id = message.get("id")
    if id is None:
        continue
    if message["method"] == "initialize":
        START
        send({"id": id, "result": {"capabilities": {}}})
    else:
        asked += 1
        if asked > 1:
            DEED
        send({"id": id, "result": {"kind": "full", "items": []}})
"""
"""A server that finds nothing wrong with any program; at the second that it sees it does what it is told to."""


def fake(*, start: str = "pass", deed: str = "pass") -> ServerKind:
    script = FAKE.replace("START", start).replace("DEED", deed)
    return replace(
        SERVERS[0],
        name="fake",
        engine=lambda: Engine(Path(sys.executable).resolve()),
        arguments=("-I", "-S", "-c", script),
        environment={},
    )


def slow_to_start(directory: Path) -> tuple[ServerKind, Callable[[], None]]:
    """A server that starts when it is told to, by the function; that blocks until the server is there."""
    fifo = directory / "start"
    os.mkfifo(fifo)

    def start() -> None:
        fifo.write_bytes(b"")

    return fake(start=f"open({str(fifo)!r}).read()"), start


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is written what the fake server is to do."""
    return tmp_path_factory.mktemp("fake") / "deed.py"


@pytest.fixture(scope="module")
def taken_over(told: Path) -> Iterator[Checker]:
    checker = Checker([fake(deed=f"exec(open({str(told)!r}).read())")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workspaces, "TIERS", ("none",))
        checker.start("typescript", REGISTRY)
        assert wait_for(checker, "typescript", SECONDS)
    yield checker
    checker.close()


DEEDS = {
    "garbage": "say(b'garbage ' * 1000)",
    "an endless header": "while True: say(b'X-Header: x\\n' * 1000)",
    "a huge length": "say(b'Content-Length: 99999999999999\\r\\n\\r\\n')",
    "a length over the bound": "say(b'Content-Length: 20000000\\r\\n\\r\\n')",
    "a negative length": "say(b'Content-Length: -1\\r\\n\\r\\n')",
    "no length": "say(b'Content-Type: x\\r\\n\\r\\n')",
    "no JSON": "say(framed(b'{nothing'))",
    "bytes": "say(framed(bytes(range(256))))",
    "deep JSON": "say(framed(b'[' * 1_000_000))",
    "no object": "say(framed(b'[1, 2]'))",
    "an error": "send({'id': id, 'error': {'code': -32603, 'message': 'x' * 100_000}})",
    "no items": "send({'id': id, 'result': None})",
    "items without anything": "send({'id': id, 'result': {'items': [{'range': {}}]}})",
    "an odd question": "send({'id': 1, 'method': 'workspace/configuration', 'params': 7})",
    "endless questions": 'while True: say(framed(b\'{"id": 1, "method": "x"}\') * 1000)',
    "endless talk, slowly": "while True: send({'method': 'x'}); time.sleep(0.01)",
    "the end of its output": "out.close(); os.close(1); time.sleep(600)",
    "its own end": "os._exit(3)",
    "half a message and silence": "say(b'Content-Length: 1000\\r\\n\\r\\n{'); time.sleep(600)",
}


IN_GATE = (
    "garbage",
    "an endless header",
    "a huge length",
    "deep JSON",
    "an error",
    "no items",
    "endless questions",
    "its own end",
)


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(
            deed,
            id=name,
            marks=[] if name in IN_GATE else [pytest.mark.matrix("the gate has one of each kind, for the same reader")],
        )
        for name, deed in DEEDS.items()
    ],
)
def test_a_server_that_does_not_keep_to_the_protocol_is_replaced(
    taken_over: Checker, told: Path, deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkers, "_CHECK_SECONDS", 0.4)
    monkeypatch.setattr(servers, "_PAUSES_SECONDS", (0.0,))
    monkeypatch.setattr(workspaces, "TIERS", ("none",))
    told.write_text(deed, encoding="utf-8")
    pid = pid_of(taken_over, "typescript")
    assert rejects(taken_over, "typescript") is None
    assert wait_for(taken_over, "typescript", SECONDS)
    assert pid_of(taken_over, "typescript") != pid
    assert_ending([pid])


def test_a_server_that_talks_before_it_answers_is_listened_to(taken_over: Checker, told: Path) -> None:
    talk = "for n in range(300): send({'method': 'window/logMessage', 'params': {'message': 'x' * 1000}})"
    told.write_text(talk, encoding="utf-8")
    pid = pid_of(taken_over, "typescript")
    assert rejects(taken_over, "typescript") is False, "it finds nothing wrong with any program"
    assert pid_of(taken_over, "typescript") == pid
