"""Converts messages to JSON and back, and makes their schemas, from descriptor files with comments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from google.api.field_behavior_pb2 import FieldBehavior, field_behavior
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldOptions, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from corral.errors import ConfigError, ToolError
from corral.types import JsonSchema

_STANDARD_FILES = "any source_context type api descriptor duration empty field_mask struct timestamp wrappers".split()
_MAX_CHARACTERS = 2_000


def pool_of(files: Mapping[str, FileDescriptorProto]) -> DescriptorPool:
    """Makes a pool from files. protobuf's own files come from the library.

    Raises:
        ConfigError: a file is missing, or contradicts another.
    """
    pool = DescriptorPool()
    added: set[str] = set()
    for name in _STANDARD_FILES:
        module: Any = import_module(f"google.protobuf.{name}_pb2")
        _add(pool, module.DESCRIPTOR.name, module.DESCRIPTOR.serialized_pb, added)
    waiting = [(name, iter(list(file.dependency))) for name, file in files.items()]
    waiting.reverse()
    open_files: set[str] = set()
    while waiting:
        name, dependencies = waiting[-1]
        if name in added:
            waiting.pop()
            continue
        open_files.add(name)
        needed = next((each for each in dependencies if each not in added), None)
        if needed is None:
            _add(pool, name, files[name].SerializeToString(), added)
            waiting.pop()
        elif needed not in files or needed in open_files:
            raise ConfigError(f"the descriptors of {name[:200]!r} need {needed[:200]!r}, which is missing")
        else:
            waiting.append((needed, iter(list(files[needed].dependency))))
    return pool


def _add(pool: DescriptorPool, name: str, data: bytes, added: set[str]) -> None:
    try:
        pool.AddSerializedFile(data)
    except TypeError as error:
        raise ConfigError(f"the descriptors of {name[:200]!r} cannot be used: {error}") from None
    added.add(name)


class Comments:
    """Comments in files, by the full name of the element that they describe."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        self._texts: dict[str, str] = {}
        for file in files:
            comments = {
                tuple(each.path): each.leading_comments or each.trailing_comments
                for each in file.source_code_info.location
            }
            if not comments:
                continue
            package = f"{file.package}." if file.package else ""
            for number, message in enumerate(file.message_type):
                self._add_message(message, package, (4, number), comments)
            for number, service in enumerate(file.service):
                self._add(f"{package}{service.name}", (6, number), comments)
                for index, method in enumerate(service.method):
                    self._add(f"{package}{service.name}.{method.name}", (6, number, 2, index), comments)

    def of(self, full_name: str) -> str:
        """Returns the comment, or an empty text."""
        return self._texts.get(full_name, "")

    def _add_message(
        self, message: DescriptorProto, prefix: str, path: tuple[int, ...], comments: Mapping[tuple[int, ...], str]
    ) -> None:
        name = f"{prefix}{message.name}"
        self._add(name, path, comments)
        for number, field in enumerate(message.field):
            self._add(f"{name}.{field.name}", (*path, 2, number), comments)
        for number, nested in enumerate(message.nested_type):
            self._add_message(nested, f"{name}.", (*path, 3, number), comments)

    def _add(self, name: str, path: tuple[int, ...], comments: Mapping[tuple[int, ...], str]) -> None:
        if text := comments.get(path):
            lines = (line.removeprefix(" ").rstrip() for line in text[:_MAX_CHARACTERS].splitlines())
            self._texts[name] = "\n".join(lines).strip()


# --- messages -----------------------------------------------------------------------------------------------

