"""The guest's own code on disk, with which engines are started.

The sources are TypeScript. An engine without a usable cache takes 150 ms to compile them (Deno 2.9, with an unwritable
cache directory), so their types are stripped here, by the same code that strips programs.

Erasing the types of one guest takes 50 ms. The results are stored in the `__pycache__` beside the sources, under the
same rules as bytecode: `sys.dont_write_bytecode` and `sys.pycache_prefix` apply, and anyone with write access there can
change the host's own code.
"""

from __future__ import annotations

import ast
import json
import marshal
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.abc import InspectLoader
from importlib.resources import files
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from types import CodeType
from typing import NamedTuple, cast

from corral.errors import ConfigError
from corral.jail.temporary import TemporaryFolder, write_whole
from corral.programs import strip_types
from corral.types import Language


class Transport(NamedTuple):
    """Source of a module with which the client of programs elsewhere calls tools over a protocol.

    `shared` are modules that it imports, by name, each before those that import it.
    """

    source: str
    shared: tuple[tuple[str, str], ...] = ()


_PROCESS = (
    "kinds",
    "values",
    "failures",
    "tools",
    "inspect",
    "console",
    "bigints",
    "globals",
    "network",
    "platform/timers",
    "durable",
    "engine",
    "run",
    "file_api",
    "loader",
    "frames",
    "process/files",
    "process/http",
    "process/rehearsal",
    "process/modules",
    "process/execution",
    "process/warm_up",
)
"""Modules of a process with one execution, each after its dependencies. They are joined into one file, because the
engine takes 4 ms longer to load ten."""
_MAIN = (*_PROCESS, "process/main")
"""Modules of a process started for one execution."""
_PLATFORM = (
    "intrinsics",
    "base",
    "url_parser",
    "url",
    "text",
    "events",
    "blobs",
    "buffer",
    "timers",
    "locale",
    "platform",
)
"""Modules of the platform, each after its dependencies."""
_WASM = (
    *(f"platform/{name}" for name in _PLATFORM),
    "wasm/engine",
    *(name for name in _PROCESS[: _PROCESS.index("frames")] if name not in ("engine", "platform/timers")),
    "wasm/files",
    "wasm/built_ins",
    "wasm/main",
)
"""Modules of the guest in WebAssembly. The platform comes first, because the others use it while they load."""
WASM_FUNCTIONS = ("take", "takeLines", "settle", "fire")
"""Functions by which the server drives that guest."""
_CLIENT = ("values", "failures", "tools", "client")
"""Parts of the module that a program elsewhere imports: client.ts, after its dependencies and before a transport."""
_PYTHON = (
    "values",
    "frames",
    "failures",
    "calls",
    "console",
    "hints",
    "errors",
    "loop",
    "network",
    "program",
)
"""Parts of the Python guest, each after its dependencies."""
_PYTHON_CLIENT = ("values", "failures", "calls", "client", "transports/lines")
"""Parts of the Python module that a program elsewhere imports."""
_ELSEWHERE = ("bigints", "engine", "transports/elsewhere")
"""Parts of the guest that calls tools over such a protocol, which follow the client and the transport."""
_PYTHON_ELSEWHERE = ("values", "failures", "calls", "hints", "errors", "client", "transports/lines")
"""The same in Python, where they precede the transport."""
_NODE = 'import { createRequire } from "node:module";\nconst require = createRequire("file:///");\n'
_IMPORT = re.compile(r"^import \{([^}]*)\} from \"\.{1,2}/(?:[\w.]+/)*(\w+)\.ts\";", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (?:\{([^}]*)\}|(\w+)))", re.MULTILINE)


_PYTHON_HEAD = re.compile(
    r"^(?:from (?:corral[\w.]*|__future__) import (?:\([^)]*\)|[^\n]*)|__all__ = \[[^\]]*\])\n", re.MULTILINE
)
_PYTHON_MAIN = re.compile(r'^if __name__ == "__main__":\n(?:[ \t][^\n]*\n|\n)*', re.MULTILINE)


