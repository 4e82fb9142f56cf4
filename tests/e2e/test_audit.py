"""What is on record of programs that really ran: every call, every execution, also when the host is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx
import pytest
from pydantic import SecretStr

from corral import Corral, ExecutionContext, Limits, tool
from corral.audit import AuditEvent, AuditFilter, AuditLog, digest, open_audit
from corral.errors import ConfigError, StartFailed
from corral.events import Event, ToolCallStarted
from corral.sandboxes import DenoSandbox, Sandbox, SandboxProvider
from corral.types import Capabilities, SandboxConfig
from tests.audit.events import event, read
from tests.conftest import TOOLS, both_loops
from tests.until import LIMIT_SECONDS, until_sync

pytestmark = pytest.mark.anyio

ANN = ExecutionContext(user_id="ann", organization_id="acme", session_id="morning")


@tool(scopes={"admin"})
async def forbidden(n: int = 0) -> int:
    return n


@tool
async def log_in(user: str, pin: SecretStr, password: str) -> str:
    return user


ALL = [*TOOLS, forbidden, log_in]


def in_short(events: Sequence[AuditEvent]) -> list[tuple[str | None, str, str | None]]:
    return [(each.tool or each.kind, each.outcome, each.code) for each in events]


# --- kills

CHILD = """
import asyncio, os, sys
from corral import Corral, Limits, tool
from corral.audit import AuditLog
from corral.sandboxes import DenoSandbox

@tool
async def allowed(n: int) -> int:
    return n

@tool(scopes={"admin"})
async def forbidden(n: int) -> int:
    return n

@tool
async def ack(n: int) -> None:
    os.write(1, b"%d\\n" % n)

PROGRAM = '''
const name = "for" + "bidden";
for (let n = 0; n < 100_000; n++) {
  if (n % 4 > 0) await tools.allowed({ n });
  else try {
    await tools[name]({ n });
  } catch (error) {
    if (error.code === "scope_denied") await tools.ack({ n });
  }
}
'''

async def main():
    limits = Limits(calls=1_000_000, wall_seconds=60)
    async with Corral([allowed, forbidden, ack], limits=limits, sandbox=DenoSandbox(pool_size=1), audit=AuditLog(*sys.argv[1:])) as corral:
        await corral.execute(PROGRAM)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "acknowledgements", [60, pytest.param(1, marks=pytest.mark.matrix("killed sooner than in the gate"))]
)
def test_no_denial_that_a_program_knows_of_is_missing_after_the_host_was_killed(
    tmp_path: Path, acknowledgements: int
) -> None:
    paths = [tmp_path / "audit.jsonl", tmp_path / "audit.sqlite"]
    command = [sys.executable, "-W", "error", "-c", CHILD, *map(str, paths)]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
    check_record(killed_after(acknowledgements, host), paths)


def killed_after(acknowledgements: int, host: subprocess.Popen[bytes]) -> list[int]:
    """The numbers of the denials that a host's program acknowledged until it was killed; at least so many."""
    with host:
        assert host.stdout is not None
        told = b""
        while told.count(b"\n") < acknowledgements:
            told += host.stdout.read(65_536) or pytest.fail("the host ended by itself")
        host.send_signal(signal.SIGKILL)
        told += host.stdout.read()
    assert host.returncode == -signal.SIGKILL
    return [int(line) for line in told.splitlines()]


def check_record(acknowledged: list[int], paths: list[Path]) -> None:
    assert acknowledged == [4 * number for number in range(len(acknowledged))]
    last = 5 * len(acknowledged) - 4  # of four numbers, five calls are made; the last denial is the first of its five
    for path in paths:
        reader = open_audit(str(path))
        found = anyio.run(reader.read, AuditFilter(kind="call"), 1_000_000)
        anyio.run(reader.aclose)
        assert reader.torn <= 1
        denied = [each.arguments for each in found if (each.outcome, each.code) == ("denied", "scope_denied")]
        assert [digest(f'{{"n":{number}}}') for number in acknowledged] == denied[: len(acknowledged)]
        # What was done before a denial went to the disk with it.
        assert [each.sequence for each in found][:last] == [*range(1, last + 1)]


# --- what is on record

WHOLE = """
await tools.add({ a: 1, b: 2 });
const attempts = [
  () => tools["for" + "bidden"]({ n: 1 }),
  () => tools.add({ a: "x", b: 2 }),
  () => tools.fail(),
  () => tools.break_down(),
  () => tools["no" + "where"](),
];
const correlated = [];
for (const attempt of attempts) {
  try { await attempt() } catch (error) { correlated.push(error.message) }
}
console.log(JSON.stringify(correlated));
await tools.wait({ seconds: 60 });
"""


