"""The guest's own code on disk: what an engine is started with.

The sources are TypeScript, which an engine without a usable cache takes 150 ms to compile (Deno 2.9, an unwritable
cache directory), so they are stripped of their types here, once per process, by the same code that strips programs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

from corral.programs import strip_types

__all__ = ["RuntimeDirectory", "http_runtime"]

_REALM = ("kinds", "values", "tools", "console", "globals", "run", "performance", "timers", "realm")
"""What is evaluated in every context: realm.ts, after all that it needs."""
_PLATFORM = ("intrinsics", "platform")
"""What is evaluated in a context when its program first touches a part of the platform."""
_PROCESS = ("kinds", "values", "tools", "console", "globals", "run", "engine", "frames", "rehearsal", "main")
"""What a process with one execution is started with: main.ts, after all that it needs. As one file, because the engine
takes 4 ms longer for ten."""
_CONTEXTS = ("contexts", "engine", "harden", "frames", *_REALM, *_PLATFORM)
_HTTP = ("values", "tools", "http")
"""What a program imports that runs elsewhere: http.ts, after all that it needs."""
_MODULES = tuple(dict.fromkeys((*_PROCESS, *_CONTEXTS)))
_IMPORT = re.compile(r"^import \{([^}]*)\} from \"\./(\w+)\.ts\";", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (?:\{([^}]*)\}|(\w+)))", re.MULTILINE)


class RuntimeDirectory:
    """A private temporary directory with the guest's modules as JavaScript.

    It goes with `close`, or with this object. Any thread may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._remove: Callable[[], object] = lambda: None

    def prepare(self) -> Path:
        """Makes it, unless it is there, and returns it. An engine starts with `main.js` or `contexts.js` in it.

        Raises:
            OSError: nothing can be written where temporary files go.
        """
        with self._lock:
            if self._path is None or not (self._path / "main.js").exists():
                path = Path(tempfile.mkdtemp(prefix="corral-"))
                path.chmod(0o755)  # nothing in it is secret, and an engine may run as another user
                self._remove = weakref.finalize(self, _remove, path, os.getpid())
                for name, code in _modules().items():
                    (path / name).write_text(code, encoding="utf-8")
                    (path / name).chmod(0o644)
                self._path = path
            return self._path

    def close(self) -> None:
        """Removes the directory. Idempotent; `prepare` makes a new one."""
        with self._lock:
            self._remove()
            self._path = None


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:  # not when a process that was forked off ends
        shutil.rmtree(path, ignore_errors=True)


@cache
def http_runtime() -> str:
    """The module that a program imports to call tools over HTTP from plain Deno or Node 20 or later."""
    code = _script([(name, _stripped(name)) for name in _HTTP])
    return f"{code}export const {{ connect, connectFromEnvironment }} = http_;\n"


def _stripped(name: str) -> str:
    source = files("corral.guest") / "typescript" / f"{name}.ts"
    return strip_types(source.read_text(encoding="utf-8"))


@cache
def _modules() -> dict[str, str]:
    stripped = {name: _stripped(name) for name in _MODULES}
    modules = {f"{name}.js": _javascript(stripped[name]) for name in _CONTEXTS}
    modules["main.js"] = _script([(name, stripped[name]) for name in _PROCESS])
    realm = _script([(name, stripped[name]) for name in _REALM])
    realm = f"(function (TextEncoder) {{ {realm} return {{ ...realm_, promise: Promise.prototype }}; }})"
    platform = f"(() => {{ {_script([(name, stripped[name]) for name in _PLATFORM])} return platform_.Faces; }})()"
    modules["bundle.js"] = (
        f"export const REALM = {json.dumps(realm)};\nexport const PLATFORM = {json.dumps(platform)};\n"
    )
    return modules


def _javascript(code: str) -> str:
    return re.sub(r'^(import .* from "\./\w+)\.ts";', r'\1.js";', code, flags=re.MULTILINE)


def _script(modules: Iterable[tuple[str, str]]) -> str:
    """Modules, each after those that it imports, as statements of a function."""
    parts = ['"use strict";\n']
    for name, code in modules:
        exported = ", ".join(match[1] or match[2] for match in _EXPORT.finditer(code))
        code = _IMPORT.sub(lambda match: f"const {{{match[1]}}} = {match[2]}_;", _EXPORT.sub("", code))
        parts.append(f"const {name}_ = (() => {{\n{code}\nreturn {{ {exported} }};\n}})();\n")
    return "".join(parts)
