"""A guest that several executions share: whose frames are whose, and what happens when one of them goes wrong."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import anyio
import pytest

from corral import Corral, ExecutionResult, Limits, ToolCallStarted, tool
from corral.containment import LauncherClient, Plan
from corral.guest import FrameKind, encode_frame
from corral.sandboxes import DenoSandbox
from corral.sandboxes.jailed.guest_process import GuestProcess
from corral.sandboxes.jailed.guest_starter import StartedGuest
from corral.sandboxes.jailed.shared_guest import Share, SharedGuest
from tests.forks import run_forked
from tests.processes import guests

pytestmark = pytest.mark.anyio


@tool
async def echo(text: str) -> str:
    return text


@tool
async def wait(seconds: float) -> None:
    await anyio.sleep(seconds)


def in_contexts() -> Corral:
    return Corral([echo, wait], sandbox=DenoSandbox(isolation="context"), limits=Limits(wall_seconds=20), check=False)


async def test_frames_reach_whose_they_are_however_they_are_cut() -> None:
    python = Path(sys.executable)
    launcher = LauncherClient()
    loop = Plan(executable=python, arguments=("p", "-c", "print(1, flush=True); input()"), environment={})
    process = GuestProcess.spawn(launcher, loop)
    process.await_output(10)
    shared = SharedGuest(StartedGuest(process, "none"))
    shares = [shared.reserve() for _ in range(2)]
    got: dict[bytes, bytes] = {}

    def receiver(share: Share) -> None:
        got[share.nonce] = b""

        def receive(data: bytes) -> None:
            got[share.nonce] += data

        share._receive = receive  # pyright: ignore[reportPrivateUsage]

    frames: list[tuple[bytes, bytes]] = []
    for share in shares:
        assert share is not None
        receiver(share)
        frames += [(share.nonce, encode_frame(FrameKind.LOG, b"x" * size, share.nonce)) for size in (0, 1, 60)]
    frames.append(frames[0])
    stream = b"".join(frame for _, frame in frames)
    for cut in range(1, len(stream)):
        for share in shares:
            assert share is not None
            got[share.nonce] = b""
        for at in range(0, len(stream), cut):
            shared._pass_on(stream[at : at + cut])  # pyright: ignore[reportPrivateUsage]
        for nonce, data in got.items():
            assert data == b"".join(frame for owner, frame in frames if owner == nonce), cut
    assert process.alive
    shared._pass_on(encode_frame(FrameKind.LOG, b"", bytes(16)))  # pyright: ignore[reportPrivateUsage]
    assert shared.retired, "nobody's frame"
    process.close()
    launcher.close()


async def test_values_and_inputs_of_a_megabyte_pass_beside_others() -> None:
    async with in_contexts() as corral:
        program = "const t = 'x'.repeat(900000); return (await tools.echo({ text: t })).length + t.length && t"
        results: list[object] = []

        async def one() -> None:
            results.append((await corral.execute(program)).raise_for_error().value)

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(one)
    assert results == ["x" * 900_000] * 6


async def test_cancelling_twice_leaves_no_loop_behind() -> None:
    others = guests()
    corral = in_contexts()
    async with corral:
        task = asyncio.ensure_future(corral.execute("console.log(1); while (true) {}"))
        await asyncio.sleep(0.3)
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await corral.execute("return 1")).value == 1
    assert guests() <= others


async def test_one_that_waits_for_a_writer_that_was_ended_is_told_at_once() -> None:
    results: list[ExecutionResult] = []
    async with in_contexts() as corral:

        async def torn() -> None:
            loop = "tools.echo({ text: 'y'.repeat(900000) }); tools.echo({ text: 'y'.repeat(900000) });"
            await corral.execute(
                f"{loop} await tools.wait({{ seconds: 0 }}); while (true) {{}}", limits=Limits(wall_seconds=1)
            )

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(torn)
            await anyio.sleep(0.5)
            results.append(await corral.execute("return 1", limits=Limits(wall_seconds=10)))
    [error] = [result.error for result in results]
    assert error is None or error.code == "sandbox_lost"


async def test_two_corrals_open_and_close_on_one_provider() -> None:
    for isolation in ("process", "context"):
        provider = DenoSandbox(isolation=isolation)
        values: list[object] = []

        async def churn(provider: DenoSandbox, values: list[object]) -> None:
            for _ in range(3):
                async with Corral([echo], sandbox=provider, check=False) as corral:
                    values.append((await corral.execute("return await tools.echo({ text: 'a' })")).value)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(churn, provider, values)
        assert values == ["a"] * 9


def test_a_fork_leaves_its_parents_sandboxes_alone(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        "import atexit, os\n"
        "from corral import Corral, ExecutionContext\n"
        "from corral.sandboxes import DenoSandbox\n"
        "for isolation in ('process', 'context'):\n"
        "    corral = Corral(sandbox=DenoSandbox(isolation=isolation)).__enter__()\n"
        "    mine = ExecutionContext(user_id='u')\n"
        "    assert corral.execute_sync('return 1', context=mine).value == 1\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        atexit._run_exitfuncs()\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    for _ in range(4):\n"
        "        result = corral.execute_sync('return 2', context=mine)\n"
        "        assert result.value == 2, result.error\n"
        "    corral.__exit__(None, None, None)\n"
        "print('done')\n"
    )
    done = run_forked([sys.executable, str(script)])
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


async def test_few_large_inputs_are_decoded_at_a_time() -> None:
    running = most = 0

    @tool
    async def hold(rows: list[dict[str, int]]) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.01)
        running -= 1
        return len(rows)

    program = (
        "const rows = Array.from({ length: 100000 }, () => ({ b: 0 }));"
        "return await Promise.all(Array.from({ length: 16 }, () => tools.hold({ rows })))"
    )
    async with Corral([hold], limits=Limits(memory_mb=256), check=False) as corral, corral.start(program) as run:
        calls = [event async for event in run if isinstance(event, ToolCallStarted)]
        result = await run.result()
    assert result.value == [100_000] * 16, result.error
    assert len(calls) == 16
    assert most <= 10, "8 MB of input at a time"


async def test_many_programs_run_at_once_each_in_a_process_of_its_own() -> None:
    there, all_there = 0, anyio.Event()

    @tool
    async def meet() -> None:
        nonlocal there
        there += 1
        if there == 40:
            all_there.set()
        await all_there.wait()

    values: list[object] = []
    async with Corral([meet], sandbox=DenoSandbox(), check=False) as corral:

        async def one() -> None:
            values.append((await corral.execute("await tools.meet(); return 1")).value)

        async with anyio.create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(one)
    assert values == [1] * 40
