"""The worker process. It reads requests from standard input and writes replies to standard output.

It imports the modules that its arguments and their `WORKER_IMPORTS` name, locks itself down, and prints READY. From
then on it cannot open files, start processes or use a network, as far as the kernel can enforce that.
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
"""Program for `python -I -B -c`, with a JSON list of folders to import from and module names as its arguments."""
_PRELOADED = ("encodings.ascii", "encodings.idna", "encodings.latin_1", "decimal", "traceback", "unicodedata")
"""Modules that the standard library imports lazily, which would be too late in a locked-down worker."""


def serve() -> None:
    """Serves requests until the host closes the pipe."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not look like a reply
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
