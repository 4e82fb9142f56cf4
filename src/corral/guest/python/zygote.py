"""Fork server of Python guests: waits inside the jail, and forks a process for each program.

It is the last of the modules that `boot.py` loads, and never runs a program itself. Requests for processes arrive on
its standard input:

    {"filter": base64 | null}  [connection, lifeline] one process, which puts itself under this system call filter; the
        lifeline works like that of the launcher's children

A process has the connection for its frames as descriptor 3. Its standard input is empty, and its standard output and
error, except through `print`, carry the engine's own diagnostics.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import importlib
import json
import os
import random
import resource
import socket
import sys
from functools import lru_cache
from typing import Any, NoReturn

from corral.guest.python.durable import begin_durably, install_hooks
from corral.guest.python.errors import packages
from corral.guest.python.frames import NO_NONCE, PROTOCOL, FrameKind, encode_frame
from corral.guest.python.program import Execution, Pipes, presets, run_program, warm_up
from corral.jail.launcher import Children, tell
from corral.jail.privileges import close_from, hide, seal, tie_to_parent

_CONNECTION = 3
_FIRST_FREE = 4
_GUEST_FILES = 64
_KIND = (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0)
"""Page size. Set here because the system call filter keeps Python from querying it."""
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_FONT_CACHE = ".matplotlib"
"""Folder next to packages with matplotlib's cache. corral.packages.python creates it."""
_PRELOADED = """
    array base64 bisect calendar collections contextlib copy csv ctypes dataclasses datetime decimal difflib enum
    fractions functools hashlib heapq html io itertools json linecache math operator pathlib pprint queue random re
    secrets statistics string textwrap threading time traceback types typing unicodedata urllib.parse uuid zoneinfo
""".split()
"""Modules that programs often import. Loaded before the fork."""


class _Forks(Children):
    def __init__(self, control: socket.socket) -> None:
        super().__init__(control)
        self._pipes = Pipes(_CONNECTION, _CONNECTION)
        self._execution = Execution(self._pipes, begin_durably)

    def take(self, message: bytes, descriptors: list[int]) -> bool:
        if len(descriptors) != 2:  # no descriptors were left for them, so their lifeline is closed
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        server = os.getpid()
        connection = descriptors[0]
        lifeline = socket.socket(*_KIND, fileno=descriptors[1])
        program = _filter(message)
        child = self.start(
            lifeline,
            lambda errors: self._become_guest(program, connection, errors, lifeline, server),
            tells_errors=True,
        )
        os.close(connection)
        if child is not None:
            try:
                tell(lifeline, "pid", 0, [child])
            except OSError as error:  # the host is gone, or its user has too many descriptors in flight
                self._kill(child)
                tell(lifeline, "error", f"pid: {error.strerror}")
        return True

    def _become_guest(
        self, program: bytes | None, connection: int, errors: int, lifeline: socket.socket, server: int
    ) -> NoReturn:
        """Confines this process, runs one program in it, and ends."""
        try:
            tie_to_parent(server)
            for descriptor, place in ((connection, _CONNECTION), (errors, 2), (errors, 1)):
                os.dup2(descriptor, place)
            nothing, end = os.pipe()
            os.dup2(nothing, 0)
            os.close(end)
            lifeline.detach()  # all descriptors are closed, this one and those of other processes
            close_from(_FIRST_FREE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (_GUEST_FILES, _GUEST_FILES))
            if program is not None:
                seal(program)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(2, f"the process could not be confined: {error}".encode())
            os._exit(125)
        try:
            run_program(self._pipes, self._execution)
        finally:
            os._exit(0)


def _font_cache(path: list[str]) -> str:
    """Returns the read-only folder with matplotlib's list of fonts or, without a list, a folder that it cannot write.

    matplotlib reads only folders that it considers writable, and otherwise creates a new one for each process.
    """
    folders = [f"{each}/{_FONT_CACHE}" for each in path]
    folder = next(filter(os.path.isdir, folders), path[-1])
    logging = importlib.import_module("logging")
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # else it warns that it cannot write the list
    access = os.access

    def is_accessible(place: Any, mode: int, **options: Any) -> bool:
        return place == folder or access(place, mode, **options)

    os.access = is_accessible
    return folder


@lru_cache(maxsize=1)
def _filter(message: bytes) -> bytes | None:
    content: dict[str, Any] = json.loads(message)
    return None if content["filter"] is None else base64.b64decode(content["filter"])


def serve(arguments: list[str]) -> None:
    """Prepares everything, reports READY, and serves until the host closes the pipe.

    `arguments` are groups that follow their names: `--modules` to import, directories for the module search path
    (`--path`), and modules in these to `--preload` and to `--offer` to programs. With `--durable`, it serves durable
    executions.
    """
    hide()
    options: dict[str, list[str]] = {}
    group: list[str] = []
    for argument in arguments:
        if argument.startswith("--"):
            group = options[argument] = []
        else:
            group.append(argument)
    if "--durable" in options:
        install_hooks()
    for name in _PRELOADED:
        importlib.import_module(name)
    sys.path += options["--path"]
    sys.dont_write_bytecode = True
    packages.extend([*options.get("--modules", ()), *options.get("--offer", ())])
    if "matplotlib" in packages:
        presets["MPLCONFIGDIR"] = _font_cache(options["--path"])
        os.environ.update(presets)
    for name in options.get("--modules", ()):
        importlib.import_module(name)
    for name in options.get("--preload", ()):
        with contextlib.suppress(Exception):  # the program's own import will show the reason
            importlib.import_module(name)
    if "--durable" not in options:
        if "numpy" in sys.modules:
            os.register_at_fork(after_in_child=sys.modules["numpy"].random.seed)
        os.register_at_fork(after_in_child=random.seed)
    sys.argv = ["program.py"]
    warm_up()
    os.dup2(2, _CONNECTION)  # keeps this number in use
    control = socket.socket(*_KIND, fileno=os.dup(0))
    os.environ.clear()
    os.environ.update(presets)
    for name in _THREADS:
        os.putenv(name, "1")  # for libraries that a program imports, and not in its `os.environ`
    forks = _Forks(control)
    gc.collect()
    gc.freeze()
    os.write(1, encode_frame(FrameKind.READY, b"[%d]" % PROTOCOL, NO_NONCE))
    with contextlib.suppress(EOFError, ConnectionError):
        forks.serve()
