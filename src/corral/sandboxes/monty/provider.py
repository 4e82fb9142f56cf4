"""Python programs in Monty, Pydantic's interpreter, which can only reach what the host passes to it.

There is no jail: the interpreter itself is the boundary. It runs in its own process and limits its own memory; the host
limits its processor time. It starts in milliseconds, and runs a subset of Python that docs/design/monty.md describes.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar

import anyio
from anyio.abc import TaskGroup
from pydantic_monty import MontyCrashedError

from corral.arguments import checked
from corral.concurrency.event_loop import OneShot, one_shot_factory, periodic
from corral.concurrency.forks import finalize_in_owner
from corral.concurrency.threads import run_shielded_in_thread, thread_safe_scheduler
from corral.containment import ContainmentKind, Space
from corral.errors import ConfigError, ProgramTimeout, SandboxLost, StartFailed
from corral.guest import decode_value
from corral.jail import LauncherClient
from corral.jail.spaces import LauncherSpaces, SpaceHost
from corral.logs import get_logger
from corral.sandboxes.base import Job, Sandbox, SandboxProvider
from corral.sandboxes.framed.exits import cut_short, failed_exit
from corral.sandboxes.monty.program import Ended, MontyProgram, PendingRequest
from corral.sandboxes.monty.worker import Worker, WorkerBox, can_limit
from corral.sandboxes.pool import OwnedBoxes, Pool, default_size
from corral.types import (
    LIMITS_OF_SANDBOXES,
    CallRequest,
    Capabilities,
    Endpoint,
    Exit,
    LogEntry,
    PipeEndpoint,
    SandboxConfig,
)

logger = get_logger("corral.sandboxes")

_LEAST_WAIT_SECONDS = 0.005
_MOST_WAIT_SECONDS = 0.25
_MOST_SLEEP_SECONDS = 1e9
_OUT_OF_CPU = "SIGXCPU"


class MontyRun:
    """Runs one job in a worker. A thread drives the interpreter (`MontyProgram`), and this object answers its
    requests."""

    def __init__(self, worker: Worker, job: Job, endpoint: PipeEndpoint, *, renew: bool) -> None:
        self._worker = worker
        self._job = job
        self._handler = endpoint.handler
        self._must_finish = endpoint.must_finish
        self._program = MontyProgram(worker, job, self)
        self._in_flight = anyio.Semaphore(job.limits.calls_in_flight, fast_acquire=True)
        self._unanswered: deque[PendingRequest] = deque()
        self._make_one_shot: Callable[[], OneShot[None]] = one_shot_factory()
        self._waker: OneShot[None] | None = None
        self._logs: deque[LogEntry] = deque()
        self._serving: dict[int, CallRequest] = {}
        """Calls that are being answered, by Monty's numbers."""
        self._answered: anyio.Event | None = None
        """Set at each answer after the program has ended."""
        self._cut_short: list[str] = []
        """Tools of calls that did not end within the grace period of their program."""
        self._cpu_until = 0.0
        self._out_of_cpu = False
        self._scope = anyio.CancelScope()
        self._exit: Exit | None = None
        self._soon = thread_safe_scheduler()
        self._renew = renew
        self.renewed = False
        """True once the worker is ready for another program."""

    async def execute(self) -> Exit:
        seconds = self._job.limits.cpu_seconds
        self._cpu_until = self._worker.cpu_time() + seconds
        self._worker.limit_cpu(seconds)
        with self._scope:
            await self._run()
        self._hear()
        assert self._exit is not None
        return cut_short(self._exit, self._cut_short)

    async def _run(self) -> None:
        async with anyio.create_task_group() as tasks:
            try:
                async with periodic(self._watch):
                    self._worker.submit(self._drive)
                    await self._attend(tasks)
                await self._finish_calls()
                tasks.cancel_scope.cancel()  # sleeps and calls that are no longer needed
            except BaseException:
                self._program.end()
                self._worker.kill()  # at once, because a tool can be slow to react to its cancellation
                self._program.end_lines()
                self._hear()
                raise

    # --- called by the program's thread

    def submit(self, request: PendingRequest) -> None:
        """Schedules a call or a sleep. Its result goes to `MontyProgram.settle`."""
        self._unanswered.append(request)
        self._soon(self._wake)

    def log(self, entry: LogEntry) -> None:
        self._logs.append(entry)
        if len(self._logs) == 1:
            self._soon(self._hear)

    def report_early_outcome(self, outcome: Exit) -> None:
        """Records the outcome of a program whose calls still run."""
        self._soon(lambda: (self._hear(), self._job.on_outcome(outcome)))

    def _drive(self) -> None:
        broken = False
        try:
            exit = self._program.run()
        except Exception as error:
            exit, broken = self._broken_off(error), True
        self.renewed = self._renew and exit.error is None and self._worker.renew()

        def conclude() -> None:
            self._exit = exit
            if broken and not self._program.ended:
                self._scope.cancel()  # calls that still run
            self._wake()

        with contextlib.suppress(RuntimeError):  # the event loop is closed, so nothing waits
            self._soon(conclude)

    def _broken_off(self, error: Exception) -> Exit:
        match error:
            case MontyCrashedError() if self._out_of_cpu or _OUT_OF_CPU in str(error):
                seconds = self._job.limits.cpu_seconds
                return failed_exit(ProgramTimeout(f"the program used up its {seconds:g} s of processor time"))
            case Ended():
                pass
            case MontyCrashedError():
                if not self._program.ended:
                    logger.warning(
                        "Monty's process of %s ended: %s",
                        self._job.execution_id,
                        error,
                        extra={"execution_id": self._job.execution_id},
                    )
            case _:
                logger.error(
                    "Monty could not be driven for %s",
                    self._job.execution_id,
                    exc_info=error,
                    extra={"execution_id": self._job.execution_id},
                )
        return _lost()

    # --- called in the event loop

    async def _attend(self, tasks: TaskGroup) -> None:
        """Answers requests until the program has ended."""
        while self._exit is None:
            while self._unanswered:
                request = self._unanswered.popleft()
                self._hear()  # earlier output comes first
                if request.alone and not self._unanswered:
                    await self._answer(request)  # the usual case; nothing else will be requested meanwhile
                else:
                    tasks.start_soon(self._answer, request)
            if self._exit is None:
                self._waker = self._make_one_shot()
                await self._waker.wait()

    async def _finish_calls(self) -> None:
        """After the program has ended, waits for the calls that must finish."""
        left = list(self._serving.values())
        self._cut_short += [call.tool for call in left if call.sequence not in self._must_finish]
        if len(self._cut_short) < len(left):
            assert self._exit is not None
            self._job.on_outcome(self._exit)  # in case of a deadline before they finish
        while any(call.sequence in self._must_finish for call in self._serving.values()):
            self._answered = anyio.Event()
            await self._answered.wait()

    def _wake(self) -> None:
        if self._waker is not None:
            waker, self._waker = self._waker, None
            waker.set(None)

    async def _answer(self, request: PendingRequest) -> None:
        if request.input is None:
            await anyio.sleep(min(max(request.seconds, 0), _MOST_SLEEP_SECONDS))
            self._program.settle(request.number, None)
            return
        async with self._in_flight:
            value = decode_value(request.input.text, tagged=request.input.tagged)
            call = CallRequest(
                request.tool,
                value,
                request.sequence,
                len(request.input.text),
                reread=partial(decode_value, request.input.text, tagged=request.input.tagged),
            )
            self._serving[request.number] = call
            try:
                self._program.settle(request.number, await self._handler(call))
            finally:
                del self._serving[request.number]
                if self._answered is not None:
                    self._answered.set()

    def _hear(self) -> None:
        while self._logs:
            self._job.on_log(self._logs.popleft())

    def _watch(self) -> float | None:
        """Ends the worker if its processor time is used up, and the program if the worker died during a call."""
        if can_limit and self._program.waits and not self._worker.alive:
            logger.warning(
                "Monty's process of %s ended while a call ran",
                self._job.execution_id,
                extra={"execution_id": self._job.execution_id},
            )
            self._exit = _lost()
            self._scope.cancel()
            return None
        if can_limit:
            left = self._cpu_until - self._worker.cpu_time() - self._program.file_seconds
        else:  # its clock cannot be read
            left = self._job.limits.cpu_seconds - self._program.busy_seconds
        if left > 0:
            return min(max(left, _LEAST_WAIT_SECONDS), _MOST_WAIT_SECONDS)
        self._out_of_cpu = True
        self._worker.kill()
        return None


