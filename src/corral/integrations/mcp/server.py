"""MCP server: its tools, and the notifications about running programs."""

from __future__ import annotations

import json
import math
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias, get_args

import anyio
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.streamable_http_manager import DEFAULT_MAX_REQUEST_BODY_SIZE, RequestBodyLimitMiddleware
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LOG_LEVEL_META_KEY,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    EmptyResult,
    ErrorData,
    InputRequests,
    InputRequiredResult,
    InputResponses,
    JSONRPCError,
    ListToolsResult,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    PaginatedRequestParams,
    SetLevelRequestParams,
    ToolAnnotations,
)
from mcp_types import Tool as McpTool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from corral import ApprovalRequest, Approved, Corral, Denied, ExecutionContext, ExecutionResult, Later, Tool
from corral.arguments import checked
from corral.bridges import PeerHosts
from corral.concurrency.fairness import Shares
from corral.concurrency.threads import run_in_own_thread
from corral.errors import (
    AccessDenied,
    CorralError,
    ExecutionCancelled,
    HostLost,
    MalformedMessage,
    RateLimited,
    SandboxError,
)
from corral.events import ConsoleOutput, Event, ToolCallFinished, ToolCallProgress, ToolCallStarted
from corral.integrations.kit import Decide, Pause, context_for, run_durably
from corral.integrations.mcp.elicitation import (
    Client,
    ClientAway,
    ClientInTouch,
    ask_client,
    asked_by,
    can_elicit,
    decision_of,
    question,
)
from corral.integrations.mcp.tool_results import OUTPUT_SCHEMA, failed, program_result, text_result
from corral.logs import get_logger
from corral.model import ModelTool
from corral.rendering.preview import preview_json, preview_text
from corral.types import JsonSchema, Language, LogLevel, ToolName

LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)
"""Log levels in ascending order, as in the literal."""

_SESSION_HEADER = "mcp-session-id"
_MOST_SESSIONS = 10_000
"""The SDK's own maximum number of open sessions."""


def session_of(request: ServerRequestContext[Any, Any]) -> str | None:
    """Returns the id of a request's MCP session, if it has one, which is over HTTP in the handshake era.

    Without sessions, the header can have any value, and is ignored.
    """
    http = request.request
    return http.headers.get(_SESSION_HEADER) if isinstance(http, Request) and request.session.can_send_request else None


class LogLevels:
    """Log levels that clients have set for the console output of programs."""

    def __init__(self) -> None:
        self._chosen: OrderedDict[str | None, LoggingLevel] = OrderedDict()

    def choose(self, request: ServerRequestContext[Any, Any], level: LoggingLevel) -> None:
        """Sets the level of the request's session or, on standard input, of the only client. For the handshake era."""
        session = session_of(request)
        if session is None and request.request is not None:
            return  # the request belongs to no session
        self._chosen[session] = level
        self._chosen.move_to_end(session)
        if len(self._chosen) > _MOST_SESSIONS:
            self._chosen.popitem(last=False)

    def of(self, request: ServerRequestContext[Any, Any]) -> LoggingLevel | None:
        """Returns the level; None for no output. Since 2026-07-28, each request has it; before, the default is
        debug."""
        if request.protocol_version in MODERN_PROTOCOL_VERSIONS:
            chosen: object = (request.meta or {}).get(LOG_LEVEL_META_KEY)
            return next((level for level in LEVELS if level == chosen), None)
        return self._chosen.get(session_of(request), "debug")


# --- notifications ------------------------------------------------------------------------------------------

_PAUSE_SECONDS = 0.1
"""Seconds between two bursts of notices."""
_BURST = 100
"""Maximum number of notices in a burst. Further ones are only counted."""
_TEXT_CHARS = 8_000
"""Maximum characters of console output in a notification."""
_CALL_CHARS = 300
_LOGGER = "program"
_LOG_LEVELS: Mapping[LogLevel, LoggingLevel] = {
    "debug": "debug",
    "log": "info",
    "info": "info",
    "warn": "warning",
    "error": "error",
}


@dataclass(slots=True)
class _Progress:
    message: str
    sequence: int | None = None
    """Number of the call that reported progress. A later report of the same call replaces this one."""


@dataclass(slots=True)
class _Printed:
    level: LoggingLevel
    text: str


