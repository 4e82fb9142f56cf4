"""`GrpcBridge`: calls over gRPC, with its own server. docs/grpc.md specifies the protocol.

Needs the extra `grpc`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any, ClassVar, TypeAlias

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import BridgeHost, BridgeProtocol, Document
from corral.bridges.web import load_of
from corral.bridges.web.documents import DocumentCache
from corral.bridges.web.request_load import most_body_bytes
from corral.bridges.web.request_watch import ended, late
from corral.calls.calls import Call
from corral.calls.grants import Grant, IssuedElsewhere
from corral.concurrency.threads import thread_safe_callback
from corral.errors import (
    ConfigError,
    CorralError,
    ExecutionCancelled,
    HostLost,
    InvalidToken,
    MalformedMessage,
    MessageTooLarge,
    requires_extra,
)
from corral.guest import Transport
from corral.protocols.transports import transport
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, Endpoint, HttpEndpoint, Language

with requires_extra("GrpcBridge", "grpc"):
    import grpc
    import grpc.aio
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from grpc_reflection.v1alpha import reflection_pb2

    from corral.protocols.grpc.methods import BRIDGE_SERVICE, POOL, BridgeMethods, MethodFailed, error_within, status_of
    from corral.protocols.grpc.tool_schema import FILE, ToolSchema, proto_document

__all__ = ["GrpcBridge"]

_REFLECTION_SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
"""Versions of the reflection service, which have the same messages."""
_MAX_SECONDS = 60.0
_MAX_REQUESTS = 2_000
_MAX_REQUEST_BYTES = 2_000


class Reflection:
    """One stream of requests about a schema."""

    def __init__(self, schema: ToolSchema, service: str) -> None:
        self._schema = schema
        self._service = service

    async def serve(self, read: Callable[[], Awaitable[Any]], write: Callable[[Any], Awaitable[None]]) -> None:
        """Answers until the client ends the stream, or it has been open for a minute.

        Raises:
            MalformedMessage: a message is not a request.
            MessageTooLarge: a request is too long, or there are too many.
        """
        with anyio.move_on_after(_MAX_SECONDS):
            for _ in range(_MAX_REQUESTS):
                body = await read()
                if not isinstance(body, bytes):
                    return
                if len(body) > _MAX_REQUEST_BYTES:
                    raise MessageTooLarge(f"a request of reflection has more than {_MAX_REQUEST_BYTES} bytes")
                try:
                    request = reflection_pb2.ServerReflectionRequest.FromString(body)
                except DecodeError:
                    raise MalformedMessage("the message has the wrong type") from None
                await write(self._answer(request))
            raise MessageTooLarge(f"a stream of reflection has more than {_MAX_REQUESTS} requests")

    def _answer(self, request: reflection_pb2.ServerReflectionRequest) -> reflection_pb2.ServerReflectionResponse:
        reply = reflection_pb2.ServerReflectionResponse(valid_host=request.host, original_request=request)
        match request.WhichOneof("message_request"):
            case "list_services":
                for name in (*self._schema.services, BRIDGE_SERVICE, self._service):
                    reply.list_services_response.service.add(name=name)
            case "file_by_filename":
                name = request.file_by_filename
                self._describe(reply, lambda pool: pool.FindFileByName(name).name)
            case "file_containing_symbol":
                symbol = request.file_containing_symbol
                self._describe(reply, lambda pool: _file_of(pool, symbol))
            case "all_extension_numbers_of_type":
                reply.all_extension_numbers_response.base_type_name = request.all_extension_numbers_of_type
            case _:
                _not_found(reply)
        return reply

    def _describe(self, reply: reflection_pb2.ServerReflectionResponse, find: Callable[[DescriptorPool], str]) -> None:
        """Adds the file with the symbol, after its dependencies."""
        for pool in (self._schema.pool, POOL, _REFLECTION_POOL):
            try:
                name = find(pool)
            except KeyError:
                continue
            described = pool.FindFileByName(name)
            for each in (described, *described.dependencies):
                # This one has comments, which a pool does not return.
                file = self._schema.file.SerializeToString() if each.name == FILE else each.serialized_pb
                reply.file_descriptor_response.file_descriptor_proto.append(file)
            return
        _not_found(reply)


def _file_of(pool: DescriptorPool, symbol: str) -> str:
    """Returns the file of a symbol. protobuf's pool finds methods and fields only by way of their parents."""
    try:
        return pool.FindFileContainingSymbol(symbol).name
    except KeyError:
        return pool.FindFileContainingSymbol(symbol.rpartition(".")[0]).name


