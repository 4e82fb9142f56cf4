"""TypeScript programs in QuickJS, compiled to WebAssembly, in wasmtime: a fresh instance for each execution.

The engine can reach only the memory of its instance, and the functions of its server. The server is a process of one
user of one organization, in a jail. An instance starts in a fraction of a millisecond, as a copy of an image in which
the guest's code has already run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from typing_extensions import override

from corral.arguments import checked
from corral.containment import Tier
from corral.errors import MissingExtra, StartFailed
from corral.guest import RuntimeDirectory, wasm_guest, wasm_server
from corral.guest.runtime import WASM_FUNCTIONS
from corral.guest.wasm.engine import library_name
from corral.guest.wasm.image import HANDLES, MODULE, MODULE_SHA256
from corral.jail import Mount
from corral.jail.spaces import SpaceHost
from corral.jail.temporary import TemporaryFolder, user_cache, write_whole
from corral.logs import get_logger
from corral.sandboxes.jailed.fork_provider import ForkProvider
from corral.sandboxes.jailed.fork_server import ForkServer, request
from corral.sandboxes.jailed.guest_starter import GUEST_FILE, MOUNTED, GuestCommand, GuestProcess, GuestStarter
from corral.sandboxes.jailed.provider import LocalGuest
from corral.sandboxes.jailed.python_runtime import installation
from corral.types import Capabilities, Language, SandboxConfig

if TYPE_CHECKING or sys.platform != "win32":
    import fcntl

_ISOLATED = ("-I", "-S", "-B")
_LIBRARY = "/python/wasmtime"
_IMAGE = "/python/image"
"""Folders of wasmtime's library and of the image, in namespaces."""
_GARBAGE_MB = 4096
"""Memory of a server beside that of one program: for all its other programs, and their threads."""
_BAKE_SECONDS = 300
_FUNCTIONS = ("send", "answer")
"""Functions of the server that guests call."""


class _InstanceProcess(GuestProcess):
    """Instance in a server, as the process of one execution. The server enforces its limits, and reports its end."""

    def limit_cpu(self, seconds: float, *, again: bool = False) -> None:  # noqa: ARG002
        self.write_now(struct.pack("<d", seconds))

    def cpu_time(self) -> None:  # type: ignore[override]
        """Returns None: the server measures it."""

    def threads(self) -> int:
        return 0

    def kill(self) -> None:
        """Ends the connection. The server notices it within a tick."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.input)) as connection:
            connection.shutdown(socket.SHUT_RDWR)


class _InstanceServer(ForkServer):
    """Server that makes an instance for each request."""

    @override
    def _fork(self) -> GuestProcess | None:
        return request(self._guest, b"{}", _InstanceProcess)


@checked
class WasmSandbox(ForkProvider):
    """Runs programs in QuickJS in WebAssembly, each in a fresh instance.

    It starts programs faster than other engines. Programs compute slower than in V8, and have no streams, files or npm
    packages: docs/wasm.md has the whole list.

    `tier` selects the jail of the processes that hold the instances, of which each serves one user of one organization.
    "auto" uses the best one that this system supports, and at least the required one. `pool_size` is the number of such
    processes kept ready for new users.

    Raises:
        ConfigError: an argument has an invalid value. MissingExtra: wasmtime or quickjs-rs is not installed.
    """

    name: ClassVar[str] = "wasm"
    language: ClassVar[Language] = "typescript"

    def __init__(self, *, tier: Tier | Literal["auto"] = "auto", pool_size: int | None = None) -> None:
        _parts()
        super().__init__(
            tier=tier,
            pool_size=pool_size,
            starter=GuestStarter(
                tier, _command, RuntimeDirectory(wasm_server), {"LC_CTYPE": "C.UTF-8"}, garbage_mb=_GARBAGE_MB
            ),
        )

    @property
    def capabilities(self) -> Capabilities:
        return super().capabilities

    @override
    def engine_version(self, config: SandboxConfig) -> str:
        return f"wasmtime {version('wasmtime')}, quickjs-rs {version('quickjs-rs')}"

    @override
    async def guest(self, config: SandboxConfig) -> LocalGuest:
        if config.modules or config.durable:  # asked of a provider before it was replaced by this one
            raise StartFailed("sandbox 'wasm' has neither packages, nor files of a session, nor durable executions")
        return await super().guest(config)

    @override
    async def space_host(self, config: SandboxConfig) -> SpaceHost | None:
        return None

    @override
    async def _new_server(self, config: SandboxConfig) -> ForkServer:
        return _InstanceServer(await self._new_guest(config))


def _command(config: SandboxConfig) -> GuestCommand:
    engine, _ = installation(())
    library, _ = _parts()
    mounts = (*engine.mounts, Mount(library.parent, _LIBRARY), Mount(_image(), _IMAGE))
    arguments = (*_ISOLATED, f"{GUEST_FILE}guest.py", f"{GUEST_FILE}guest.bin")
    arguments += (f"{MOUNTED}{_LIBRARY}", f"{MOUNTED}{_IMAGE}", str(config.memory_mb))
    return GuestCommand(replace(engine, mounts=mounts), arguments)


@cache
def _parts() -> tuple[Path, Path]:
    """Returns the paths of wasmtime's library and of the engine's module, without importing their packages.

    Raises:
        MissingExtra: one is not installed. StartFailed: one is not as expected.
    """
    folders: list[Path] = []
    for package, module in (("wasmtime", "wasmtime"), ("quickjs-rs", "quickjs_rs")):
        spec = find_spec(module)
        if spec is None or not spec.submodule_search_locations:
            raise MissingExtra(f"sandbox='wasm' needs the package {package}: pip install 'corral[wasm]'")
        folders.append(Path(spec.submodule_search_locations[0]))
    libraries = sorted(folders[0].glob(f"*/{library_name()}"))
    if not libraries:
        raise StartFailed(f"wasmtime has no {library_name()} for this system in {folders[0]}; reinstall it")
    module = folders[1] / "_guest.wasm"
    digest = hashlib.sha256(module.read_bytes()).hexdigest() if module.is_file() else "none"
    if digest != MODULE_SHA256:
        raise StartFailed(
            f"the engine of quickjs-rs {version('quickjs-rs')} is not the one that this version of corral was tested "
            "with: pip install 'corral[wasm]'"
        )
    return libraries[0], module


logger = get_logger("corral.sandboxes")
_making = threading.Lock()
_images: dict[str, TemporaryFolder] = {}
"""Images that this process uses, by key: copies of cached ones, which no other process can change once they are verified."""
_CACHE_DAYS = 30
"""Images that were not used for so long are removed when another one is made."""


def image_is_cached() -> bool:
    """Returns True if the image for these versions is in the user's cache, so that the first program need not wait."""
    return _cached_image(_cache_file()) is not None


