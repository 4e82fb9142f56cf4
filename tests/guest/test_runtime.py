"""The guest's process, driven by frames: its output, and the timing of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deno
import pytest

from corral.guest import FrameKind, FrameReader, encode_frame

MAIN = Path(__file__).parents[2] / "src/corral/guest/typescript/process/main.ts"
NONCE = bytes(range(16))
LIMITS = {"calls": 10, "calls_in_flight": 10, "value_bytes": 1000, "tool_input_bytes": 1000, "log_bytes": 1000}


class Guest:
    """One guest that has got START."""

    def __init__(self, process: subprocess.Popen[bytes], body: str) -> None:
        self._process = process
        self._frames = FrameReader(NONCE, {int(kind): 100_000 for kind in FrameKind})
        self._ready: list[tuple[str, Any]] = []
        assert process.stdout is not None
        process.stdout.read(len(encode_frame(FrameKind.READY, b"[1]", bytes(16))))
        code = f"(async () => {{ {body} }})"
        start = {"code": code, "tools": ["slow"], "env": None, "limits": LIMITS, "allow_wasm": False}
        self.send(FrameKind.START, [start])

    def send(self, kind: FrameKind, payload: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(encode_frame(kind, json.dumps(payload).encode(), NONCE))
        self._process.stdin.flush()

    def next(self) -> tuple[str, Any]:
        assert self._process.stdout is not None
        while not self._ready:
            data = os.read(self._process.stdout.fileno(), 65536)
            assert data, "the guest ended"
            self._ready += [(FrameKind(each.kind).name, json.loads(each.payload)) for each in self._frames.feed(data)]
        return self._ready.pop(0)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    processes: list[subprocess.Popen[bytes]] = []

    def guest(body: str) -> Guest:
        command = [deno.find_deno_bin(), "run", "--quiet", "--no-config", "--no-lock", "--no-npm", str(MAIN)]
        environment = {"DENO_DIR": str(tmp_path), "NO_COLOR": "1"}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        processes.append(process)
        return Guest(process, body)

    yield guest
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("first", ["", "crypto;"], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize(
    ("last", "outcome", "lasts"),
    [
        ("return {a: 1}", ["value", {"a": 1}], True),
        ("throw 'no'", ["error", ["program_failed", "Uncaught", "no", "", None]], False),
    ],
)
def test_the_outcome_is_sent_before_the_calls_that_it_does_not_wait_for(
    start: Any, first: str, last: str, outcome: list[Any], lasts: bool
) -> None:
    guest = start(f"{first} tools.slow(); {last}")
    assert guest.next() == ("CALL", [1, "slow", {}])
    assert guest.next() == ("OUTCOME", [*outcome, lasts])
    guest.send(FrameKind.REPLY, [1, True])
    kind, payload = guest.next()
    assert kind == "EXIT"
    assert payload[:2] == outcome
    assert [call[1] for call in payload[2]] == ["slow"]


def test_without_pending_calls_there_is_only_an_exit(start: Any) -> None:
    guest = start("await tools.slow(); return 1")
    assert guest.next()[0] == "CALL"
    guest.send(FrameKind.REPLY, [1, True])
    assert guest.next() == ("EXIT", ["value", 1, [], 0, []])


def test_a_value_that_is_too_large_for_one_buffer_comes_whole(start: Any) -> None:
    guest = start(
        "const {length} = await tools.slow(); for (const part of 'abc') console.log(part.repeat(200)); return length"
    )
    assert guest.next()[0] == "CALL"
    guest.send(FrameKind.REPLY, [1, True, "x" * 300_000])
    assert [guest.next()[1][1] for _ in range(3)] == ["a" * 200, "b" * 200, "c" * 200]
    assert guest.next() == ("EXIT", ["value", 300_000, [], 0, []])
