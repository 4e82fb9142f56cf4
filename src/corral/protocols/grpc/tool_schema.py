"""Descriptors of the tools that a caller can see: `corral.tools.Tools`, and one service for each namespace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias

from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MethodOptions
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from corral.bridges.base import Document
from corral.bridges.web.documents import DocumentCache
from corral.calls.grants import Grant
from corral.concurrency.threads import run_in_own_thread
from corral.tools import Tool
from corral.tools.json_schema.keywords import is_null, listing, mapping, resolved
from corral.types import JsonSchema, ToolName

# --- message types for JSON Schemas -------------------------------------------------------------------------

Kind: TypeAlias = Literal["bool", "bytes", "double", "int64", "message", "string", "struct", "value"]
Path: TypeAlias = tuple[int, ...]
"""Path of a description, as in `SourceCodeInfo`."""
Comment: TypeAlias = tuple[Path, str]
Shape: TypeAlias = Literal["one", "list", "map", "wrapped_list", "wrapped_map"]
"""Number of values of a field. A wrapped one is a message around `items`, so that an empty list differs from a missing
one."""

VALUE = ".google.protobuf.Value"
_STRUCT = ".google.protobuf.Struct"
_SCALARS: Mapping[str, Kind] = {"boolean": "bool", "integer": "int64", "number": "double", "string": "string"}
_TYPES: Mapping[Kind, FieldDescriptorProto.Type.ValueType] = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "message": FieldDescriptorProto.TYPE_MESSAGE,
    "string": FieldDescriptorProto.TYPE_STRING,
    "struct": FieldDescriptorProto.TYPE_MESSAGE,
    "value": FieldDescriptorProto.TYPE_MESSAGE,
}
_OPTIONAL = FieldDescriptorProto.LABEL_OPTIONAL
_REPEATED = FieldDescriptorProto.LABEL_REPEATED
_FIELD_NUMBERS = 2**25
"""Maximum field number in use, whose tag takes four bytes."""
_RESERVED_NUMBERS = range(19_000, 20_000)
"""Numbers that protobuf reserves."""
_MAX_MESSAGES = 300
_MAX_DEPTH = 24
_MISSING = object()


@dataclass(slots=True, eq=False)
class MessagePlan:
    """Maps a message to a JSON object. `name` is its full name."""

    name: str
    fields: list[FieldPlan] = field(default_factory=list["FieldPlan"])


class FieldType(NamedTuple):
    """Type of a field: a kind, its message if it has one, and a shape."""

    kind: Kind
    shape: Shape = "one"
    message: MessagePlan | None = None
    nullable: bool = False


_SCALAR_TYPES: Mapping[object, FieldType] = {name: FieldType(kind) for name, kind in _SCALARS.items()}
_BYTES = FieldType("bytes")
_COMBINING = frozenset(("anyOf", "oneOf", "allOf"))
_OPEN = _COMBINING | {"not", "patternProperties"}


class FieldPlan(NamedTuple):
    """Maps a field to a member of a JSON object."""

    key: str
    name: str
    type: FieldType
    required: bool = False


class RootPlan(NamedTuple):
    """Maps a request or response to a JSON value: to an object or, if its only field is `whole`, to any value."""

    message: MessagePlan
    whole: FieldPlan | None = None


class Built(NamedTuple):
    """Message of a tool. `comments` are descriptions of its fields, by their path from the message."""

    plan: RootPlan
    comments: list[Comment]


@lru_cache(4096)
def _proto_name(name: str) -> str:
    """Returns the name as an identifier of protobuf. Invalid names get a hash, so that they stay distinct."""
    if name.isascii() and name.isidentifier():
        return name
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{plain}_{_digest(name) % 2**24:06x}".replace("__", "_", 1)


def _input_message(proto: DescriptorProto, full_name: str, schema: JsonSchema | None, *, typed: bool = True) -> Built:
    """Fills the request message of a tool. An input without declared properties is one Struct."""
    return _Builder(proto, full_name, schema or {}).root("input", "struct", typed=typed)


def _output_message(proto: DescriptorProto, full_name: str, schema: JsonSchema | None, *, typed: bool = True) -> Built:
    """Fills the response message of a tool: its object, or `result`. Depends only on the declared schema."""
    return _Builder(proto, full_name, schema or {}).root("result", "value", typed=typed)


class _Builder:
    """Builds a message, and inside it the messages of its parts."""

    def __init__(self, proto: DescriptorProto, full_name: str, schema: JsonSchema) -> None:
        self._root = schema
        self._proto = proto
        self._full_name = full_name
        self._names: set[str] = set()
        """Names of nested messages."""
        self._messages: dict[int, MessagePlan] = {}
        """Plans of objects, by the identity of their schemas."""
        self._open: set[int] = set()
        """Schemas whose type is being determined."""
        self._made: list[Mapping[str, object]] = []
        """Schemas outside the root, kept alive so that no other object gets the identity of one."""
        self._places: dict[str, int] = {}
        """Index of each nested message, by name."""
        self.comments: list[Comment] = []
        """Descriptions of fields, by path from the message."""

    def root(self, whole: str, untyped: Kind, *, typed: bool) -> Built:
        plan = MessagePlan(self._full_name)
        schema: Mapping[str, object] = self._resolve(self._root) if typed else {}
        if _is_closed_object(schema):
            self._messages[id(schema)] = plan
            properties = mapping(schema.get("properties"))
            self._names = {_proto_name(key) for key in properties}
            self._fill(self._proto, plan, schema, 0)
            return Built(RootPlan(plan), self.comments)
        if schema.get("type") == "null":
            return Built(RootPlan(plan, FieldPlan(whole, "", FieldType("value", nullable=True))), [])
        self._names = {whole}
        field_type = self._type(schema, whole, 0) if typed else FieldType(untyped)
        if field_type.kind == "value" and field_type.shape == "one":
            field_type = FieldType(untyped)
        field_type = _with_presence(field_type, _MISSING, required=True)
        plan.fields = [FieldPlan(whole, whole, field_type, required=True)]
        self._add_field(self._proto, plan.fields[0], 1)
        return Built(RootPlan(plan, plan.fields[0]), self.comments)

    def _resolve(self, schema: Mapping[str, object]) -> Mapping[str, object]:
        if "$ref" not in schema:
            return schema
        for _ in range(_MAX_DEPTH):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            schema = mapping(resolved(self._root, reference))
        return {}

    def _fill(self, proto: DescriptorProto, plan: MessagePlan, schema: Mapping[str, object], depth: int) -> None:
        required = listing(schema.get("required"))
        properties = mapping(schema.get("properties"))
        names: set[str] = set()
        taken = _numbers(properties)
        place = () if proto is self._proto else (3, self._places[proto.name])
        for index, (key, member) in enumerate(properties.items()):
            name = _proto_name(key)
            while name in names:
                name += "_"
            names.add(name)
            members = mapping(member)
            field_type = self._type(members, key, depth + 1)
            is_required = key in required
            default = members.get("default", _MISSING)
            made = FieldPlan(key, name, _with_presence(field_type, default, required=is_required), is_required)
            plan.fields.append(made)
            self._add_field(proto, made, taken[key])
            description = members.get("description")
            if description and isinstance(description, str):
                self.comments.append(((*place, 2, index), description))
        if len(set(map(_camel, names))) < len(names):
            proto.options.deprecated_legacy_json_field_conflicts = True

    def _type(self, raw: Mapping[str, object], hint: str, depth: int) -> FieldType:
        """Returns the type of a schema: a Value if protobuf has no type for it."""
        schema = self._resolve(raw) if "$ref" in raw else raw
        if (scalar := _scalar(schema)) is not None:
            return scalar
        if (known := self._messages.get(id(schema))) is not None:
            return FieldType("message", message=known)
        if not schema or depth > _MAX_DEPTH or id(schema) in self._open:
            return FieldType("value")
        self._open.add(id(schema))
        try:
            return self._typed(schema, _hint_of(raw, hint), depth)
        finally:
            self._open.discard(id(schema))

    def _typed(self, schema: Mapping[str, object], hint: str, depth: int) -> FieldType:
        alternatives = listing(schema.get("anyOf")) or listing(schema.get("oneOf"))
        if alternatives and not {"type", "properties", "allOf"} & schema.keys():
            return self._union(alternatives, hint, depth)
        everything = listing(schema.get("allOf"))
        if len(everything) == 1 and not {"type", "properties"} & schema.keys():
            return self._type(mapping(everything[0]), hint, depth + 1)
        kinds = schema.get("type", _MISSING)
        if several := listing(kinds):
            each_kind: list[Mapping[str, object]] = [{**schema, "type": kind} for kind in several]
            self._made += each_kind
            return self._union(list[object](each_kind), hint, depth)
        if kinds is _MISSING:
            values = listing(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
            types = {type(value) for value in values}
            if types == {str}:
                return FieldType("string")
            kinds = "object" if "properties" in schema else "array" if "items" in schema else None
        if kinds == "array":
            return self._array(schema, hint, depth)
        if kinds == "object":
            return self._object(schema, hint, depth)
        return FieldType("value")

    def _union(self, alternatives: list[object], hint: str, depth: int) -> FieldType:
        others = [mapping(each) for each in alternatives if not is_null(each)]
        nullable = len(others) < len(alternatives)
        if not others:
            return FieldType("value", nullable=True)
        first = self._type(others[0], hint, depth + 1)
        if len(others) > 1:
            same = first.kind in ("bool", "double", "int64", "string") and first.shape == "one"
            if not same or any(self._type(each, hint, depth + 1) != first for each in others[1:]):
                return FieldType("value")
        return first._replace(nullable=nullable or first.nullable)

    def _array(self, schema: Mapping[str, object], hint: str, depth: int) -> FieldType:
        items = mapping(schema.get("items"))
        if "prefixItems" in schema or not items:
            return FieldType("value", "list")
        return _many(self._type(items, f"{hint}_item", depth + 1), "list")

    def _object(self, schema: Mapping[str, object], hint: str, depth: int) -> FieldType:
        if _is_closed_object(schema):
            return self._message(schema, hint, depth)
        others = mapping(schema.get("additionalProperties"))
        if others and not {"properties", "patternProperties"} & schema.keys():
            return _many(self._type(others, f"{hint}_value", depth + 1), "map")
        return FieldType("struct")

    def _message(self, schema: Mapping[str, object], hint: str, depth: int) -> FieldType:
        if len(self._messages) >= _MAX_MESSAGES:
            return FieldType("struct")
        proto, plan = self._nested(hint)
        self._messages[id(schema)] = plan
        self._fill(proto, plan, schema, depth)
        return FieldType("message", message=plan)

    def _nested(self, hint: str) -> tuple[DescriptorProto, MessagePlan]:
        name = _pascal(_proto_name(hint))
        while name in self._names:
            name += "_"
        self._names.add(name)
        self._places[name] = len(self._proto.nested_type)
        return self._proto.nested_type.add(name=name), MessagePlan(f"{self._full_name}.{name}")

    def _add_field(self, proto: DescriptorProto, plan: FieldPlan, number: int) -> None:
        field_type = plan.type
        if field_type.shape in ("wrapped_list", "wrapped_map"):
            holder, held = self._nested(f"{plan.key}_{'list' if field_type.shape == 'wrapped_list' else 'map'}")
            shape: Shape = "list" if field_type.shape == "wrapped_list" else "map"
            self._add_field(holder, FieldPlan("items", "items", field_type._replace(shape=shape)), 1)
            _optional(proto, plan, number, FieldDescriptorProto.TYPE_MESSAGE, f".{held.name}")
        elif field_type.shape == "one":
            _optional(proto, plan, number, _TYPES[field_type.kind], _type_name(field_type))
        elif field_type.shape == "list":
            made = proto.field.add(name=plan.name, number=number, label=_REPEATED, type=_TYPES[field_type.kind])
            _name_types(made, plan, _type_name(field_type))
        else:
            entry = proto.nested_type.add(name=f"{''.join(map(_capital, plan.name.split('_')))}Entry")
            if proto is self._proto:
                self._names.add(entry.name)
            entry.options.map_entry = True
            text = FieldDescriptorProto.TYPE_STRING
            entry.field.add(name="key", json_name="key", number=1, label=_OPTIONAL, type=text)
            value = entry.field.add(
                name="value", json_name="value", number=2, label=_OPTIONAL, type=_TYPES[field_type.kind]
            )
            if name := _type_name(field_type):
                value.type_name = name
            path = self._full_name if proto is self._proto else f"{self._full_name}.{proto.name}"
            made = proto.field.add(
                name=plan.name, number=number, label=_REPEATED, type=FieldDescriptorProto.TYPE_MESSAGE
            )
            _name_types(made, plan, f".{path}.{entry.name}")


def _optional(
    proto: DescriptorProto, plan: FieldPlan, number: int, kind: FieldDescriptorProto.Type.ValueType, type_name: str
) -> None:
    """Adds a field with presence. For a scalar, that takes a synthetic oneof."""
    made = proto.field.add(
        name=plan.name,
        json_name=plan.key,
        number=number,
        label=_OPTIONAL,
        type=kind,
        proto3_optional=True,
        oneof_index=len(proto.oneof_decl),
    )
    if type_name:
        made.type_name = type_name
    proto.oneof_decl.add(name=f"_{plan.name}")


def _name_types(made: FieldDescriptorProto, plan: FieldPlan, type_name: str) -> None:
    made.json_name = plan.key
    if type_name:
        made.type_name = type_name


def _type_name(field_type: FieldType) -> str:
    if field_type.message is not None:
        return f".{field_type.message.name}"
    return {"value": VALUE, "struct": _STRUCT}.get(field_type.kind, "")


def _scalar(schema: Mapping[str, object]) -> FieldType | None:
    """Returns the type of a schema with one scalar type and no alternatives."""
    kind = schema.get("type")
    field_type = _SCALAR_TYPES.get(kind) if type(kind) is str else None
    if field_type is None or not _COMBINING.isdisjoint(schema):
        return None
    return _BYTES if kind == "string" and schema.get("format") == "binary" else field_type


def _many(item: FieldType, shape: Shape) -> FieldType:
    """Returns the type of a list or map. Protobuf has neither lists of lists nor missing items."""
    if item.shape != "one" or item.nullable:
        return FieldType("value", shape)
    return item._replace(shape=shape)


def _with_presence(field_type: FieldType, default: object, *, required: bool) -> FieldType:
    """Returns the type of a member, which distinguishes a missing value, null and an empty list."""
    if field_type.nullable and not required and default is not _MISSING and default is not None:
        return FieldType("value", nullable=True)
    if field_type.shape in ("list", "map") and (
        field_type.nullable or not (required or default == [] or default == {})
    ):
        return field_type._replace(shape="wrapped_list" if field_type.shape == "list" else "wrapped_map")
    return field_type


def _is_closed_object(schema: Mapping[str, object]) -> bool:
    """True for an object whose members are all listed in the schema."""
    if schema.get("type", "object") != "object" or not _OPEN.isdisjoint(schema):
        return False
    properties = mapping(schema.get("properties"))
    others = schema.get("additionalProperties")
    if "" in properties or "\0" in "".join(properties):
        return False
    return others is False or (bool(properties) and others is None)


def _hint_of(schema: Mapping[str, object], hint: str) -> str:
    reference = schema.get("$ref")
    return reference.rpartition("/")[2] or hint if isinstance(reference, str) else hint


def _pascal(name: str) -> str:
    return "".join(map(_capital, name.split("_"))) or "Part"


def _capital(part: str) -> str:
    return part[:1].upper() + part[1:]


def _camel(name: str) -> str:
    """Returns protobuf's JSON name in lower case, because it rejects two equal ones."""
    return name.replace("_", "").lower()