def _image() -> Path:
    """Returns the folder of the image, which is made if it is not in the user's cache.

    Raises:
        StartFailed: it cannot be made.
    """
    file = _cache_file()
    with _making:
        if (folder := _images.get(file.name)) is None or not (folder.path / MODULE).is_file():
            folder = TemporaryFolder()
            handles, module = _cached_image(file) or _cache_image(file)
            for name, content in ((HANDLES, handles), (MODULE, module)):
                (folder.path / name).write_bytes(content)
                (folder.path / name).chmod(0o644)  # the server can be another user
            _images[file.name] = folder
        return folder.path


def _cache_file() -> Path:
    """Returns the image's file: a line with the digest of the rest, a line with the handles, and the module."""
    library, _ = _parts()
    key = hashlib.sha256()
    machine = f"{platform.machine()} {platform.processor()}"
    for part in (
        MODULE_SHA256,
        version("wasmtime"),
        library.parent.name,
        machine,
        wasm_guest(),
        *_FUNCTIONS,
        *_sources(),
    ):
        key.update(f"{part}\0".encode())
    return user_cache("wasm") / f"{key.hexdigest()[:32]}.image"


@cache
def _sources() -> tuple[str, ...]:
    folder = Path(__file__).parents[1] / "guest" / "wasm"
    return tuple((folder / name).read_text(encoding="utf-8") for name in ("engine.py", "image.py"))


def _cached_image(file: Path) -> tuple[bytes, bytes] | None:
    """Returns handles and module of an image in the cache.

    Returns None if it is missing or damaged, or if another user could have written it.
    """
    try:
        if sys.platform != "win32" and not all(_is_private(path) for path in (file.parent, file)):
            return None
        digest, _, content = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(content).hexdigest().encode() != digest:
        logger.info("the cached image %s is damaged, and is made again", file)
        return None
    with contextlib.suppress(OSError):
        os.utime(file)
    handles, _, module = content.partition(b"\n")
    return handles, module


def _is_private(path: Path) -> bool:
    status = path.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _cache_image(file: Path) -> tuple[bytes, bytes]:
    """Makes an image and writes it to the cache, if that is possible. Only one process at a time does so."""
    with ExitStack() as stack:
        with contextlib.suppress(OSError):  # it makes its own
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(_file_lock(file.with_suffix(".lock")))
            if (image := _cached_image(file)) is not None:  # another process has made it meanwhile
                return image
        logger.info("the image of the engine in WebAssembly is made, which takes some seconds; later starts use it")
        handles, module = _made()
        content = handles + b"\n" + module
        with contextlib.suppress(OSError):
            write_whole(file, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
            for other in file.parent.iterdir():
                if time.time() - other.stat().st_mtime > _CACHE_DAYS * 86_400:
                    other.unlink()
        return handles, module


@contextlib.contextmanager
def _file_lock(path: Path) -> Generator[None]:
    """Holds a lock on a file, which the system releases if this process ends. Windows has none of this kind."""
    with path.open("ab") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _made() -> tuple[bytes, bytes]:
    """Makes an image in another process, and returns its handles and its module."""
    library, module = _parts()
    names = {"names": WASM_FUNCTIONS, "functions": _FUNCTIONS}
    program = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from corral.guest.wasm.image import main; main()"
    )
    with tempfile.TemporaryDirectory(prefix="corral-wasm-") as folder:
        content = {"library": str(library), "module": str(module), "script": wasm_guest(), "folder": folder, **names}
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-B", "-c", program, json.dumps(sys.path)],
                input=json.dumps(content),
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_BAKE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise StartFailed(
                f"the image of the engine in WebAssembly was not made within {_BAKE_SECONDS} s"
            ) from error
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
            raise StartFailed(f"the image of the engine in WebAssembly cannot be made: {reason[0]}")
        return (Path(folder) / HANDLES).read_bytes(), (Path(folder) / MODULE).read_bytes()
