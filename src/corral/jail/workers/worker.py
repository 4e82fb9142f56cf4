"""A worker's own side. Requests come on standard input, replies leave on standard output.

It says READY when it has imported the modules that its arguments name, and those that their `WORKER_IMPORTS` name, and
is locked down: from then on it can open no file, start nothing and reach no network, as far as the kernel knows how to.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import BinaryIO

from corral.errors import CorralError
from corral.jail.workers.lockdown import lock_down
from corral.jail.workers.wire import HEADER, Failed, read_request, reply_to

READY = b"corral worker\n"
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from corral.jail.workers.worker import serve; serve()"
)
"""Starts it with `python -I -B -c`, a JSON list of folders to import from, and names of modules."""
_PRELOADED = ("encodings.ascii", "encodings.idna", "encodings.latin_1", "decimal", "traceback", "unicodedata")
"""Imported by the standard library only when they are needed, which is too late."""


def serve() -> None:
    """Answers requests until there is nobody to ask."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no reply
    for name in (*_PRELOADED, *sys.argv[1:]):
        for other in getattr(importlib.import_module(name), "WORKER_IMPORTS", ()):
            importlib.import_module(other)
    lock_down()
    _send(replies, READY)
    while header := requests.read(HEADER.size):
        module, name, arguments = read_request(requests.read(HEADER.unpack(header)[0]))
        function = getattr(sys.modules[module], name)
        try:
            answer: object = function(*arguments)
        except CorralError as error:
            answer = Failed(error, str(error))
        except Exception as error:
            answer = Failed(None, f"{type(error).__name__}: {error}"[:1000])
        _send(replies, reply_to(function, answer))
        del arguments, answer


def _send(replies: BinaryIO, data: bytes) -> None:
    replies.write(data)
    replies.flush()