def _not_found(reply: reflection_pb2.ServerReflectionResponse) -> None:
    code = grpc.StatusCode.NOT_FOUND
    reply.error_response.error_code = code.value[0]
    reply.error_response.error_message = "not found"


def _reflection_pool() -> DescriptorPool:
    pool = DescriptorPool()
    alpha = reflection_pb2.DESCRIPTOR.serialized_pb
    file = FileDescriptorProto.FromString(alpha)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", "grpc.reflection.v1"
    _rename(file)
    pool.AddSerializedFile(alpha)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _rename(file: FileDescriptorProto) -> None:
    old, new = ".grpc.reflection.v1alpha.", ".grpc.reflection.v1."
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(old, new)
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(old, new)
            method.output_type = method.output_type.replace(old, new)


_REFLECTION_POOL = _reflection_pool()


_MESSAGE_SECONDS = 30.0
_MAX_METADATA = 100

Context: TypeAlias = Any
"""`grpc.aio.ServicerContext` for requests and responses as bytes."""
Metadata: TypeAlias = list[tuple[str, str | bytes]]


class BridgeService(grpc.GenericRpcHandler):
    """Handler of all methods."""

    def __init__(self, host: BridgeHost, schemas: DocumentCache[ToolSchema]) -> None:
        self._host = host
        self._schemas = schemas
        self._methods = BridgeMethods(host, schemas, "grpc")
        self._reflections = {f"/{name}/ServerReflectionInfo": name for name in _REFLECTION_SERVICES}

    @override
    def service(self, handler_call_details: Any) -> Any:
        path: str = handler_call_details.method
        metadata: Metadata = list(handler_call_details.invocation_metadata or ())

        async def serve(requests: object, context: Context) -> None:  # noqa: ARG001
            # Tasks of grpc.aio are cancelled when the client cancels, and at its deadline.
            try:
                async with _of_grant(await self._grant_of(metadata)) as grant:
                    await self._serve(path, context, grant)
            except CorralError as error:
                await _abort(context, error)
            except MethodFailed as failed:
                await _abort(context, failed.error)
            except Exception as error:  # gRPC would send the error's text to the client
                await _abort(context, error_within(error, path))

        make: Any = grpc.stream_stream_rpc_method_handler
        return make(serve)

    async def _grant_of(self, metadata: Metadata) -> Grant:
        if len(metadata) > _MAX_METADATA:
            raise MessageTooLarge("the request has too much metadata")
        values = [value for key, value in metadata if key == "authorization"]
        if len(values) > 1:
            raise MalformedMessage("the metadata has two authorizations")
        scheme, _, token = str(values[0]).partition(" ") if values else ("", "", "")
        token = token.strip() or None if scheme.lower() == "bearer" else None
        try:
            return self._host.find(token)
        except IssuedElsewhere as error:
            raise HostLost(
                f"this execution belongs to the host {error.host!r}, and gRPC requests are not forwarded; connect to "
                "that host, or use the Connect bridge"
            ) from None
        except InvalidToken:
            # A refused token passes through the pipeline as a call, so that it is audited.
            reply = await self._host.handle(Call(CallRequest("", None, 0), protocol="grpc", token=token))
            raise MethodFailed(reply.error or ended()) from None

    async def _serve(self, path: str, context: Context, grant: Grant) -> None:
        exchange = _Exchange(context, grant)
        if (service := self._reflections.get(path)) is not None:
            load_of(grant).count(1)
            await Reflection(await self._schemas.of(grant), service).serve(context.read, exchange.write)
        else:
            await self._methods.serve(path, exchange, grant)


