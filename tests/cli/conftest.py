"""A directory with tools and programs, and the installed `corral` run in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from corral.types import Language
from tests.cli.terminal import Here, Project

TOOLS = '''
import asyncio
import signal
import subprocess
import time
from pathlib import Path

from corral import ExecutionContext, ToolError, tool


@tool
async def get_weather(city: str) -> dict[str, str]:
    """The weather now."""
    if city == "Atlantis":
        raise ToolError("it is under water")
    return {"city": city, "sky": "clear"}


@tool
async def who(*, context: ExecutionContext) -> list[str | None]:
    """On whose behalf it is called."""
    return [context.user_id, context.organization_id, context.session_id, *sorted(context.scopes)]


@tool
async def wait(seconds: float) -> float:
    """Waits."""
    await asyncio.sleep(seconds)
    return seconds


@tool
def held(name: str) -> None:
    """Waits until there is a byte in the pipe of this name."""
    with Path(name).open("rb", buffering=0) as pipe:
        pipe.read(1)


@tool
def wait_in_a_thread(seconds: float) -> float:
    """Waits in a thread."""
    time.sleep(seconds)
    return seconds


@tool
async def block_the_loop_while_interrupted(times: int) -> None:
    """Never lets the event loop turn, while somebody presses Ctrl-C."""
    for _ in range(times):
        signal.raise_signal(signal.SIGINT)
    time.sleep(600)


@tool
def chatter() -> None:
    """Prints."""
    print("chatter of a tool")


@tool
def start_chatter() -> None:
    """Starts a process that prints."""
    subprocess.run(["echo", "chatter of a process"], check=True)


@tool
async def break_down() -> None:
    """Fails with an exception."""
    raise ValueError("the disk is full")
'''


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.write("app/tools.py", TOOLS)
    return project


@pytest.fixture
def here(project: Project, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """The project as the current directory; what is imported in it is forgotten afterwards."""
    monkeypatch.chdir(project.directory)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)
    yield Here(project.directory, capfd)
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def ready(here: Here, warm: Mapping[Language, object], monkeypatch: pytest.MonkeyPatch) -> Here:
    """The same, with programs in engines that are warm: what is said of them is not about how they start."""

    def sandbox(_arguments: object, language: Language, _pool_size: int | None) -> object:
        return warm[language]

    monkeypatch.setattr("corral.cli.run_options._sandbox", sandbox)
    return here
