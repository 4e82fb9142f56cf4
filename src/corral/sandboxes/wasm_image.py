"""Images of the engine in WebAssembly: made once for each user and machine, cached, and verified by each process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from corral.concurrency.forks import after_fork
from corral.errors import MissingExtra, StartFailed
from corral.guest import wasm_guest
from corral.guest.runtime import WASM_FUNCTIONS
from corral.guest.wasm.engine import library_name
from corral.guest.wasm.image import HANDLES, MODULE, MODULE_SHA256
from corral.jail.jail import v8_environment
from corral.jail.temporary import TemporaryFolder, user_cache, write_whole
from corral.logs import get_logger

if TYPE_CHECKING or sys.platform != "win32":
    import fcntl

logger = get_logger("corral.sandboxes")

_BAKE_SECONDS = 300
_FUNCTIONS = ("send", "answer", "receive", "evaluate")
"""Functions of the server that guests call."""
_making = threading.Lock()
"""Held while an image is made, for minutes on a slow machine."""
_images: dict[str, TemporaryFolder] = {}
"""Images that this process uses, by key: copies of cached ones, which no other process can change once they are
verified."""
_CACHE_DAYS = 30
"""Days without use after which an image is removed, when another one is made."""


def _reset_in_fork() -> None:
    """Replaces the lock, which another thread of the parent can hold."""
    global _making
    _making = threading.Lock()


after_fork(_reset_in_fork)


@cache
def engine_parts() -> tuple[Path, Path]:
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


def image_is_cached() -> bool:
    """Returns True if the image for these versions is in the user's cache, so that the first program need not wait."""
    return _cached_image(_cache_file()) is not None


def image_folder() -> Path:
    """Returns the folder of the image, and makes the image if it is not in the user's cache.

    Raises:
        StartFailed: it cannot be made.
    """
    file = _cache_file()
    with _making:
        if (folder := _images.get(file.name)) is None or not (folder.path / MODULE).is_file():
            try:
                handles, module = _cached_image(file) or _cache_image(file)
                folder = _written({HANDLES: handles, MODULE: module})
            except OSError as error:
                raise StartFailed(
                    f"cannot prepare the image of the engine in WebAssembly: {error}; free space in the temporary "
                    "directory, or set the environment variable TMPDIR to another folder"
                ) from error
            _images[file.name] = folder
        return folder.path


def _written(files: Mapping[str, bytes]) -> TemporaryFolder:
    folder = TemporaryFolder()
    try:
        for name, content in files.items():
            (folder.path / name).write_bytes(content)
            (folder.path / name).chmod(0o644)  # the server can be another user
    except BaseException:
        folder.close()
        raise
    return folder


def _cache_file() -> Path:
    """Returns the image's file: a line with the digest of the rest, a line with the handles, and the module."""
    library, _ = engine_parts()
    key = hashlib.sha256()
    machine = f"{platform.machine()} {_processor()}"
    for part in (
        MODULE_SHA256,
        str(_interprets()),
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
def _processor() -> str:
    """Returns the processor's features, or its name where the system does not list them.

    wasmtime compiles for these features, and refuses to load the result on a processor that lacks one.
    """
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("flags", "Features")):  # of x86 and of ARM
                return line
    return platform.processor()


@cache
def _interprets() -> bool:
    """True if this system denies executable memory that was written: then wasmtime interprets its code."""
    return bool(v8_environment())


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
    """True if only this user can write to a file or folder. A link is not private: another user can have made it."""
    status = path.lstat()
    is_link = stat.S_ISLNK(status.st_mode)
    return not is_link and status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _cache_image(file: Path) -> tuple[bytes, bytes]:
    """Makes an image and writes it to the cache, if that is possible. Only one process at a time does so."""
    with ExitStack() as stack:
        is_usable = False
        with contextlib.suppress(OSError):  # it makes its own
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_usable = sys.platform == "win32" or _is_private(file.parent)
            if is_usable:
                stack.enter_context(_file_lock(file.with_suffix(f"{file.suffix}.lock")))
                if (image := _cached_image(file)) is not None:  # another process has made it meanwhile
                    return image
        logger.info("the image of the engine in WebAssembly is made, which takes some seconds; later starts use it")
        handles, module = _made()
        content = handles + b"\n" + module
        with contextlib.suppress(OSError):
            if is_usable:
                write_whole(file, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
                for other in file.parent.glob(f"*{file.suffix}*"):
                    if time.time() - other.lstat().st_mtime > _CACHE_DAYS * 86_400:
                        other.unlink()
        return handles, module


@contextlib.contextmanager
def _file_lock(path: Path) -> Generator[None]:
    """Holds a lock on a file, which the system releases if this process ends. Windows has none of this kind."""
    with path.open("ab") as file:
        if sys.platform == "win32":
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a fork made meanwhile has this descriptor too


def _made() -> tuple[bytes, bytes]:
    """Makes an image in another process, and returns its handles and its module."""
    library, module = engine_parts()
    names = {"names": WASM_FUNCTIONS, "functions": _FUNCTIONS, "interprets": _interprets()}
    program = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from corral.guest.wasm.image import main; main()"
    )
    folder = TemporaryFolder()  # which another process removes if this one is killed
    try:
        content = {
            "library": str(library),
            "module": str(module),
            "script": wasm_guest(),
            "folder": str(folder.path),
            **names,
        }
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
        return (folder.path / HANDLES).read_bytes(), (folder.path / MODULE).read_bytes()
    finally:
        folder.close()