class RuntimeDirectory:
    """Private temporary directory for starting an engine: a guest's files, and links to files that it reads.

    `close` removes it, as does garbage collection of this object. Thread-safe.
    """

    def __init__(
        self,
        files: Callable[[], Mapping[str, str | bytes]] = lambda: {"main.js": typescript_guest()},
        links: Callable[[], Mapping[str, Path]] = dict,
    ) -> None:
        self._files = files
        self._links = links
        self._lock = threading.Lock()
        self._folder: TemporaryFolder | None = None

    def prepare(self) -> Path:
        """Creates the directory if it does not exist, and returns it.

        Raises:
            OSError: the temporary directory is not writable.
        """
        with self._lock:
            files = self._files()
            if self._folder is None or not all((self._folder.path / name).exists() for name in files):
                self._discard()
                folder = TemporaryFolder()
                try:
                    self._fill(folder.path, files)
                except BaseException:
                    folder.close()
                    raise
                self._folder = folder
            return self._folder.path

    @property
    def home(self) -> Path | None:
        """Folder to remove if this process is killed; None if it belongs to another process."""
        return None if self._folder is None else self._folder.home

    def close(self) -> None:
        """Removes the directory. Idempotent; `prepare` makes a new one."""
        with self._lock:
            self._discard()

    def _fill(self, path: Path, files: Mapping[str, str | bytes]) -> None:
        for name, code in files.items():
            (path / name).write_bytes(code.encode() if isinstance(code, str) else code)
            (path / name).chmod(0o644)
        for name, target in self._links().items():
            (path / name).symlink_to(target)

    def _discard(self) -> None:
        if self._folder is not None:
            self._folder.close()
            self._folder = None


def http_transport(language: Language) -> Transport:
    """Returns the transport for corral's own protocol over HTTP."""
    return Transport(guest_source(language, _HTTP[language]))


def http_runtime(language: Language = "typescript") -> str:
    """Returns the module with which a program calls tools over HTTP: for Deno, Node 20 or Python 3.11, or later."""
    return client_runtime(language, http_transport(language))


def elsewhere_guest(
    transport: Transport, language: Language, job: Mapping[str, object], *, node: bool = False
) -> bytes:
    """Returns the guest of one program that calls tools over a protocol, including the program, as one file."""
    text = json.dumps(job)
    if language == "python":
        return f"{_python_elsewhere(transport)}\nrun_elsewhere(json.loads({text!r}))\n".encode()
    return (
        f"{_typescript_elsewhere(transport, node=node)}await elsewhere_.run(JSON.parse({json.dumps(text)}));\n".encode()
    )


@cache
def _python_elsewhere(transport: Transport) -> str:
    shared = (source for _, source in transport.shared)
    own = map(_python, _PYTHON_ELSEWHERE)
    return _python_file([*own, *shared, transport.source, _python("transports/elsewhere")])


@cache
def _typescript_elsewhere(transport: Transport, *, node: bool) -> str:
    # elsewhere.ts imports the HTTP transport, which the others replace.
    modules = [*_stripped(_CLIENT), *_stripped_shared(transport), ("http", strip_types(transport.source))]
    rest = _over_node(_ELSEWHERE) if node else _ELSEWHERE
    return (_NODE if node else "") + _script([*modules, *_stripped(rest)])


def client_runtime(language: Language, transport: str | Transport) -> str:
    """Makes the module that a program elsewhere imports to call tools by another protocol, from its transport.

    `transport` is the source of a module that implements `Transport` of `corral/guest/typescript/client.ts` or
    `corral/guest/python/client.py`. It imports from that module, from `values`, and in Python from
    `transports/lines.py` and the standard library. It exports `connect` and `connectFromEnvironment`, or
    `connect_from_environment`, as `bridgeTransport` or `bridge_transport` makes them. `http.ts` and
    `transports/http.py` are examples.

    Raises:
        ConfigError: a transport in Python defines a name that the client also defines.
    """
    made = Transport(transport) if isinstance(transport, str) else transport
    return _client(language, made)