class Notices:
    """Notifications about a program. Up to one burst is kept while no client listens."""

    def __init__(self) -> None:
        self._held: list[_Progress | _Printed] = []
        self._dropped = 0
        self._news = anyio.Event()
        self._count = 0
        """Progress, which must rise with each notice (MCP, progress). The total is unknown."""
        self._level: LoggingLevel | None = None

    def see(self, event: Event) -> None:
        """Adds a notice for an event. Pass it as `Corral.execute(on_event=...)`."""
        match event:
            case ToolCallStarted(call=call):
                shown = preview_json(call.input, _CALL_CHARS) if self._has_room else ""
                self._hold(_Progress(f"{call.name} {shown}"))
            case ToolCallProgress():
                self._report(event)
            case ToolCallFinished(call=call):
                ending = f"{call.duration_ms or 0:.0f} ms" if call.error is None else call.error.message
                self._hold(_Progress(preview_text(f"{call.name}: {ending}", _CALL_CHARS)))
            case ConsoleOutput(entry=entry):
                self._print(_Printed(_LOG_LEVELS[entry.level], preview_text(entry.text, _TEXT_CHARS)))
            case _:
                pass

    @asynccontextmanager
    async def sent(self, request: ServerRequestContext[Any, Any], level: LoggingLevel | None) -> AsyncGenerator[None]:
        """Sends notices to the request's client during the block. `level` is for console output."""
        self._level = level
        over = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_all, request, over)
            try:
                yield
            except BaseException:
                tasks.cancel_scope.cancel()
                raise
            over.set()
            self._news.set()

    def _report(self, event: ToolCallProgress) -> None:
        done = f"{event.done:g}" if event.total is None else f"{event.done:g}/{event.total:g}"
        text = preview_text(f"{event.tool}: {done}{f' {event.message}' if event.message else ''}", _CALL_CHARS)
        for held in self._held:
            if isinstance(held, _Progress) and held.sequence == event.sequence:
                held.message = text
                return
        self._hold(_Progress(text, event.sequence))

    def _print(self, printed: _Printed) -> None:
        """Adds printed lines. Joins consecutive lines of the same level."""
        if self._level is None or LEVELS.index(printed.level) < LEVELS.index(self._level):
            return
        last = self._held[-1] if self._held else None
        if isinstance(last, _Printed) and last.level == printed.level:
            joined = f"{last.text}\n{printed.text}"
            if len(joined) <= _TEXT_CHARS:
                last.text = joined
                return
        self._hold(printed)

    @property
    def _has_room(self) -> bool:
        return len(self._held) < _BURST

    def _hold(self, notice: _Progress | _Printed) -> None:
        if self._has_room:
            self._held.append(notice)
        else:
            self._dropped += 1
        self._news.set()

    async def _send_all(self, request: ServerRequestContext[Any, Any], over: anyio.Event) -> None:
        while not over.is_set() or self._held:
            await self._news.wait()
            self._news = anyio.Event()
            held, self._held = self._held, []
            if self._dropped:
                held.append(_Progress(f"{self._dropped} more not shown"))
                self._dropped = 0
            for notice in held:
                await self._send(notice, request)
            with anyio.move_on_after(_PAUSE_SECONDS):
                await over.wait()

    async def _send(self, notice: _Progress | _Printed, request: ServerRequestContext[Any, Any]) -> None:
        """Sends a notice. The SDK drops it unless the client has requested notices of its kind."""
        session = request.session
        if isinstance(notice, _Progress):
            self._count += 1
            await session.report_progress(self._count, message=notice.message)
        else:
            params = LoggingMessageNotificationParams(level=notice.level, logger=_LOGGER, data=notice.text)
            await session.send_notification(LoggingMessageNotification(params=params), request.request_id)


# --- programs and tools -------------------------------------------------------------------------------------

_TOGETHER_SECONDS = 0.05
"""Seconds for which further questions are collected after the first, because clients limit the number of rounds."""
_RETURN_SECONDS = 600.0
"""Seconds for which a program waits for its client to return."""


class Programs:
    """Waiting programs of a running server."""

    def __init__(self, tasks: TaskGroup, corral: Corral) -> None:
        self.levels = LogLevels()
        self.corral = corral
        self._tasks = tasks
        self._away: dict[str, Program] = {}

    def start(
        self,
        program: Program,
        run: Callable[[], Awaitable[ExecutionResult]],
        counted: AbstractAsyncContextManager[None],
    ) -> None:
        """Starts a program. `counted` is left once its client has its result, or has not returned for it in time."""

        async def drive() -> None:
            async with counted:
                await program.drive(run)

        self._tasks.start_soon(drive)

    def part(self, program: Program) -> str:
        """Detaches a program from its client. Returns the state with which it can be resumed once."""
        state = secrets.token_urlsafe(32)
        if self.corral.peers is not None:
            state = f"{self.corral.peers.name}.{state}"
        self._away[state] = program
        program.leave(lambda: self._away.pop(state, None))
        return state

    def meet(self, state: str, context: ExecutionContext, arguments: Mapping[str, Any]) -> Program | None:
        """Resumes the program that this caller left with this state, if it is still waiting."""
        program = self._away.get(state)
        if program is None or not program.belongs_to(context, arguments):
            return None
        del self._away[state]
        program.come_back()
        return program


