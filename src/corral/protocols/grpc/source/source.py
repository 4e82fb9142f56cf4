"""`GrpcSource`: the methods of a gRPC server as a source of tools."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import grpc
import grpc.aio
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet, MethodOptions
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.threads import run_in_own_thread
from corral.egress import EgressPolicy
from corral.egress.lookups import SystemResolver
from corral.errors import AccessDenied, ConfigError, EgressBlocked, ToolDefinitionError, ToolError
from corral.logs import get_logger
from corral.protocols.grpc.source.descriptors import Comments, pool_of
from corral.protocols.grpc.source.messages import Messages
from corral.protocols.grpc.source.methods import Credentials, Metadata, Method, Skipped, failure_text
from corral.protocols.grpc.source.reflection import reflected
from corral.protocols.grpc.source.targets import Target, connected
from corral.sources.lazy_schema import DeferredSchema
from corral.sources.opening import asked, bind_context, closed, closed_stream
from corral.tools import Approval, Offer, Tool, ToolSource
from corral.tools.tool import OutputValidation, check_settings

logger = get_logger("corral.protocols.grpc.source")

_OWN = ("grpc.reflection.*", "grpc.health.*", "grpc.channelz.*")
"""Services of servers themselves, which are no tools."""
_LOOKUPS = 4
_MAX_METHODS = 10_000


@checked
class GrpcSource(ToolSource):
    """The methods of a gRPC server as tools: those with one response, and those that stream responses.

    `target` is host and port. The server is asked for its `descriptors` by reflection, unless they are given: a
    FileDescriptorSet, as `protoc --include_imports --include_source_info -o` writes it, or its path.

    The connection is encrypted unless `tls` is False; `root_certificates` are PEM texts in place of the usual ones.
    The addresses of the target must be public or in `exempt_networks`; they are looked up when the source is opened.
    `credentials` are metadata for each call, or a function that gives them for a caller. `reflection_metadata` are for
    reflection.

    `include` and `exclude` are patterns of methods, such as "shop.v1.Orders/*". `read_only` are patterns of those that
    change nothing, beside those whose options say so; `needs_approval` is for all others.

    A server that cannot be asked is asked again, less and less often; with `required`, opening fails.

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
        self.namespace = namespace
        self.scopes = frozenset(scopes)
        self._settings: dict[str, Any] = {
            "namespace": namespace,
            "scopes": self.scopes,
            "timeout_seconds": timeout_seconds,
            "validate_output": validate_output,
        }
        check_settings("GrpcSource", **self._settings)
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
        self._needs_approval = needs_approval
        self._timeout_seconds = timeout_seconds
        self._max_message_bytes = max_message_bytes
        self._required = required
        self.skipped: list[Skipped] = []
        """Methods that were selected, and are no tools."""
        self._given: list[tuple[Tool, Method]] | None = None
        if descriptors is not None:
            files = _read(descriptors)
            named = [_full(file, each.name) for file in files.values() for each in file.service]
            self._given = self._made(named, files)

    @property
    @override
    def tools(self) -> Sequence[Tool]:
        """Tools of the given descriptors; calls fail until the source is open."""
        return [tool for tool, _ in self._given or ()]

    @override
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        """As `ToolSource.open`.

        Raises:
            StartFailed: it is `required`, and the server cannot be asked.
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
        """Connects and offers the tools of the server; returns the reason if that failed."""
        try:
            for channel in channels:
                await channel.close()
            channels.clear()
            channels.append(channel := await self._connected())
            made = self._given if self._given is not None else await self._reflected(channel)
        except (ToolError, AccessDenied, ConfigError) as error:
            blocked = isinstance(error, EgressBlocked)
            problem = f"{error}; exempt_networks=[...] names networks that may be reached" if blocked else str(error)
            logger.warning("GrpcSource %r: %s", self.namespace, problem)
            offer([], problem=problem)
            return problem
        offer([_bound(tool, method, channel) for tool, method in made], problem=self._problem(made))
        return None

    async def _connected(self) -> grpc.aio.Channel:
        return await connected(
            self._target,
            self._policy,
            SystemResolver(_LOOKUPS),
            credentials=grpc.ssl_channel_credentials(self._roots) if self._tls else None,
            max_message_bytes=self._max_message_bytes,
            seconds=self._timeout_seconds,
        )

    async def _reflected(self, channel: grpc.aio.Channel) -> list[tuple[Tool, Method]]:
        metadata = self._reflection_metadata
        try:
            services, files = await reflected(channel, tuple(metadata.items()), self._timeout_seconds)
        except grpc.aio.AioRpcError as error:
            said = failure_text(f"reflection of {self._target.authority}", error, metadata)
            raise ToolError(f"{said}{self._remedy(error)}") from None
        return await run_in_own_thread(self._made, services, files, abandon_on_cancel=True)

    def _remedy(self, error: grpc.aio.AioRpcError) -> str:
        """Returns the option that a failed reflection may have needed, for the end of its message."""
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return "; reflection_metadata={...} is what it is asked with"
        if self._tls and "handshake" in (error.details() or "").lower():
            return "; if the server has no TLS, set tls=False, and if its certificate is your own, root_certificates"
        return ""

    def _made(self, services: Iterable[str], files: Mapping[str, FileDescriptorProto]) -> list[tuple[Tool, Method]]:
        pool = pool_of(files)
        comments = Comments(files.values())
        messages = Messages(pool, comments)
        self.skipped = []
        chosen = self._chosen(services, pool)
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
            logger.log(level, "GrpcSource %r: %d methods are no tools", self.namespace, len(self.skipped))
        return made

    def _chosen(self, services: Iterable[str], pool: DescriptorPool) -> list[Any]:
        found: list[Any] = []
        for service in services:
            if any(fnmatchcase(service, pattern) for pattern in _OWN):
                continue
            try:
                described: Any = pool.FindServiceByName(service)
            except KeyError:
                raise ConfigError(f"the descriptors lack the service {service[:200]!r}") from None
            for method in described.methods:
                label = f"{service}/{method.name}"
                if _matches(label, self._include) and not _matches(label, self._exclude):
                    found.append(method)
        if len(found) > _MAX_METHODS:
            raise ConfigError(f"the server has {len(found)} methods; choose at most {_MAX_METHODS} with `include`")
        return found

    def _tool(self, name: str, method: Method, comments: Comments) -> Tool:
        described: Any = method.described
        level = described.GetOptions().idempotency_level
        reads = level == MethodOptions.NO_SIDE_EFFECTS or _matches(method.label, self._reads)
        owner = f"tool {name!r}: "
        return Tool(
            name=name,
            description=comments.of(described.full_name),
            read_only=reads,
            idempotent=reads or level == MethodOptions.IDEMPOTENT,
            stream=described.server_streaming,
            input=_document(method.messages, described.input_type, owner=owner, output=False),
            output=_document(method.messages, described.output_type, owner=owner, output=True),
            function=closed_stream if described.server_streaming else closed,
            bind=bind_context,
            needs_approval=not reads and self._needs_approval,
            **self._settings,
        )

    def _problem(self, made: Sequence[object]) -> str | None:
        if made:
            return None
        reason = self.skipped[0].reason if self.skipped else "none was chosen"
        return f"no method of the server can be called: {reason}"


def _bound(tool: Tool, method: Method, channel: grpc.aio.Channel) -> Tool:
    return replace(tool, function=partial(method.stream if tool.stream else method.call, channel))


def _document(messages: Messages, message: Any, *, owner: str, output: bool) -> DeferredSchema:
    part = "output_schema" if output else "input_schema"
    return DeferredSchema(partial(messages.schema, message, output=output), owner=f"{owner}{part}")


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
        found = FileDescriptorSet.FromString(descriptors)
    except DecodeError:
        raise ConfigError(
            "descriptors is no FileDescriptorSet; `protoc --include_imports -o FILE` writes one"
        ) from None
    return {file.name: file for file in found.file}
