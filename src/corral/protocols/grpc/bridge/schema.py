"""Services of the tools that a caller can see: `corral.tools.Tools`, and one for each namespace."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, MethodOptions
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from corral.protocols.grpc.bridge.descriptors import RootPlan, input_message, output_message, proto_name
from corral.tools import Tool
from corral.types import ToolName

PACKAGE = "corral.tools"
FILE = "corral/tools.proto"
_COMMENT_CHARACTERS = 2_000


class Method(NamedTuple):
    """Method of one tool."""

    tool: str
    """Path of the tool in programs."""
    request: Any
    """Message class."""
    response: Any
    """Message class; that of an item if the tool streams."""
    input: RootPlan
    output: RootPlan
    stream: bool


Comment: TypeAlias = tuple[tuple[int, ...], str]
"""Path of a description, as in `SourceCodeInfo`, and its text."""


class _Made(NamedTuple):
    tool: str
    input: RootPlan
    output: RootPlan
    stream: bool


class ToolSchema:
    """Descriptors of tools, and their methods by path, such as `/corral.tools.Tools/add`.

    Build it in a thread, because that takes time.
    """

    def __init__(self, tools: Mapping[ToolName, Tool]) -> None:
        file, made, comments = tool_file(tools)
        self.pool = DescriptorPool()
        self.pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
        try:
            self.pool.AddSerializedFile(file.SerializeToString())
        except TypeError:  # a schema has names that protobuf refuses
            refused = frozenset(name for name, tool in tools.items() if not _is_accepted({name: tool}))
            file, made, comments = tool_file(tools, refused)
            self.pool.AddSerializedFile(file.SerializeToString())
        self._file = file
        self._comments = comments
        self._made = made
        self._methods: dict[str, Method] = {}

    @cached_property
    def file(self) -> FileDescriptorProto:
        """The file, with descriptions as comments, which a pool does not return."""
        file = FileDescriptorProto()
        file.CopyFrom(self._file)
        for path, text in self._comments:
            shown = text[:_COMMENT_CHARACTERS].encode("utf-8", "replace").decode()
            lines = "".join(f" {line}\n" for line in shown.splitlines())
            file.source_code_info.location.add(path=path, span=(0, 0, 0), leading_comments=lines)
        return file

    @property
    def size(self) -> int:
        """Bytes of the descriptors."""
        return self._file.ByteSize()

    @property
    def services(self) -> list[str]:
        """Full names of the services."""
        return [f"{PACKAGE}.{each.name}" for each in self._file.service]

    def method(self, path: str) -> Method | None:
        """Returns the method of a path; None if no tool has it."""
        method = self._methods.get(path)
        if method is None and (made := self._made.get(path)) is not None:
            service, _, name = path[1:].partition("/")
            described = self.pool.FindServiceByName(service).methods_by_name[name]
            method = self._methods[path] = Method(
                made.tool,
                GetMessageClass(described.input_type),
                GetMessageClass(described.output_type),
                made.input,
                made.output,
                made.stream,
            )
        return method


def path_of(name: ToolName) -> str:
    """Returns the path of a tool's method."""
    service = "" if name.namespace is None else proto_name(name.namespace)
    return f"/{PACKAGE}.{service}Tools/{proto_name(name.name)}"


def tool_file(
    tools: Mapping[ToolName, Tool], untyped: frozenset[ToolName] = frozenset()
) -> tuple[FileDescriptorProto, dict[str, _Made], list[Comment]]:
    """Makes the file of all services and messages; also returns the methods by path, and descriptions for comments.

    Messages of tools with a namespace are nested in a message of the namespace, so that all names are distinct.
    """
    file = FileDescriptorProto(name=FILE, package=PACKAGE, syntax="proto3")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    made: dict[str, _Made] = {}
    comments: list[Comment] = []
    spaces: dict[str | None, list[tuple[str, Tool]]] = {}
    for name, tool in tools.items():
        spaces.setdefault(name.namespace, []).append((name.name, tool))
    for namespace, members in spaces.items():
        prefix = "" if namespace is None else proto_name(namespace)
        service = file.service.add(name=f"{prefix}Tools")
        where: tuple[int, ...] = () if namespace is None else (4, len(file.message_type))
        messages = file.message_type
        package = PACKAGE
        if namespace is not None:
            holder = file.message_type.add(name=f"{prefix}Messages")
            messages = holder.nested_type
            package = f"{PACKAGE}.{holder.name}"
        for name, tool in members:
            method = proto_name(name)
            path = str(ToolName(namespace, name))
            typed = ToolName(namespace, name) not in untyped
            request = messages.add(name=f"{method}Request")
            response = messages.add(name=f"{method}Response")
            input = input_message(request, f"{package}.{request.name}", tool.input_schema, typed=typed)
            output = output_message(response, f"{package}.{response.name}", tool.output_schema, typed=typed)
            for part, index in (input, len(messages) - 2), (output, len(messages) - 1):
                place = (*where, 3 if where else 4, index)
                comments += [((*place, *path), text) for path, text in part.comments]
            described = service.method.add(
                name=method,
                input_type=f".{package}.{method}Request",
                output_type=f".{package}.{method}Response",
            )
            if tool.stream:
                described.server_streaming = True
            if tool.read_only:
                described.options.idempotency_level = MethodOptions.NO_SIDE_EFFECTS
            elif tool.idempotent:
                described.options.idempotency_level = MethodOptions.IDEMPOTENT
            if tool.description:
                comments.append(((6, len(file.service) - 1, 2, len(service.method) - 1), tool.description))
            made[path_of(ToolName(namespace, name))] = _Made(path, input.plan, output.plan, tool.stream)
    return file, made, comments


def _is_accepted(tools: Mapping[ToolName, Tool]) -> bool:
    pool = DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    try:
        pool.AddSerializedFile(tool_file(tools)[0].SerializeToString())
    except TypeError:
        return False
    return True
