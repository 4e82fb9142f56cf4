"""A real guest process, spoken to in frames."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deno

from corral.guest import FrameKind, RuntimeDirectory, decode_value, encode_frame
from corral.guest.frames import HEADER_BYTES
from corral.guest.python.frames import NO_NONCE

LIMITS = {
    "calls": 1000,
    "calls_in_flight": 1000,
    "value_bytes": 1_000_000,
    "tool_input_bytes": 1_000_000,
    "log_bytes": 100_000,
}
FLAGS = "--disallow-code-generation-from-strings"


class Guest:
    """A process with one program, whose frames are read by hand."""

    def __init__(
        self, runtime: RuntimeDirectory, entry: str, cache: Path, arguments: Sequence[str] = (), flags: str = FLAGS
    ) -> None:
        command = [deno.find_deno_bin(), "run", "--quiet", "--no-prompt", "--no-config", "--no-lock", "--no-npm"]
        command += ["--no-remote", f"--v8-flags={flags}", str(runtime.prepare() / entry), *arguments]
        environment = {"DENO_DIR": str(cache), "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        self._data = b""
        self._nonce = NO_NONCE
        assert self.next() == ("READY", [1])

    def start(self, body: str, *, env: dict[str, str] | None = None, **limits: int) -> None:
        """Starts the program, the body of an async function."""
        self._nonce = secrets.token_bytes(16)
        start = {
            "code": f'(async function (load, enter) {{"use strict"; {body}\n}})',
            "tools": ["echo", "space.tool"],
            "env": env,
            "limits": LIMITS | limits,
        }
        self.write(encode_frame(FrameKind.START, json.dumps([start]).encode(), self._nonce))

    def reply(self, payload: object) -> None:
        self.write(encode_frame(FrameKind.REPLY, json.dumps(payload).encode(), NO_NONCE))

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) or 0 :]

    def next(self) -> tuple[str, Any]:
        """The next frame: the kind and the payload."""
        assert self.process.stdout is not None
        while len(self._data) < 4 or len(self._data) < 4 + int.from_bytes(self._data[:4], "big"):
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            assert data, "the guest ended"
            self._data += data
        end = 4 + int.from_bytes(self._data[:4], "big")
        frame, self._data = self._data[:end], self._data[end:]
        payload = decode_value(frame[HEADER_BYTES:], tagged=bool(frame[5]))
        assert frame[6:HEADER_BYTES] == self._nonce
        return FrameKind(frame[4]).name, payload

    def run(self, body: str, **options: Any) -> tuple[list[Any], list[Any]]:
        """Runs the program to its end, echoing its calls: what EXIT holds, and the console's entries."""
        self.start(body, **options)
        entries: list[Any] = []
        while True:
            kind, payload = self.next()
            if kind == "CALL":
                self.reply([payload[0], True, payload[2]])
            elif kind == "LOG":
                entries.append(payload)
            elif kind == "EXIT":
                return payload, entries

    def value(self, body: str, **options: Any) -> Any:
        """The value of a program that ends well."""
        content, _ = self.run(body, **options)
        assert content[0] == "value", content
        return content[1]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
