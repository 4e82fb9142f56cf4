"""Running programs: here, in sandboxes, and elsewhere, with tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypedDict, Unpack

import anyio

from corral.arguments import checked
from corral.bridges import ApprovalRequest, Approve, ASGIApp, BridgeProtocol, Grant, OutsideExecution
from corral.errors import ConfigError
from corral.event_listener import Observation
from corral.events import OnEvent
from corral.executions import Check, Execution, ExecutionRequest, Run, Runtime
from corral.facade.lifetime import CorralLifetime
from corral.results import ExecutionResult
from corral.sandboxes.selection import Sandboxes
from corral.tool_sources import Tools, ToolSources
from corral.tool_views import ToolViews
from corral.types import Approved, Denied, ExecutionContext, Language, Limits

__all__ = ["CorralRunning", "RunOptions"]


class LiveOptions(TypedDict, total=False):
    """Options of one execution that are objects of this process."""

    tools: Tools | None
    on_event: OnEvent | None
    approve: Approve | None


class RunOptions(LiveOptions, total=False):
    """Options of one execution, over the defaults of its `Corral`."""

    language: Language
    context: ExecutionContext | None
    limits: Limits | None
    env: Mapping[str, str] | None
    check: Check | None
    hide_denied: bool | None
    tool_call_id: str | None


class CorralRunning(CorralLifetime):
    """Runs programs."""

    def __init__(self, runtime: Runtime, sources: ToolSources, sandbox: Sandboxes, views: ToolViews) -> None:
        super().__init__(runtime, sources, sandbox)
        self._views = views

    @checked
    async def execute(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> ExecutionResult:
        """Runs a program to its end. The result holds whatever the program did, errors included.

        `source` is the model's answer, or a request made before, which has its own options.

        Raises:
            StartFailed: the sandbox did not start.
            ConfigError: the options do not fit together, or the Corral is closed.
        """
        execution = self._execution(source, **options)
        with self._lives(execution):
            return await execution.run()

    @checked
    @asynccontextmanager
    async def start(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> AsyncGenerator[Run]:
        """Starts a program and yields its handle; leaving the block cancels a program that still runs.

        Raises:
            As `execute`; a sandbox that does not start raises from `Run.result()`.
        """
        execution = self._execution(source, **options)
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            run = Run(execution)
            with self._lives(execution):
                tasks.start_soon(run.drive)
                try:
                    yield run
                except BaseException as error:  # raised below: a task group would wrap it
                    failure = error
                execution.cancel()
                with anyio.CancelScope(shield=True):
                    await run.done.wait()
                run.close()
        if failure is not None:
            raise failure

    @checked
    def execute_sync(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> ExecutionResult:
        """Runs `execute` for callers without an event loop, in a thread with its own loop.

        Inside `with Corral(...)` the loop lives on between calls.

        Raises:
            ConfigError: this thread already runs an event loop; await `execute` there.
        """
        return self._in_a_loop(partial(self.execute, source, **options))

    @checked
    def observe(self, callback: OnEvent, *, session_id: str | None = None) -> Observation:
        """Calls a function, sync or async, with the events of all executions, or of one session's, from now on.

        The observation ends with its `with` or `async with` block, or by `close()`. No execution waits for an async
        function; one that is 10,000 events behind misses the next ones. Exceptions are logged.
        """
        return Observation(callback, session_id, self._runtime.observations)

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Returns the calls that wait for a decision, oldest first."""
        return self._runtime.parked.requests()

    @checked
    def decide(self, execution_id: str, sequence: int, decision: Approved | Denied) -> bool:
        """Decides on a call that waits for it; the first decision holds. Any thread may call it.

        The host has to know that the person may decide: `pending` has the `context` of the call. Returns False if the
        call does not wait, or no longer.
        """
        return self._runtime.parked.decide(execution_id, sequence, decision)

    # --- programs that run elsewhere

    @checked
    def grant(
        self,
        context: ExecutionContext,
        *,
        limits: Limits | None = None,
        tools: Tools | None = None,
        lives_seconds: float | None = None,
        language: Language = "typescript",
        hide_denied: bool | None = None,
    ) -> OutsideExecution:
        """Lets a program elsewhere call tools through `asgi_app`, until the block ends or `lives_seconds` have passed.

        Only the limits of calls apply: nothing else of the program runs here. `language` is that of `tools.describe`.

        Raises:
            ConfigError: the Corral is closed, or the language is unknown.
        """
        self._require_usable()
        self._require_sources()
        registry, services = self._views.callable_tools(tools, context, hide_denied, language)
        grant = Grant(
            context=context,
            scopes=self._runtime.implied.held_with(context.scopes),
            limits=limits or self._runtime.limits,
            tools=registry,
            lives_seconds=lives_seconds,
            services=services,
        )
        self._runtime.grants.open(grant)
        return OutsideExecution(grant, self._runtime.grants)

    @checked
    def execution_token(self, context: ExecutionContext, ttl_seconds: float = 300.0) -> str:
        """Issues a token for one program that runs elsewhere. It expires after `ttl_seconds`, at most 300, for good.

        Raises:
            ConfigError: `ttl_seconds` or the context does not fit a token.
            MissingExtra: the extra `http` is not installed.
        """
        execution = self.grant(context, lives_seconds=ttl_seconds)
        try:
            return execution.token(ttl_seconds)
        except BaseException:
            execution.end()
            raise

    @checked
    def asgi_app(self, protocol: str | BridgeProtocol | None = None) -> ASGIApp:
        """Returns a bridge as an app for a web server: `protocol`, or a bridge of this Corral, or `HttpBridge()`.

        Raises:
            ConfigError: the protocol is unknown, or is not mounted in a web server.
            MissingExtra: the protocol's extra is not installed.
        """
        protocols = self._runtime.protocols
        return protocols.mounted(protocol).asgi_app(protocols.host)

    def _execution(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> Execution:
        self._require_usable()
        self._require_sources()
        request = _request(source, options)
        registry, services = self._views.callable_tools(
            options.get("tools"), request.context, request.hide_denied, request.language
        )
        execution = Execution(
            self._runtime,
            request,
            tools=registry,
            services=services,
            on_event=options.get("on_event"),
            approve=options.get("approve"),
        )
        if self._runtime.check_of(request):
            self._runtime.checker.start(request.language, self._runtime.tools)
        return execution


def _request(source: str | ExecutionRequest, options: RunOptions) -> ExecutionRequest:
    """Returns the request that the arguments of `execute` are, or make.

    Raises:
        ConfigError: a request comes with options that it has itself.
    """
    own: dict[str, Any] = {name: value for name, value in options.items() if name not in LiveOptions.__annotations__}
    if isinstance(source, str):
        return ExecutionRequest(source=source, **{name: value for name, value in own.items() if value is not None})
    if own:
        names = ", ".join(own)
        raise ConfigError(f"{names}: an ExecutionRequest has its own; set them in the request")
    return source
