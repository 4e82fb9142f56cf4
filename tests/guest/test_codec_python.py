"""The guest for Python agrees with the golden vectors, as the one for TypeScript does, and its files hold together.

Where a vector holds what only JavaScript has, `undefined`, a Date, a Map, its Python counterpart is sent; what the host
reads is the same.
"""

from __future__ import annotations

import ast
import datetime
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from corral.guest import ArrayBuffer, FrameKind, encode_value, http_runtime, python_guest
from corral.guest.python.frames import encode_frame
from corral.guest.python.program import Pipes
from corral.guest.python.values import decode, encode

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))
NONCE = bytes.fromhex(VECTORS["nonce"])
LIMIT = 1_000_000

COUNTERPARTS: dict[str, object] = {
    "new Date(0)": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
    "new Uint8Array([1,2]).buffer": ArrayBuffer(b"\1\2"),
    "new Set([1])": {1},
    "new Map([['a',1]])": {"a": 1},
    "new Map([[1,2]])": [(1, 2)],
    "new Map([[[1,2],3],['a',{$bytes:'x'}]])": {(1, 2): 3, "a": {"$bytes": "x"}},
    "({a:undefined,b:1})": {"b": 1},
    "[undefined]": [None],
    "({$bytes:'eA==',b:undefined})": {"$bytes": "eA=="},
}
"""All others are what `python` says; also the error, whose cause is no error, which in Python it has to be."""


def python_value(expression: str) -> Any:
    return eval(expression, {"ArrayBuffer": ArrayBuffer, "float": float})  # noqa: S307 - our own vectors


@pytest.mark.parametrize("vector", VECTORS["frames"], ids=lambda vector: vector["payload"])
def test_a_frame_is_written_as_its_vector(vector: dict[str, Any]) -> None:
    frame = encode_frame(FrameKind(vector["kind"]), vector["payload"].encode(), NONCE, tagged=vector["tagged"])
    assert frame.hex() == vector["hex"]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_frames_are_read_however_the_bytes_are_cut(size: int) -> None:
    vectors = [vector for vector in VECTORS["frames"] if vector["kind"] == FrameKind.REPLY]
    stream = b"".join(bytes.fromhex(vector["hex"]) for vector in vectors)
    reading, writing = os.pipe()
    try:
        pipes = Pipes(reading, writing)
        replies: list[tuple[int, bytes, bool]] = []
        for at in range(0, len(stream), size):
            os.write(writing, stream[at : at + size])
            replies += pipes.read_replies()
        assert replies == [(FrameKind.REPLY, vector["payload"].encode(), vector["tagged"]) for vector in vectors]
    finally:
        os.close(reading)
        os.close(writing)


def test_frames_after_the_start_carry_its_nonce() -> None:
    [start, call] = [next(each for each in VECTORS["frames"] if each["kind"] == kind) for kind in (1, 17)]
    reading, writing = os.pipe()
    try:
        pipes = Pipes(reading, writing)
        os.write(writing, bytes.fromhex(start["hex"]))
        assert pipes.read_start() == json.loads(start["payload"])[0]
        pipes.append(FrameKind.CALL, call["payload"].encode(), tagged=call["tagged"])
        pipes.flush()
        assert os.read(reading, 1000).hex() == call["hex"]
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("vector", VECTORS["from_guest"], ids=lambda vector: vector["javascript"])
def test_what_a_program_sends_is_written_as_its_vector(vector: dict[str, Any]) -> None:
    value = COUNTERPARTS.get(vector["javascript"], python_value(vector["python"]))
    for root in (value, [value]):
        encoded = encode(root, "value", LIMIT)
        wire = vector["wire"] if root is value else f"[{vector['wire']}]"
        assert (encoded.text.decode(), encoded.tagged, encoded.replaced) == (wire, vector["tagged"], False)


@pytest.mark.parametrize("vector", VECTORS["from_host"], ids=lambda vector: vector["python"])
def test_what_a_tool_returned_is_read_as_its_vector(vector: dict[str, Any]) -> None:
    value = decode(vector["wire"].encode(), tagged=vector["tagged"])
    expected = {"'a\\ud800'": "a\ufffd", "(1, [2])": [1, [2]]}.get(vector["python"], python_value(vector["python"]))
    assert (type(value), repr(value)) == (type(expected), repr(expected))


PLAIN = [
    float("nan"),
    float("inf"),
    float("-inf"),
    -0.0,
    2**53 - 1,
    2**53,
    -(2**53),
    {"n": float("nan")},
    {"$number": "NaN"},
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_in_plain_json_a_program_writes_values_as_the_host_does(value: object) -> None:
    encoded = encode(value, "value", LIMIT, plain=True)
    assert (encoded.text, encoded.tagged) == encode_value(value)
    json.loads(encoded.text, parse_constant=pytest.fail)
    assert repr(decode(encoded.text, tagged=encoded.tagged)) == repr(value)


# --- the files that the guest's modules become


def bound_twice(source: str) -> list[str]:
    """Names that more than one statement at the top of a file gives a meaning. The same import counts as one."""
    bound: dict[str, object] = {}
    twice: list[str] = []
    for name, meaning in bindings(ast.parse(source).body):
        if bound.setdefault(name, meaning) != meaning:
            twice.append(name)
    return twice


def bindings(statements: Iterable[ast.stmt]) -> Iterable[tuple[str, object]]:
    for statement in statements:
        match statement:
            case ast.Import(names):
                yield from ((alias.asname or alias.name, alias.name) for alias in names)
            case ast.ImportFrom(module, names):
                yield from ((alias.asname or alias.name, (module, alias.name)) for alias in names)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name, statement
            case ast.If(_, body, other):
                yield from bindings([*body, *other])
            case ast.With(_, body) | ast.For(_, _, body):
                yield from bindings(body)
            case _:
                stored = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
                yield from ((node.id, node) for node in stored if isinstance(node.ctx, ast.Store))


FILES: dict[str, Callable[[], str]] = {
    "pipe": lambda: python_guest().decode(),
    "HTTP": lambda: http_runtime("python"),
}


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_no_name_at_the_top_of_a_joined_file_stands_for_two_things(file: Callable[[], str]) -> None:
    source = file()
    compile(source, "joined", "exec", dont_inherit=True)
    assert bound_twice(source) == []


@pytest.mark.parametrize(
    "other",
    ["def encode(): ...", "Calls = 1", "Calls: int = 1", "from other import revive", "if 1:\n    class Tools: ..."],
)
def test_a_name_that_stands_for_two_things_would_be_found(other: str) -> None:
    joined = http_runtime("python")
    assert bound_twice(joined) == []
    assert len(bound_twice(f"{joined}\n{other}")) == 1