class Program(Client):
    """Program that asks its client questions by returning them as results of its call."""

    def __init__(self, programs: Programs, context: ExecutionContext, arguments: Mapping[str, Any]) -> None:
        self.notices = Notices()
        self._programs = programs
        self._owner = (context.user_id, context.organization_id)
        self._arguments = dict(arguments)
        self._questions: dict[str, tuple[ApprovalRequest, ElicitRequest]] = {}
        self._result: ExecutionResult | None = None
        self._changed = anyio.Event()
        self._taken = anyio.Event()
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._forget: Callable[[], object] = lambda: None

    async def ask(self, request: ApprovalRequest) -> Later:
        self._questions[_key(request)] = request, question(request)
        self._changed.set()
        return Later()

    async def drive(self, run: Callable[[], Awaitable[ExecutionResult]]) -> None:
        """Runs the program to its end, and keeps its result for the client."""
        try:
            with self._scope:
                self._result = await run()
                self._changed.set()
                await self._taken.wait()
        finally:
            self._forget()
            self._ended.set()
            self._changed.set()

    async def attend(self, answers: InputResponses | None = None) -> ExecutionResult | InputRequiredResult | None:
        """Waits for the result, or for questions, after which the program continues without a client; returns None if
        it was ended.

        Cancelling the call ends the program, and so does an answer of somebody who may not decide.
        """
        try:
            for key, answer in (answers or {}).items():
                if key in self._questions:
                    request, _ = self._questions[key]
                    decision = decision_of(answer, request)
                    await self._programs.corral.executions.settle(
                        request.execution_id, {request.sequence: decision}, by=request.context
                    )
            questions = await self._wait()
        except BaseException:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._ended.wait()
            raise
        if self._result is not None:
            self._taken.set()
            return self._result
        if self._ended.is_set():
            return None
        return InputRequiredResult(input_requests=questions, request_state=self._programs.part(self))

    async def _wait(self) -> InputRequests:
        """Waits until the program has ended or has questions."""
        while self._result is None and not self._ended.is_set():
            changed = self._changed = anyio.Event()  # before the questions are read, or news meanwhile would be missed
            if await self._unanswered():
                await anyio.sleep(_TOGETHER_SECONDS)
                if questions := await self._unanswered():
                    return questions
            else:
                await changed.wait()
        return {}

    async def _unanswered(self) -> InputRequests:
        waiting = await self._programs.corral.executions.waiting(elsewhere=False)
        pending = {(call.execution_id, call.sequence) for each in waiting for call in each.calls}
        return {
            key: form
            for key, (request, form) in self._questions.items()
            if (request.execution_id, request.sequence) in pending
        }

    def belongs_to(self, context: ExecutionContext, arguments: Mapping[str, Any]) -> bool:
        """True if this user sent the program, with these arguments."""
        return self._owner == (context.user_id, context.organization_id) and self._arguments == dict(arguments)

    def leave(self, forget: Callable[[], object]) -> None:
        """Starts the period within which the client must return. `forget` is called when the program ends."""
        self._forget = forget
        self._scope.deadline = anyio.current_time() + _RETURN_SECONDS

    def come_back(self) -> None:
        self._scope.deadline = math.inf


def _key(request: ApprovalRequest) -> str:
    return f"approval-{request.sequence}"


logger = get_logger("corral")

McpRequest: TypeAlias = ServerRequestContext[Programs, Any]
"""The SDK's context of a tool call. `request` is Starlette's request, if the call came over HTTP."""

_INSTRUCTIONS = (
    "Do a task with one program. `execute_code` runs it; its description explains how to write it, and what it can "
    "call. `search_tools` and `describe_tools` find tools that are not declared there."
)
_LOOKING = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_NAME_CHARS = 200
_MOST_MADE = 32
"""Maximum number of descriptions that are kept, for callers who see different tools."""


