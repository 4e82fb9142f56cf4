"""What all tests share: the event loops, and a Corral with a few tools."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, settings

from corral import Corral, Limits, ToolError, define_tool, tool

# The same examples in every run: what fails here fails everywhere.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

# A shell without job control has what it starts in the background ignore SIGINT, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

CASES = Path(__file__).parent / "cases"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the tests of a file in one process with `--dist loadgroup`, and of the attacks those of one batch."""
    for item in items:
        parameters: dict[str, Any] = (
            item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        )
        batch = [str(parameters[name]) for name in ("mode", "tier") if name in parameters]
        item.add_marker(pytest.mark.xdist_group("-".join(batch) if len(batch) == 2 else item.path.name))


def cases(file: str, *areas: str) -> list[dict[str, Any]]:
    """The cases of some areas of a file in `tests/cases`."""
    found: list[dict[str, Any]] = json.loads((CASES / file).read_text(encoding="utf-8"))
    return [case for case in found if case["area"] in areas]


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": False}


@tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@tool
async def fail(message: str = "boom") -> None:
    """Fails with a text for the model."""
    raise ToolError(message)


@tool
async def break_down() -> None:
    """Fails with an exception that nobody outside should see."""
    raise ValueError("password=hunter2 in /srv/app/tools.py")


@tool
async def nothing() -> None:
    """Returns nothing."""


@tool
async def wait(seconds: float) -> float:
    """Waits."""
    await anyio.sleep(seconds)
    return seconds


async def _echo(input: Any) -> Any:
    return input


echo = define_tool(name="echo", description="Gives its input back.", execute=_echo)

TOOLS = [add, fail, break_down, nothing, wait, echo]


# Whether a program is checked before it runs depends on whether a language server is ready by then. tests/checking says
# what comes of it; elsewhere `check=False` has programs run as they are.
def open_corral() -> Corral:
    return Corral(TOOLS, limits=Limits(wall_seconds=20), check=False)


@pytest.fixture
async def corral() -> AsyncIterator[Corral]:
    async with open_corral() as corral:
        yield corral