def _numbers(keys: Iterable[str]) -> dict[str, int]:
    """Numbers the fields of a message by their keys alone."""
    numbers: set[int] = set()
    taken: dict[str, int] = {}
    for key in sorted(keys):
        number = _number(key)
        while number in numbers or number in _RESERVED_NUMBERS:
            number = number % _FIELD_NUMBERS + 1
        numbers.add(number)
        taken[key] = number
    return taken


@lru_cache(4096)
def _number(key: str) -> int:
    return _digest(key) % _FIELD_NUMBERS + 1


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=4).digest())


# --- services -----------------------------------------------------------------------------------------------

PACKAGE = "corral.tools"
FILE = "corral/tools.proto"
_COMMENT_CHARACTERS = 2_000


class Method(NamedTuple):
    """Method of one tool."""

    tool: str
    """Path of the tool in programs."""
    request: Any
    """Message class of the request."""
    response: Any
    """Message class of the response, or of an item if the tool streams."""
    input: RootPlan
    output: RootPlan
    stream: bool


class _Made(NamedTuple):
    tool: str
    input: RootPlan
    output: RootPlan
    stream: bool


class ToolSchema:
    """Descriptors of tools, and their methods by path, such as `/corral.tools.Tools/add`.

    Create it in a thread, because parsing the descriptors takes time.
    """

    def __init__(self, tools: Mapping[ToolName, Tool]) -> None:
        file, made, comments = _tool_file(tools)
        self.pool = DescriptorPool()
        self.pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
        try:
            self.pool.AddSerializedFile(file.SerializeToString())
        except TypeError:  # a schema has names that protobuf refuses
            refused = frozenset(name for name, tool in tools.items() if not _is_accepted({name: tool}))
            file, made, comments = _tool_file(tools, refused)
            self.pool.AddSerializedFile(file.SerializeToString())
        self._file = file
        self._comments = comments
        self._made = made
        self._methods: dict[str, Method] = {}

    @cached_property
    def file(self) -> FileDescriptorProto:
        """File with descriptions as comments. The file that a pool returns has no comments."""
        file = FileDescriptorProto()
        file.CopyFrom(self._file)
        for path, text in self._comments:
            shown = text[:_COMMENT_CHARACTERS].encode("utf-8", "replace").decode()
            lines = "".join(f" {line}\n" for line in shown.splitlines())
            file.source_code_info.location.add(path=path, span=(0, 0, 0), leading_comments=lines)
        return file

    @property
    def size(self) -> int:
        """Size of the descriptors in bytes."""
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
    service = "" if name.namespace is None else _proto_name(name.namespace)
    return f"/{PACKAGE}.{service}Tools/{_proto_name(name.name)}"


