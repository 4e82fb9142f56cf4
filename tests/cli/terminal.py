"""Running the installed `corral`: with pipes, and on a pseudo-terminal whose screen can be read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import deno

from tests.forks import CORRAL, ForkedProcess, run_forked

__all__ = ["Project", "Terminal"]

_PATIENCE_SECONDS = 20
_CONTROL = re.compile(r"\x1b\[(\d*)(?:;\d+)*([A-Za-z])|(\r?\n)|\r")


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    return {**inherited, "TERM": "xterm-256color", **extra}


class Project:
    """A directory with files, in which `corral` is run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, text: str | bytes) -> str:
        """Writes a file and returns its name."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return name

    def corral(self, *arguments: str, input: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Runs `corral`, not on a terminal. With `env` it is started anew, as some of it is read by Python itself."""
        if env:
            return self._command([CORRAL, *arguments], input, env)
        command = [CORRAL, *arguments]
        return run_forked(command, input=input, cwd=self.directory, env=_environment({}), timeout=_PATIENCE_SECONDS)

    def corral_without_ty(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `corral` in an environment that has Deno, but no `ty`, and finds nothing on PATH."""
        venv.create(self.directory / "venv", symlinks=True)
        programs = self.directory / "venv" / "bin"
        (programs / "deno").symlink_to(deno.find_deno_bin())
        script = "import sys; from corral.cli import main; sys.exit(main())"
        env = {"PATH": str(programs), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return self._command([str(programs / "python"), "-c", script, *arguments], "", env)

    def _command(self, command: list[str], input: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            input=input,
            capture_output=True,
            encoding="utf-8",
            cwd=self.directory,
            env=_environment(env),
            timeout=_PATIENCE_SECONDS,
            check=False,
        )

    def run(self, program: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`corral run program.ts --tools app.tools --no-check`."""
        return self.corral(*self._run(program), *arguments, **env)

    def on_terminal(self, program: str, *arguments: str, columns: int = 100, rows: int = 30, **env: str) -> Terminal:
        """`run`, but on a terminal."""
        command = [CORRAL, *self._run(program), *arguments]
        return Terminal(command, self.directory, columns=columns, rows=rows, env=env)

    def _run(self, program: str) -> list[str]:
        return ["run", self.write("program.ts", program), "--tools", "app.tools", "--no-check"]


class Terminal:
    """A process on a pseudo-terminal, which leads a process group of its own."""

    def __init__(self, command: list[str], directory: Path, *, columns: int, rows: int, env: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = subprocess.Popen[str] if env else ForkedProcess
        self.process = process(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=directory,
            env=_environment(env),
            start_new_session=True,
        )
        os.close(slave)
        self.output = ""
        """All that was written, control sequences included."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def until(self, pattern: str) -> None:
        """Reads until the output has a match of `pattern`."""
        self._read(lambda: re.search(pattern, self.output) is not None)

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._master, keys.encode())

    def ends(self) -> int:
        """Reads to the end and returns the exit code."""
        self._read(lambda: False)
        return self.process.wait(_PATIENCE_SECONDS)

    def interrupt(self) -> None:
        """What Ctrl-C does: SIGINT to the process group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def children(self) -> list[int]:
        """Processes that it has started and that are alive."""
        found: list[int] = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[1]) == self.process.pid:
                found.append(int(status.parent.name))
        return found

    @property
    def screen(self) -> list[str]:
        """The lines of the screen, as if it had no bottom."""
        lines = [""]
        row = 0
        end = 0
        for control in _CONTROL.finditer(self.output):
            lines[row] += self.output[end : control.start()]
            end = control.end()
            count, letter, newline = control.groups()
            match letter or newline:
                case "F":
                    row -= int(count)
                case "J":
                    lines[row:] = [""]
                case "\n" | "\r\n":
                    row += 1
                    if row == len(lines):
                        lines.append("")
                case _:
                    pass
        lines[row] += self.output[end:]
        return [line for line in lines if line]

    def _read(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not enough():
            ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"nothing more was written after {self.output!r}"
            try:
                data = os.read(self._master, 65_536)
            except OSError:  # EIO: nobody has the terminal open any more
                return
            self.output += data.decode()
