"""Chat server: an ASGI app with the page and its API."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar, cast
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from corral import Approved, ConfigError, Corral, Denied, ExecutionContext, ExecutionResult
from corral.bridges.base import ASGIApp, PeerHosts
from corral.bridges.web.request_filter import RequestFilter, RequestHead
from corral.calls.rates import Bucket, MemoryRates
from corral.chat.entrance import SecurityHeaders, asset, index_page, notice_page
from corral.chat.runs import ExecutionRecord, Owner, Replies, Reply, as_recorded, is_open, owner_of, short
from corral.chat.stores import ChatStore, Conversation, MemoryChats
from corral.chat.turn import ChatAgent, ChatTurn, Message, Part, text_of_message, texts_of
from corral.concurrency.kept import Lease
from corral.errors import CorralError, DecisionDenied, HostLost, MalformedMessage, SessionElsewhere, StartFailed
from corral.events import Event
from corral.integrations.kit import RESULT_FOLLOWS, carrying
from corral.logs import get_logger
from corral.rendering.images import image_type
from corral.rendering.timeline import timeline_data
from corral.tools.rates import Rate
from corral.types import TRANSCRIPT, CallError, Frozen, Positive, PositiveSeconds, Retry, Settlement, Transcript

_GONE = "the file is no longer there"

logger = get_logger("corral")


class ChatBounds(Frozen):
    """Limits of a chat server. All limits are positive; none can be disabled."""

    message_chars: Positive = 32_000
    """Maximum characters of a user's message."""
    request_bytes: Positive = 4_000_000
    """Maximum bytes of a request's body. Pages may send the whole conversation."""
    messages: Positive = 200
    """Maximum number of messages in a conversation."""
    conversation_bytes: Positive = 2_000_000
    """Maximum bytes of JSON of a conversation's messages, before the next one. All of them are stored again with each
    message."""
    messages_per_minute: Positive = 60
    """Rate of a user's messages. The whole count can come in one burst."""
    replies: Positive = 3
    """Maximum number of a user's replies in progress."""
    reply_seconds: PositiveSeconds = 3600.0
    """Maximum wall-clock seconds of a reply, including its waits for approvals."""
    file_bytes: Positive = 50_000_000
    """Maximum bytes of a session's file that the page offers."""


async def download(
    corral: Corral,
    context: ExecutionContext,
    execution: Mapping[str, Any],
    path: str,
    most_bytes: int,
    *,
    as_image: bool,
) -> Response:
    """Returns the current content of a file that an execution of this caller created or changed.

    Raises:
        HTTPException: the execution did not write it, it is gone, it has more than `most_bytes`, or `as_image` is True
            and it is not a PNG, JPEG, WebP or GIF.
    """
    files: Mapping[str, list[str]] = execution.get("files") or {}
    if path not in (*files.get("created", ()), *files.get("changed", ())):
        raise HTTPException(404, "the execution did not write this file")
    async with AsyncExitStack() as stack:
        session = context.model_copy(update={"session_id": execution.get("session")})
        try:
            session_files = await stack.enter_async_context(corral.session_files(session))
            entry = await session_files.stat(path)
            pieces = await session_files.read_stream(path)
        except CorralError as error:  # the Corral has no sessions, or the path is no longer a file
            raise HTTPException(404, _GONE) from error
        if entry is None or pieces is None:
            raise HTTPException(404, _GONE)
        if entry.size > most_bytes:
            raise HTTPException(413, f"the file has {entry.size:,} bytes, over the limit of {most_bytes:,}")
        headers, media_type = _attachment(path), "application/octet-stream"
        if as_image:
            first = await anext(pieces, b"")
            kind = image_type(first)
            if kind is None:
                raise HTTPException(415, "the file is not an image that the page can show")
            headers, media_type, pieces = {}, kind, _joined(first, pieces)
        return _Download(_bounded(pieces, most_bytes), media_type, headers, stack.pop_all())


class _Download(StreamingResponse):
    """Response that keeps the session open until its last byte has been sent."""

    def __init__(
        self, pieces: AsyncIterator[bytes], media_type: str, headers: Mapping[str, str], session: AsyncExitStack
    ) -> None:
        self._session = session
        super().__init__(pieces, media_type=media_type, headers=headers)

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._session:
            await super().__call__(scope, receive, send)


