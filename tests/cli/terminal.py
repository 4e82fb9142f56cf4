"""Running `corral`: with pipes, on a pseudo-terminal whose screen can be read, and in this process."""

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
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from corral.cli import dispatch
from tests.forks import CORRAL, ForkedProcess, run_forked
from tests.until import LIMIT_SECONDS

__all__ = ["Ended", "Here", "Project", "Terminal", "corral_after", "without"]

_CONTROL = re.compile(r"\x1b\[(\d*)(?:;\d+)*([A-Za-z])|(\r?\n)|\r")


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    return {**inherited, "TERM": "xterm-256color", **extra}


def corral_after(preparation: str, *arguments: str) -> list[str]:
    """The command of a Python process that prepares itself, and then is `corral` with these arguments."""
    script = f"{preparation}\nimport sys\nfrom corral.cli import main\nsys.argv[0] = 'corral'\nsys.exit(main())"
    return [sys.executable, "-c", script, *arguments]


def without(module: str, *users: str) -> str:
    """A preparation: the module is not installed, and those that use it have not been imported yet."""
    return "\n".join(
        (
            "import sys",
            f"for each in [each for each in sys.modules if each.startswith({users})]:",
            "    del sys.modules[each]",
            f"sys.modules[{module!r}] = None",
        )
    )


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
        """Runs `corral`, not on a terminal."""
        return self.python([CORRAL, *arguments], input=input, env=_environment(env))

    def corral_without_ty(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `corral` as an interpreter without `ty` beside it, which finds nothing on PATH."""
        programs = self.directory / "bin"
        programs.mkdir()
        (programs / "python").symlink_to(sys.executable)
        without = f"import sys\nsys.executable = {str(programs / 'python')!r}"
        return self.python(corral_after(without, *arguments), env={"PATH": str(programs)})

    def python(
        self, command: list[str], *, input: str = "", env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Runs a process that is Python in the directory."""
        return run_forked(command, input=input, cwd=self.directory, env=env, timeout=LIMIT_SECONDS)

    @contextmanager
    def holding(self, *names: str) -> Generator[Callable[[str], None]]:
        """Has `tools.held({ name })` wait for these names within the block, until what it yields lets one call go."""
        pipes: dict[str, int] = {}
        for name in names:
            os.mkfifo(self.directory / name)
            pipes[name] = os.open(self.directory / name, os.O_RDWR)  # which waits for nobody to open it

        def release(name: str) -> None:
            os.write(pipes[name], b"x")

        try:
            yield release
        finally:
            for pipe in pipes.values():
                os.close(pipe)

    def run(self, program: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`corral run program.ts --tools app.tools --no-check`."""
        return self.corral(*self._run(program), *arguments, **env)

    def on_terminal(self, program: str, *arguments: str, columns: int = 100, rows: int = 30, **env: str) -> Terminal:
        """`run`, but on a terminal."""
        command = [CORRAL, *self._run(program), *arguments]
        return Terminal(command, self.directory, columns=columns, rows=rows, env=env)

    def _run(self, program: str) -> list[str]:
        return ["run", self.write("program.ts", program), "--tools", "app.tools", "--no-check"]


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Here(Project):
    """A directory with files that is the current one, for commands of which no promise is about their process."""

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str]) -> None:
        super().__init__(directory)
        self._capture = capture

    def execute(self, program: str, *arguments: str) -> Ended:
        """`run` in this process."""
        return self.main(*self._run(program), *arguments)

    def main(self, *arguments: str) -> Ended:
        """Runs `corral` in this process."""
        try:
            code = dispatch.run(arguments)
        except SystemExit as ended:  # argparse's way
            code = int(ended.code or 0)
        captured = self._capture.readouterr()
        return Ended(code, captured.out, captured.err)


class Terminal:
    """A process on a pseudo-terminal, which leads a process group of its own."""

    def __init__(self, command: list[str], directory: Path, *, columns: int, rows: int, env: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        # Python itself reads these.
        process = subprocess.Popen[str] if any(name.startswith("PYTHON") for name in env) else ForkedProcess
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
        self._seen = 0

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
        """Reads until the output has a match of `pattern`, behind that of the call before."""

        def matches() -> bool:
            found = re.compile(pattern).search(self.output, self._seen)
            self._seen = self._seen if found is None else found.end()
            return found is not None

        self._read(matches)

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._master, keys.encode())

    def ends(self) -> int:
        """Reads to the end and returns the exit code."""
        self._read(lambda: False)
        return self.process.wait(LIMIT_SECONDS)

    def interrupt(self) -> None:
        """What Ctrl-C does: SIGINT to the process group."""
        os.killpg(self.process.pid, signal.SIGINT)

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
        end = time.monotonic() + LIMIT_SECONDS
        while not enough():
            ready, _, _ = select.select([self._master], [], [], max(0, end - time.monotonic()))
            assert ready, f"nothing more was written after {self.output!r}"
            try:
                data = os.read(self._master, 65_536)
            except OSError:  # EIO: nobody has the terminal open any more
                return
            self.output += data.decode()