def _tool_file(
    tools: Mapping[ToolName, Tool], untyped: frozenset[ToolName] = frozenset()
) -> tuple[FileDescriptorProto, dict[str, _Made], list[Comment]]:
    """Makes the file of all services and messages. Also returns the methods by path, and descriptions for comments.

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
        prefix = "" if namespace is None else _proto_name(namespace)
        service = file.service.add(name=f"{prefix}Tools")
        where: tuple[int, ...] = () if namespace is None else (4, len(file.message_type))
        messages = file.message_type
        package = PACKAGE
        if namespace is not None:
            holder = file.message_type.add(name=f"{prefix}Messages")
            messages = holder.nested_type
            package = f"{PACKAGE}.{holder.name}"
        for name, tool in members:
            method = _proto_name(name)
            path = str(ToolName(namespace, name))
            typed = ToolName(namespace, name) not in untyped
            request = messages.add(name=f"{method}Request")
            response = messages.add(name=f"{method}Response")
            input = _input_message(request, f"{package}.{request.name}", tool.input_schema, typed=typed)
            output = _output_message(response, f"{package}.{response.name}", tool.output_schema, typed=typed)
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
        pool.AddSerializedFile(_tool_file(tools)[0].SerializeToString())
    except TypeError:
        return False
    return True


# --- the text of a .proto file, for protoc ------------------------------------------------------------------

_NAMES = {
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_STRING: "string",
}


async def proto_document(schemas: DocumentCache[ToolSchema], grant: Grant) -> Document:
    """Makes the `.proto` file of the tools that the scopes of a grant allow, in a thread."""
    schema = await schemas.of(grant)
    content = await run_in_own_thread(lambda: proto_text(schema.file).encode(), abandon_on_cancel=True)
    return Document(content, "text/plain; charset=utf-8")


def proto_text(file: FileDescriptorProto) -> str:
    """Writes a file of the bridge's descriptors as text, with its comments."""
    comments = {tuple(each.path): each.leading_comments for each in file.source_code_info.location}
    lines = [f'syntax = "{file.syntax}";', "", f"package {file.package};", ""]
    lines += [f'import "{name}";' for name in file.dependency]
    for number, service in enumerate(file.service):
        lines += ["", f"service {service.name} {{"]
        for index, method in enumerate(service.method):
            lines += _comment_text(comments, (6, number, 2, index), "  ")
            reply = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            head = f"  rpc {method.name}({method.input_type}) returns ({reply})"
            level = method.options.idempotency_level
            if level == MethodOptions.IDEMPOTENCY_UNKNOWN:
                lines.append(f"{head};")
            else:
                lines.append(f"{head} {{ option idempotency_level = {MethodOptions.IdempotencyLevel.Name(level)}; }}")
        lines.append("}")
    for number, message in enumerate(file.message_type):
        lines += ["", *_message_text(message, comments, (4, number), "")]
    return "\n".join(lines) + "\n"