_MAX_DEPTH = 64
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_FLOATS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
_BYTES: JsonSchema = {"type": "string", "format": "binary"}
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value" for name in "Bool Bytes Double Float Int32 Int64 String UInt32 UInt64".split()
)
_STANDARD: Mapping[str, JsonSchema] = {
    "google.protobuf.Any": {"type": "object", "properties": {"@type": {"type": "string"}}, "required": ["@type"]},
    "google.protobuf.Duration": {"type": "string", "description": 'Seconds, such as "1.5s".'},
    "google.protobuf.FieldMask": {"type": "string", "description": 'Paths, such as "name,address.city".'},
    "google.protobuf.ListValue": {"type": "array"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Value": {},
}
"""Messages with their own JSON form (ProtoJSON, developers.google.com/protocol-buffers)."""


class _Definitions:
    """Schemas of the messages within another, by their short names, or by their full names if these clash."""

    def __init__(self) -> None:
        self.schemas: dict[str, JsonSchema] = {}
        self.used: set[str] = set()
        """Full names of messages that are referred to several times."""
        self._names: dict[str, str] = {}

    def key(self, message: Descriptor) -> str:
        owner = self._names.setdefault(message.name, message.full_name)
        return message.name if owner == message.full_name else message.full_name.replace(".", "_")


class Messages:
    """Messages of one pool. JSON members have the names of the fields."""

    def __init__(self, pool: DescriptorPool, comments: Comments) -> None:
        self._pool = pool
        self._comments = comments

    def schema(self, message: Descriptor, *, output: bool) -> JsonSchema:
        """Makes the JSON Schema of a message, as input or as output."""
        if message.full_name in _STANDARD or message.full_name in _WRAPPERS:
            return self._reference(message, _Definitions(), output)
        definitions = _Definitions()
        self._reference(message, definitions, output)
        schema = definitions.schemas.pop(definitions.key(message))
        if message.full_name in definitions.used:
            definitions.schemas[definitions.key(message)] = {"$ref": "#"}
        return {**schema, "$defs": definitions.schemas} if definitions.schemas else schema

    def _reference(self, message: Descriptor, definitions: _Definitions, output: bool) -> JsonSchema:
        name = message.full_name
        if name in _WRAPPERS:
            return self._one(message.fields_by_name["value"], definitions, output)
        if (standard := _STANDARD.get(name)) is not None:
            return dict(standard)
        key = definitions.key(message)
        if key in definitions.schemas:
            definitions.used.add(name)
        else:
            definitions.schemas[key] = {}
            definitions.schemas[key] = self._object(message, definitions, output)
        return {"$ref": f"#/$defs/{key}"}

    def _object(self, message: Descriptor, definitions: _Definitions, output: bool) -> JsonSchema:
        properties: dict[str, JsonSchema] = {}
        required: list[str] = []
        for field in message.fields:
            schema = self._field(field, definitions, output)
            text = self._comments.of(field.full_name)
            if (oneof := _oneof(field)) is not None:
                others = ", ".join(each.name for each in oneof.fields if each is not field)
                text = f"{text} Excludes {others}.".strip()
            properties[field.name] = {**schema, "description": text} if text else schema
            if field.is_required or (not field.has_presence if output else _is_required(field)):
                required.append(field.name)
        schema: JsonSchema = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            schema["required"] = required
        if text := self._comments.of(message.full_name):
            schema["description"] = text
        return schema

    def _field(self, field: FieldDescriptor, definitions: _Definitions, output: bool) -> JsonSchema:
        if _is_map(field):
            value = _entry(field).fields_by_name["value"]
            return {"type": "object", "additionalProperties": self._one(value, definitions, output)}
        one = self._one(field, definitions, output)
        return {"type": "array", "items": one} if field.is_repeated else one

    def _one(self, field: FieldDescriptor, definitions: _Definitions, output: bool) -> JsonSchema:
        kind = field.cpp_type
        if kind in _INTEGERS:
            least, most = _INTEGERS[kind]
            return {"type": "integer", "minimum": least, "maximum": most}
        if kind in _FLOATS:
            return {"type": "number"}
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return {"type": "boolean"}
        if kind == FieldDescriptor.CPPTYPE_STRING:
            return dict(_BYTES) if field.type == FieldDescriptor.TYPE_BYTES else {"type": "string"}
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            if cast("Any", field.enum_type).full_name == "google.protobuf.NullValue":
                return {"type": "null"}
            names = [each.name for each in cast("Any", field.enum_type).values]
            return {"enum": names, "type": "string"}
        return self._reference(cast("Descriptor", field.message_type), definitions, output)

    # --- values

    def read(self, message: Any, depth: int = 0) -> Any:
        """Converts a message to JSON. Fields without presence are always included."""
        described: Descriptor = message.DESCRIPTOR
        name = described.full_name
        if name in _WRAPPERS:
            return message.value
        if name in _STANDARD:
            try:
                return json_format.MessageToDict(message, descriptor_pool=self._pool)
            except (TypeError, ValueError, json_format.Error):
                return {"@type": message.type_url, "value": message.value} if name.endswith(".Any") else None
        if depth > _MAX_DEPTH:
            raise ToolError("the response is nested too deeply", outcome_known=False)
        members: dict[str, Any] = {}
        for field in described.fields:
            value = getattr(message, field.name)
            if _is_map(field):
                of = _entry(field).fields_by_name["value"]
                members[field.name] = {_key(key): self._read_one(of, value[key], depth) for key in value}
            elif field.is_repeated:
                members[field.name] = [self._read_one(field, each, depth) for each in value]
            elif not field.has_presence or message.HasField(field.name):
                members[field.name] = self._read_one(field, value, depth)
        return members

    def _read_one(self, field: FieldDescriptor, value: Any, depth: int) -> Any:
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            return self.read(value, depth + 1)
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            kind: Any = field.enum_type
            named = kind.values_by_number.get(value)
            return None if kind.full_name == "google.protobuf.NullValue" else value if named is None else named.name
        return value

    def write(self, described: Descriptor, value: Any) -> Any:
        """Makes a message from a JSON value.

        Raises:
            ToolError: the value does not fit. The text says where.
        """
        message: Any = GetMessageClass(described)()
        try:
            self._write(message, value, "input")
        except RecursionError:
            raise ToolError("the input is nested too deeply") from None
        return message

    def _write(self, message: Any, value: Any, place: str) -> None:
        described: Descriptor = message.DESCRIPTOR
        if described.full_name in _WRAPPERS:
            self._set(message, described.fields_by_name["value"], value, place)
            return
        if described.full_name in _STANDARD:
            try:
                json_format.ParseDict(value, message, descriptor_pool=self._pool)
            except (TypeError, ValueError, AttributeError, json_format.Error) as error:
                raise ToolError(f"{place} is not a {described.full_name}: {error}"[:500]) from None
            return
        members = _members(value, place)
        chosen: dict[str, str] = {}
        for key, member in members.items():
            field = described.fields_by_name.get(key)
            where = f"{place}.{key}"
            if field is None:
                raise ToolError(f"{where}: there is no such field")
            oneof = _oneof(field)
            if oneof is not None and (other := chosen.setdefault(oneof.name, key)) != key:
                raise ToolError(f"{place} has both {other} and {key}, which exclude each other")
            if _is_map(field):
                self._write_map(getattr(message, key), field, _members(member, where), where)
            elif field.is_repeated:
                self._write_list(getattr(message, key), field, member, where)
            else:
                self._set(message, field, member, where)

    def _set(self, message: Any, field: FieldDescriptor, value: Any, place: str) -> None:
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            part = getattr(message, field.name)
            part.SetInParent()
            self._write(part, value, place)
            return
        try:
            setattr(message, field.name, _scalar(field, value))
        except (TypeError, ValueError, OverflowError) as error:
            raise ToolError(f"{place}: {error}"[:500]) from None

    def _write_map(self, target: Any, field: FieldDescriptor, members: Mapping[str, Any], place: str) -> None:
        entry = _entry(field)
        value, keys = entry.fields_by_name["value"], entry.fields_by_name["key"]
        for text, member in members.items():
            where = f"{place}.{text}"
            try:
                key = _read_key(keys, text)
                if value.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                    self._write(target[key], member, where)
                else:
                    target[key] = _scalar(value, member)
            except (TypeError, ValueError, OverflowError) as error:
                raise ToolError(f"{where}: {error}"[:500]) from None

    def _write_list(self, target: Any, field: FieldDescriptor, value: Any, place: str) -> None:
        if not isinstance(value, list):
            raise ToolError(f"{place} is not a list")
        for index, each in enumerate(cast("Sequence[Any]", value)):
            where = f"{place}[{index}]"
            if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                self._write(target.add(), each, where)
            else:
                try:
                    target.append(_scalar(field, each))
                except (TypeError, ValueError, OverflowError) as error:
                    raise ToolError(f"{where}: {error}"[:500]) from None


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        kind: Any = field.enum_type
        if value is None and kind.full_name == "google.protobuf.NullValue":
            return 0
        if value not in kind.values_by_name:
            raise ValueError(f"{value!r:.100} is not one of {', '.join(list(kind.values_by_name)[:20])}")
        return kind.values_by_name[value].number
    if field.cpp_type in _INTEGERS and isinstance(value, float) and value.is_integer():
        return int(value)
    if field.type == FieldDescriptor.TYPE_BYTES and isinstance(value, str):
        return value.encode()
    return value


def _members(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ToolError(f"{place} is not an object")
    return cast("dict[str, Any]", value)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and cast("Any", field.message_type).GetOptions().map_entry


def _entry(field: FieldDescriptor) -> Descriptor:
    return cast("Descriptor", field.message_type)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _read_key(field: FieldDescriptor, text: str) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if text not in ("true", "false"):
            raise ValueError("the key must be true or false")
        return text == "true"
    return text if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else int(text)


def _oneof(field: FieldDescriptor) -> Any:
    """Returns the oneof of a field, unless it has only this field."""
    oneof: Any = field.containing_oneof
    return oneof if oneof is not None and len(oneof.fields) > 1 else None


def _is_required(field: FieldDescriptor) -> bool:
    """True for google.api.field_behavior = REQUIRED."""
    options = FieldOptions.FromString(field.GetOptions().SerializeToString())
    return FieldBehavior.Value("REQUIRED") in cast("Any", options).Extensions[field_behavior]
