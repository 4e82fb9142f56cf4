"""`GrpcApi`: the methods of a gRPC server as a source of tools. Needs the extra `grpc`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.threads import run_in_own_thread
from corral.errors import AccessDenied, ConfigError, EgressBlocked, ToolDefinitionError, ToolError, requires_extra
from corral.logs import get_logger
from corral.rendering.masking import Mask
from corral.sources.opening import RemoteSource, asked, bind_context, closed, closed_stream, credential_of
from corral.tools import Approval, Offer, Tool
from corral.tools.tool import OutputValidation
from corral.types import ExecutionContext

with requires_extra("corral.protocols.grpc.source", "grpc"):
    import grpc
    import grpc.aio
    import httpcore
    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet, MethodOptions
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass
    from google.rpc.error_details_pb2 import BadRequest
    from google.rpc.status_pb2 import Status
    from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

    from corral.egress import EgressPolicy, Resolver
    from corral.egress.connections import SystemResolver, allowed_addresses
    from corral.egress.policy import blocked
    from corral.protocols.grpc.service_messages import Comments, Messages, pool_of

__all__ = ["GrpcApi", "Skipped"]

Metadata: TypeAlias = Mapping[str, str]
Credentials: TypeAlias = (
    Metadata | Callable[[ExecutionContext], Metadata | None] | Callable[[ExecutionContext], Awaitable[Metadata | None]]
)
"""Metadata for each call, or a function that returns a caller's metadata. If it returns None, the call fails."""

