"""The guest's own code on disk: what an engine is started with.

The sources are TypeScript, which an engine without a usable cache takes 150 ms to compile (Deno 2.9, an unwritable
cache directory), so they are stripped of their types here, once per process, by the same code that strips programs.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path

from corral.programs import strip_types

__all__ = ["RuntimeDirectory"]

_MODULES = ("main", "frames", "values", "tools", "console", "globals")


class RuntimeDirectory:
    """A private temporary directory with the guest's modules as JavaScript.

    It goes with `close`, or with this object. Any thread may use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._remove: Callable[[], object] = lambda: None

    def prepare(self) -> Path:
        """Makes it, unless it is there, and returns it.

        An engine starts with `main.js` in it, and keeps its own cache in `cache`; without a place for one, its first
        `import()` takes 150 ms.

        Raises:
            OSError: nothing can be written where temporary files go.
        """
        with self._lock:
            if self._path is None or not (self._path / "main.js").exists():
                path = Path(tempfile.mkdtemp(prefix="corral-"))
                path.chmod(0o755)  # nothing in it is secret, and an engine may run as another user
                self._remove = weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
                for name, code in _modules().items():
                    (path / name).write_text(code, encoding="utf-8")
                    (path / name).chmod(0o644)
                self._path = path
            return self._path

    def forget_compiled(self) -> None:
        """Removes what the engine keeps of programs that it compiled itself."""
        path = self._path
        if path is not None:
            shutil.rmtree(path / "cache" / "gen" / "data", ignore_errors=True)

    def close(self) -> None:
        """Removes the directory. Idempotent; `prepare` makes a new one."""
        with self._lock:
            self._remove()
            self._path = None


@cache
def _modules() -> dict[str, str]:
    sources = files("corral.guest") / "typescript"
    return {f"{name}.js": _javascript((sources / f"{name}.ts").read_text(encoding="utf-8")) for name in _MODULES}


def _javascript(source: str) -> str:
    code = strip_types(source)
    for name in _MODULES:
        code = code.replace(f'"./{name}.ts"', f'"./{name}.js"')
    return code
