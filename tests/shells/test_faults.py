"""Faults of clouds: slow, dead and silent computers, cut streams, refusals. Nothing hangs, and nothing is taken for whole."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from corral import Containment, Corral, Limits, tool
from corral.containment import ContainmentKind
from corral.errors import ShellLost
from corral.shells import Shell, ShellSandbox
from corral.shells.clouds import remote
from tests.shells.clouds import CLOUDS, Stub, opened_cloud
from tests.until import LIMIT_SECONDS, until

pytestmark = pytest.mark.anyio


class _Cloud:
    """A service with faults, and shells in it."""

    def __init__(self, stub: Stub, open: Callable[[], Awaitable[Shell]]) -> None:
        self.stub = stub
        self.open = open

    @asynccontextmanager
    async def shell(self) -> AsyncGenerator[Shell]:
        async with await self.open() as shell:
            yield shell

    async def kill_boxes(self) -> None:
        for name in [*self.stub.boxes]:
            await self.stub.kill_box(name)

    def corral(self) -> Corral:
        @tool
        async def die() -> None:
            """Ends the computer on which the program runs, and waits."""
            await self.kill_boxes()
            await anyio.sleep_forever()

        @tool
        async def hush() -> str:
            """Has nothing arrive any more."""
            self.stub.silent = True
            return "x"

        return Corral(
            [die, hush],
            sandbox=ShellSandbox(self.open, containment=ContainmentKind("cloud", "vm")),
            containment=Containment(accept_unenforced={"cpu_seconds", "memory_mb"}),
            check=False,
        )


# Each of these has an SDK of its own between a fault and what is made of it.
EACH = pytest.mark.parametrize("service", CLOUDS, indirect=True, scope="module")
# These are about what the services share: `PushedProcess`, and the shell of `remote.py`.
SHARED = pytest.mark.matrix("the gate has it in E2B, by the code that all services share")
SERVICES = ["e2b", pytest.param("daytona", marks=SHARED), pytest.param("vercel", marks=SHARED)]
ONE = pytest.mark.parametrize("service", SERVICES, indirect=True, scope="module")


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest) -> Generator[_Cloud]:
    cloud = CLOUDS[request.param]
    with opened_cloud(cloud) as stub:
        yield _Cloud(stub, cloud.open)


@pytest.fixture
def cloud(service: _Cloud) -> Generator[_Cloud]:
    yield service
    service.stub.mend()
    asyncio.run(service.kill_boxes())


@EACH
async def test_a_stream_that_is_cut_is_no_end(cloud: _Cloud) -> None:
    async with cloud.shell() as shell:
        cloud.stub.cut = True
        with pytest.raises(ShellLost):
            await shell.run("echo a; echo b")
        cloud.stub.cut = False
        assert (await shell.run("echo next")).stdout == "next\n"


@EACH
async def test_a_computer_that_dies_during_a_command_is_lost(cloud: _Cloud) -> None:
    shell = await cloud.open()
    async with await shell.spawn("echo ready; sleep 1000") as process:
        assert await anext(aiter(process.stdout)) == b"ready\n"
        with anyio.fail_after(LIMIT_SECONDS):
            await cloud.kill_boxes()
            with pytest.raises(ShellLost):
                await process.wait()
    with pytest.raises(ShellLost, match="start"):
        await shell.run("true")
    with pytest.raises(ShellLost):
        await shell.files.read_text("a")
    await shell.aclose()


@ONE
async def test_a_computer_that_dies_during_a_program_is_a_lost_sandbox(cloud: _Cloud) -> None:
    async with cloud.corral() as corral:
        with anyio.fail_after(LIMIT_SECONDS):
            result = await corral.execute("await tools.die()", language="python")
        assert result.error is not None
        assert result.error.code == "sandbox_lost", result
        assert (await corral.execute("1 + 1", language="python")).value == 2


@ONE
async def test_a_silent_computer_ends_with_the_time_out(cloud: _Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = await cloud.open()
    process = await shell.spawn("echo ready; sleep 1000")
    assert await anext(aiter(process.stdout)) == b"ready\n"
    monkeypatch.setattr(remote, "KILL_SECONDS", 0.2)
    monkeypatch.setattr(remote, "START_SECONDS", 0.2)
    cloud.stub.silent = True
    with anyio.fail_after(LIMIT_SECONDS):
        with pytest.raises(ShellLost, match="could not be ended"):
            await process.aclose()
        with pytest.raises(ShellLost, match="cannot start"):
            await shell.run("true", timeout_seconds=1)
        with pytest.raises(ShellLost):
            await process.wait()
    cloud.stub.silent = False
    await shell.aclose()


@pytest.mark.matrix("a silent computer ends a command in the gate; here it ends a program")
@ONE
async def test_a_computer_that_falls_silent_during_a_program_is_no_hang(
    cloud: _Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "KILL_SECONDS", 0.5)
    async with cloud.corral() as corral:
        with anyio.fail_after(LIMIT_SECONDS):
            result = await corral.execute(
                "await tools.hush()\nawait tools.hush()", language="python", limits=Limits(wall_seconds=1.0)
            )
        assert result.status == "timed_out", result
        cloud.stub.silent = False


@ONE
async def test_a_slow_computer_is_slow_only(cloud: _Cloud) -> None:
    cloud.stub.delay_seconds = 0.3
    async with cloud.shell() as shell:
        done = await shell.run("cat; echo end", input="a\n")
        assert (done.exit_code, done.stdout) == (0, "a\nend\n")


@EACH
async def test_a_refused_request_says_so(cloud: _Cloud) -> None:
    cloud.stub.refuse = 429
    with pytest.raises(ShellLost, match=r"(?i)cannot start.*(rate|many|slow|429)"):
        await cloud.open()


@ONE
async def test_endless_output_is_bounded_in_memory(cloud: _Cloud) -> None:
    async with cloud.shell() as shell:
        await shell.run("echo warm")
        async with await shell.spawn("yes $(printf %04000d 0)") as process:
            await anext(aiter(process.stdout))
            tracemalloc.start()
            unread: Any = vars(process)["_outputs"]["stdout"]
            await until(lambda: unread.statistics().tasks_waiting_send)
            for _ in range(5):  # in which more would be taken from the service, if that had no bound
                await shell.run("true")
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert most < 40_000_000
        done = await shell.run("yes $(printf %04000d 0)", timeout_seconds=0.2, output_bytes=1000)
        assert done.timed_out
        assert done.truncated
        assert len(done.stdout) < 1100


@EACH
async def test_ending_twice_and_after_the_end_does_nothing(cloud: _Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "KILL_SECONDS", 3600.0)  # whoever waited for an end would wait for ever
    async with cloud.shell() as shell:
        async with await shell.spawn("true", stdin=True) as process:
            assert await process.wait() == 0
            with anyio.fail_after(LIMIT_SECONDS):
                await process.write(b"unread")
                for _ in range(3):
                    await process.kill()
                    await process.close_stdin()
        await shell.aclose()
    await shell.aclose()
    assert not cloud.stub.left