def _message_text(message: DescriptorProto, comments: dict[Path, str], path: Path, indent: str) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    inner = f"{indent}  "
    if message.options.deprecated_legacy_json_field_conflicts:
        yield f"{inner}option deprecated_legacy_json_field_conflicts = true;"
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    for number, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from _message_text(nested, comments, (*path, 3, number), inner)
    for number, each in enumerate(message.field):
        yield from _comment_text(comments, (*path, 2, number), inner)
        entry = entries.get(each.type_name.rpartition(".")[2])
        if entry is not None:
            kind = f"map<string, {_type_text(entry.field[1])}>"
        elif each.label == FieldDescriptorProto.LABEL_REPEATED:
            kind = f"repeated {_type_text(each)}"
        else:
            kind = f"optional {_type_text(each)}"
        yield f"{inner}{kind} {each.name} = {each.number} [json_name = {_quoted(each.json_name)}];"
    yield f"{indent}}}"


def _type_text(field: FieldDescriptorProto) -> str:
    return field.type_name or _NAMES[field.type]


def _comment_text(comments: dict[Path, str], path: Path, indent: str) -> Iterator[str]:
    for line in comments.get(path, "").splitlines():
        yield f"{indent}//{line}".rstrip()


def _quoted(text: str) -> str:
    """Writes a string literal; bytes other than printable ASCII are escaped."""
    characters = (chr(each) if 32 <= each < 127 and each not in b'"\\' else f"\\{each:03o}" for each in text.encode())
    return f'"{"".join(characters)}"'