@checked
def mcp_server(
    corral: Corral,
    *,
    name: str = "corral",
    language: Language = "typescript",
    context: ExecutionContext | Callable[[McpRequest], ExecutionContext] | None = None,
    budget_tokens: int = 4_000,
    programs_at_once: int = 64,
    env: Mapping[str, str] | None = None,
) -> Server[Programs]:
    """Makes an MCP server from an open Corral, for the SDK's `run` and `streamable_http_app`.

    `context` is the caller of all programs, or a function of the request; by default, all callers are the same
    anonymous user. The budget is for the declarations of tools in a description. Programs beyond `programs_at_once` are
    refused, except for callers below their fair share. Programs see `env` in `process.env` or, in Python, in
    `os.environ`.

    Serving the result raises ConfigError if the language is not supported, or the budget is too small.
    """
    served = _Served(corral, language, context, budget_tokens, Shares(programs_at_once), env)
    made = Server[Programs] if corral.peers is None else partial(_PeerServer, corral.peers)
    server = made(
        name,
        version=version("corral"),
        instructions=_INSTRUCTIONS,
        lifespan=served.programs,
        get_tool_input_schema=served.input_schema,
        on_list_tools=served.list_tools,
        on_call_tool=served.call_tool,
    )
    # Not with `on_set_logging_level`, about which the SDK warns. Clients of the handshake era use the request.
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, served.set_level)
    return server


class _PeerServer(Server[Programs]):
    """Server on one of several hosts. Its app forwards requests to the host of their session."""

    def __init__(self, peers: PeerHosts, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._peers = peers

    @override
    def streamable_http_app(
        self, *, max_request_body_size: int = DEFAULT_MAX_REQUEST_BODY_SIZE, **options: Any
    ) -> Starlette:
        app = super().streamable_http_app(max_request_body_size=max_request_body_size, **options)
        name = self._peers.serve("mcp", app)
        manager = self.session_manager
        among_peers = _AmongPeers(manager.asgi_app, self._peers, name)
        manager.asgi_app = RequestBodyLimitMiddleware(among_peers, max_request_body_size)
        return app


class _AmongPeers:
    """App that forwards requests to the host that has their session, or the program whose questions they answer.

    Session ids and states of programs begin with the name of their host.
    """

    def __init__(self, app: ASGIApp, peers: PeerHosts, name: str) -> None:
        self._app = app
        self._peers = peers
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        session = next((value for name, value in headers if name == _SESSION_HEADER.encode()), None)
        host, inner = "", scope
        if session is not None:
            name, _, own = session.rpartition(b".")
            host = name.decode("latin-1")
            if host == self._peers.name:
                inner = {**scope, "headers": [(key, own if value is session else value) for key, value in headers]}
        elif scope["method"] == "POST":
            state, receive = await self._read_state(receive)
            host = state.rpartition(".")[0]
        is_first = self._peers.sender_of(scope) is None
        if host not in ("", self._peers.name) and is_first and await self._peers.knows(host):
            try:
                await self._peers.forward(host, scope, receive, send, app=self._name)
            except (HostLost, MalformedMessage) as error:
                body = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=INTERNAL_ERROR, message=str(error)))
                content = body.model_dump_json(by_alias=True, exclude_unset=True)
                await Response(content, 502, media_type="application/json")(scope, receive, send)
            return
        await self._app(inner, receive, self._naming(send))

    def _naming(self, send: Send) -> Send:
        """Adds the name of this host to the id of a session."""

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                prefix = f"{self._peers.name}.".encode()
                own = _SESSION_HEADER.encode()
                headers = [(name, prefix + value if name == own else value) for name, value in message["headers"]]
                message = {**message, "headers": headers}
            await send(message)

        return named

    async def _read_state(self, receive: Receive) -> tuple[str, Receive]:
        """Returns the state in a request's body, if it has one, and a function that receives the request again."""
        messages, body, more = list[Message](), bytearray(), True
        while more:  # the app in front bounds the body
            message = await receive()
            messages.append(message)
            body += message.get("body", b"")
            more = message["type"] == "http.request" and message.get("more_body", False)
        messages.reverse()

        async def again() -> Message:
            return messages.pop() if messages else await receive()

        state: object = None
        if b'"requestState"' in body:
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                state = json.loads(body)["params"]["requestState"]
        return state if isinstance(state, str) else "", again


