"""Bundles packages: esbuild, in a jail, turns a package into the body of a CommonJS function.

Packages are untrusted: with `require("/etc/passwd.json")`, one could copy a file of the host into its bundle. So the
bundler can only read `node_modules`, and bundles with any other input are refused.
"""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from corral.concurrency.descriptors import await_readable
from corral.containment import TIERS, Tier
from corral.errors import StartFailed
from corral.jail import Engine, Jail, LauncherClient, Mount, in_best_jail
from corral.jail.process import ContainedProcess
from corral.jail.temporary import TemporaryFolder

FORMAT = 1
"""Version of the bundle format. Cached bundles with another version are not used."""
BUILT_INS = frozenset(
    "assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain "
    "events fs http http2 https inspector module net os path perf_hooks process punycode querystring readline repl "
    "sqlite stream string_decoder sys test timers tls trace_events tty url util v8 vm wasi worker_threads zlib".split()
)
"""Built-in modules of node, which the guest provides or refuses."""

_PLACE = "/packages"
_DATA_BYTES = 1 << 30
_START_SECONDS = 30.0
_BUNDLE_SECONDS = 60.0
_MOST_BYTES = 32 << 20
"""Maximum size of a bundler's answer."""
_MOST_REQUIRED = 200
"""Maximum number of modules that a bundle requires. Each may have to be bundled too."""
_MESSAGE_CHARS = 300
_ENVIRONMENT = {"HOME": "/nonexistent", "GOMAXPROCS": "2", "GOGC": "100"}
_FLAGS = (
    "--bundle",
    "--format=cjs",
    "--target=es2023",
    "--supported:dynamic-import=false",  # the engine's `import()` would bypass the guest's loader
    "--minify-syntax",
    "--minify-whitespace",
    "--charset=utf8",
    "--legal-comments=none",
    '--define:process.env.NODE_ENV="production"',
    "--metafile",
    "--log-level=silent",
    "--log-limit=1",
)


class BundleFailed(Exception):
    """A package cannot be bundled. Models read the reason."""


class BundleRequest(NamedTuple):
    """Module to bundle. Packages in `external` are left as calls of `require`."""

    specifier: str
    external: tuple[str, ...] = ()
    browser: bool = False


class Bundle(NamedTuple):
    """Text of a module, and the external modules that it requires."""

    code: str
    requires: tuple[str, ...]


class Bundler:
    """Bundles packages of a `node_modules` folder. `tiers` are the jails to try, best first. Methods block."""

    def __init__(self, executable: Path, modules: Path, *, tiers: Sequence[Tier] = tuple(reversed(TIERS))) -> None:
        self._modules = modules
        self._tiers = tiers
        self._engine = Engine(
            executable, inside="/esbuild", mounts=(Mount(modules.parent, _PLACE),), syscall_profile="checker"
        )

    def bundle(self, requests: Collection[BundleRequest]) -> Iterator[Bundle | BundleFailed]:
        """Yields each module's bundle or error, in the order of the requests.

        Raises:
            StartFailed: the bundler does not start.
        """
        with self._service() as service:
            for each in requests:
                try:
                    yield _bundle(service, each)
                except BundleFailed as error:
                    yield error

    @contextlib.contextmanager
    def _service(self) -> Generator[_Service]:
        launcher = LauncherClient()
        folder = TemporaryFolder()
        try:
            service = self._started(launcher, folder)
            try:
                yield service
            finally:
                service.process.close()
        finally:
            launcher.close()
            folder.close()

    def _started(self, launcher: LauncherClient, folder: TemporaryFolder) -> _Service:
        """Starts the bundler in the best jail that works here, or unjailed if none does."""

        def start(jail: Jail) -> _Service:
            try:
                return self._start(launcher, jail, folder)
            except BundleFailed as error:
                raise StartFailed(str(error)) from error

        try:
            return in_best_jail(self._tiers, self._engine, folder.path, start)
        except StartFailed as error:
            raise StartFailed(f"the bundler does not start: {error}") from error

    def _start(self, launcher: LauncherClient, jail: Jail, folder: TemporaryFolder) -> _Service:
        version = self._engine.executable.parents[4].name.rpartition("@")[2]
        plan = jail.plan((f"--service={version}",), _ENVIRONMENT, data_bytes=_DATA_BYTES)
        process = ContainedProcess.spawn(launcher, replace(plan, scratch=folder.home))
        try:
            first = process.await_output(_START_SECONDS)
            jail.verify(process.pid)
            service = _Service(process, _PLACE if jail.tier == "namespaces" else str(self._modules.parent), first)
            service.receive(time.monotonic() + _START_SECONDS)  # its version
            _bundle(service, BundleRequest("./deno.json"), own=True)  # tests whether it can read the folder
        except BaseException:
            process.close()
            raise
        return service


