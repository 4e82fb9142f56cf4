"""Shared libraries of an executable, which a jail has to leave readable besides the executable itself."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path

_LINE = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_SECONDS = 10


@cache
def shared_libraries(executable: Path) -> tuple[Path, ...]:
    """The paths by which the loader opens them, the loader's own included; empty for a static executable.

    The loader itself is asked: with LD_TRACE_LOADED_OBJECTS it lists instead of running (ld.so(8)).
    """
    listing = subprocess.run(
        [executable],
        env={"LD_TRACE_LOADED_OBJECTS": "1"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return tuple(Path(os.path.normpath(path)) for path in _LINE.findall(listing.stdout))
