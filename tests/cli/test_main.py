"""`corral.cli.main` in a process that is not its own."""

from __future__ import annotations

import sys
import threading

import pytest

from corral.cli import main


def test_a_process_that_has_threads_of_its_own_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        monkeypatch.setattr(sys, "argv", ["corral", "run", "no such file"])
        assert main() != 0
    finally:
        done.set()
        other.join()