def _bundle(service: _Service, module: BundleRequest, *, own: bool = False) -> Bundle:
    """Bundles a module. With `own`, it is a file of the folder itself instead of a package."""
    fields = "browser,module,main" if module.browser else "main,module"
    # with platform=node, esbuild knows the built-in modules
    external = (*(sorted(BUILT_INS) if module.browser else ()), "node:*", *module.external)
    flags = [*_FLAGS, f"--platform={'browser' if module.browser else 'node'}", f"--main-fields={fields}"]
    flags += [f"--external:{name}" for name in external]
    entry = f"module.exports = require({json.dumps(module.specifier)});".encode()
    answer = service.build({"stdinContents": entry, "flags": flags, "write": False})
    try:
        if errors := answer["errors"]:
            raise BundleFailed(_message(errors[0]))
        [file] = answer["outputFiles"]
        code, described = file["contents"].decode(), json.loads(answer["metafile"])
        [output] = described["outputs"].values()
        inputs, imports = list(described["inputs"]), output["imports"]
        requires = sorted({each["path"] for each in imports if each.get("external")})
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BundleFailed("the bundler's answer is invalid") from error
    if not own and (outside := [each for each in inputs if not _is_within(each)]):
        raise BundleFailed(f"it reads {outside[0][:_MESSAGE_CHARS]!r}, which is outside its folder")
    if len(requires) > _MOST_REQUIRED:
        raise BundleFailed(f"it requires {len(requires)} other modules; the maximum is {_MOST_REQUIRED}")
    return Bundle(code, tuple(requires))


def _is_within(path: str) -> bool:
    """True for files in the packages' folder, and for the entry point, which is ours."""
    return path == "<stdin>" or (
        path.removeprefix("(disabled):").startswith("node_modules/") and ".." not in path.split("/")
    )


def _message(error: dict[str, Any]) -> str:
    location: dict[str, Any] = error.get("location") or {}
    where = f" ({location['file']}:{location['line']})" if "file" in location and "line" in location else ""
    return f"{error['text']}{where}"[:_MESSAGE_CHARS]


class _Service:
    """esbuild's protocol over standard streams: packets of a length, an identifier and a tagged value."""

    def __init__(self, process: ContainedProcess, directory: str, first: bytes) -> None:
        self.process = process
        self._directory = directory
        self._received = bytearray(first)
        self._number = 0

    def build(self, options: dict[str, Any]) -> dict[str, Any]:
        """Sends a request, and returns the answer.

        Raises:
            BundleFailed: the bundler ended, or did not give a valid answer in time.
        """
        deadline = time.monotonic() + _BUNDLE_SECONDS
        request: dict[str, Any] = {
            "command": "build",
            "key": self._number,
            "entries": [],
            "stdinResolveDir": self._directory,
            "absWorkingDir": self._directory,
            "nodePaths": [],
            "context": False,
            **options,
        }
        packet = struct.pack("<I", self._number << 1) + _encoded(request)
        self._number += 1
        data = struct.pack("<I", len(packet)) + packet
        if self.process.write_now(data) != len(data):
            raise BundleFailed("the bundler does not accept requests")
        try:
            answer = _Reader(self.receive(deadline)[4:]).value()
        except (LookupError, struct.error, UnicodeDecodeError, RecursionError) as error:
            raise BundleFailed("the bundler's answer is invalid") from error
        if not isinstance(answer, dict) or "error" in answer:
            raise BundleFailed(f"the bundler failed: {str(cast('object', answer))[:_MESSAGE_CHARS]}")
        return cast("dict[str, Any]", answer)

    def receive(self, deadline: float) -> bytes:
        """Returns the content of the next packet."""
        while len(self._received) < 4 or len(self._received) < 4 + self._length():
            left = deadline - time.monotonic()
            data = self.process.read_now() if left > 0 and await_readable(self.process.output, left) else None
            if data is None and left > 0:
                continue
            if not data:
                problem = "did not answer in time" if data is None else f"ended: {self.process.last_words()}"
                raise BundleFailed(f"the bundler {problem}")
            self._received += data
        end = 4 + self._length()
        packet = bytes(self._received[4:end])
        del self._received[:end]
        return packet

    def _length(self) -> int:
        [length] = struct.unpack_from("<I", self._received)
        if length > _MOST_BYTES:
            raise BundleFailed(f"its code is over {_MOST_BYTES >> 20} MB")
        return length


def _encoded(value: object) -> bytes:
    match value:
        case bool():
            return bytes((1, value))
        case int():
            return struct.pack("<BI", 2, value)
        case str():
            return b"\x03" + _sized(value.encode())
        case bytes():
            return b"\x04" + _sized(value)
        case list():
            items = cast("list[object]", value)
            return struct.pack("<BI", 5, len(items)) + b"".join(map(_encoded, items))
        case _:
            members = cast("dict[str, object]", value)
            content = b"".join(_sized(key.encode()) + _encoded(each) for key, each in members.items())
            return struct.pack("<BI", 6, len(members)) + content


def _sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self) -> Any:
        kind = self._take(1)[0]
        match kind:
            case 0:
                return None
            case 1:
                return self._take(1)[0] != 0
            case 2:
                return self._number()
            case 3:
                return self._take(self._number()).decode()
            case 4:
                return self._take(self._number())
            case 5:
                return [self.value() for _ in range(self._number())]
            case 6:
                return {self._take(self._number()).decode(): self.value() for _ in range(self._number())}
            case _:
                raise LookupError(kind)

    def _number(self) -> int:
        return struct.unpack("<I", self._take(4))[0]

    def _take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise LookupError("the packet ends too early")
        self._at += size
        return data
