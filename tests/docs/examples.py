"""Runs the files that the documentation shows, as the main module of this process."""

from __future__ import annotations

import asyncio
import logging
import runpy
import sys
import traceback
from pathlib import Path

import pytest


def run_as_main(file: Path) -> str:
    """Runs a file with the arguments and the path that it would have by itself; returns the traceback of its end, or "".

    What it has imported from its own folder is imported anew by the next.
    """
    before = {*sys.modules}
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # or the synchronous methods of pydantic-ai make one that nobody closes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(file)])
        patch.setattr(sys, "path", [str(file.parent), *sys.path])
        patch.setattr(logging.root, "handlers", [])  # as in a process of its own, warnings go to standard error
        patch.setattr(logging.root, "level", logging.WARNING)
        try:
            runpy.run_path(str(file), run_name="__main__")
        except BaseException:
            return traceback.format_exc()
        finally:
            logging.disable(logging.NOTSET)
            asyncio.set_event_loop(None)
            loop.close()
            for name in {*sys.modules} - before:
                if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == file.parent:
                    del sys.modules[name]
    return ""