class _Exchange:
    """One request, in frames of HTTP/2."""

    def __init__(self, context: Context, grant: Grant) -> None:
        self._context = context
        self._grant = grant
        self._writing = anyio.Lock()
        """Held while a message is sent, because gRPC accepts one at a time."""
        self._begun = False
        """True once the first message has been sent."""

    def begin(self, *, stream: bool, ping: Any = None) -> None:
        """Does nothing, because gRPC has one form for all methods and keeps connections alive itself."""

    @asynccontextmanager
    async def message(self, kind: Any, *, batch: bool = False) -> AsyncGenerator[tuple[Any, int]]:
        body: Any = None
        with anyio.move_on_after(_MESSAGE_SECONDS):
            body = await self._context.read()
        if body is None:
            raise MethodFailed(late())
        if not isinstance(body, bytes):
            raise MalformedMessage("the request has no message")
        grant = self._grant
        allowed = most_body_bytes(grant) if batch else grant.limits.tool_input_bytes + MAX_TOOL_PATH + 20
        if len(body) > allowed:
            raise MessageTooLarge(f"the request has {len(body)} bytes; the maximum is {allowed}")
        room = load_of(grant).room
        if not room.try_acquire(len(body)):
            await room.acquire(len(body))
        try:
            try:
                message = kind.FromString(body)
            except DecodeError:
                raise MalformedMessage("the message has the wrong type") from None
            yield message, len(body)
        finally:
            room.release(len(body))

    async def write(self, message: Any, *, last: bool = False) -> None:  # noqa: ARG002 - gRPC ends a stream itself
        try:
            async with self._writing:
                # gRPC sends its headers with the first message. After a cancelled write, it would send them again with
                # the status, fail (TOO_MANY_OPERATIONS), and leave the client waiting.
                with anyio.CancelScope(shield=not self._begun):
                    await self._context.write(message.SerializeToString())
                self._begun = True
        except grpc.aio.InternalError:
            raise ExecutionCancelled("the client has disconnected") from None


@asynccontextmanager
async def _of_grant(grant: Grant) -> AsyncGenerator[Grant]:
    """Runs the block until the grant ends, which fails the request."""
    with anyio.CancelScope() as scope:
        cut = thread_safe_callback(scope.cancel)
        grant.on_end.add(cut)
        try:
            yield grant
        finally:
            grant.on_end.discard(cut)
    if scope.cancelled_caught:
        raise MethodFailed(ended())


async def _abort(context: Context, error: CorralError | CallError) -> None:
    status = status_of(error)
    with suppress(grpc.aio.InternalError):  # the client has disconnected
        await context.abort(status.code, status.message, status.trailers)


_MESSAGE_BYTES = 8_000_000
"""Maximum bytes of one incoming message. The limits of an execution are lower."""
_METADATA_BYTES = 32_768
_STREAMS = 256
"""Maximum concurrent requests on one connection."""
_CLOSE_SECONDS = 2.0
_PING_SECONDS = 10
"""Minimum seconds between pings of a client that waits for a slow call. More frequent pings end its connection."""


