"""Values of a program in Monty: resolves its proxies and texts, within a limit that applies during the walk.

Monty keeps shared parts of a value shared, so a few bytes can represent a tree of any size. That is why a value is
counted during the walk. Objects without an external form (functions, forgotten calls, ranges, cycles) leave Monty as
their printed text, by which they are recognized.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from pydantic_core import to_json
from pydantic_monty import ExternalModule, MontyClassProxy, MontyClassTypeProxy, MontyStdTypeProxy

from corral.guest import ArrayBuffer, decode_value
from corral.guest.python.values import SAFE_INTEGER, Encoder, TooLarge, UnencodableValue
from corral.types import EncodedValue

_PENDING = "<coroutine external_future("
_CALL = re.compile(r"<coroutine external_future\((\d{1,18})\)>")
_NOT_DATA = re.compile(
    r"<coroutine [^>]*>|<gather\(\d+\)>|<function '[^']*' [^>]*>|<module '[^']*'>|<\w+_iterator object>"
    r"|<re\.Match object; .*>|re\.compile\(.*\)|(?:range|slice|dict_keys|dict_values|dict_items)\(.*\)",
    re.DOTALL,
)
"""Texts that Monty 1.4 prints for objects that it cannot pass to the host."""
_CLASS = re.compile(r"<class '\w+'>")
"""Text of a program's class that serves as a key."""
_CYCLES = frozenset({"[...]", "{...}", "(...)"})
_TOOL = re.compile(r"tools\.[\w.]+")
"""Text of a tool that was not called. In an input, it cannot be distinguished from a string."""
_FIRST = frozenset("<rsdt[{(")

NORMALIZE = """
def _corral_plain(value, parents):
    kind = type(value).__name__
    if kind in ('range', 'dict_keys', 'dict_values', 'dict_items') or kind.endswith('_iterator'):
        value = list(value)
    if id(value) in parents:
        return ('cycle', '')
    if isinstance(value, (set, frozenset)) and all(isinstance(member, (str, int, float)) for member in value):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_corral_plain(member, parents + [id(value)]) for member in value]
    if isinstance(value, dict):
        return {key: _corral_plain(member, parents + [id(value)]) for key, member in value.items()}
    if kind == 'Pattern':
        return value.pattern
    if kind in ('function', 'coroutine', 'module', 'slice', 'Match'):
        return (kind, repr(value))
    return value
_corral_plain(_corral_result, [])
"""
"""Code to run in Monty after a program whose result can contain objects that are not data. Converts ranges, views and
iterators to lists, and objects that cannot leave to tuples, which it uses for nothing else."""


class Tools:
    """The program's `tools`. Only Monty's handle to it is used."""


class NotData(Exception):
    """The result contains text that could represent an object. Only Monty can tell."""


def encode_input(value: object, max_bytes: int, tool_of: Callable[[int], str | None]) -> EncodedValue:
    """Encodes a call's input. `tool_of` returns the tool of a call by Monty's number.

    Raises:
        UnencodableValue, TooLarge: the codec raised it.
    """
    if _is_flat(value, max_bytes):
        text = to_json(value, inf_nan_mode="constants")
        if len(text) <= max_bytes:
            return EncodedValue(text, tagged=False)
    return _InputEncoder("input", max_bytes, tool_of).encoded(value)


def encode_result(
    value: object, max_bytes: int, tool_of: Callable[[int], str | None], *, normalized: bool
) -> EncodedValue:
    """Encodes the program's result, either original or processed by `NORMALIZE`.

    Raises:
        NotData: the result is original, and can contain an object that is not data. UnencodableValue, TooLarge: the
        codec raised it.
    """
    return (_NormalizedEncoder if normalized else _ResultEncoder)("result", max_bytes, tool_of).encoded(value)


def value_for_program(encoded: EncodedValue) -> Any:
    """Decodes a tool's output for a program."""
    value = decode_value(encoded.text, tagged=encoded.tagged)
    return _without_buffers(value) if encoded.tagged else value


def _is_flat(value: object, max_bytes: int) -> bool:
    """True for an object with a few plain members, like most inputs, which JSON encodes unchanged."""
    if type(value) is not dict:
        return False
    size = 0
    for name, member in cast("dict[Any, Any]", value).items():
        if type(name) is not str or name[:1] == "$":
            return False
        size += len(name)
        kind = cast("type[object]", type(member))
        if kind is str:
            size += len(member)
            if member[:1] in _FIRST or _PENDING in member:
                return False
        elif kind is int:
            if not -SAFE_INTEGER <= member <= SAFE_INTEGER:
                return False
        elif not (member is None or kind is bool or kind is float):
            return False
        if size > max_bytes:
            return False
    return True


