"""Guest of one program without a fork server: frames over the interpreter's own standard input and output.

It is the last part of the file for an interpreter elsewhere. Any other output to descriptor 1 goes to standard error.
With the argument `--lines`, frames are sent as lines of base64, for text-only streams.
"""

from __future__ import annotations

import base64
import os
import sys

from corral.guest.python.frames import PROTOCOL, FrameKind
from corral.guest.python.program import Execution, Pipes, run_program


class LinePipes(Pipes):
    """Frames as lines of base64."""

    _line = b""

    def _send(self, frames: bytes) -> None:
        super()._send(base64.b64encode(frames) + b"\n")

    def _receive(self) -> bytes:
        *lines, self._line = (self._line + super()._receive()).split(b"\n")
        return b"".join(map(base64.b64decode, lines))


def run_alone() -> None:
    """Sends READY, runs the program of the START that follows, and ends."""
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    pipes = (LinePipes if "--lines" in sys.argv else Pipes)(reading, writing)
    pipes.append(FrameKind.READY, b"[%d]" % PROTOCOL)
    pipes.flush()
    sys.argv = ["program.py"]
    try:
        run_program(pipes, Execution(pipes))
    finally:
        os._exit(0)


if __name__ == "__main__":
    run_alone()
