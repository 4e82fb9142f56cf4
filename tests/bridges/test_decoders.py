"""What comes over a wire costs by its bytes: no decoder makes much more of them, in memory or in calls."""

from __future__ import annotations

import io
import json
import tarfile
import tracemalloc
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.bridges.web import parse_json
from corral.bridges.web.batches import calls_of
from corral.egress.client import decoder
from corral.errors import CorralError, MessageTooLarge
from corral.guest import FrameKind, FrameReader, decode_value, encode_frame, encode_value, plain_json
from corral.protocols import trpc as superjson
from corral.protocols.connect import CONTENT_TYPES, ConnectExchange
from corral.protocols.grpc.methods import CallMessage
from corral.protocols.trpc import from_superjson, to_superjson
from corral.sessions.files import index
from corral.sources.openapi.documents import load_yaml
from corral.types import Limits
from tests.work import calls_of as count_calls

MOST_MEMORY = 100
"""Bytes for each that came. `{"":0}` in a list takes 30 times, and is there once before and once after revival."""
OF_YAML = 300
"""The same of a document in YAML, whose parts are bounded by number: nodes are there beside what is made of them."""
MOST_CALLS = 15
"""Calls for each byte."""
LEAST = 300_000
"""Bytes, and calls, that are free."""
NONCE = b"n" * 16
GRANT = cast("Any", SimpleNamespace(limits=Limits()))

ATOMS = (
    *(b"{}", b"[]", b'""', b"0", b"-0.0", b"1e300", b"1e-400", b"9" * 400, b"9007199254740993", b"NaN", b'{"":0}'),
    *(b'"\\u0061"', b'"\\ud83d\\ude00"', b"[[[[[[[[]]]]]]]]", b'{"a":{"a":{"a":{}}}}', b'[["a",[]]]', b'"\\\\a\\\\."'),
    *(b'{"$bytes":"AA=="}', b'{"$bigint":"1"}', b'{"$object":{"$bytes":1}}', b'{"$number":"NaN"}', b'{"$buffer":""}'),
)


def listed(atoms: list[bytes]) -> bytes:
    return b"[%b]" % b",".join(atoms)


def keyed(atoms: list[bytes]) -> bytes:
    return b"{%b}" % b",".join(b'"k%d":%b' % (number, each) for number, each in enumerate(atoms))


def repeated(atoms: list[bytes]) -> bytes:
    """An object whose members all have the same name."""
    return b"{%b}" % b",".join(b'"k":%b' % each for each in atoms)


def under_a_long_name(atoms: list[bytes]) -> bytes:
    return b'{"%b":%b}' % (b"k" * 10_000, listed(atoms))


class Text(NamedTuple):
    """JSON that is made of many of the same parts, within a few containers."""

    atoms: list[bytes]
    is_long: bool
    container: Callable[[list[bytes]], bytes]
    depth: int

    @property
    def data(self) -> bytes:
        count = 20_000 // sum(map(len, self.atoms)) + 1 if self.is_long else 20
        return b"[" * self.depth + self.container(self.atoms * count) + b"]" * self.depth


TEXTS = st.builds(
    Text,
    atoms=st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3),
    is_long=st.booleans(),
    container=st.sampled_from([listed, keyed, repeated, under_a_long_name]),
    depth=st.sampled_from([0, 0, 1, 60]),
)


def value_and_back(data: bytes) -> object:
    return encode_value(decode_value(data, tagged=True))


def from_frames(data: bytes) -> object:
    frames = FrameReader(NONCE, {FrameKind.CALL: 1_000_000})
    sent = encode_frame(FrameKind.CALL, data, NONCE, tagged=True)
    pieces = [frames.feed(sent[at : at + 100]) for at in range(0, len(sent), 100)]
    return [decode_value(frame.payload, tagged=frame.tagged) for piece in pieces for frame in piece]


def of_batch(data: bytes) -> object:
    body = b'{"calls":[{"sequence":1,"tool":"t","tagged":true,"input":%b},{"sequence":2,"tool":"t"}]}' % data
    return calls_of(parse_json(body), len(body), GRANT)


