"""Runs programs as on another system: Corral sees its name for the platform, without the modules and calls of Linux.

`python -m tests.sandboxes.portable darwin|win32 imports|programs` prints the findings as JSON. The server of programs in
WebAssembly, a process of its own, sees the same. Libraries and engines are still Linux's, so this shows that Corral itself needs nothing of Linux, and not that the other system has everything. The lists follow the
availability notes of Python's documentation, and typeshed.
"""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import errno
import gc
import importlib
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio

from tests.until import until

ABSENT = {
    "os": "eventfd eventfd_read eventfd_write pidfd_open memfd_create EFD_CLOEXEC EFD_NONBLOCK O_PATH pipe2 fdatasync waitid "
    "sched_getaffinity sched_setaffinity setresuid getresuid unshare setns posix_fallocate posix_fadvise copy_file_range "
    "splice getxattr setxattr listxattr removexattr getrandom",
    "signal": "pidfd_send_signal sigtimedwait sigwaitinfo SIGPWR SIGSTKFLT SIGRTMIN SIGRTMAX",
    "resource": "prlimit RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_RTTIME RLIMIT_SIGPENDING RLIMIT_MSGQUEUE",
    "socket": "SO_PEERCRED SO_PASSCRED SCM_CREDENTIALS AF_NETLINK AF_PACKET AF_VSOCK SOCK_CLOEXEC SOCK_NONBLOCK MSG_CMSG_CLOEXEC",
    "select": "epoll",
    "fcntl": "F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS F_OFD_SETLK",
    "mmap": "MAP_POPULATE MAP_NORESERVE",
    "time": "CLOCK_BOOTTIME",
}
"""Attributes that macOS and Windows lack."""
POSIX = {
    "os": "fork forkpty posix_spawn geteuid getuid getegid getgid getgroups setuid setgid getpgid getpgrp setpgid setsid killpg "
    "register_at_fork chown fchown lchown fchmod mkfifo mknod uname statvfs fstatvfs wait wait3 wait4 WNOHANG WEXITED WNOWAIT "
    "WIFEXITED waitstatus_to_exitcode pread pwrite sendfile openpty O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_NOCTTY "
    "O_SYNC sysconf confstr nice getloadavg sync set_blocking get_blocking fchdir",
    "signal": "SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGKILL SIGSTOP SIGCONT SIGCHLD SIGXCPU SIGTRAP SIGBUS SIGALRM SIGPIPE SIGWINCH "
    "SIGSYS pthread_kill pthread_sigmask sigwait setitimer alarm pause",
    "socket": "AF_UNIX SCM_RIGHTS send_fds recv_fds MSG_DONTWAIT MSG_NOSIGNAL SO_REUSEPORT SOCK_SEQPACKET",
    "select": "poll",
    "time": "clock_gettime clock_settime CLOCK_MONOTONIC CLOCK_REALTIME tzset",
    "mmap": "MAP_PRIVATE MAP_SHARED MAP_ANONYMOUS PROT_READ PROT_WRITE PROT_EXEC",
}
"""Attributes that Windows lacks, in addition."""
NOT_ON_WINDOWS = frozenset({"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "crypt", "spwd"})
ROOT = Path(__file__).parents[2]
COMMANDS = (
    *("run", "check", "types", "serve", "chat", "shell", "worker", "mcp", "packages", "policy", "audit", "executions"),
    "doctor",
)
GUESTS = ("corral.guest.python.", "corral.shells.memory_worker", "corral.jail.start_launcher")
"""Modules that run in processes of their own, in a jail."""
BOOT = "corral_boot"
"""Name of the module with which the server of programs in WebAssembly starts."""


class View(ModuleType):
    """A module as the other system has it."""

    def __init__(self, module: ModuleType, absent: frozenset[str], differing: Mapping[str, Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__["_module"], self.__dict__["_absent"] = module, absent
        self.__dict__.update(differing)

    def __getattr__(self, name: str) -> Any:
        if name in self._absent:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)


def open_on_windows(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    if dir_fd is not None:
        raise NotImplementedError("dir_fd unavailable on this platform")
    if Path(path).is_dir():
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return os.open(path, flags, mode)


class Library(ctypes.CDLL):
    """The C library, of which only calls of Linux are looked up."""

    def __init__(self, name: str | None = None, **options: Any) -> None:
        if name is None and VIEWS["sys"].platform == "win32":
            raise TypeError("the name of a library is required")
        super().__init__(name, **options)

    def __getattr__(self, name: str) -> Any:
        if self._name:  # of an engine
            return super().__getattr__(name)
        raise AttributeError(f"symbol not found: {name}")


class Popen(subprocess.Popen[Any]):
    """Process of the other system, which sees the same as this one."""

    def __init__(self, command: Any, **options: Any) -> None:
        windows = VIEWS["sys"].platform == "win32"
        if windows:
            assert not {"preexec_fn", "pass_fds", "user", "umask"} & options.keys()
            assert set(options["env"] or ()) <= {"SYSTEMROOT"}
            assert options.pop("creationflags") == NO_WINDOW
            del options["start_new_session"]  # which is ignored there
        if guest := next((index for index, each in enumerate(command) if str(each).endswith("guest.py")), None):
            start = (
                f"import sys; sys.path.insert(0, {str(ROOT)!r}); from {__spec__.name} import main; main(*sys.argv[1:])"
            )
            command = [command[0], "-I", "-B", "-c", start, VIEWS["sys"].platform, "server", *command[guest:]]
        super().__init__(command, **options)


NO_WINDOW = 0x08000000
"""CREATE_NO_WINDOW of Windows."""
VIEWS: dict[str, View] = {}


def pretend(platform: str) -> None:
    """Gives modules of Corral, which are not loaded yet, a view of `platform`."""
    assert "corral" not in sys.modules
    windows = platform == "win32"
    warnings.filterwarnings("error", category=EncodingWarning, module=r"corral\b")
    differing: dict[str, dict[str, Any]] = {
        "sys": {"platform": platform},
        "ctypes": {"CDLL": Library},
        "subprocess": {"Popen": Popen},
    }
    if windows:
        differing["os"] = {"name": "nt", "O_BINARY": 0, "open": open_on_windows}
        differing["mmap"] = {"mmap": None}
        differing["subprocess"]["CREATE_NO_WINDOW"] = NO_WINDOW
    for name in {*ABSENT, *POSIX, *differing}:
        absent = f"{ABSENT.get(name, '')} {POSIX.get(name, '') if windows else ''}".split()
        VIEWS[name] = View(importlib.import_module(name), frozenset(absent), differing.get(name, {}))
    real = builtins.__import__

    def load(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level == 0 and globals is not None and str(globals.get("__name__")).partition(".")[0] in ("corral", BOOT):
            if windows and name in NOT_ON_WINDOWS:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in VIEWS:
                return VIEWS[name]
        return real(name, globals, locals, fromlist, level)

    builtins.__import__ = load

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(arguments[0]))

    sys.addaudithook(refuse)
    if windows:

        def unsupported(*_: object) -> None:
            raise NotImplementedError  # as Windows' proactor loop does

        for name in ("add_reader", "add_writer", "add_signal_handler"):
            setattr(asyncio.SelectorEventLoop, name, unsupported)


def import_everything() -> list[str]:
    """Imports all modules of Corral, and returns those that fail."""
    failed: list[str] = []
    source = ROOT / "src"
    for path in sorted((source / "corral").rglob("*.py")):
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        if name.startswith(GUESTS):
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
    return failed


class Piped(io.TextIOWrapper):
    """Standard output in a pipe, with the encoding that Windows has there in Western Europe."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="cp1252" if VIEWS["sys"].platform == "win32" else "utf-8")

    def text(self) -> str:
        self.flush()
        content: Any = self.buffer
        return content.getvalue().decode(self.encoding)


def printed(script: str) -> str:
    """Runs a program of the documentation, and returns what it prints."""
    with redirect_stdout(Piped()) as output:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    return output.text()


def command(*arguments: str) -> list[Any]:
    """Runs `corral`, and returns its exit code and what it prints."""
    dispatch: Any = importlib.import_module("corral.cli.dispatch")
    with redirect_stdout(Piped()) as output, redirect_stderr(Piped()) as errors:
        try:
            code = dispatch.run(list(arguments))
        except SystemExit as exit:
            code = exit.code
    return [code, output.text(), errors.text()]


TYPESCRIPT = {
    "ts": "console.log('hällo', 1); return await tools.add({ a: 1, b: 2 })",
    "ts_error": "const x: number = 1;\nthrow new RangeError('no')",
    "ts_wrong": "await tools.add({ a: 'x', b: 2 })",
    "ts_endless": "console.log('before'); for (;;);",
    "ts_memory": "const all = []; for (;;) all.push(new Uint8Array(1 << 20))",
    "ts_large": "return (await Promise.all(Array.from({ length: 200 }, (_, a) => tools.add({ a, b: 1 })))).length + 'x'.repeat(300_000).length",
}


async def examine(folder: Path) -> dict[str, Any]:
    corral: Any = importlib.import_module("corral")
    errors: Any = importlib.import_module("corral.errors")
    audit: Any = importlib.import_module("corral.audit")
    ledger: Any = importlib.import_module("corral.ledger")
    wasm: Any = importlib.import_module("corral.sandboxes.wasm")

    @corral.tool
    async def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    @corral.tool
    async def hang() -> None:
        """Never ends."""
        calls.append("hang")
        await anyio.sleep_forever()

    @corral.tool(needs_approval=True)
    async def ask() -> int:
        """Asks."""
        return 5

    tools, outcomes, calls = [add, hang, ask], dict[str, Any](), list[str]()

    def shown(result: Any) -> list[Any]:
        error = result.error and [result.error.code, result.error.line]
        return [result.status, result.value, error, [entry.text for entry in result.logs], result.containment]

    async def refusal(action: Callable[[], Any]) -> list[str]:
        try:
            await action()
        except errors.CorralError as error:
            return [type(error).__name__, str(error)]
        return []

    python = {
        "python": "print('hello')\nawait tools.add(a=1, b=2)",
        "endless": "while True: pass",
        "sleeping": "import asyncio\nawait asyncio.sleep(0.4)\n7",
        "wrong": "await tools.add(a='x', b=2)",
    }
    limits = corral.Limits(wall_seconds=20, cpu_seconds=0.3)
    log = folder / "audit.sqlite"
    keys = {"2026-11": bytes(range(32))}
    durable = ledger.SqliteLedger(folder / "runs.db", keys=keys)
    async with corral.Corral(tools, limits=limits, audit=corral.AuditLog(log), ledger=durable) as opened:
        for name, program in python.items():
            outcomes[name] = shown(await opened.execute(program, language="python"))
        outcomes["durable"] = shown(await opened.execute("return await tools.add({ a: 1, b: 2 })", durable=True))
        paused = await opened.execute("let n = 1; n += await tools.ask({}); return n", durable=True)
        await opened.executions.settle(paused.execution_id, {1: corral.Approved()})
    journal: Any = importlib.import_module("corral.running.journal").Journal
    began = journal.began

    def note(self: Any, *, restored: bool) -> None:
        outcomes["restored"] = restored
        began(self, restored=restored)

    journal.began = note
    durable = ledger.SqliteLedger(folder / "runs.db", keys=keys)
    async with corral.Corral(tools, limits=limits, ledger=durable) as opened:
        outcomes["resumed"] = shown(await opened.executions.resume(paused.execution_id))
        checked = await opened.check("await tools.add(a='x', b=2)", language="python")
        outcomes["check"] = [checked.checked, checked.unchecked]
    async with corral.Corral(tools, limits=limits) as opened:
        for name, program in TYPESCRIPT.items():
            outcomes[name] = shown(await opened.execute(program))
        with anyio.move_on_after(0.5) as scope:  # a call is cancelled, and a loop
            async with anyio.create_task_group() as tasks:
                for program in ("await tools.hang({})", "for (;;);"):
                    tasks.start_soon(opened.execute, program)
        outcomes["cancelled"] = [scope.cancelled_caught, shown(await opened.execute("return 1"))]
        waiting: list[Any] = []

        async def wait() -> None:
            waiting.append(shown(await opened.execute("await tools.hang({})")))

        calls.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await until(lambda: len(calls) == 1)
            for process in [each for each in gc.get_objects() if type(each) is wasm._PlainProcess and each._channels]:
                process.kill()
        outcomes["killed"] = [*waiting, shown(await opened.execute("return 2"))]
    try:
        audit.JsonLinesSink(folder / "audit.jsonl").write([])
        outcomes["lines"] = None
    except errors.ConfigError as error:
        outcomes["lines"] = str(error)

    # With Deno, whose containment has to be accepted.
    short = corral.Limits(wall_seconds=0.5)
    programs = {
        "value": "console.log('hello'); return await tools.add({ a: 1, b: 2 })",
        "error": "const x = 1;\nthrow new RangeError('no')",
        "timeout": "for (;;);",
        "waiting": "await tools.hang({})",
        "long": f"// {'x' * 20_000}\nreturn 7",
    }
    accepted = corral.Containment.development()
    async with corral.Corral(tools, sandbox="deno", containment=accepted, check=False) as opened:
        for name, program in programs.items():
            slow = name in ("timeout", "waiting")
            outcomes[name] = shown(await opened.execute(program, limits=short if slow else None))
    outcomes["unaccepted"] = await refusal(lambda: corral.Corral(tools, sandbox="deno").execute("return 1"))

    # Without the engines that need no jail.
    importlib.import_module("corral.sandboxes.wasm_image").engine_parts.cache_clear()
    engines = "pydantic_monty", "wasmtime"
    with hidden(*engines, *(name for name in sys.modules if name.startswith("corral.sandboxes.monty"))):
        outcomes["opened"] = await refusal(lambda: corral.Corral(tools).__aenter__())
        outcomes["executed"] = await refusal(lambda: corral.Corral(tools).execute("1", language="python"))
    return outcomes


@contextmanager
def hidden(*names: str) -> Generator[None]:
    """Makes modules impossible to import."""
    absent: Any = None
    loaded = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    for name in names:
        if not name.startswith("corral"):
            sys.modules[name] = absent
    try:
        yield
    finally:
        sys.modules.update(loaded)


def add_library(folder: Path, platform: str) -> None:
    """Makes a package `wasmtime` whose library has that system's file name."""
    package = importlib.import_module("wasmtime").__path__[0]
    [library] = Path(package).glob("*/_libwasmtime.so")
    place = folder / "wasmtime" / library.parent.name
    place.mkdir(parents=True)
    (place.parent / "__init__.py").touch()
    (place / {"win32": "_wasmtime.dll", "darwin": "_libwasmtime.dylib"}[platform]).symlink_to(library)
    sys.path.insert(0, str(folder))
    for name in [each for each in sys.modules if each.partition(".")[0] == "wasmtime"]:
        del sys.modules[name]


def main(platform: str, part: str, *_: str) -> None:
    if part == "server":
        pretend(platform)
        sys.argv = sys.argv[3:]
        runpy.run_path(sys.argv[0], run_name=BOOT)["boot"]()
    if part == "imports":
        pretend(platform)
        failed = import_everything()
        for name in COMMANDS:
            code, output, errors = command(*name.split(), "--help")
            if code != 0 or not output.startswith("usage: corral "):
                failed.append(f"corral {name} --help: {code} {errors}")
        sys.stdout.write(json.dumps(failed))
        return
    outcomes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as own:
        tempfile.tempdir = folder
        add_library(Path(own), platform)
        pretend(platform)
        outcomes["quickstart"] = printed("examples/quickstart.py")
        outcomes["quickstart in Python"] = printed("docs_src/python_program.py")
        outcomes["http"] = printed("docs_src/http_python.py")
        outcomes |= anyio.run(examine, Path(own))
        outcomes["audited"] = command("audit", str(Path(own, "audit.sqlite")))
        program = Path(own, "program.py")
        program.write_text("print('hello')\n6 * 7\n", encoding="utf-8")
        outcomes["help"] = command("--help")[0]
        outcomes["run"] = command("run", str(program))
        outcomes["doctor"] = command("doctor")
        images: Any = importlib.import_module("corral.sandboxes.wasm_image")._images
        images.clear()  # which stay until the end of the process
        outcomes["left"] = [path.name for path in Path(folder).iterdir()]
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