@cache
def _client(language: Language, transport: Transport) -> str:
    return _CLIENT_RUNTIMES[language](transport)


def _typescript_client(transport: Transport) -> str:
    modules = [*_stripped(_CLIENT), *_stripped_shared(transport), ("transport", strip_types(transport.source))]
    return f"{_script(modules)}export const {{ connect, connectFromEnvironment }} = transport_;\n"


def _python_client(transport: Transport) -> str:
    sources = [*map(_python, _PYTHON_CLIENT), *(source for _, source in transport.shared)]
    if shared := sorted(_defined(transport.source) & set[str]().union(*map(_defined, sources))):
        raise ConfigError(f"the transport defines {shared[0]!r}, which the runtime also defines; give it another name")
    return _python_file([*sources, transport.source])


def _stripped_shared(transport: Transport) -> list[tuple[str, str]]:
    return [(name, strip_types(source)) for name, source in transport.shared]


def _defined(source: str) -> set[str]:
    """Returns the names that a module defines at its top level, without its imports."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Assign():
                names |= {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    return names - {"__all__"}


_CLIENT_RUNTIMES: Mapping[Language, Callable[[Transport], str]] = {
    "typescript": _typescript_client,
    "python": _python_client,
}
_HTTP: Mapping[Language, str] = {"typescript": "transports/http.ts", "python": "transports/http.py"}


@cache
def typescript_guest() -> bytes:
    """Returns the guest of one program in TypeScript, as one file for Deno."""
    return _script(_stripped(_MAIN)).encode()


@cache
def node_guest() -> bytes:
    """Returns the same for Node 20 or later: a function of its `require` and `process`."""
    return f"(function (require, process) {{ {_script(_stripped(_over_node(_MAIN)))} }})".encode()


def _over_node(modules: Iterable[str]) -> list[str]:
    """Replaces Deno by Node in a list of modules."""
    return ["node/engine" if each == "engine" else each for each in modules]


@cache
def wasm_guest() -> str:
    """Returns the guest for QuickJS as the text of a function, which leaves its functions in the global scope."""
    functions = ", ".join(f"{name}: main_.{name}" for name in WASM_FUNCTIONS)
    return f"() => {{ {_script(_stripped(_WASM))} main_.prepare(); Object.assign(globalThis, {{ {functions} }}); }}"


@cache
def typescript_server() -> str:
    """Returns the TypeScript guest that forks a process for each program, as one file for Deno."""
    return _script(_stripped((*_PROCESS, "process/libc", "process/zygote")))


@cache
def python_guest() -> bytes:
    """Returns the guest of one program in Python, as one file for CPython 3.11 or later on Linux."""
    return _python_file([*map(_python, _PYTHON), _python("standalone")]).encode()


@cache
def python_server() -> Mapping[str, str | bytes]:
    """Returns the files of the Python guests' fork server: one that starts this CPython, and the code that it loads.

    The code is marshalled, as in Python's own cache, so that no start compiles it again.
    """
    return _server(
        *(f"corral.guest.python.{name}" for name in _PYTHON),
        "corral.jail.privileges",
        "corral.jail.launcher",
        "corral.guest.python.durable",
        "corral.guest.python.zygote",
    )


@cache
def wasm_server() -> Mapping[str, str | bytes]:
    """Returns the files of the WebAssembly guests' server, as `python_server` does."""
    return _server(
        "corral.guest.python.frames",
        "corral.jail.privileges",
        "corral.jail.launcher",
        "corral.jail.seccomp",
        "corral.guest.wasm.engine",
        "corral.guest.wasm.image",
        "corral.guest.wasm.server",
    )


def _server(*names: str) -> Mapping[str, str | bytes]:
    code = marshal.dumps([(name, _renamed(_code(name), f"<{name}>")) for name in names])
    return {"guest.py": guest_source("python", "boot.py"), "guest.bin": code}


