"""The command line: `corral run`, `corral check`, `corral types` and others. Each command is one file."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Container
from pathlib import Path

from corral.concurrency.garbage import import_uncollected

__all__ = ["main"]

_THREAD_SECONDS = 0.2
"""Maximum seconds for an idle thread to end."""


def main() -> int:
    """Runs the command in `sys.argv`; returns its exit code."""
    others = threading.enumerate()
    _open_closed_streams()
    try:
        # This import takes most of the start-up time. Ctrl-C during it is not a failure.
        dispatch = import_uncollected("corral.cli.dispatch")
        exit_code: int = dispatch.run(sys.argv[1:])
    except KeyboardInterrupt:
        exit_code = 128 + signal.SIGINT
    _leave_threads_behind(exit_code, others)
    return exit_code


def _open_closed_streams() -> None:
    """Opens closed standard streams, as after `>&-`, to the null device. Otherwise other files would get their
    descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _leave_threads_behind(exit_code: int, others: Container[threading.Thread]) -> None:
    """Exits at once if tools still run in threads. Their run is over, and Python would wait for them.

    Threads in `others`, which belong to the process that calls `main`, do not count.
    """
    for thread in threading.enumerate():
        if thread not in others and not thread.daemon:
            thread.join(_THREAD_SECONDS)
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(exit_code)