def of_superjson(data: bytes) -> object:
    return from_superjson({"json": parse_json(data), "meta": {"values": parse_json(data)}})


def to_superjson_again(data: bytes) -> object:
    return to_superjson(decode_value(data, tagged=True))


def connect(data: bytes, *, as_json: bool) -> object:
    form = next(each for each in CONTENT_TYPES.values() if each.json is as_json and not each.stream)
    exchange: Any = ConnectExchange(form, cast("Any", None), GRANT, 1_000_000, compressed=False)
    if as_json:
        data = json.dumps({"tool": "t", "input": b64encode(data).decode(), "tagged": True}).encode()
    message = exchange._parse(CallMessage, data)
    return decode_value(message.input or b"{}", tagged=message.tagged)


@pytest.fixture(autouse=True, scope="module")
def short_paths() -> Iterator[None]:
    """Allows less than otherwise, as the texts here are small."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(superjson, "_MOST_PATH_CHARS", 200_000)
        yield


DECODERS: dict[str, Callable[[bytes], object]] = {
    "values": value_and_back,
    "plain": lambda data: plain_json(decode_value(data, tagged=True)),
    "frames": from_frames,
    "batch": of_batch,
    "superjson": of_superjson,
    "to superjson": to_superjson_again,
    "connect, JSON": lambda data: connect(data, as_json=True),
    "connect, protobuf": lambda data: connect(data, as_json=False),
    "YAML": lambda data: load_yaml(data.decode()),
    "tar": lambda data: index(data, 1_000_000, 1_000),
    "gzip": lambda data: [len(piece) for piece in decoder("gzip")(data)],
}


def attempt(decode: Callable[[bytes], object], data: bytes) -> None:
    try:
        decode(data)
    except (CorralError, ValueError, OverflowError):
        pass
    except Exception as error:
        if type(error).__name__ not in ("DecodingError", "FileError"):
            raise


def require_little(name: str, data: bytes) -> None:
    decode, most = DECODERS[name], OF_YAML if name == "YAML" else MOST_MEMORY
    tracemalloc.start()
    try:
        attempt(decode, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= LEAST + most * len(data)
    assert count_calls(lambda: attempt(decode, data)) <= LEAST + MOST_CALLS * len(data)


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=4, deadline=None)
@given(text=TEXTS)
def test_what_is_decoded_costs_by_the_bytes_that_came(name: str, text: Text) -> None:
    require_little(name, text.data)


@pytest.mark.matrix("the gate has four examples of each decoder; here are twenty of each")
@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=20, deadline=None)
@given(text=TEXTS)
def test_what_is_decoded_costs_by_the_bytes_that_came_in_many_examples(name: str, text: Text) -> None:
    require_little(name, text.data)


def tar_of(name: str, count: int) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(count):
            archive.addfile(tarfile.TarInfo(f"{name}{number}"))
    return made.getvalue()


DENSE: dict[str, tuple[str, bytes]] = {
    "a long name in an archive": ("tar", tar_of("d/" * 2_000, 2)),
    "many entries": ("tar", tar_of("f", 50)),
    "zeros, compressed": ("gzip", zlib.compress(b"\0" * 10_000_000)),
    "one text, many times in YAML": ("YAML", b"a: &a [x, x]\nb: [" + b"*a, " * 500 + b"]"),
    "escapes in a path of superjson": ("superjson", json.dumps({"\\a" * 5_000: ["map"]}).encode()),
    "nested kinds of superjson": ("superjson", b'["map",' * 150 + b'["map"]' + b"]" * 150),
    "nothing, nested": ("values", b"[" * 90 + b"]" * 90),
    "a group in protobuf": ("connect, protobuf", b"\x0b" * 2_000),
    "many fields of protobuf": ("connect, protobuf", b"\x12\x00" * 1_000),
}


@pytest.mark.parametrize("case", DENSE)
def test_dense_bytes_cost_no_more(case: str) -> None:
    name, data = DENSE[case]
    require_little(name, data)


def test_paths_to_values_do_not_repeat_long_names_without_end() -> None:
    value = {"k" * 10_000: [2**60] * 1_000}
    with pytest.raises(MessageTooLarge, match="withheld: the paths to its integers"):
        to_superjson(value)
