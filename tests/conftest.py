"""What all tests share: the event loops, and a Corral with a few tools."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from hypothesis import HealthCheck, settings
from typing_extensions import override
from xdist.scheduler import LoadScopeScheduling

from corral import Corral, Limits, ToolError, define_tool, tool
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider
from corral.sandboxes.selection import Sandboxes
from corral.sandboxes.wasm import WasmSandbox
from corral.types import Language, SandboxConfig
from tests import census
from tests.work import draw_fewer

# The same examples in every run: what fails here fails everywhere.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

# A shell without job control has what it starts in the background ignore SIGINT, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LOOPS = census.with_rest(
    ["asyncio", "trio"], ["asyncio"], "on asyncio in the gate, where programs, tools and channels run on trio too"
)
both_loops = pytest.mark.parametrize("anyio_backend", LOOPS)
"""Runs a test on trio too, in the matrix. A test of what differs between the loops lists both itself."""

T = TypeVar("T", bound=SandboxProvider)
CASES = Path(__file__).parent / "cases"


_APART = re.compile(
    r"tests/security/test_\w+\.py::test_(every_attack|without_a_jail_they)_.*|tests/testing/test_bridge_suite\w*\.py::Test\w+"
)


class ByFileOrBatch(LoadScopeScheduling):
    """Keeps the tests of a file in one process, but for batches of attacks, each of which is one test, and long.

    The suites of bridges are apart as well: they come last, and whole files of them would leave other processes idle.
    Groups of pytest-xdist 3.8 would say the same, but have no effect with pytest 9.2: it no longer has the attribute that
    they are kept in.
    """

    def _split_scope(self, nodeid: str) -> str:
        match = _APART.match(nodeid)
        return match[0] if match else nodeid.partition("::")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gate", action="store_true", help="leave out tests that are marked as of the matrix")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("gate"):
        draw_fewer()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    census.note(config, items)
    if config.getoption("gate"):
        left_out = [item for item in items if item.get_closest_marker("matrix")]
        items[:] = [item for item in items if not item.get_closest_marker("matrix")]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return ByFileOrBatch(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leaves what is imported and collected out of garbage collection, each of which would look at all of it.

    Those are a million objects, which live as long as the process. Later ones are looked at every 5,000 instead of 700,
    or a twentieth of the tests' processor time would go into it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(5_000)
        gc.enable()


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
def open_corral(sandbox: Sandboxes = "auto") -> Corral:
    return Corral(TOOLS, sandbox=sandbox, limits=Limits(wall_seconds=20), check=False)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
async def corral(warm_deno: DenoSandbox) -> AsyncIterator[Corral]:
    async with open_corral(warm_deno) as corral:
        yield corral


@pytest.fixture(scope="session")
def warm_deno() -> Iterator[DenoSandbox]:
    """A sandbox whose fork servers stay ready from test to test: for Corrals that differ in tools, not in memory.

    Tests of how sandboxes start, of limits of memory and of what processes there are open one of their own.
    """
    yield from _entered(DenoSandbox(isolation="fork"))


@pytest.fixture(scope="session")
def warm_wasm() -> Iterator[WasmSandbox]:
    """The same for programs in WebAssembly."""
    yield from _entered(WasmSandbox(pool_size=0))


class PlainWasm(WasmSandbox):
    """WebAssembly as on systems without a jail: over plain pipes, to a plain process."""

    @override
    async def _in_jail_or_plain(self, jailed: Any, plain: Any, config: SandboxConfig) -> Any:
        return await plain(config)


@pytest.fixture(scope="session")
def warm_plain_wasm() -> Iterator[WasmSandbox]:
    """The same over plain pipes."""
    yield from _entered(PlainWasm(pool_size=0))


@pytest.fixture(scope="session")
def warm_cpython() -> Iterator[CPythonSandbox]:
    """The same for programs in Python."""
    yield from _entered(CPythonSandbox())


def _entered(sandbox: T) -> Iterator[T]:
    """Enters a sandbox for the tests of a process, each of which has an event loop of its own."""
    asyncio.run(sandbox.__aenter__())  # unlike anyio.run, beside a loop that waits for fixtures
    yield sandbox
    asyncio.run(sandbox.aclose())


@pytest.fixture(scope="session")
def warm(warm_deno: DenoSandbox, warm_cpython: CPythonSandbox) -> dict[Language, str | SandboxProvider]:
    """Both, as the `sandbox` of a Corral."""
    return {"typescript": warm_deno, "python": warm_cpython}