def _attachment(path: str) -> dict[str, str]:
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}"}


async def _joined(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in others:
        yield piece


async def _bounded(pieces: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """Yields at most `most_bytes`, because a program can make the file longer while it is read."""
    sent = 0
    async for piece in pieces:
        sent += len(piece)
        if sent > most_bytes:
            return
        yield piece


Authenticate: TypeAlias = Callable[[Request], Awaitable[ExecutionContext | None] | ExecutionContext | None]
"""Function that returns the caller of a request, or None to refuse it. The conversation replaces the caller's
session."""

Model = TypeVar("Model", bound=BaseModel)

_ID = r"^[A-Za-z0-9_-]{1,64}$"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_TITLE_CHARS = 80
_REASON_CHARS = 500
_SECONDS_PER_MINUTE = 60
_STREAM_HEADERS = {
    "x-vercel-ai-ui-message-stream": "v1",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class _ChatRequest(BaseModel):
    """Body of `POST /api/chat`, in the AI SDK's form."""

    model_config = ConfigDict(extra="ignore")

    id: str = Field(pattern=_ID)
    messages: list[dict[str, Any]] = Field(min_length=1)


class _UserMessage(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str = Field(pattern=_ID)
    role: str = Field(pattern="^user$")
    parts: list[dict[str, Any]] = Field(min_length=1, max_length=20)


class _DecisionRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    approved: bool
    for_session: bool = False
    """Also allows the call's doubtful destinations for the rest of the session."""
    digest: str | None = None
    """Digest of the call that the person was shown. Required for an approval."""
    reason: str = Field(default="", max_length=_REASON_CHARS)


class _ForkRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    at: int = Field(ge=1)
    source: str | None = None
    """Another program; None for the same."""


class _RollbackRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    until: int | None = Field(default=None, ge=1)


def chat_app(
    corral: Corral,
    agent: ChatAgent,
    *,
    authenticate: Authenticate,
    store: ChatStore | None = None,
    title: str = "corral",
    suggestions: Sequence[str] = (),
    bounds: ChatBounds | None = None,
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
) -> ASGIApp:
    """Makes an ASGI app, to mount or to serve, of a chat page and its server.

    The page shows the programs that `corral` runs for the caller and conversation of a turn. Calls that need approval
    get buttons, if the Corral's `approve` returns `Later`. The app must run in the event loop of the Corral, which the
    host opens. The default `store` is in memory.

    The Host of a request must be a loopback name or one of `allowed_hosts` (`"*"` allows any). Its Origin must be the
    page's own or one of `allowed_origins`.
    """
    server = _ChatServer(
        corral,
        agent,
        authenticate=authenticate,
        store=store or MemoryChats(),
        title=title,
        suggestions=suggestions,
        bounds=bounds or ChatBounds(),
    )
    filtered = RequestFilter(
        server.routes(),
        _refusal,
        hosts=frozenset({*_LOOPBACK, *(host.lower() for host in allowed_hosts)}),
        origins=frozenset(allowed_origins),
        options_of="chat_app",
        same_origin=True,
    )
    if corral.peers is not None:
        server.name_among_peers = corral.peers.serve("chat", filtered)
    return SecurityHeaders(filtered)


def _refusal(_head: RequestHead, error: CallError, status: int) -> ASGIApp:
    return JSONResponse({"error": error.message}, status)


class _ElsewhereError(Exception):
    """Raised if another host has the conversation of a request."""

    def __init__(self, host: str, body: bytes | None) -> None:
        super().__init__(host)
        self.host = host
        self.body = body


class _Forwarded(Response):
    """Response of another host, to which the request is forwarded."""

    def __init__(self, peers: PeerHosts, app: str, elsewhere: _ElsewhereError) -> None:
        super().__init__()
        self._peers = peers
        self._app = app
        self._elsewhere = elsewhere

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = self._elsewhere.body
        unread = [] if body is None else [body]

        async def again() -> Any:
            return {"type": "http.request", "body": unread.pop()} if unread else await receive()

        try:
            await self._peers.forward(self._elsewhere.host, scope, again, send, app=self._app)
        except (HostLost, MalformedMessage) as error:
            await JSONResponse({"error": str(error)}, 502)(scope, receive, send)


@dataclass(eq=False)
class _ChatServer:
    corral: Corral
    agent: ChatAgent
    authenticate: Authenticate
    store: ChatStore
    title: str
    suggestions: Sequence[str]
    bounds: ChatBounds

    def __post_init__(self) -> None:
        self.name_among_peers = ""
        self._releasing: set[asyncio.Future[None]] = set()
        self._rates = MemoryRates()
        self._replies = Replies(self.corral, self._keep)
        self._due: dict[str, ExecutionContext] = {}
        """Callers of paused executions that are decided, and continue when their conversation has room for a reply."""
        self._continuing: set[asyncio.Future[None]] = set()
        self._tried: set[str] = set()
        """Executions that this server has continued without a decision here."""

    def routes(self) -> Starlette:
        @asynccontextmanager
        async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
            await self.store.open()
            try:
                yield
            finally:
                await self._replies.aclose()
                await asyncio.gather(*self._continuing, return_exceptions=True)
                await asyncio.gather(*self._releasing, return_exceptions=True)
                await self.store.aclose()

        return Starlette(
            routes=[
                Route("/", self._page),
                Route("/executions/{execution}", self._page),
                Route("/api/about", self._about),
                Route("/api/chat", self._chat, methods=["POST"]),
                Route("/api/chat/{conversation}/stream", self._resume),
                Route("/api/chat/{conversation}/stop", self._stop, methods=["POST"]),
                Route("/api/conversations", self._conversations),
                Route("/api/conversations/{conversation}", self._conversation),
                Route("/api/conversations/{conversation}", self._delete, methods=["DELETE"]),
                Route("/api/executions/{execution}", self._execution),
                Route("/api/executions/{execution}/file", self._file),
                Route("/api/executions/{execution}/timeline", self._timeline),
                Route("/api/executions/{execution}/fork", self._fork, methods=["POST"]),
                Route("/api/executions/{execution}/rollback", self._roll_back, methods=["POST"]),
                Route("/api/approvals/{execution}/{sequence:int}", self._decide, methods=["POST"]),
                Route("/assets/{name}", asset),
            ],
            exception_handlers={HTTPException: _error, _ElsewhereError: self._forwarded},
            lifespan=lifespan,
        )

    # --- the page

    async def _page(self, request: Request) -> Response:
        root_path = request.scope.get("root_path", "")
        if await self._found_caller(request) is None:
            text = "Log in and come back, or open the address that corral chat has printed."
            return notice_page(root_path, "You are not logged in", text, 401)
        return index_page(root_path)

    async def _about(self, request: Request) -> Response:
        context = await self._caller(request)
        return JSONResponse({"title": self.title, "suggestions": list(self.suggestions), "user": context.user_id})

    # --- several hosts

    async def _forwarded(self, _request: Request, elsewhere: Exception) -> Response:
        assert isinstance(elsewhere, _ElsewhereError)
        assert self.corral.peers is not None
        return _Forwarded(self.corral.peers, self.name_among_peers, elsewhere)

    async def _expect_here(
        self, request: Request, context: ExecutionContext, conversation_id: str | None, body: bytes | None = None
    ) -> None:
        """Raises `_ElsewhereError` if another host has the conversation. `body` is the request's, if it was read."""
        peers = self.corral.peers
        if peers is None or peers.sender_of(request.scope) is not None or not conversation_id:
            return
        if self._replies.find(owner_of(context), conversation_id) is None:
            host = await peers.holder(context.model_copy(update={"session_id": conversation_id}))
            if host is not None:
                raise _ElsewhereError(host, body)

    async def _hold(self, context: ExecutionContext, conversation_id: str) -> Lease | None:
        """Takes the lease of a conversation for a reply. It is also that of the session in which its programs run.

        Raises:
            SessionElsewhere: another host has it.
        """
        peers = self.corral.peers
        if peers is None:
            return None
        session = context.model_copy(update={"session_id": conversation_id})

        def cancel_reply() -> None:
            if (reply := self._replies.find(owner_of(context), conversation_id)) is not None:
                reply.cancel()

        try:
            return await peers.hold(session, cancel_reply)
        except SessionElsewhere:
            raise
        except StartFailed as error:
            raise HTTPException(503, str(error)) from error

    async def _held(
        self, request: Request, context: ExecutionContext, conversation_id: str, body: bytes
    ) -> Lease | None:
        """Takes the lease for a request. If another host has taken it meanwhile, that host answers."""
        try:
            return await self._hold(context, conversation_id)
        except SessionElsewhere as error:
            if self.corral.peers is None or self.corral.peers.sender_of(request.scope) is not None:
                raise HTTPException(502, str(error)) from error
            raise _ElsewhereError(error.host, body) from error

    def _release(self, lease: Lease | None) -> None:
        if lease is not None:
            releasing = asyncio.ensure_future(lease.release())
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)

    # --- conversations

    async def _chat(self, request: Request) -> Response:
        context = await self._caller(request)
        owner = owner_of(context)
        body = await self._body(request)
        request_body = _validated(_ChatRequest, body)
        await self._expect_here(request, context, request_body.id, body)
        message = self._user_message(request_body.messages[-1])
        await self._expect_room(owner, request_body.id)
        await self._take(owner)
        lease = await self._held(request, context, request_body.id, body)
        try:
            conversation = await self.store.load(owner, request_body.id) or Conversation(id=request_body.id)
            before = [each["id"] for each in conversation.messages]
            if message["id"] in before:  # the user edited it, or wants another reply
                del conversation.messages[before.index(message["id"]) :]
            self._expect_short(conversation)
            conversation.messages.append(message)
            conversation.updated = time.time()
            if not conversation.title:
                conversation.title = text_of_message(message)[:_TITLE_CHARS]
            await self._expect_room(owner, request_body.id)  # another tab may have been faster
        except BaseException:
            self._release(lease)
            raise
        reply = self._start(conversation, context, owner, lease=lease)
        await reply.save(None)
        return self._stream(reply)

    def _expect_short(self, conversation: Conversation) -> None:
        """Refuses two more messages in a conversation that is full."""
        if len(conversation.messages) + 2 > self.bounds.messages:
            raise HTTPException(422, f"the conversation has {len(conversation.messages)} messages; start a new one")
        if len(json.dumps(conversation.messages)) > (most := self.bounds.conversation_bytes):
            raise HTTPException(422, f"the conversation has more than {most} bytes, the maximum; start a new one")

    async def _expect_room(self, owner: Owner, conversation_id: str) -> None:
        if self._replies.find(owner, conversation_id) is not None:
            raise HTTPException(409, "a reply in this conversation is in progress; stop it first")
        if self._replies.count(owner) >= self.bounds.replies:
            waiting = len([each for each in await self._waiting(owner) if self._replies.find(owner, each) is not None])
            if waiting:
                waits = "1 conversation waits" if waiting == 1 else f"{waiting} conversations wait"
                raise HTTPException(429, f"{waits} for your approval; approve or deny a call first")
            raise HTTPException(429, f"{self.bounds.replies} replies are in progress; wait for one, or stop it")

    async def _waiting(self, owner: Owner) -> set[str]:
        """Returns the ids of conversations whose programs wait for a decision of the user."""
        waiting = await self.corral.executions.waiting(user_id=owner.user_id, organization_id=owner.organization_id)
        return {
            conversation
            for each in waiting
            if owner_of(each.context) == owner and (conversation := each.context.session_id) is not None
            if each.status == "paused"
            or self.corral.peers is not None
            or self._replies.find(owner, conversation) is not None
        }

    async def _take(self, owner: Owner) -> None:
        """Counts a user's message."""
        most = self.bounds.messages_per_minute
        key = sha256(str(owner).encode()).hexdigest()
        refusal = await self._rates.take([Bucket(key, Rate(most, _SECONDS_PER_MINUTE))])
        if refusal is not None:
            seconds = math.ceil(refusal.seconds)
            message = f"you may send {most} messages a minute; the next one in {seconds} s"
            raise HTTPException(429, message, headers={"retry-after": str(seconds)})

    def _start(
        self,
        conversation: Conversation,
        context: ExecutionContext,
        owner: Owner,
        agent: ChatAgent | None = None,
        earlier: Message | None = None,
        lease: Lease | None = None,
    ) -> Reply:
        """Begins a reply, and releases the lease at its end."""
        writing = asyncio.Lock()  # a store can reorder concurrent writes

        async def save(message: Message | None) -> None:
            async with writing:
                if message is not None:
                    if conversation.messages and conversation.messages[-1]["id"] == message["id"]:
                        conversation.messages.pop()
                    conversation.messages.append(message)
                    conversation.updated = time.time()
                await self.store.save(owner, conversation)

        messages = tuple(conversation.messages)
        knowing = carrying(context, TRANSCRIPT, partial(_transcript, messages))
        turn = ChatTurn(
            conversation_id=conversation.id,
            messages=messages,
            context=knowing.model_copy(update={"session_id": conversation.id}),
        )
        seconds = self.bounds.reply_seconds
        reply = self._replies.start(turn, owner, agent or self.agent, seconds=seconds, save=save, earlier=earlier)
        reply.task.add_done_callback(lambda _: self._release(lease))
        reply.task.add_done_callback(lambda _: self._continue_due(owner))
        return reply

    # --- paused programs

    def _continue_due(self, owner: Owner) -> None:
        for execution_id, context in [*self._due.items()]:
            if owner_of(context) == owner:
                del self._due[execution_id]
                self._continue_soon(execution_id, context)

    def _continue_soon(self, execution_id: str, context: ExecutionContext) -> None:
        continuing = asyncio.ensure_future(self._continue(execution_id, context))
        self._continuing.add(continuing)
        continuing.add_done_callback(self._continued)

    def _continued(self, continuing: asyncio.Future[None]) -> None:
        self._continuing.discard(continuing)
        if not continuing.cancelled() and (error := continuing.exception()) is not None:
            logger.error("a paused program could not be continued", exc_info=error)

    async def _continue(self, execution_id: str, context: ExecutionContext) -> None:
        """Continues a paused execution of this page as a reply in its conversation, once all its calls are decided."""
        owner = owner_of(context)
        recorded = await self.corral.executions.get(execution_id)
        if recorded.status != "paused" or len(recorded.decided) < len(recorded.pending):
            return
        data = await self._found(owner, execution_id)
        if data is None or data["session"] is None:
            return
        try:
            lease = await self._hold(context, data["session"])
        except (SessionElsewhere, HTTPException):
            self._due[execution_id] = context
            return
        try:
            conversation = await self.store.load(owner, data["session"]) or Conversation(
                id=data["session"], title=data.get("title", "")[:_TITLE_CHARS]
            )
        except BaseException:
            self._release(lease)
            raise
        # Nothing is awaited from here until the reply is in its place.
        if self._replies.find(owner, conversation.id) or self._replies.count(owner) >= self.bounds.replies:
            self._due[execution_id] = context
            self._release(lease)
            return
        self._replies.paused[execution_id] = deepcopy(data)
        last = conversation.messages[-1] if conversation.messages else None
        is_last = last is not None and any(part.get("id") == execution_id for part in last["parts"])
        call = data["toolCallId"] if is_last else None
        agent = _Continuation(self.corral, self.agent, partial(self.corral.executions.resume, execution_id), call)
        self._start(conversation, context, owner, agent, deepcopy(last) if is_last else None, lease)

    async def _found(self, owner: Owner, execution_id: str) -> dict[str, Any] | None:
        """Returns the data of an execution that was seen last."""
        record = self._replies.record(owner, execution_id)
        return await self.store.execution(owner, execution_id) if record is None else record.data

    async def _current(self, context: ExecutionContext, data: dict[str, Any], *, runs: bool) -> dict[str, Any]:
        """Returns the present data of an execution that was seen as `data`; `runs`: it can run in this process."""
        owner = owner_of(context)
        record = self._replies.record(owner, data["id"])
        if not is_open(data) or (runs and record is not None and not record.finished):
            return data
        try:
            recorded = await self.corral.executions.get(data["id"])
        except CorralError:  # it is not in a ledger
            return as_recorded(data, None)
        if Owner(recorded.organization_id, recorded.user_id) != owner:
            return as_recorded(data, None)
        if (
            recorded.status == "paused"
            and data["id"] not in self._tried
            and len(recorded.decided) == len(recorded.pending)
        ):
            self._tried.add(data["id"])  # it was decided elsewhere, or before this server began
            self._continue_soon(data["id"], context)
        return as_recorded(data, recorded)

    def _user_message(self, data: dict[str, Any]) -> Message:
        message = _validated(_UserMessage, data)
        texts = [part.get("text") for part in message.parts if part.get("type") == "text"]
        if not all(isinstance(text, str) for text in texts) or not "".join(cast("list[str]", texts)).strip():
            raise HTTPException(422, "the message has no text")
        if sum(map(len, cast("list[str]", texts))) > self.bounds.message_chars:
            raise HTTPException(413, f"the message is longer than {self.bounds.message_chars} characters")
        return {"id": message.id, "role": "user", "parts": [{"type": "text", "text": text} for text in texts]}

    async def _resume(self, request: Request) -> Response:
        context = await self._caller(request)
        await self._expect_here(request, context, request.path_params["conversation"])
        reply = self._replies.find(owner_of(context), request.path_params["conversation"])
        return Response(status_code=204) if reply is None else self._stream(reply)

    def _stream(self, reply: Reply) -> Response:
        reader = reply.reader()

        async def lines() -> AsyncIterator[str]:
            try:
                async for line in reader.lines():
                    yield line
            finally:
                reply.leave(reader)

        return StreamingResponse(lines(), media_type="text/event-stream", headers=_STREAM_HEADERS)

    async def _stop(self, request: Request) -> Response:
        context = await self._caller(request)
        await self._expect_here(request, context, request.path_params["conversation"])
        reply = self._replies.find(owner_of(context), request.path_params["conversation"])
        if reply is not None:
            reply.stop()
        return JSONResponse({"stopped": reply is not None})

    async def _conversations(self, request: Request) -> Response:
        owner = owner_of(await self._caller(request))
        conversations = await self.store.conversations(owner)
        waiting = await self._waiting(owner)
        return JSONResponse(
            [
                {
                    "id": each.id,
                    "title": each.title,
                    "updated": each.updated,
                    "running": self._replies.find(owner, each.id) is not None,
                    "waiting": each.id in waiting,
                }
                for each in conversations
            ]
        )

    async def _conversation(self, request: Request) -> Response:
        context = await self._caller(request)
        owner, conversation_id = owner_of(context), cast("str", request.path_params["conversation"])
        await self._expect_here(request, context, conversation_id)
        while True:
            reply = self._replies.find(owner, conversation_id)
            conversation = await self.store.load(owner, conversation_id)
            if self._replies.find(owner, conversation_id) is reply:
                break  # otherwise a reply was stored while the conversation was loaded
        if conversation is None:
            raise HTTPException(404, "there is no such conversation")
        messages = conversation.messages
        if reply is not None and messages[-1]["id"] == reply.assembled.message["id"]:
            messages = messages[:-1]  # the reply's stream has it
        messages = [await self._settled(context, each, runs=reply is not None) for each in messages]
        return JSONResponse(
            {
                "id": conversation.id,
                "title": conversation.title,
                "messages": messages,
                "running": reply is not None,
            }
        )

    async def _delete(self, request: Request) -> Response:
        context = await self._caller(request)
        owner = owner_of(context)
        conversation_id: str = request.path_params["conversation"]
        await self._expect_here(request, context, conversation_id)
        if self._replies.find(owner, conversation_id) is not None:
            raise HTTPException(409, "a reply in this conversation is in progress; stop it first")
        await self.store.delete(owner, conversation_id)
        return Response(status_code=204)

    # --- executions

    async def _execution(self, request: Request) -> Response:
        context = await self._caller(request)
        data = await self._record(request, context)
        with suppress(HTTPException):
            await self._status(context, data)
            data = {**data, "recorded": True}
        return JSONResponse({**data, "whole": True})

    async def _file(self, request: Request) -> Response:
        context = await self._caller(request)
        data = await self._record(request, context)
        path = request.query_params.get("path", "")
        show = "image" in request.query_params
        return await download(self.corral, context, data, path, self.bounds.file_bytes, as_image=show)

    async def _record(self, request: Request, context: ExecutionContext, body: bytes | None = None) -> dict[str, Any]:
        data = await self._found(owner_of(context), request.path_params["execution"])
        if data is None:
            raise HTTPException(404, "there is no such execution")
        await self._expect_here(request, context, data["session"], body)
        return await self._current(context, data, runs=True)

    async def _status(self, context: ExecutionContext, data: Mapping[str, Any]) -> str:
        """Returns the status of a recorded execution that does not run now."""
        recorded = None
        with _refused(), suppress(ConfigError):  # there is no ledger
            recorded = await self.corral.executions.find(data["id"])
        if recorded is None or Owner(recorded.organization_id, recorded.user_id) != owner_of(context):
            raise HTTPException(404, "the execution is not in a ledger")
        if recorded.status == "running":
            raise HTTPException(409, "the execution is running; wait for its end, or stop it")
        return recorded.status

    async def _timeline(self, request: Request) -> Response:
        context = await self._caller(request)
        data = await self._record(request, context)
        status = await self._status(context, data)
        await self._take(owner_of(context))
        with _refused():
            timeline = await self.corral.executions.timeline(data["id"])
        return JSONResponse({**timeline_data(timeline.result, timeline.steps), "status": status})

    async def _fork(self, request: Request) -> Response:
        """Runs a program again from one of its calls on, as a reply in its conversation."""
        context = await self._caller(request)
        body = await self._body(request)
        owner, options = owner_of(context), _validated(_ForkRequest, body)
        data = await self._record(request, context, body)
        await self._status(context, data)
        session = data["session"] or ""
        await self._take(owner)
        conversation = await self.store.load(owner, session)
        if conversation is None:
            raise HTTPException(409, "the conversation of the execution was deleted, so it cannot be run again there")
        self._expect_short(conversation)
        lease = await self._held(request, context, session, body)
        try:
            await self._expect_room(owner, session)
        except BaseException:
            self._release(lease)
            raise
        run = partial(self.corral.executions.fork, data["id"], at=options.at, source=options.source)
        agent = _Continuation(self.corral, self.agent, run, None, "run again")
        self._start(conversation, context, owner, agent, lease=lease)
        return JSONResponse({"conversation": session})

    async def _roll_back(self, request: Request) -> Response:
        """Undoes all changes of an execution, or those from a call on."""
        context = await self._caller(request)
        body = await self._body(request)
        until = _validated(_RollbackRequest, body).until
        data = await self._record(request, context, body)
        await self._status(context, data)
        await self._take(owner_of(context))
        with _refused():
            report = await self.corral.executions.rollback(data["id"], until=until, context=context)
        data["status"] = "rolled_back"
        await self.store.save_execution(owner_of(context), data)
        names = {"n": "sequence", "tool": "tool", "outcome": "outcome", "reason": "reason"}
        return JSONResponse([{name: getattr(each, field) for name, field in names.items()} for each in report.calls])

    async def _settled(self, context: ExecutionContext, message: Message, *, runs: bool) -> Message:
        """Returns a message with the present data of its executions, including after a restart of the server."""
        parts: list[dict[str, Any]] = []
        for part in message["parts"]:
            data = part.get("data")
            if part["type"] == "data-execution" and is_open(data):
                latest = await self._found(owner_of(context), data["id"])
                current = await self._current(context, latest or data, runs=runs)
                part = {**part, "data": current if latest is None else short(current)}
            parts.append(part)
        return {**message, "parts": parts}

    async def _decide(self, request: Request) -> Response:
        context = await self._caller(request)
        body = await self._body(request)
        decision = _validated(_DecisionRequest, body)
        execution_id: str = request.path_params["execution"]
        sequence: int = request.path_params["sequence"]
        owner = owner_of(context)
        executions = self.corral.executions
        waiting = await executions.waiting(user_id=owner.user_id, organization_id=owner.organization_id)
        call = next(
            (
                call
                for each in waiting
                if (each.execution_id, owner_of(each.context)) == (execution_id, owner)
                for call in each.calls
                if call.sequence == sequence
            ),
            None,
        )
        await self._expect_here(request, context, None if call is None else call.context.session_id, body)
        gone = HTTPException(409, "the call is no longer waiting for a decision")
        if call is None:
            raise gone
        if decision.approved and decision.digest is None:
            raise HTTPException(422, "digest: an approval needs the digest of the call that was shown")
        if decision.digest not in (None, call.digest):
            raise HTTPException(409, "the call has changed since it was shown; load the page again")
        by = context.user_id
        decided: Settlement = Denied(decision.reason, by=by)
        if decision.approved:
            decided = Approved(by=by, for_session=decision.for_session) if call.reason is None else Retry(by=by)
        digests = None if decision.digest is None else {sequence: decision.digest}
        try:
            if not await executions.settle(execution_id, {sequence: decided}, by=context, digests=digests):
                raise gone
        except DecisionDenied as error:
            raise HTTPException(403, str(error)) from error
        with suppress(ConfigError):  # it is not in a ledger
            await self._continue(execution_id, context)
        return JSONResponse({"decision": decided.type})

    async def _keep(self, record: ExecutionRecord) -> None:
        async with record.storing:
            await self.store.save_execution(record.owner, record.data)
        if record.data["status"] == "paused" and record.context is not None:
            await self._continue(record.data["id"], record.context)  # if it was decided before it paused

    # --- requests

    async def _caller(self, request: Request) -> ExecutionContext:
        context = await self._found_caller(request)
        if context is None:
            raise HTTPException(401, "log in first")
        return context

    async def _found_caller(self, request: Request) -> ExecutionContext | None:
        caller = self.authenticate(request)
        return await caller if inspect.isawaitable(caller) else caller

    async def _body(self, request: Request) -> bytes:
        """Reads a JSON body. Forms on other sites cannot send this content type."""
        if not request.headers.get("content-type", "").lower().startswith("application/json"):
            raise HTTPException(415, "the body must be application/json")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.bounds.request_bytes:
                raise HTTPException(413, f"the request is larger than {self.bounds.request_bytes} bytes")
        return bytes(body)


@dataclass(frozen=True, slots=True)
class _Continuation:
    """Agent that continues a recorded program, and gives its result to the conversation's agent."""

    corral: Corral
    agent: ChatAgent
    run: Callable[..., Awaitable[ExecutionResult]]
    """Runs or continues the program, with the options `context` and `on_event`."""
    tool_call_id: str | None
    """The model's tool call in the message that is continued, if any."""
    state: str = "paused"
    """State of the program before, for the model."""

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        names: set[str] = set()
        is_stopped = False

        def note(event: Event) -> None:
            names.add(event.execution_id)
            if is_stopped:  # before the program had begun
                self.corral.executions.cancel(event.execution_id)

        running = asyncio.ensure_future(self.run(context=turn.context, on_event=note))
        try:
            result = await asyncio.shield(running)
        except asyncio.CancelledError:
            is_stopped = True
            for name in names:
                self.corral.executions.cancel(name)
            await asyncio.wait([running])
            raise
        except CorralError as error:
            for part in _text(
                f"The program could not be {'continued' if self.state == 'paused' else self.state}: {error}"
            ):
                yield part
            return
        if self.tool_call_id is not None:
            yield {"type": "tool-output-available", "toolCallId": self.tool_call_id, "output": result.model_text()}
        if result.status == "paused":
            return
        text = f"{RESULT_FOLLOWS}{self.state} has ended:\n\n{result.model_text()}"
        message = {"id": result.execution_id, "role": "user", "parts": [{"type": "text", "text": text}]}
        async for part in self.agent.reply(replace(turn, messages=(*turn.messages, message), result=result)):
            yield part


@contextmanager
def _refused() -> Generator[None]:
    """Answers with the reason why a recorded execution cannot be used."""
    try:
        yield
    except CorralError as error:
        raise HTTPException(409, str(error)) from error


def _transcript(messages: Sequence[Message]) -> Transcript:
    return Transcript(asked=tuple(text for role, text in texts_of(messages) if role == "user"))


def _text(text: str) -> Iterable[Part]:
    part_id = {"id": "continuation"}
    return (
        {"type": "text-start", **part_id},
        {"type": "text-delta", **part_id, "delta": text},
        {"type": "text-end", **part_id},
    )


def _validated(model: type[Model], body: bytes | dict[str, Any]) -> Model:
    try:
        return model.model_validate_json(body) if isinstance(body, bytes) else model.model_validate(body)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_input=False)
        place = ".".join(map(str, first["loc"]))
        raise HTTPException(422, re.sub(r"\s+", " ", f"{place}: {first['msg']}").removeprefix(": ")) from None


async def _error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
