"""Has the processes of a run forked from one that has collected the tests, instead of each collecting them by itself.

`scripts/test` loads this plugin. Importing all tests and what they test takes ten seconds of processor time, or twenty
where nothing is compiled yet. In a fork, collecting takes one, and memory is shared.

Execnet starts a process for each worker. Here that is a short program that sends its standard streams to the server, and
ends when the fork that has taken them over does.
"""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

__all__: list[str] = []

_CLIENT = """
import signal, socket, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.recv(1)
"""


class _Server:
    """Process that collects the tests, and then forks a worker for each connection."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="corral-tests-")
        path = Path(self._folder.name) / "socket"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()  # clients wait for the server to accept them
            command = [sys.executable, "-m", "tests.forked", str(listener.fileno()), *arguments]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
        client = Path(self._folder.name) / "client.py"
        client.write_text(_CLIENT, encoding="utf-8")
        self.client = shlex.join([sys.executable, "-IS", str(client), str(path)])

    def pytest_unconfigure(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    server = _Server(config.invocation_params.args)
    config.pluginmanager.register(server)
    for spec in specs:
        spec.python = server.client


def _serve(listener: socket.socket) -> bool:
    """Forks workers until the run ends. Returns True in each of them."""
    workers: list[int] = []
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while not any(key.fd == 0 for key, _ in selector.select()):
            connection, _ = listener.accept()
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            worker = os.fork()
            if worker == 0:
                connection.detach()  # stays open as long as this process
                for target, stream in enumerate(streams):
                    os.dup2(stream, target)
                    os.close(stream)
                return True
            workers.append(worker)
            connection.close()
            for stream in streams:
                os.close(stream)
    for worker in workers:  # one that still runs did not end when it was told to
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
    return False


def _main(descriptor: str, *arguments: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of the run ends this process
    with socket.socket(fileno=int(descriptor)) as listener:
        output = os.dup(1)
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 1)
        # Each worker collects once more, and says what went wrong.
        code = pytest.main([*arguments, "--collect-only", "--quiet", "-p", "no:tests.report", "-p", "no:tests.forked"])
        if code != pytest.ExitCode.OK:  # a module that raised stays imported, without tests and without its error
            for name in [each for each in sys.modules if each.startswith("tests.")]:
                del sys.modules[name]
        os.dup2(output, 1)
        os.close(output)
        is_worker = _serve(listener)
    if is_worker:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv[:] = ["-c"]
        with os.fdopen(0, closefd=False) as sys.stdin:
            exec(eval(sys.stdin.readline()), {"__name__": "__main__"})  # noqa: S102, S307 - as execnet has Python do


if __name__ == "__main__":
    _main(*sys.argv[1:])
