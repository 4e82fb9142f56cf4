"""The guest of one program without a fork server: frames over the interpreter's own standard input and output.

It is the last part of the file that an interpreter elsewhere is started with. What else is written to descriptor 1 goes
to standard error.
"""

from __future__ import annotations

import os

from corral.guest.python.frames import NO_NONCE, PROTOCOL, FrameKind, encode_frame
from corral.guest.python.program import Execution, Pipes, run_program

__all__ = ["run_alone"]


def run_alone() -> None:
    """Says READY, runs the program of the START that follows, and ends."""
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    os.write(writing, encode_frame(FrameKind.READY, b"[%d]" % PROTOCOL, NO_NONCE))
    pipes = Pipes(reading, writing)
    try:
        run_program(pipes, Execution(pipes))
    finally:
        os._exit(0)


if __name__ == "__main__":
    run_alone()