@dataclass(eq=False)
class _Served:
    """Tools of a server."""

    _corral: Corral
    _language: Language
    _context: ExecutionContext | Callable[[McpRequest], ExecutionContext] | None
    _budget_tokens: int
    _running: Shares
    _env: Mapping[str, str] | None

    def __post_init__(self) -> None:
        self._anonymous = ExecutionContext()
        self._made: OrderedDict[int, tuple[Mapping[ToolName, Tool], Sequence[ModelTool]]] = OrderedDict()
        """Latest descriptions, by the id of their tools."""
        self._own: Sequence[ModelTool] = ()
        self._making = anyio.Lock()

    @asynccontextmanager
    async def programs(self, _: Server[Programs]) -> AsyncGenerator[Programs]:
        """Runs the server during the block. Invalid options raise here instead of at the first client."""
        await self.tools()
        async with anyio.create_task_group() as tasks:
            try:
                yield Programs(tasks, self._corral)
            finally:
                tasks.cancel_scope.cancel()

    async def tools(self, context: ExecutionContext | None = None) -> Sequence[ModelTool]:
        """Returns the tools that run programs, search and describe, with their current descriptions for this caller."""
        async with self._making:
            snapshot = self._corral.model.visible_tools(context).snapshot()
            known = self._made.get(id(snapshot))
            if known is None or known[0] is not snapshot:
                made = await run_in_own_thread(self._make, context)
                known = self._made[id(snapshot)] = snapshot, made
                while len(self._made) > _MOST_MADE:
                    self._made.popitem(last=False)
            self._own = known[1]
            return known[1]

    def _make(self, context: ExecutionContext | None) -> Sequence[ModelTool]:
        """Makes the tools, which takes tenths of a second for hundreds of them."""
        catalog = self._corral.model.catalog(self._language, budget_tokens=self._budget_tokens, context=context)
        return self._corral.model.tools(self._language, catalog=catalog, search=True, env=self._env)

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        return next((tool.input_schema for tool in self._own if tool.name == name), None)

    async def list_tools(self, request: McpRequest, __: PaginatedRequestParams | None) -> ListToolsResult:
        context = self._caller(request) if self._corral.hide_denied else None
        runs, *others = await self.tools(context)
        return ListToolsResult(
            tools=[
                _declared(runs, self._effects(context), OUTPUT_SCHEMA),
                *(_declared(each, _LOOKING) for each in others),
            ]
        )

    async def call_tool(
        self, request: McpRequest, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        tool = next((each for each in self._own if each.name == params.name), None)
        if tool is None:
            names = ", ".join(each.name for each in self._own)
            raise MCPError(INVALID_PARAMS, f"unknown tool {preview_text(params.name, _NAME_CHARS)!r}; known: {names}")
        context = self._caller(request)
        if tool is not self._own[0]:
            return text_result(await tool.run(params.arguments or {}, context))
        ended = await self._answer(tool, request, params, context)
        return ended if isinstance(ended, InputRequiredResult) else program_result(ended)

    async def set_level(self, request: McpRequest, params: SetLevelRequestParams) -> EmptyResult:
        request.lifespan_context.levels.choose(request, params.level)
        return EmptyResult()

    async def _answer(
        self, tool: ModelTool, request: McpRequest, params: CallToolRequestParams, context: ExecutionContext
    ) -> ExecutionResult | InputRequiredResult:
        """Returns the result of a program, or the questions that must be answered first."""
        programs = request.lifespan_context
        arguments = params.arguments or {}
        level = programs.levels.of(request)
        is_modern = request.protocol_version in MODERN_PROTOCOL_VERSIONS
        if is_modern and _asks(request) and self._lasts(context):
            return await self._answer_durably(tool, request, params, context)
        if params.request_state is not None:
            program = programs.meet(params.request_state, context, arguments)
            if program is None:
                return self._gone()
        elif not self._running.take(context.owner):
            return self._too_many()
        elif not (is_modern and _asks(request)):
            client = ClientInTouch(request.session, request.request_id) if _asks(request) else None
            notices = Notices()
            async with self._counted(context), notices.sent(request, level):
                return await self._execute(tool, arguments, asked_by(context, client), notices)
        else:
            program = Program(programs, context, arguments)
            run = partial(self._execute, tool, arguments, asked_by(context, program), program.notices)
            programs.start(program, run, self._counted(context))
        async with program.notices.sent(request, level):
            return await program.attend(params.input_responses) or self._gone()

    def _lasts(self, context: ExecutionContext) -> bool:
        """True if programs are in a ledger while their clients answer questions.

        Other programs are not recorded: durable ones cost more, and lack some features.
        """
        corral = self._corral
        if corral.approve is not ask_client or not corral.can_be_durable(self._language, context):
            return False
        tools = corral.model.visible_tools(context).snapshot().values()
        return corral.policy is not None or any(tool.needs_approval is not False for tool in tools)

    async def _answer_durably(
        self, tool: ModelTool, request: McpRequest, params: CallToolRequestParams, context: ExecutionContext
    ) -> ExecutionResult | InputRequiredResult:
        """Runs or continues a program. No process waits for answers; any server with the same ledger continues it."""
        arguments, answers, notices = params.arguments or {}, params.input_responses or {}, Notices()
        execution_id, _, number = (params.request_state or f"execution-{secrets.token_hex(16)}").partition("/")
        if params.request_state is not None:
            record = await self._corral.executions.find(execution_id)
            source = None if record is None or record.request is None else record.request.source
            if (
                record is None
                or (record.organization_id, record.user_id) != context.owner
                or source != arguments.get("code")
            ):
                return self._gone()
        if not self._running.take(context.owner):
            return self._too_many()

        def ask(pause: Pause) -> Decide | None:
            return decide if str(pause.number) == number else None

        def decide(call: ApprovalRequest) -> Approved | Denied | None:
            key = _key(call)
            return decision_of(answers[key], call) if key in answers else None

        async def execute(_: bool) -> ExecutionResult:
            return await self._execute(tool, arguments, asked_by(context, ClientAway()), notices, execution_id)

        async with self._counted(context), notices.sent(request, request.lifespan_context.levels.of(request)):
            try:
                result = await run_durably(self._corral, execution_id, context, execute, ask)
                if not isinstance(result, Pause):
                    return result
                questions: InputRequests = {_key(call): question(call) for call in result.calls}
            except CorralError as error:
                return failed(error, self._language)
            except anyio.get_cancelled_exc_class():
                if params.request_state is None:  # a client without a state cannot continue it
                    with anyio.CancelScope(shield=True), suppress(CorralError):
                        await self._corral.executions.discard(execution_id)
                raise
        return InputRequiredResult(input_requests=questions, request_state=f"{execution_id}/{result.number}")

    def _too_many(self) -> ExecutionResult:
        reason = f"{self._running.most} programs are running, and you have a fair share of them; try again later"
        return failed(RateLimited(reason), self._language)

    @asynccontextmanager
    async def _counted(self, context: ExecutionContext) -> AsyncGenerator[None]:
        """Releases the slot of a program at the end of the block."""
        try:
            yield
        finally:
            self._running.give_back(context.owner)

    def _gone(self) -> ExecutionResult:
        return failed(ExecutionCancelled("the program is no longer waiting for this answer"), self._language)

    async def _execute(
        self,
        tool: ModelTool,
        arguments: Mapping[str, Any],
        context: ExecutionContext,
        notices: Notices,
        execution_id: str | None = None,
    ) -> ExecutionResult:
        """Runs a program. Never raises, because its task can also serve other programs."""
        try:
            return await tool.run(arguments, context, on_event=notices.see, execution_id=execution_id)
        except CorralError as error:
            return failed(error, self._language)
        except Exception:
            logger.exception("a program could not be run")
            return failed(SandboxError("the program could not be run"), self._language)

    def _caller(self, request: McpRequest) -> ExecutionContext:
        if self._context is not None:
            try:
                return context_for(self._context, request)
            except AccessDenied as denied:
                raise MCPError(INVALID_REQUEST, str(denied)) from denied
            except Exception as error:
                logger.exception("the `context` function of mcp_server failed")
                raise MCPError(INTERNAL_ERROR, "the caller of this request could not be determined") from error
        session = session_of(request)
        return self._anonymous if session is None else self._anonymous.model_copy(update={"session_id": session})

    def _effects(self, context: ExecutionContext | None) -> ToolAnnotations:
        """Returns the annotations of the tool that runs programs, which can do whatever its tools can do."""
        if all(tool.read_only for tool in self._corral.model.visible_tools(context).snapshot().values()):
            return ToolAnnotations(read_only_hint=True, open_world_hint=True)
        return ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)


def _asks(request: McpRequest) -> bool:
    """True if the protocol version of a request's client allows asking it about a call."""
    session = request.session
    in_touch = session.can_send_request or request.protocol_version in MODERN_PROTOCOL_VERSIONS
    return in_touch and can_elicit(session.client_capabilities)


def _declared(tool: ModelTool, annotations: ToolAnnotations, output_schema: JsonSchema | None = None) -> McpTool:
    return McpTool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=output_schema,
        annotations=annotations,
    )
