"""The two halves of the codec agree with the golden vectors, and the host's half with nothing that is malformed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import deno
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.errors import MalformedMessage, MessageTooLarge
from corral.guest import ArrayBuffer, FrameKind, FrameReader, UnencodableValue, decode_value, encode_frame, encode_value
from tests.work import examples

HERE = Path(__file__).parent
VECTORS: dict[str, Any] = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))
NONCE = bytes.fromhex(VECTORS["nonce"])
BOUNDS = {int(kind): 1000 for kind in FrameKind}


def python_value(expression: str) -> object:
    return eval(expression, {"ArrayBuffer": ArrayBuffer, "float": float})  # noqa: S307 - our own vectors


def test_the_guests_half_agrees_with_the_vectors(tmp_path: Path) -> None:
    command = [deno.find_deno_bin(), "run", "--quiet", "--no-config", "--no-lock", "--no-npm", str(HERE / "codec.ts")]
    shown = subprocess.run(
        command,
        input=json.dumps(VECTORS).encode(),
        capture_output=True,
        check=False,
        env={"DENO_DIR": str(tmp_path), "NO_COLOR": "1"},
    )
    assert shown.returncode == 0, shown.stderr.decode()
    outcome = json.loads(shown.stdout)
    assert outcome["wrong"] == []
    assert outcome["checks"] == 3 + sum(len(VECTORS[part]) for part in ("frames", "from_guest", "from_host"))


@pytest.mark.parametrize("vector", VECTORS["frames"], ids=lambda vector: vector["payload"])
def test_a_frame_is_written_and_read_as_its_vector(vector: dict[str, Any]) -> None:
    wire = bytes.fromhex(vector["hex"])
    payload = vector["payload"].encode()
    assert encode_frame(FrameKind(vector["kind"]), payload, NONCE, tagged=vector["tagged"]) == wire
    assert FrameReader(NONCE, BOUNDS).feed(wire) == [(vector["kind"], vector["tagged"], payload)]


@pytest.mark.parametrize("vector", VECTORS["from_guest"], ids=lambda vector: vector["javascript"])
def test_what_a_guest_sends_is_read_as_its_vector(vector: dict[str, Any]) -> None:
    value = decode_value(vector["wire"].encode(), tagged=vector["tagged"])
    expected = python_value(vector["python"])
    assert repr(value) == repr(expected)


@pytest.mark.parametrize("vector", VECTORS["from_host"], ids=lambda vector: vector["python"])
def test_what_a_tool_returns_is_written_as_its_vector(vector: dict[str, Any]) -> None:
    encoded = encode_value(python_value(vector["python"]))
    assert (encoded.text.decode(), encoded.tagged) == (vector["wire"], vector["tagged"])


@pytest.mark.parametrize("size", [1, 2, 3, 21, 22, 23, 64])
def test_frames_come_out_however_the_bytes_are_cut(size: int) -> None:
    stream = b"".join(bytes.fromhex(vector["hex"]) for vector in VECTORS["frames"])
    reader = FrameReader(NONCE, BOUNDS)
    frames = [frame for at in range(0, len(stream), size) for frame in reader.feed(stream[at : at + size])]
    assert [frame.payload.decode() for frame in frames] == [vector["payload"] for vector in VECTORS["frames"]]


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (b"GET / HTTP/1.1\r\n\r\n" + bytes(30), MalformedMessage),
        (encode_frame(FrameKind.CALL, b"[]", bytes(16)), MalformedMessage),
        (encode_frame(FrameKind.CALL, b"x" * 1001, NONCE), MessageTooLarge),
        (b"\xff\xff\xff\xff\x11\x00" + NONCE, MessageTooLarge),
        (b"\x00\x00\x00\x12\x63\x00" + NONCE, MalformedMessage),
        (b"\x00\x00\x00\x12\x11\x02" + NONCE, MalformedMessage),
        (b"\x00\x00\x00\x11\x11\x00" + NONCE, MalformedMessage),
        (b"\x00\x00\x00\x00\x11\x00" + NONCE, MalformedMessage),
    ],
    ids=["text", "nonce", "large", "huge", "kind", "flags", "short", "empty"],
)
def test_a_frame_that_breaks_the_format_is_refused_from_its_header(wire: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        FrameReader(NONCE, BOUNDS).feed(wire[:22])


def test_a_frame_that_trickles_in_is_not_copied_at_every_byte() -> None:
    reader = FrameReader(NONCE, {17: 1 << 20})
    wire = encode_frame(FrameKind.CALL, b"x" * (1 << 20), NONCE)
    for at in range(len(wire) - 1):
        assert reader.feed(wire[at : at + 1]) == []
    assert len(reader.feed(wire[-1:])) == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{", b"\xff", b"[1", b"nul", b"[" * 300 + b"]" * 300, b"1" * 5000, b'"\\ud800"',
    ],
)  # fmt: skip
def test_a_payload_that_is_not_json_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_value(payload, tagged=False)


@pytest.mark.parametrize(
    "payload", [b'{"$bytes":1}', b'{"$bytes":"%"}', b'{"$object":[]}', b'{"$number":"nan"}', b'{"$bigint":"1_0"}']
)
def test_a_tag_that_makes_no_sense_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_value(payload, tagged=True)


def test_a_cycle_or_a_deep_value_is_refused_with_its_path() -> None:
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    with pytest.raises(UnencodableValue, match=r"output\[0\]\.again: a cycle: the value contains itself"):
        encode_value(cycle)


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(TEXT | st.sampled_from(["$bytes", "$object", "__proto__"]), inner),
    max_leaves=20,
)


@given(json_values)
@settings(max_examples=examples(100), deadline=None)
def test_any_plain_value_is_read_back_from_what_the_guest_would_echo(value: Any) -> None:
    # The guest's tags for integers and numbers differ from the host's, so those are compared in the end-to-end tests.
    encoded = encode_value(value)
    if b"$bigint" not in encoded.text and b"$number" not in encoded.text:
        decoded = decode_value(encoded.text, tagged=encoded.tagged)
        assert decoded == value