def _lost() -> Exit:
    return failed_exit(SandboxLost("the sandbox's process ended without a result"))


_CONTAINMENT = ContainmentKind("interpreter", "interpreter")


@checked
class MontySandbox(SandboxProvider):
    """Runs programs in Monty's processes.

    `pool_size` is the number of processes kept ready: by default one per processor, and at most four. While an
    execution runs, it has a process to itself. With `reuse`, the process later serves other executions of the same user
    of the same organization, each with a fresh interpreter. Without `reuse`, it ends with its execution.

    Raises:
        ConfigError: an argument has an invalid value.
    """

    name: ClassVar[str] = "monty"

    def __init__(self, *, pool_size: int | None = None, reuse: bool = True) -> None:
        if pool_size is not None and pool_size < 0:
            raise ConfigError(f"pool_size={pool_size} is negative; 0 keeps none ready")
        self.reuse = reuse
        self._pool = Pool(_make, default_size() if pool_size is None else pool_size)
        self._boxes = OwnedBoxes[WorkerBox](shared=False)
        self._launcher = LauncherClient()
        """Launcher for directories of sessions. Started with the first one."""
        self._open = False
        finalize_in_owner(self, _close, self._pool, self._boxes, self._launcher)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(languages=frozenset({"python"}), enforces=LIMITS_OF_SANDBOXES)

    async def warm(self, config: SandboxConfig) -> None:
        self._open = True
        await self._pool.warm(config.memory_mb)

    async def start(self, config: SandboxConfig) -> Sandbox:
        if not _CONTAINMENT.reaches(config.required_tier):
            raise StartFailed(
                f"Monty is an interpreter without a jail, below tier {config.required_tier!r}; accept it with "
                "Corral(containment='landlock'), or use CPythonSandbox"
            )
        if config.packages is not None:
            raise ConfigError("Monty cannot load packages; leave out `packages`, or use CPythonSandbox")
        kept = self.reuse and self._open
        return _InMonty(await self._boxes.reserve(config if kept else config.unowned, self._new_box))

    async def _new_box(self, config: SandboxConfig) -> WorkerBox:
        return WorkerBox(await self._pool.take(config.memory_mb))

    async def space_host(self, config: SandboxConfig) -> SpaceHost | None:  # noqa: ARG002
        return _Spaces(self.warm, self._boxes, self._launcher) if can_limit else None

    async def aclose(self) -> None:
        self._open = False
        await run_shielded_in_thread(lambda: _close(self._pool, self._boxes, self._launcher))


