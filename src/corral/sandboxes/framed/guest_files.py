"""Guests of each language as files and a command, for any machine with the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath

from corral.containment import NO_SPACE, Space
from corral.guest import node_guest, python_guest, typescript_guest
from corral.sandboxes.channel import GuestFiles
from corral.types import Language, SandboxConfig

DENO_ENVIRONMENT = {"DENO_DIR": "/dev/null/deno", "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
"""The engine's whole environment. Disables its cache, so that programs leave nothing for later ones and nothing is
written, and its check for new versions."""
_HEAP_RESERVE_MB = 32
"""Size of V8's heap above the program's memory: for the guest runtime, the engine's bookkeeping, and arrays that are
copied as they grow."""
_SEMI_SPACE_MB = 32
"""Size of a space for young objects, of which V8 has three. The default depends on the machine's size, which is
hidden."""
_NO_EVAL = "--disallow-code-generation-from-strings"


def guest_files(config: SandboxConfig) -> GuestFiles:
    """Returns the guest for one program in the configured language."""
    return _GUESTS[config.language](config)


def _deno(config: SandboxConfig) -> GuestFiles:
    return GuestFiles(
        files={"main.js": typescript_guest()},
        options=deno_options(config.memory_mb, allow_eval=False),
        main="main.js",
        environment=DENO_ENVIRONMENT,
    )


def is_node(engine: str) -> bool:
    """True if a command's name is Node's."""
    return "node" in PurePosixPath(engine).name


def node_files(config: SandboxConfig) -> GuestFiles:
    """Returns the guest for one program in TypeScript, for Node."""
    return GuestFiles(
        files={"main.js": node_guest()},
        options=(*_heap(config.memory_mb), _NO_EVAL, "--no-warnings"),
        main="main.js",
        environment={"NODE_OPTIONS": "", "NO_COLOR": "1"},
    )


def _cpython(config: SandboxConfig) -> GuestFiles:  # noqa: ARG001
    return GuestFiles(
        files={"guest.py": python_guest()},
        options=("-I", "-S", "-B"),
        main="guest.py",
        environment={"LC_CTYPE": "C.UTF-8"},
    )


_GUESTS: Mapping[Language, Callable[[SandboxConfig], GuestFiles]] = {"typescript": _deno, "python": _cpython}


def deno_options(
    memory_mb: int, *, allow_eval: bool, v8_flags: Iterable[str] = (), space: Space = NO_SPACE
) -> tuple[str, ...]:
    """Returns Deno's own options: a heap for this memory, and no permissions except for the space's directories."""
    flags = [*_heap(memory_mb), *v8_flags]
    if not allow_eval:
        flags.append(_NO_EVAL)
    readable = [space.place(bind.inside) for bind in space.binds]
    writable = [space.place(bind.inside) for bind in space.binds if bind.writable]
    return (
        "run",
        *([f"--allow-read={','.join(readable)}"] if readable else []),
        *([f"--allow-write={','.join(writable)}"] if writable else []),
        "--quiet",
        "--no-prompt",
        "--no-config",
        "--no-lock",
        "--no-npm",
        "--no-remote",
        "--no-code-cache",
        f"--v8-flags={','.join(flags)}",
    )


def _heap(memory_mb: int) -> tuple[str, str]:
    """Returns V8's flags for a program with this memory."""
    return f"--max-old-space-size={memory_mb + _HEAP_RESERVE_MB}", f"--max-semi-space-size={_SEMI_SPACE_MB}"
