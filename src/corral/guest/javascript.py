"""The guest's modules in TypeScript as JavaScript: erased once, and then kept as Python keeps bytecode.

To erase the types of one guest takes 50 ms. The results are in the `__pycache__` beside the sources, under the same
rules as bytecode: `sys.dont_write_bytecode` and `sys.pycache_prefix` hold, and whoever may write there may change what
the host itself runs.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from corral.jail.temporary import write_whole
from corral.programs import strip_types


def guest_source(folder: str, file: str) -> str:
    """The text of one of the guest's modules; `folder` is `typescript` or `python`."""
    return (files("corral.guest") / folder / file).read_text(encoding="utf-8")


@cache
def guest_javascript(name: str) -> str:
    """A module of the guest without types, by its name without suffix, such as `process/main`."""
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
    """File in which the result is kept; none for a package in a zip file, or a Python that keeps no bytecode."""
    source = files("corral.guest") / "typescript" / f"{name}.ts"
    with suppress(NotImplementedError):
        return Path(cache_from_source(str(source))).with_suffix(".erased") if isinstance(source, Path) else None
    return None


def _keep(place: Path, text: str) -> None:
    if sys.dont_write_bytecode:
        return
    with suppress(OSError):  # an installation that cannot be written to
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, text, mode=0o644)


def _head(source: str, code: str) -> str:
    """First line of what is kept: of the code too, since a machine that crashes may leave half of it."""
    return f"// {sha256(_eraser() + source.encode()).hexdigest()} {sha256(code.encode()).hexdigest()}"


@cache
def _eraser() -> bytes:
    """Version of the code that erases: times and sizes of its files."""
    found: list[tuple[str, int, int]] = []
    for package in ("corral.programs", "tree_sitter", "tree_sitter_typescript"):
        spec = find_spec(package)
        assert spec is not None
        for folder in spec.submodule_search_locations or []:
            for path in sorted(Path(folder).rglob("*")):
                if path.suffix in (".py", ".so", ".pyd"):
                    status = path.stat()
                    found.append((path.name, status.st_mtime_ns, status.st_size))
    return repr(found).encode()
