"""The guest's own code on disk: what an engine is started with.

The sources are TypeScript, which an engine without a usable cache takes 150 ms to compile (Deno 2.9, an unwritable
cache directory), so they are stripped of their types here, once per process, by the same code that strips programs.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path

from corral.programs import strip_types

__all__ = ["RuntimeDirectory"]

_MODULES = ("main", "frames", "values", "tools", "console", "globals")


class RuntimeDirectory:
    """A private temporary directory with the guest's modules as JavaScript. Made on first use, removed by `close`."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @property
    def main(self) -> Path:
        """The module to start an engine with."""
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="corral-"))
            for name, code in _modules().items():
                (self._path / name).write_text(code, encoding="utf-8")
        return self._path / "main.js"

    @property
    def cache(self) -> Path:
        """A directory for the engine's own cache; without one, its first `import()` takes 150 ms."""
        return self.main.parent / "cache"

    def forget_compiled(self) -> None:
        """Removes what the engine keeps of programs that it compiled itself."""
        shutil.rmtree(self.cache / "gen" / "data", ignore_errors=True)

    def close(self) -> None:
        """Removes the directory. Idempotent; `main` makes a new one."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
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
