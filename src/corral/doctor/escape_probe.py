"""Tests one jail: the real engine, with all of its own permissions, tries to get out of it.

`probe.js` reports its results, but the evidence is in its targets: files, sockets and a process created for it alone.
Every user can access the targets, so only the jail protects them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from corral.containment import Tier
from corral.doctor.layers import proc_status
from corral.errors import StartFailed
from corral.jail.jail import Jail, shared_libraries, v8_environment
from corral.jail.launcher_client import LauncherClient
from corral.jail.namespaces import GUEST
from corral.jail.process import ContainedProcess
from corral.jail.temporary import TemporaryFolder

PROBE = "probe.js"
ATTEMPTS = (
    "read_file", "see_file", "list_directory", "write_file", "read_environment", "connect_tcp", "connect_unix",
    "start_process", "signal_process", "call_kernel",
)  # fmt: skip
"""The probe's attempts, by its own names."""

Outcome: TypeAlias = Literal["refused", "got through", "open by design", "not tried"]
"""`not tried`: the attempt itself could not be made, so it proves nothing."""

_OPEN: dict[Tier, dict[str, str]] = {"landlock": {"see_file": "Landlock does not cover stat(2)"}}
"""Attempts that a tier leaves open by design, with the reason."""
_ARGUMENTS = (
    "run", "--allow-all", "--quiet", "--no-prompt", "--no-config", "--no-lock", "--no-npm", "--no-remote",
    "--no-code-cache",
)  # fmt: skip
_ENVIRONMENT = {"DENO_DIR": "/dev/null/deno", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
_DATA_BYTES = 1 << 30
"""Memory for an idle Deno, which takes 550 MB, and one buffer of 256 MB, but not two."""
_ASKED_MB = 2048
"""Total memory that the probe requests."""
_SECONDS = 20.0
"""Seconds for the engine to start and the probe to end. Both together take tenths of a second."""
_CLOCK_SECONDS = 2.0
"""Seconds for a busy process to use some processor time, which takes milliseconds."""
_VARIABLE = "_CORRAL_DOCTOR_CANARY"
_DUMPABLE = """
import ctypes, os, sys
user = int(sys.argv[1])
if user >= 0:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
print(flush=True)
sys.stdin.read()
"""
"""Target process of the guest's user, if one is passed. Other processes of that user may inspect it: it sets
PR_SET_DUMPABLE (4, linux/prctl.h), which the change of user cleared. It ends with its host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One escape attempt in the jail of a tier, with its outcome."""

    tier: Tier
    name: str
    outcome: Outcome
    detail: str

    @property
    def contained(self) -> bool:
        """True if the attempt was refused, or is open by design in this tier."""
        return self.outcome in ("refused", "open by design")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The kernel's information on a running guest, and the limits that its host can set."""

    user: int
    seccomp: bool
    no_new_privs: bool
    limits: Mapping[str, str]
    """Soft limits by their names in /proc/PID/limits."""
    memory: bool
    """True if a guest cannot exceed its memory limit."""
    clock: bool
    """True if the host sees its processor time."""
    backstop: bool
    """True if the host could set RLIMIT_CPU, with which the kernel ends a guest even if the host is too busy to."""


class Trial(NamedTuple):
    """Test results of one jail."""

    attempts: tuple[Attempt, ...]
    facts: Facts


class _Aims(NamedTuple):
    """Targets of the probe's attempts."""

    directory: Path
    listeners: Mapping[str, socket.socket]
    process: subprocess.Popen[bytes]
    secret: str

    def arguments(self) -> str:
        """Paths of the targets, as the probe's arguments."""
        aims = {
            "file": str(self.directory / "canary.txt"),
            "directory": str(self.directory),
            "written": str(self.directory / "written"),
            "socket": str(self.directory / "socket"),
            "port": self.listeners["connect_tcp"].getsockname()[1],
            "process": self.process.pid,
            "variable": _VARIABLE,
        }
        return json.dumps(aims)

    def hit(self) -> dict[str, str]:
        """Returns the attempts that had an effect outside of the jail, even if the probe reports none."""
        traces: dict[str, str] = {}
        if (self.directory / "written").exists():
            traces["write_file"] = "the file is there"
        if os.waitid(os.P_PID, self.process.pid, os.WCONTINUED | os.WNOHANG) is not None:
            traces["signal_process"] = "the process was signalled"
        for name, listener in self.listeners.items():
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                traces[name] = "the listener was reached"
        return traces


@contextlib.contextmanager
def make_room() -> Generator[Path]:
    """Yields a directory that contains the probe, in the form in which a jail shows it to its engine.

    Raises:
        OSError: the temporary directory is not writable.
    """
    with contextlib.closing(TemporaryFolder()) as folder:
        room = folder.path
        (room / PROBE).write_bytes(Path(__file__).with_name(PROBE).read_bytes())
        (room / PROBE).chmod(0o644)
        yield room


def attempted(jail: Jail, engine: Path, launcher: LauncherClient, *, user: int | None) -> Trial:
    """Starts `engine` as `user` in a jail, with the directory from `make_room`, and makes all attempts.

    Raises:
        StartFailed: the engine does not start in this jail, or not all of its layers are in force.
        OSError: the targets cannot be created.
    """
    with contextlib.ExitStack() as stack:
        aims = stack.enter_context(_aims(user))
        arguments = [*_ARGUMENTS, jail.path(PROBE), aims.arguments()]
        guest = ContainedProcess.spawn(
            launcher, jail.plan(arguments, {**_ENVIRONMENT, **v8_environment()}, data_bytes=_DATA_BYTES)
        )
        stack.callback(guest.close)
        report = _report(guest.await_output(_SECONDS))
        jail.verify(guest.pid)
        facts = _facts(guest, report)
        return Trial(_judged(jail.tier, engine, aims, report), facts)


def _judged(tier: Tier, engine: Path, aims: _Aims, report: Mapping[str, Any]) -> tuple[Attempt, ...]:
    traces = aims.hit()
    if report["variable"] is not None or aims.secret in json.dumps(report["attempts"]["read_environment"]):
        traces["read_environment"] = "the host's environment was read"
    if strange := _strange(tier, engine, report["root"]):
        traces["list_directory"] = f"/ shows {', '.join(strange[:5])}"
    attempts: list[Attempt] = []
    for name in ATTEMPTS:
        outcome: Outcome
        outcome, detail = report["attempts"][name]
        if name in traces:
            outcome, detail = "got through", traces[name]
        elif outcome == "got through" and name in _OPEN.get(tier, {}):
            outcome, detail = "open by design", _OPEN[tier][name]
        attempts.append(Attempt(tier=tier, name=name, outcome=outcome, detail=detail))
    return tuple(attempts)


def _strange(tier: Tier, engine: Path, root: Sequence[str]) -> list[str]:
    """Returns entries in the guest's root directory that its jail did not put there."""
    own: set[str] = set()
    if tier == "namespaces":
        shown = [Path(GUEST), Path("/proc"), Path("/", engine.name), *shared_libraries(engine)]
        own = {path.parts[1] for path in shown}
    return sorted(set(root) - own)


def _report(data: bytes) -> dict[str, Any]:
    """Parses the probe's output, which is smaller than an atomic pipe write (PIPE_BUF, 4096 bytes)."""
    try:
        report: dict[str, Any] = json.loads(data)
        complete = report.keys() == {"attempts", "root", "variable", "megabytes"}
        if complete and report["attempts"].keys() == set(ATTEMPTS):
            return report
    except (ValueError, AttributeError):
        pass
    raise StartFailed(f"the probe's report is incomplete: {data[:200].decode('utf-8', 'replace')}")


def _facts(guest: ContainedProcess, report: Mapping[str, Any]) -> Facts:
    guest.limit_cpu(_SECONDS)
    try:
        status = proc_status(guest.pid)
        limits = Path(f"/proc/{guest.pid}/limits").read_text().splitlines()[1:]
    except OSError as error:
        raise StartFailed(f"the kernel does not report the guest's limits: {error}") from error
    soft = {line[:26].strip(): line[26:].split()[0] for line in limits}  # columns as in fs/proc/base.c
    return Facts(
        user=int(status["Uid"].split()[0]),
        seccomp=status.get("Seccomp") == "2",
        no_new_privs=status.get("NoNewPrivs") == "1",
        limits=soft,
        memory=report["megabytes"] < _ASKED_MB,
        clock=_clock_turns(guest),
        backstop=soft.get("Max cpu time", "unlimited") != "unlimited",
    )


def _clock_turns(guest: ContainedProcess) -> bool:
    """Waits until a busy guest has used processor time; True if the host saw it. The system does not signal that."""
    before = guest.cpu_time()
    deadline = time.monotonic() + _CLOCK_SECONDS
    while time.monotonic() < deadline:
        if guest.cpu_time() > before > 0:
            return True
        time.sleep(0.001)
    return False


@contextlib.contextmanager
def _aims(user: int | None) -> Generator[_Aims]:
    """Yields files, sockets, a process and an environment variable that nothing else uses."""
    secret = secrets.token_hex(8)
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(contextlib.closing(TemporaryFolder())).path
        directory.chmod(0o777)
        (directory / "canary.txt").write_text(secret, encoding="utf-8")
        (directory / "canary.txt").chmod(0o644)
        tcp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        tcp.bind(("127.0.0.1", 0))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        unix.bind(str(directory / "socket"))
        (directory / "socket").chmod(0o777)
        for listener in (tcp, unix):
            listener.listen(4)
            listener.setblocking(False)
        stack.enter_context(_variable(secret))
        process = stack.enter_context(_stopped_process(user))
        yield _Aims(directory, {"connect_tcp": tcp, "connect_unix": unix}, process, secret)


@contextlib.contextmanager
def _variable(secret: str) -> Generator[None]:
    os.environ[_VARIABLE] = secret
    try:
        yield
    finally:
        del os.environ[_VARIABLE]


@contextlib.contextmanager
def _stopped_process(user: int | None) -> Generator[subprocess.Popen[bytes]]:
    """Yields a stopped process. Its parent is notified when it receives SIGCONT."""
    command = [sys.executable, "-I", "-S", "-c", _DUMPABLE, str(-1 if user is None else user)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise OSError("the target process did not start")
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            yield process
        finally:
            process.kill()