_UNTOUCHED = frozenset(
    {
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Statuses which imply that the call had no effect."""
_MESSAGE_CHARACTERS = 2_000
_VIOLATIONS = 10


class Skipped(NamedTuple):
    """Method that is not offered as a tool, and the reason."""

    method: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Method that is called as a tool."""

    described: MethodDescriptor
    messages: Messages
    credentials: Credentials = field(repr=False)
    timeout_seconds: float

    @property
    def label(self) -> str:
        service: Any = self.described.containing_service
        return f"{service.full_name}/{self.described.name}"

    async def call(self, channel: grpc.aio.Channel, input: object, context: ExecutionContext) -> object:
        """Calls a unary method.

        Raises:
            ToolError: the input does not fit, the server did not answer, or it answered with an error.
        """
        metadata = await _metadata(self.credentials, context)
        make: Any = channel.unary_unary
        call = make(f"/{self.label}", self._serialize, self._parse)
        try:
            reply = await call(self._request(input), metadata=tuple(metadata.items()), timeout=self.timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise _failure(self.label, error, metadata) from None
        return self.messages.read(reply)

    async def stream(
        self, channel: grpc.aio.Channel, input: object, context: ExecutionContext
    ) -> AsyncGenerator[object]:
        """Calls a method that streams its responses. Leaving the loop cancels the call. Raises the errors of `call`."""
        metadata = await _metadata(self.credentials, context)
        make: Any = channel.unary_stream
        call = make(f"/{self.label}", self._serialize, self._parse)(
            self._request(input), metadata=tuple(metadata.items())
        )
        try:
            async for reply in call:
                yield self.messages.read(reply)
        except grpc.aio.AioRpcError as error:
            raise _failure(self.label, error, metadata) from None
        finally:
            call.cancel()

    def _request(self, input: object) -> Any:
        return self.messages.write(self.described.input_type, {} if input is None else input)

    def _serialize(self, message: Any) -> bytes:
        return message.SerializeToString()

    def _parse(self, data: bytes) -> Any:
        return GetMessageClass(self.described.output_type).FromString(data)


async def _metadata(credentials: Credentials, context: ExecutionContext) -> Metadata:
    if not callable(credentials):
        return credentials
    metadata = await credential_of(credentials, context)
    return {key.lower(): value for key, value in metadata.items()}


def _failure(label: str, error: grpc.aio.AioRpcError, metadata: Metadata) -> ToolError:
    """Converts the error of a call for a program."""
    known = error.code() in _UNTOUCHED
    text = _failure_text(label, error, metadata)
    return ToolError(text if known else f"{text}; it may have taken effect", outcome_known=known)


def _failure_text(label: str, error: grpc.aio.AioRpcError, metadata: Metadata) -> str:
    """Describes a status, without the metadata, which servers can echo."""
    code = error.code()
    message = f"{label} failed with {code.name}: {error.details() or 'no details'}"
    if violations := _violations(error):
        message = f"{message}; {violations}"
    return Mask(metadata.values()).text(message)[:_MESSAGE_CHARACTERS]


def _violations(error: grpc.aio.AioRpcError) -> str:
    """Returns the details of a status that are about single fields."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            try:
                details = Status.FromString(value).details
            except DecodeError:
                return ""
            request = BadRequest()
            for each in details:
                if each.Unpack(request):
                    listed = request.field_violations[:_VIOLATIONS]
                    return "; ".join(f"{violation.field}: {violation.description}" for violation in listed)
    return ""


# --- connections --------------------------------------------------------------------------------------------

_METADATA_BYTES = 65_536


class Target:
    """Host and port of a server.

    Raises:
        ConfigError: the text is not exactly a host and a port.
    """

    def __init__(self, target: str) -> None:
        try:
            parts = urlsplit(f"//{target}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port or set("/@?#") & set(target):
            raise ConfigError(f"target={target!r:.200} is not host:port, such as 'api.example.com:443'")
        self.host = host
        self.port = port

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def connected(
    target: Target,
    policy: EgressPolicy,
    resolver: Resolver,
    *,
    credentials: grpc.ChannelCredentials | None,
    max_message_bytes: int,
    seconds: float,
) -> grpc.aio.Channel:
    """Makes a channel to the addresses of a target. It connects on the first call, and to no other address.

    Raises:
        EgressBlocked: the policy does not allow the target, or one of its addresses.
        ToolError: the target has no address.
    """
    scheme = "http" if credentials is None else "https"
    if (reason := policy.objection(scheme, target.host, target.port)) is not None:
        raise blocked(target.host, reason)
    try:
        addresses = await allowed_addresses(target.host, policy, resolver, seconds)
    except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
        raise ToolError(str(error)) from None
    family = "ipv4" if isinstance(addresses[0], IPv4Address) else "ipv6"
    same = [each for each in addresses if type(each) is type(addresses[0])]
    joined = ",".join(f"{each}:{target.port}" if family == "ipv4" else f"[{each}]:{target.port}" for each in same)
    options: list[tuple[str, Any]] = [
        ("grpc.default_authority", target.authority),
        ("grpc.enable_http_proxy", 0),  # because a proxy would resolve the name again
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if credentials is None:
        return grpc.aio.insecure_channel(f"{family}:{joined}", options)
    return grpc.aio.secure_channel(
        f"{family}:{joined}", credentials, [*options, ("grpc.ssl_target_name_override", target.host)]
    )


_VERSIONS = ("v1", "v1alpha")
"""Versions of the reflection service, which have the same messages."""
_MAX_FILES = 2_000
_MAX_BYTES = 16_000_000


async def reflected(
    channel: grpc.aio.Channel, metadata: Sequence[tuple[str, str]], seconds: float
) -> tuple[list[str], dict[str, FileDescriptorProto]]:
    """Requests a server's services and the files that describe them.

    Raises:
        ConfigError: the server does not support reflection, or its answer is too large or invalid.
        grpc.aio.AioRpcError: the server did not answer.
    """
    for version in _VERSIONS:
        try:
            return await _Questions(channel, version, metadata, seconds).answers()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
    raise ConfigError("the server does not support reflection; pass GrpcApi(descriptors=...), which `protoc -o` writes")


class _Questions:
    def __init__(
        self, channel: grpc.aio.Channel, version: str, metadata: Sequence[tuple[str, str]], seconds: float
    ) -> None:
        # Each request is a stream of one message: writing to a stream that the server has refused loses its status.
        make: Any = channel.unary_stream
        self._stream: Any = make(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=ServerReflectionRequest.SerializeToString,
            response_deserializer=ServerReflectionResponse.FromString,
        )
        self._metadata = tuple(metadata)
        self._seconds = seconds
        self._files: dict[str, FileDescriptorProto] = {}
        self._bytes = 0

    async def answers(self) -> tuple[list[str], dict[str, FileDescriptorProto]]:
        listed = await self._ask(list_services="")
        services = [each.name for each in listed.list_services_response.service][:_MAX_FILES]
        for name in services:
            await self._find(file_containing_symbol=name)
        while missing := self._missing():
            await self._find(file_by_filename=missing)
        return services, self._files

    def _missing(self) -> str | None:
        """Returns a file that others import but the server has not sent. The library has protobuf's own files."""
        needed = (name for file in self._files.values() for name in file.dependency)
        return next((name for name in needed if name not in self._files and not _is_standard(name)), None)

    async def _find(self, **question: str) -> None:
        answer = await self._ask(**question)
        before = len(self._files)
        for data in answer.file_descriptor_response.file_descriptor_proto:
            self._bytes += len(data)
            if self._bytes > _MAX_BYTES or len(self._files) >= _MAX_FILES:
                raise ConfigError(f"the server's descriptors exceed {_MAX_BYTES} bytes or {_MAX_FILES} files")
            try:
                file = FileDescriptorProto.FromString(data)
            except DecodeError:
                raise ConfigError("the server's descriptors cannot be parsed; pass GrpcApi(descriptors=...)") from None
            self._files[file.name] = file
        if "file_by_filename" in question and len(self._files) == before:
            raise ConfigError(f"the server's reflection does not return {question['file_by_filename'][:200]!r}")

    async def _ask(self, **question: Any) -> ServerReflectionResponse:
        asked = self._stream(ServerReflectionRequest(**question), metadata=self._metadata, timeout=self._seconds)
        async for answer in asked:
            asked.cancel()
            return answer
        raise ConfigError("the server's reflection did not answer; pass GrpcApi(descriptors=...)")


def _is_standard(name: str) -> bool:
    return name.startswith("google/protobuf/")


logger = get_logger("corral.protocols.grpc.source")

_OWN = ("grpc.reflection.*", "grpc.health.*", "grpc.channelz.*")
"""Services for the operation of servers, which are not offered as tools."""
_LOOKUPS = 4
_MAX_METHODS = 10_000


@checked
class GrpcApi(RemoteSource):
    """Methods of a gRPC server as tools: those with one response, and those that stream responses.

    `target` is host and port. `descriptors` is a FileDescriptorSet, as `protoc --include_imports --include_source_info
    -o` writes it, or its path; without them, the server is asked by reflection.

    The connection is encrypted unless `tls` is False; `root_certificates` are PEM texts that replace the default ones.
    The addresses of the target must be public or in `exempt_networks`; they are resolved when the source is opened.
    `credentials` are metadata for each call, or a function that returns a caller's metadata. `reflection_metadata` is
    sent with reflection.

    `include` and `exclude` are patterns of methods, such as "shop.v1.Orders/*". `read_only` are patterns of methods
    without side effects, besides those whose options declare that; `needs_approval` applies to all others.

    If the server cannot be reached, the source keeps trying, less and less often; with `required`, opening fails
    instead.

    Raises:
        ConfigError: an option, or the descriptors, cannot be used.
    """

    def __init__(
        self,
        namespace: str | None,
        target: str,
        *,
        descriptors: bytes | str | Path | None = None,
        tls: bool = True,
        root_certificates: bytes | None = None,
        exempt_networks: Iterable[str] = (),
        credentials: Credentials = MappingProxyType({}),
        reflection_metadata: Metadata = MappingProxyType({}),
        include: Iterable[str] = ("*",),
        exclude: Iterable[str] = (),
        read_only: Iterable[str] = (),
        validate_output: OutputValidation | bool = "warn",
        needs_approval: Approval = False,
        scopes: Iterable[str] = (),
        timeout_seconds: float = 30.0,
        max_message_bytes: int = 4_000_000,
        required: bool = False,
    ) -> None:
        super().__init__(
            namespace,
            scopes=scopes,
            timeout_seconds=timeout_seconds,
            validate_output=validate_output,
            needs_approval=needs_approval,
        )
        self._target = Target(target)
        self._policy = EgressPolicy(
            hosts={self._target.host},
            ports={self._target.port},
            exempt_networks=exempt_networks,
        )
        self._tls = tls
        self._roots = root_certificates
        self._credentials: Credentials = (
            credentials if callable(credentials) else {key.lower(): value for key, value in credentials.items()}
        )
        self._reflection_metadata = {key.lower(): value for key, value in reflection_metadata.items()}
        self._include, self._exclude, self._reads = tuple(include), tuple(exclude), tuple(read_only)
        self._max_message_bytes = max_message_bytes
        self._required = required
        self.skipped: list[Skipped] = []
        """Selected methods that are not offered as tools."""
        self._static_tools: list[tuple[Tool, Method]] | None = None
        if descriptors is not None:
            files = _read(descriptors)
            named = [_full(file, each.name) for file in files.values() for each in file.service]
            self._static_tools = self._tools_of(named, files)

    @property
    @override
    def tools(self) -> Sequence[Tool]:
        """Tools of `descriptors`. Calls fail until the source is open."""
        return [tool for tool, _ in self._static_tools or ()]

    @override
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        """Connects and offers the tools; see `ToolSource.open`.

        Raises:
            StartFailed: the source is `required`, and the server cannot be reached.
        """
        channels: list[grpc.aio.Channel] = []
        try:
            async with asked(partial(self._ask, offer, channels), required=self._required):
                yield
        finally:
            with anyio.CancelScope(shield=True):
                for channel in channels:
                    await channel.close()

    async def _ask(self, offer: Offer, channels: list[grpc.aio.Channel]) -> str | None:
        """Connects and offers the tools of the server. If that fails, returns the reason."""
        try:
            for channel in channels:
                await channel.close()
            channels.clear()
            channels.append(channel := await self._connect())
            made = self._static_tools if self._static_tools is not None else await self._reflect(channel)
        except (ToolError, AccessDenied, ConfigError) as error:
            blocked = isinstance(error, EgressBlocked)
            problem = f"{error}; allow internal networks with exempt_networks=[...]" if blocked else str(error)
            logger.warning("GrpcApi %r: %s", self.namespace, problem)
            offer([], problem=problem)
            return problem
        offer([_bound(tool, method, channel) for tool, method in made], problem=self._problem(made))
        return None

    async def _connect(self) -> grpc.aio.Channel:
        return await connected(
            self._target,
            self._policy,
            SystemResolver(_LOOKUPS),
            credentials=grpc.ssl_channel_credentials(self._roots) if self._tls else None,
            max_message_bytes=self._max_message_bytes,
            seconds=self._timeout_seconds,
        )

    async def _reflect(self, channel: grpc.aio.Channel) -> list[tuple[Tool, Method]]:
        metadata = self._reflection_metadata
        try:
            services, files = await reflected(channel, tuple(metadata.items()), self._timeout_seconds)
        except grpc.aio.AioRpcError as error:
            text = _failure_text(f"reflection of {self._target.authority}", error, metadata)
            raise ToolError(f"{text}{self._remedy(error)}") from None
        return await run_in_own_thread(self._tools_of, services, files, abandon_on_cancel=True)

    def _remedy(self, error: grpc.aio.AioRpcError) -> str:
        """Suggests an option that could make a failed reflection work, for the end of its message."""
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return "; set its credentials with reflection_metadata={...}"
        if self._tls and "handshake" in (error.details() or "").lower():
            return "; if the server has no TLS, set tls=False; if it has its own certificate, set root_certificates"
        return ""

    def _tools_of(self, services: Iterable[str], files: Mapping[str, FileDescriptorProto]) -> list[tuple[Tool, Method]]:
        pool = pool_of(files)
        comments = Comments(files.values())
        messages = Messages(pool, comments)
        self.skipped = []
        chosen = self._choose(services, pool)
        counts = Counter(described.name for described in chosen)
        made: list[tuple[Tool, Method]] = []
        for described in chosen:
            method = Method(
                described=described,
                messages=messages,
                credentials=self._credentials,
                timeout_seconds=self._timeout_seconds,
            )
            name = described.name
            if counts[name] > 1:
                name = f"{described.containing_service.name}_{name}"
            if described.client_streaming:
                self.skipped.append(Skipped(method.label, "it streams requests"))
                continue
            try:
                made.append((self._tool(name, method, comments), method))
            except ToolDefinitionError as error:
                self.skipped.append(Skipped(method.label, str(error)))
        if self.skipped:
            level = logging.INFO if made else logging.WARNING
            logger.log(level, "GrpcApi %r: %d methods are not offered", self.namespace, len(self.skipped))
        return made

    def _choose(self, services: Iterable[str], pool: DescriptorPool) -> list[Any]:
        methods: list[Any] = []
        for service in services:
            if any(fnmatchcase(service, pattern) for pattern in _OWN):
                continue
            try:
                described: Any = pool.FindServiceByName(service)
            except KeyError:
                raise ConfigError(
                    f"the descriptors lack the service {service[:200]!r}; write them with --include_imports"
                ) from None
            for method in described.methods:
                label = f"{service}/{method.name}"
                if _matches(label, self._include) and not _matches(label, self._exclude):
                    methods.append(method)
        if len(methods) > _MAX_METHODS:
            raise ConfigError(f"the server has {len(methods)} methods; select at most {_MAX_METHODS} with `include`")
        return methods

    def _tool(self, name: str, method: Method, comments: Comments) -> Tool:
        described: Any = method.described
        level = described.GetOptions().idempotency_level
        reads = level == MethodOptions.NO_SIDE_EFFECTS or _matches(method.label, self._reads)
        return self._make_tool(
            name,
            partial(method.messages.schema, described.input_type, output=False),
            partial(method.messages.schema, described.output_type, output=True),
            description=comments.of(described.full_name),
            read_only=reads,
            idempotent=reads or level == MethodOptions.IDEMPOTENT,
            stream=described.server_streaming,
            function=closed_stream if described.server_streaming else closed,
            bind=bind_context,
        )

    def _problem(self, made: Sequence[object]) -> str | None:
        if made:
            return None
        reason = self.skipped[0].reason if self.skipped else "none was chosen"
        return f"no method of the server can be called: {reason}"


def _bound(tool: Tool, method: Method, channel: grpc.aio.Channel) -> Tool:
    return replace(tool, function=partial(method.stream if tool.stream else method.call, channel))


def _matches(label: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(label, pattern) for pattern in patterns)


def _full(file: FileDescriptorProto, name: str) -> str:
    return f"{file.package}.{name}" if file.package else name


def _read(descriptors: bytes | str | Path) -> dict[str, FileDescriptorProto]:
    if not isinstance(descriptors, bytes):
        try:
            descriptors = Path(descriptors).read_bytes()
        except OSError as error:
            raise ConfigError(f"descriptors={str(descriptors)!r} cannot be read: {error.strerror}") from error
    try:
        file_set = FileDescriptorSet.FromString(descriptors)
    except DecodeError:
        raise ConfigError(
            "descriptors is not a FileDescriptorSet; `protoc --include_imports -o FILE` writes one"
        ) from None
    return {file.name: file for file in file_set.file}
