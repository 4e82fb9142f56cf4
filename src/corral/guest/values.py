"""Host's half of the value codec. docs/values.md is the table, docs/frames.md describes the tags.

From a guest's pipe: JSON in which NaN and the infinities are literals and integers can have up to 4,300 digits. To the
guest, and over other protocols: JSON in which those are tags, because JavaScript's parser supports neither. A tag is an
object with one key that starts with `$`. A flag says whether there are any tags, so that plain data is not searched for
them.
"""

from __future__ import annotations

import math
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json

from corral.concurrency.fairness import run_in_turn
from corral.concurrency.garbage import gc_disabled
from corral.errors import MalformedMessage
from corral.guest.python.values import SAFE_INTEGER, PlainEncoder, TooManyParts, revive, well_formed
from corral.types import EncodedValue, ExecutionContext

_LONG_BYTES = 10_000
_INLINE_PARTS = 10_000
"""Maximum number of members and elements of a value that is encoded on the event loop, which takes up to 5 ms."""


async def encode_by_size(value: object, context: ExecutionContext) -> EncodedValue:
    """Like `encode_value`, but encodes a large value in a thread, so it must not change."""
    try:
        return encode_value(value, most_parts=_INLINE_PARTS)
    except TooManyParts:
        return await run_in_turn(encode_value, value, owner=context.owner)


def encode_value(value: object, root: str = "output", *, most_parts: float = math.inf) -> EncodedValue:
    """Encodes a tool's return value. `root` names the value in errors.

    Raises:
        UnencodableValue: a type without a form in the guest, a cycle, or nesting over `MAX_DEPTH`. TooManyParts: the
        value has more members and elements than `most_parts`.
    """
    if value is None or value is True or value is False or (type(value) is str and value.isascii()):
        return EncodedValue(to_json(value), tagged=False)
    if type(value) is int and -SAFE_INTEGER <= value <= SAFE_INTEGER:
        return EncodedValue(b"%d" % value, tagged=False)
    encoder = _HostEncoder(root)
    encoder.parts = most_parts
    with gc_disabled():
        plain = encoder.plain(value, 0)
        try:
            return EncodedValue(to_json(plain, inf_nan_mode="constants"), encoder.tagged)
        except PydanticSerializationError:  # a lone surrogate somewhere, which UTF-8 cannot carry
            return EncodedValue(to_json(_well_formed(plain), inf_nan_mode="constants"), encoder.tagged)


def plain_json(value: object) -> bytes:
    """Encodes a value as JSON without tags: bytes as base64, NaN and the infinities as null."""
    try:
        return to_json(value, bytes_mode="base64", inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(_well_formed(value), bytes_mode="base64", inf_nan_mode="null")


def decode_value(payload: bytes, *, tagged: bool) -> Any:
    """Parses a payload from the guest. The parser limits its depth, the frame its size.

    Raises:
        MalformedMessage: the payload is not JSON, not UTF-8 or nested too deeply, or a tag is malformed.
    """
    if len(payload) > _LONG_BYTES:
        with gc_disabled():
            return _decoded(payload, tagged)
    return _decoded(payload, tagged)


def _decoded(payload: bytes, tagged: bool) -> Any:
    try:
        value: Any = from_json(payload)
    except ValueError as error:
        raise MalformedMessage("the sandbox sent a message that is not valid JSON") from error
    return revive_value(value) if tagged else value


def revive_value(value: object) -> Any:
    """Replaces the tags in a parsed value by the values that they represent.

    Raises:
        MalformedMessage: a tag is malformed.
    """
    try:
        return revive(value)
    except ValueError as error:
        raise MalformedMessage("a tag in a value is malformed") from error


class _HostEncoder(PlainEncoder):
    """Encodes a value, including types that only a host has."""

    def other(self, value: Any, depth: int) -> Any:
        match value:
            case BaseModel():
                return self.plain(value.model_dump(by_alias=True), depth)
            # Addresses become their text: pydantic's Url, ipaddress and the like.
            case _ if type(value).__module__.split(".")[0] in {"pydantic", "pydantic_core", "ipaddress"}:
                return str(value)
            case _:
                return super().other(value, depth)

    def key_text(self, key: Any, depth: int) -> str | None:
        return None if key is None or isinstance(key, type) else super().key_text(key, depth)

    def pairs(self, done: dict[str, Any], rest: list[tuple[Any, Any]], depth: int) -> Any:
        """Refuses other keys, because a tool's results must have the same form each time, whatever their keys."""
        del done
        for key, _ in rest:
            if self.key_text(key, depth) is None:
                kind = type(key).__name__
                raise self.refused(f"a key of type {kind}; keys become strings, so convert it: str(...)", depth)
            raise self.refused("two keys that become the same string", depth)

    def rest(self, value: Any, depth: int) -> Any:
        raise self.refused(f"a {type(value).__name__} has no form in a program", depth)


def _well_formed(value: Any) -> Any:
    """Replaces lone surrogates by U+FFFD."""
    match value:
        case str():
            return well_formed(value)
        case dict():
            return {_well_formed(key): _well_formed(member) for key, member in cast("dict[str, Any]", value).items()}
        case list():
            return [_well_formed(member) for member in cast("list[Any]", value)]
        case _:
            return value