async def test_a_whole_execution_is_on_record_call_by_call(warm_deno: DenoSandbox, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with Corral(ALL, audit=path, sandbox=warm_deno, check=False) as corral:
        async with corral.start(WHOLE, context=ANN) as run:
            async for happened in run:
                if isinstance(happened, ToolCallStarted) and happened.call.name == "wait":
                    run.cancel()
        result = await run.result()
    *calls, execution = found = await read(path)
    assert in_short(found) == [
        ("add", "succeeded", None),
        ("forbidden", "denied", "scope_denied"),
        ("add", "failed", "invalid_arguments"),
        ("fail", "failed", "tool_error"),
        ("break_down", "failed", "tool_failed"),
        ("nowhere", "failed", "tool_not_found"),
        ("wait", "cancelled", "cancelled"),
        ("execution", "cancelled", "cancelled"),
    ]
    whose = (result.execution_id, "ann", "acme", "morning", "pipe")
    assert {(e.execution_id, e.user_id, e.organization_id, e.session_id, e.protocol) for e in found} == {whose}
    assert [call.sequence for call in calls] == [*range(1, 8)]
    assert [call.arguments for call in calls][:2] == [digest('{"a":1,"b":2}'), digest('{"n":1}')]
    assert [call.reason for call in calls if call.reason is not None] == ["tools.forbidden needs the scope admin"]
    [correlation_id] = [call.correlation_id for call in calls if call.correlation_id is not None]
    assert correlation_id == calls[4].correlation_id
    assert f"correlation id {correlation_id}" in json.loads(result.console)[3]
    assert "hunter2" not in path.read_text()
    assert (execution.calls, execution.language, execution.containment) == (7, "typescript", result.containment)
    assert execution.program == digest(WHOLE)
    assert execution.duration_ms == result.duration_ms
    assert all(each.duration_ms > 0 for each in found)
    assert [execution, *calls] == sorted(found, key=lambda each: each.time)
    assert sum(call.duration_ms for call in calls) <= execution.duration_ms
    assert sorted(call.id for call in calls) == [call.id for call in calls]
    assert execution.id < calls[0].id


async def test_programs_and_calls_that_never_come_in_are_on_record(warm_deno: DenoSandbox, tmp_path: Path) -> None:
    path = tmp_path / "audit.sqlite"
    async with Corral(ALL, audit=path, sandbox=warm_deno, check=False) as corral:
        refused = await corral.execute("return await tools.forbidden({ n: 1 })", context=ANN)
        assert list(await read(path)) != []  # before anybody heard of it
        await corral.execute("}", context=ANN)
        with corral.remote.grant(ANN) as outside:
            token = outside.token()
        transport = httpx.ASGITransport(cast("Any", corral.remote.asgi_app()))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for wrong in ("garbage", token):  # the second one's execution has ended
                headers = {"Authorization": f"Bearer {wrong}"}
                response = await client.post("/tools/add", json={"a": 1, "b": 2}, headers=headers)
                assert response.status_code == 401
                assert (await read(path))[-1].code == "invalid_token"
    rejected, broken, *tokens = await read(path)
    assert in_short([rejected, broken]) == [
        ("execution", "denied", "scope_denied"),
        ("execution", "failed", "program_rejected"),
    ]
    assert (rejected.reason, rejected.calls, rejected.containment) == ("tools.forbidden needs the scope admin", 0, None)
    assert (rejected.execution_id, rejected.user_id, rejected.organization_id) == (refused.execution_id, "ann", "acme")
    assert [(each.kind, each.outcome, each.code, each.protocol) for each in tokens] == [
        ("call", "denied", "invalid_token", "http")
    ] * 2
    assert {(each.execution_id, each.user_id, each.organization_id) for each in tokens} == {(None, None, None)}


async def test_a_redacted_copy_knows_the_secrets_of_the_tools_schema(warm_deno: DenoSandbox, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with Corral(ALL, audit=AuditLog(path, arguments="redacted"), sandbox=warm_deno, check=False) as corral:
        result = await corral.execute("return await tools.log_in({ user: 'ann', pin: '4711', password: 'hunter2' })")
        assert result.value == "ann"
    [call, _] = await read(path)
    assert call.arguments == {"user": "ann", "pin": "[redacted]", "password": "[redacted]"}
    assert "4711" not in path.read_text()


@both_loops
async def test_a_full_queue_under_load_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.jsonl"
    behind: list[AuditEvent] = []

    entered = threading.Event()

    def take(events: Sequence[AuditEvent]) -> None:
        """Lets the queue fill up behind the first event."""
        entered.set()
        until_sync(lambda: behind or len(log._writers[1]._queue) > 100)  # pyright: ignore[reportPrivateUsage]
        behind.extend(events)

    log = AuditLog(path, take, queue_events=100)
    program = """
    const each = Array.from({ length: 100 }, (_, n) => n % 10 ? tools.echo({ n }) : tools["for" + "bidden"]({ n }));
    return (await Promise.allSettled(each)).filter((one) => one.status === "rejected").length;
    """
    await log.record(event(outcome="failed"))
    assert await anyio.to_thread.run_sync(entered.wait, LIMIT_SECONDS)
    async with Corral(ALL, audit=log, check=False) as corral, anyio.create_task_group() as tasks:

        async def run() -> None:
            assert (await corral.execute(program, context=ANN)).value == 10

        for _ in range(2):
            tasks.start_soon(run)
    for found in (behind, await read(path)):
        calls = Counter((each.execution_id, each.sequence) for each in found)
        assert (len(found), len(calls), set(calls.values())) == (203, 203, {1})
        assert Counter(each.outcome for each in found) == {"failed": 1, "succeeded": 182, "denied": 20}
    assert caplog.records == []


# --- a log that cannot be written


@both_loops
async def test_while_the_log_cannot_be_written_no_call_gets_in_and_afterwards_all_do(tmp_path: Path) -> None:
    path = tmp_path / "later" / "audit.jsonl"
    log = AuditLog(path)
    ran: list[int] = []

    @tool
    async def count() -> int:
        ran.append(1)
        return len(ran)

    until_denied = """
    for (;;) try { await tools.count() } catch (error) { return [error.code, error.message] }
    """
    many = Limits(calls=1_000_000)
    async with Corral([count], audit=log, limits=many, check=False) as corral:
        with anyio.fail_after(LIMIT_SECONDS):
            first = await corral.execute(until_denied)
            let_in = len(ran)
            second = await corral.execute(until_denied)
        for result in (first, second):
            assert result.value == ["access_denied", "the audit log cannot be written, so calls are denied"]
        assert len(ran) == let_in
        path.parent.mkdir()
        await log.flush()
        assert (await corral.execute("return await tools.count()")).value == let_in + 1
    found = Counter(in_short(await read(path)))
    assert found == {
        ("count", "succeeded", None): let_in + 1,
        ("count", "denied", "access_denied"): 2,
        ("execution", "succeeded", None): 3,
    }


def test_programs_that_run_without_an_event_loop_are_on_record_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    corral = Corral(ALL, audit=path, check=False)
    with corral:
        assert corral.sync.execute("return await tools.add({ a: 1, b: 2 })", context=ANN).value == 3
        assert corral.sync.execute("return await tools.forbidden()", context=ANN).status == "rejected"
        assert in_short(anyio.run(read, path)) == [
            ("add", "succeeded", None),
            ("execution", "succeeded", None),
            ("execution", "denied", "scope_denied"),
        ]
    with pytest.raises(ConfigError, match="closed"):
        corral.sync.execute("return 1")
    assert len(anyio.run(read, path)) == 3


# --- executions, however they end


class Broken(SandboxProvider):
    """Sandboxes that do not start."""

    name = "broken"

    @property
    def capabilities(self) -> Capabilities:
        return DenoSandbox().capabilities

    async def start(self, config: SandboxConfig) -> Sandbox:
        raise StartFailed("no engine here")


async def test_an_execution_whose_sandbox_does_not_start_is_on_record_and_has_a_last_event() -> None:
    seen: list[AuditEvent] = []
    events: list[Event] = []
    corral = Corral(TOOLS, sandbox=Broken(), audit=AuditLog(seen.extend), check=False)
    with pytest.raises(StartFailed):
        await corral.execute("return 1", context=ANN, on_event=events.append)
    await corral.aclose()
    assert in_short(seen) == [("execution", "failed", "start_failed")]
    assert [event.type for event in events] == ["execution_started", "execution_finished"]


async def test_an_execution_whose_caller_gives_up_is_on_record(warm_deno: DenoSandbox) -> None:
    seen: list[AuditEvent] = []
    async with Corral(TOOLS, audit=AuditLog(seen.extend), sandbox=warm_deno, check=False) as corral:
        with anyio.CancelScope() as scope:
            program = "await new Promise((resolve) => setTimeout(resolve, 3_600_000))"
            await corral.execute(program, context=ANN, on_event=lambda _: scope.cancel())
    assert in_short(seen) == [("execution", "cancelled", "cancelled")]


async def test_a_program_that_throws_a_denial_has_not_been_denied_and_writes_no_reason(warm_deno: DenoSandbox) -> None:
    seen: list[AuditEvent] = []
    program = """
        try { await tools['forbid' + 'den']({}) } catch (error) { error.message = 'the admin said so'; throw error }
    """
    async with Corral(ALL, audit=AuditLog(seen.extend), sandbox=warm_deno, check=False) as corral:
        await corral.execute(program, context=ANN)
    (call, execution) = seen
    assert (call.outcome, call.reason) == ("denied", "tools.forbidden needs the scope admin")
    assert (execution.outcome, execution.code, execution.reason) == ("failed", "scope_denied", None)