class _Encoder(Encoder):
    """Counts bytes during the walk. The encoded text has at least as many."""

    sees_all = True

    def __init__(self, root: str, max_bytes: int, tool_of: Callable[[int], str | None]) -> None:
        super().__init__(root)
        self._name = root
        self._max_bytes = max_bytes
        self._tool_of = tool_of
        self._left = max_bytes + 1

    def encoded(self, value: object) -> EncodedValue:
        text = to_json(self.plain(value, 0), inf_nan_mode="constants")  # Monty's texts contain no lone surrogates
        if len(text) > self._max_bytes:
            raise TooLarge(f"{self._name} has {len(text)} bytes; {self._max_bytes} are allowed")
        return EncodedValue(text, self.tagged)

    def plain(self, value: Any, depth: int) -> Any:
        if type(value) is str:
            self._count(len(value) + 2)
            if value[:1] in _FIRST:
                return self.text(value, depth)
            if _PENDING in value:
                self._refuse_call(value, depth)
            return value
        self._count(len(value) if type(value) is bytes else 2)  # including the comma
        return super().plain(value, depth)

    def integer(self, value: int, depth: int) -> Any:
        self._count(value.bit_length() // 4)
        return super().integer(value, depth)

    def other(self, value: Any, depth: int) -> Any:
        plain = super().other(value, depth)
        if type(plain) is str:
            self._count(len(plain))
        return plain

    def mapping(self, owner: object, items: Iterable[tuple[Any, Any]], depth: int) -> Any:
        members = [(key[8:-2] if type(key) is str and _CLASS.fullmatch(key) else key, each) for key, each in items]
        for key, _ in members:
            if type(key) is str:
                self._count(len(key))
        return super().mapping(owner, members, depth)

    def class_name(self, value: object) -> str | None:
        return value.name if isinstance(value, MontyClassTypeProxy) else super().class_name(value)

    def text(self, value: str, depth: int) -> Any:
        """Handles a text that could represent an object."""
        if _PENDING in value:
            self._refuse_call(value, depth)
        return value

    def rest(self, value: Any, depth: int) -> Any:
        match value:
            case MontyClassProxy():
                members = [
                    (name, each) for name, each in value.attributes.items() if value.is_dataclass or name[:1] != "_"
                ]
                return self.mapping(value, members, depth)
            case MontyClassTypeProxy():
                raise self.refused(f"the class {value.name} cannot leave the sandbox; return its contents", depth)
            case MontyStdTypeProxy() | Tools():
                raise self.not_data("function", depth)
            case ExternalModule():
                raise self.not_data("module", depth)
            case _:
                return super().rest(value, depth)

    def not_data(self, kind: str, depth: int) -> UnencodableValue:
        if "iterator" in kind or kind in _COLLECTED:
            return self.refused(f"{_article(kind)}: collect it first, for example list(...)", depth)
        if kind in ("coroutine", "gather"):
            return self.refused(f"a {kind}: await it first", depth)
        if kind == "cycle":
            return self.refused("a cycle: the value contains itself", depth)
        if kind == "function":
            return self.refused("a function cannot leave the sandbox; call it, or return its result", depth)
        return self.refused(f"a {kind} cannot leave the sandbox; return its contents", depth)

    def _refuse_call(self, text: str, depth: int) -> None:
        match = _CALL.search(text)
        tool = self._tool_of(int(match[1])) if match else None
        if tool is not None:
            raise self.refused(f"tools.{tool}(...) was not awaited: write `await tools.{tool}(...)`", depth)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TooLarge(f"{self._name} has more than {self._max_bytes} bytes, the maximum")


class _InputEncoder(_Encoder):
    def text(self, value: str, depth: int) -> Any:
        super().text(value, depth)
        if match := _NOT_DATA.fullmatch(value):
            raise self.not_data(_kind(match[0]), depth)
        return value


class _ResultEncoder(_Encoder):
    def text(self, value: str, depth: int) -> Any:
        super().text(value, depth)
        if value in _CYCLES or _NOT_DATA.fullmatch(value) or _TOOL.fullmatch(value):
            raise NotData
        return value


class _NormalizedEncoder(_Encoder):
    def plain(self, value: Any, depth: int) -> Any:
        match value:
            case (str() as kind, str() as text) if type(value) is tuple:
                self._refuse_call(text, depth)
                raise self.not_data("gather" if text.startswith("<gather") else kind, depth)
            case _:
                return super().plain(value, depth)


_COLLECTED = frozenset({"range", "dict_keys", "dict_values", "dict_items"})


def _kind(text: str) -> str:
    """Returns the kind of object that a text matched by `_NOT_DATA` represents."""
    match = re.match(r"<?(re\.compile|\w+)", text)
    kind = match[1] if match else "value"
    return {"re": "Match", "re.compile": "Pattern"}.get(kind, kind)


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _without_buffers(value: Any) -> Any:
    match value:
        case ArrayBuffer():
            return bytes(value)
        case list():
            return [_without_buffers(member) for member in cast("list[Any]", value)]
        case dict():
            return {key: _without_buffers(member) for key, member in cast("dict[str, Any]", value).items()}
        case _:
            return value