@checked
class GrpcBridge(BridgeProtocol):
    """Calls over gRPC. Its Corral opens a server on `host` and `port`; port 0 is any free port.

    `url` is the address for programs, such as `https://tools.example.org:443`; it defaults to the server's.
    `certificate` and `private_key` are PEM texts. A server without them must be on a loopback address or, behind a
    proxy that has a certificate, be allowed by `allow_plaintext`.

    Raises:
        ConfigError: plaintext is not allowed, or one of `certificate` and `private_key` is missing.
    """

    name: ClassVar[str] = "grpc"

    def __init__(
        self,
        url: str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        certificate: bytes | None = None,
        private_key: bytes | None = None,
        allow_plaintext: bool = False,
        max_requests: int = 1_000,
    ) -> None:
        if (certificate is None) != (private_key is None):
            raise ConfigError("GrpcBridge needs both `certificate` and `private_key`; pass both or neither")
        if certificate is None and not (allow_plaintext or _is_loopback(host)):
            raise ConfigError(
                f"GrpcBridge on {host!r} would send tokens in plaintext; set `certificate` and `private_key`, or "
                "`allow_plaintext=True` behind a proxy that has them"
            )
        self.url = url
        self._host = host
        self._port = port
        self._key = None if certificate is None or private_key is None else [(private_key, certificate)]
        self._max_requests = max_requests
        self._server: grpc.aio.Server | None = None
        self._bound_port = port
        self._refused = 0
        self._documents: DocumentCache[ToolSchema] = DocumentCache(ToolSchema, lambda schema: schema.size)

    @property
    def address(self) -> str:
        """Address of the server, such as `127.0.0.1:50051`.

        Raises:
            ConfigError: the server is not open.
        """
        if self._server is None:
            raise ConfigError("the server of GrpcBridge is not open; open its Corral first (`async with corral`)")
        return _join_address(self._host, self._bound_port)

    @override
    async def open(self, host: BridgeHost) -> None:
        """Starts the server.

        Raises:
            ConfigError: the server is already open, the event loop is not asyncio's, or the address is taken.
        """
        if self._server is not None:
            self._refused += 1
            raise ConfigError("a GrpcBridge belongs to one Corral; make another one")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigError("GrpcBridge needs asyncio; it does not run on trio") from None
        options: list[tuple[str, Any]] = [
            ("grpc.so_reuseport", 0),  # otherwise, a second server could silently share the port
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.max_metadata_size", _METADATA_BYTES),
            ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
            ("grpc.max_concurrent_streams", _STREAMS),
            ("grpc.http2.min_ping_interval_without_data_ms", _PING_SECONDS * 1000),
            ("grpc.http.overload_protection", 0),  # it would count ended streams too, and refuse calls within the limit
        ]
        server = grpc.aio.server(
            handlers=[BridgeService(host, self._documents)],
            options=options,
            maximum_concurrent_rpcs=self._max_requests,
        )
        address = _join_address(self._host, self._port)
        try:
            if self._key is None:
                self._bound_port = server.add_insecure_port(address)
            else:
                self._bound_port = server.add_secure_port(address, grpc.ssl_server_credentials(self._key))
        except RuntimeError as error:
            raise ConfigError(f"GrpcBridge cannot listen on {address}; is the port taken?") from error
        self._server = server
        await server.start()

    @override
    async def aclose(self) -> None:
        if self._refused:  # also called if `open` failed, when the server belongs to another Corral
            self._refused -= 1
            return
        server, self._server = self._server, None
        if server is not None:
            await server.stop(_CLOSE_SECONDS)

    async def drain(self, seconds: float) -> None:
        """Refuses new calls, and waits until running ones have ended. Cancels them after `seconds`."""
        if self._server is not None:
            await self._server.stop(seconds)

    @override
    @asynccontextmanager
    async def serve(self, host: BridgeHost, grant: Grant) -> AsyncGenerator[Endpoint]:
        url = self.url or f"{'http' if self._key is None else 'https'}://{self.address}"
        yield HttpEndpoint(url=url, token=host.issue(grant), protocol=self.name)

    @override
    async def document(self, grant: Grant) -> Document:
        """Returns the `.proto` file of the tools that the scopes of a grant allow."""
        return await proto_document(self._documents, grant)

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("grpc", language, "messages")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _join_address(host: str, port: int) -> str:
    return f"[{host.strip('[]')}]:{port}" if ":" in host else f"{host}:{port}"