class _Spaces(LauncherSpaces):
    """Makes the directories of sessions. The interpreter cannot see them, and asks the host instead."""

    def __init__(
        self,
        warm: Callable[[SandboxConfig], Awaitable[None]],
        boxes: OwnedBoxes[WorkerBox],
        launcher: LauncherClient,
    ) -> None:
        super().__init__(launcher)
        self._warm = warm
        self._boxes = boxes

    async def placement(self, config: SandboxConfig) -> None:
        """Returns None: every tier has files."""

    async def prepare_space(self, config: SandboxConfig) -> None:
        await self._warm(config)

    def forget(self, space: Space) -> None:
        self._boxes.retire(space)


class _InMonty(Sandbox):
    """Worker that executes one job."""

    def __init__(self, box: WorkerBox) -> None:
        self.containment = _CONTAINMENT
        self._box = box
        self._renewed = False
        self._closed = False

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        assert isinstance(bridge, PipeEndpoint)
        run = MontyRun(self._box.worker, job, bridge, renew=not self._box.retired)
        exit = await run.execute()
        self._renewed = run.renewed
        return exit

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._box.finish(renewed=self._renewed)


def _make(memory_mb: int, _in_advance: bool) -> Worker:
    return Worker(memory_mb)


def _close(pool: Pool[int, Worker], boxes: OwnedBoxes[WorkerBox], launcher: LauncherClient) -> None:
    launcher.close()
    pool.close()
    for box in boxes.close():
        if isinstance(box, WorkerBox) and box.idle_since is not None:
            box.worker.close()
