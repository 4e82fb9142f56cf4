"""Values between messages and JSON, by the plans of their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.unknown_fields import UnknownFieldSet
from pydantic import BaseModel
from pydantic_core import from_json

from corral.errors import InvalidArguments, InvalidToolOutput
from corral.guest import plain_json
from corral.protocols.grpc.bridge.descriptors import FieldPlan, FieldType, MessagePlan, RootPlan

_WHOLE = 2.0**53
"""Doubles below it are read as integers where they are whole."""
_INT64 = range(-(2**63), 2**63)


def read_root(plan: RootPlan, message: Any) -> object:
    """Reads the JSON value of a message.

    Raises:
        InvalidArguments: a field is unknown.
    """
    _refuse_unknown(message, plan.message)
    if plan.whole is None:
        return _read_message(plan.message, message)
    return _read_message(plan.message, message).get(plan.whole.key, {})


def write_root(plan: RootPlan, value: object, message: Any) -> None:
    """Writes a value into an empty message.

    Raises:
        InvalidToolOutput: it does not fit.
    """
    try:
        if plan.whole is None:
            _write_message(plan.message, value, message)
        elif plan.whole.name:
            _write_field(plan.whole, value, message)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidToolOutput(
            "the tool ran, but its result was withheld: it does not fit its message; corral.v1.Bridge/Call returns any"
        ) from error


# --- messages to JSON -------------------------------------------------------------------------------------------------


def _read_message(plan: MessagePlan, message: Any) -> dict[str, object]:
    read: dict[str, object] = {}
    for field in plan.fields:
        found = field.type
        if found.shape == "list":
            read[field.key] = [_read_one(found, each) for each in getattr(message, field.name)]
        elif found.shape == "map":
            read[field.key] = _read_map(found, getattr(message, field.name))
        elif not message.HasField(field.name):
            if field.required and found.nullable:
                read[field.key] = None
        elif found.shape == "wrapped_list":
            holder = getattr(message, field.name)
            _refuse_unknown(holder, plan)
            read[field.key] = [_read_one(found, each) for each in holder.items]
        elif found.shape == "wrapped_map":
            holder = getattr(message, field.name)
            _refuse_unknown(holder, plan)
            read[field.key] = _read_map(found, holder.items)
        else:
            read[field.key] = _read_one(found, getattr(message, field.name))
    return read


def _read_map(found: FieldType, entries: Mapping[str, Any]) -> dict[str, object]:
    return {key: _read_one(found, entries[key]) for key in entries}


def _read_one(found: FieldType, value: Any) -> object:
    if found.message is not None:
        _refuse_unknown(value, found.message)
        return _read_message(found.message, value)
    match found.kind:
        case "value":
            return _read_value(value)
        case "struct":
            return {key: _read_value(member) for key, member in value.fields.items()}
        case _:
            return value


def _read_value(value: Value) -> object:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) < _WHOLE else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return {key: _read_value(member) for key, member in value.struct_value.fields.items()}
        case "list_value":
            return [_read_value(each) for each in value.list_value.values]
        case _:
            return None


def _refuse_unknown(message: Message, plan: MessagePlan) -> None:
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        raise InvalidArguments(
            f"{plan.name.rpartition('.')[2]} has no field {number}; make the client anew from the current descriptors"
        )


# --- JSON to messages -------------------------------------------------------------------------------------------------


def _write_message(plan: MessagePlan, value: object, message: Any) -> None:
    members = _members(value)
    for field in plan.fields:
        if field.key in members:
            _write_field(field, members[field.key], message)


def _write_field(field: FieldPlan, value: object, message: Any) -> None:
    found = field.type
    if value is None and (found.nullable or found.kind != "value"):
        return
    match found.shape:
        case "one" if found.kind in ("message", "struct", "value"):
            getattr(message, field.name).SetInParent()
            _write_part(found, value, getattr(message, field.name))
        case "one":
            setattr(message, field.name, _scalar(found, value))
        case "list" | "map":
            _write_many(found, value, getattr(message, field.name))
        case _:
            holder = getattr(message, field.name)
            holder.SetInParent()
            _write_many(found, value, holder.items)


def _write_many(found: FieldType, value: object, target: Any) -> None:
    composed = found.kind in ("message", "struct", "value")
    if found.shape in ("map", "wrapped_map"):
        for key, member in _members(value).items():
            if composed:
                _write_part(found, member, target[key])
            else:
                target[key] = _scalar(found, member)
        return
    if isinstance(value, str | bytes | Mapping):
        raise TypeError("not a list")
    for each in cast("Sequence[object]", value):
        if composed:
            _write_part(found, each, target.add())
        else:
            target.append(_scalar(found, each))


def _write_part(found: FieldType, value: object, target: Any) -> None:
    if found.message is not None:
        _write_message(found.message, value, target)
    elif found.kind == "struct":
        _write_struct(_members(value), target)
    else:
        _write_value(value, target)


def _scalar(found: FieldType, value: object) -> Any:
    match found.kind:
        case "int64":
            number = int(cast("int", value))
            if number not in _INT64 or number != value:
                raise ValueError("not an int64")
            return number
        case "bytes":
            return value.encode() if isinstance(value, str) else bytes(cast("bytes", value))
        case "string":
            return value if isinstance(value, str) else str(from_json(plain_json(value)))
        case "bool" if not isinstance(value, bool):
            raise TypeError("not a bool")
        case _:
            return value


def _members(value: object) -> Mapping[str, object]:
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if not isinstance(value, Mapping):
        raise TypeError("not an object")
    return cast("Mapping[str, object]", value)


def _write_struct(value: Mapping[str, object], target: Struct) -> None:
    for key, member in value.items():
        _write_value(member, target.fields[key])


def _write_value(value: object, target: Value) -> None:
    match value:
        case None:
            target.null_value = 0  # pyright: ignore[reportAttributeAccessIssue]
        case bool():
            target.bool_value = value
        case int() | float():
            target.number_value = value
        case str():
            target.string_value = value
        case dict():
            target.struct_value.SetInParent()
            _write_struct(cast("dict[str, object]", value), target.struct_value)
        case list() | tuple():
            target.list_value.SetInParent()
            _write_list(cast("Sequence[object]", value), target.list_value)
        case _:
            _write_value(from_json(plain_json(value)), target)


def _write_list(value: Sequence[object], target: ListValue) -> None:
    for each in value:
        _write_value(each, target.values.add())