def _code(name: str) -> CodeType:
    spec = find_spec(name)
    assert spec is not None
    code = cast("InspectLoader", spec.loader).get_code(name)
    assert code is not None
    return code


def _renamed(code: CodeType, file: str) -> CodeType:
    """Returns the code with another file name, to hide paths of the host from the program."""
    constants = [_renamed(each, file) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.replace(co_filename=file, co_consts=tuple(constants))


def _python_file(sources: Iterable[str]) -> str:
    """Joins modules into one file, each after its imports. Only the last one keeps its main block."""
    *earlier, last = [_PYTHON_HEAD.sub("", source) for source in sources]
    parts = [_PYTHON_MAIN.sub("", source) for source in earlier]
    return "\n\n".join(["from __future__ import annotations", *parts, last])


def _python(name: str) -> str:
    return guest_source("python", f"{name}.py")


def _stripped(names: Iterable[str]) -> list[tuple[str, str]]:
    """Returns modules by their names without folders, as JavaScript."""
    return [(name.rpartition("/")[2], guest_javascript(name)) for name in names]


def platform_script() -> str:
    """Returns the platform for an engine that has only the language: a script that evaluates to `definePlatform`."""
    modules = _script(_stripped(f"platform/{name}" for name in _PLATFORM))
    return f"(() => {{ {modules} return platform_.definePlatform; }})()"


def _script(modules: Iterable[tuple[str, str]]) -> str:
    """Joins modules, each after its imports, into statements of a function."""
    parts = ['"use strict";\n']
    for name, code in modules:
        exported = ", ".join(match[1] or match[2] for match in _EXPORT.finditer(code))
        code = _IMPORT.sub(lambda match: f"const {{{match[1]}}} = {match[2]}_;", _EXPORT.sub("", code))
        parts.append(f"const {name}_ = (() => {{\n{code}\nreturn {{ {exported} }};\n}})();\n")
    return "".join(parts)


def guest_source(folder: str, file: str) -> str:
    """Returns the source of one of the guest's modules; `folder` is `typescript` or `python`."""
    return (files("corral.guest") / folder / file).read_text(encoding="utf-8")


@cache
def guest_javascript(name: str) -> str:
    """Returns a module of the guest without types, by its name without suffix, such as `process/main`."""
    source = guest_source("typescript", f"{name}.ts")
    kept = _place(name)
    if kept is None:
        return strip_types(source)
    with suppress(OSError, ValueError):
        head, _, code = kept.read_text(encoding="utf-8").partition("\n")
        if head == _head(source, code):
            return code
    code = strip_types(source)
    _keep(kept, f"{_head(source, code)}\n{code}")
    return code


def _place(name: str) -> Path | None:
    """Returns the cache file; None for a package in a zip file, or for a Python that writes no bytecode."""
    source = files("corral.guest") / "typescript" / f"{name}.ts"
    with suppress(NotImplementedError):
        return Path(cache_from_source(str(source))).with_suffix(".erased") if isinstance(source, Path) else None
    return None


def _keep(place: Path, text: str) -> None:
    if sys.dont_write_bytecode:
        return
    with suppress(OSError):  # the installation is not writable
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text, mode=0o644)


def _head(source: str, code: str) -> str:
    """Returns the cache file's first line. It also identifies the code, because a crash can leave half a file."""
    return f"// {sha256(_eraser() + source.encode()).hexdigest()} {sha256(code.encode()).hexdigest()}"


@cache
def _eraser() -> bytes:
    """Identifies the version of the type eraser by times and sizes of its files."""
    files: list[tuple[str, int, int]] = []
    for package in ("corral.programs", "tree_sitter", "tree_sitter_typescript"):
        spec = find_spec(package)
        assert spec is not None
        for folder in spec.submodule_search_locations or []:
            for path in sorted(Path(folder).rglob("*")):
                if path.suffix in (".py", ".so", ".pyd"):
                    status = path.stat()
                    files.append((path.name, status.st_mtime_ns, status.st_size))
    return repr(files).encode()
