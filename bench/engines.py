"""The rows of the table: Corral's engines and their peers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import corral
from bench.workloads import Language

__all__ = [
    "CORRAL_ENGINES",
    "FLOOR",
    "PEERS",
    "PEERS_HOME",
    "PYTHON_ENGINES",
    "PYTHON_PEERS",
    "CorralEngine",
    "Driver",
    "corral_driver",
    "floor_driver",
]

ROOT: Final = Path(__file__).parent.parent
PEERS_HOME: Final = ROOT / ".venv" / "bench-peers"
"""Where `bench/peers/setup` puts what the peers need."""


@dataclass(frozen=True, kw_only=True)
class CorralEngine:
    """One way to make a provider of sandboxes."""

    title: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of its constructor; the row is "not available" in a version that refuses them with a TypeError."""
    provider: str = "deno"
    language: corral.Language = "typescript"
    packages: tuple[str, ...] = ("deno",)
    """Those whose versions belong to the numbers."""


CORRAL_ENGINES: Final[Mapping[str, CorralEngine]] = {
    "deno": CorralEngine(title="Deno, as it is by default"),
    "fork": CorralEngine(title="Deno, a process forked for each", options={"isolation": "fork"}),
    "process": CorralEngine(title="Deno, a process started for each", options={"isolation": "process"}),
    "no-pool": CorralEngine(
        title="Deno, one started for each, no pool", options={"isolation": "process", "pool_size": 0}
    ),
    "pool": CorralEngine(title="Deno, four started beforehand", options={"isolation": "process", "pool_size": 4}),
    "none": CorralEngine(title="Deno, tier none", options={"tier": "none"}),
    "landlock": CorralEngine(title="Deno, tier landlock", options={"tier": "landlock"}),
    "namespaces": CorralEngine(title="Deno, tier namespaces", options={"tier": "namespaces"}),
    "wasm": CorralEngine(title="QuickJS in WebAssembly", provider="wasm", packages=("wasmtime", "quickjs-rs")),
}


def _python(title: str, provider: str, *packages: str, **options: Any) -> CorralEngine:
    return CorralEngine(title=title, options=options, provider=provider, language="python", packages=packages)


PYTHON_ENGINES: Final[Mapping[str, CorralEngine]] = {
    "cpython": _python("CPython, as it is by default", "cpython"),
    "cpython-landlock": _python("CPython, tier landlock", "cpython", tier="landlock"),
    "cpython-namespaces": _python("CPython, tier namespaces", "cpython", tier="namespaces"),
    "monty-sandbox": _python("Monty, as Corral runs it", "monty", "pydantic-monty"),
}
"""Of `python -m bench.python`."""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """How to start the process that measures one row. See `bench.driver` for what the two say to each other."""

    name: str
    title: str
    kind: str
    """`corral`, `peer` or `floor`."""
    language: Language
    command: tuple[str, ...]
    directory: Path = ROOT
    needs: Path | None = None
    """What must exist, or else the peers were not set up."""


def corral_driver(name: str) -> Driver:
    engine = {**CORRAL_ENGINES, **PYTHON_ENGINES}[name]
    return Driver(
        name=name,
        title=engine.title,
        kind="corral",
        language="python" if engine.language == "python" else "javascript",
        command=(sys.executable, "-m", "bench.corral_driver", name),
    )


def floor_driver(language: Language = "javascript") -> Driver:
    return Driver(
        name=FLOOR,
        title="floors",
        kind="floor",
        language=language,
        command=(sys.executable, "-m", "bench.floors", language),
    )


FLOOR: Final = "floor"


def _node_peer(name: str, title: str) -> Driver:
    script = ROOT / "bench" / "peers" / f"{name.replace('-', '_')}.mjs"
    return Driver(
        name=name,
        title=title,
        kind="peer",
        language="javascript",
        # isolated-vm asks for the flag: node's own snapshot would be shared with its isolates.
        command=(str(PEERS_HOME / "node"), "--no-node-snapshot", str(script)),
        directory=PEERS_HOME,
        needs=PEERS_HOME / "node_modules",
    )


def _python_peer(name: str, title: str) -> Driver:
    return Driver(
        name=name,
        title=title,
        kind="peer",
        language="python",
        command=(str(PEERS_HOME / "python" / "bin" / "python"), "-m", f"bench.peers.{name}"),
        needs=PEERS_HOME / "python",
    )


PEERS: Final[Mapping[str, Driver]] = {
    "isolated-vm": _node_peer("isolated-vm", "isolated-vm, an isolate each"),
    "cloudflare-codemode": _node_peer("cloudflare-codemode", "@cloudflare/codemode, local workerd"),
    "ai-sdk-code-mode": _node_peer("ai-sdk-code-mode", "@ai-sdk/code-mode, QuickJS in worker threads"),
    "monty": _python_peer("monty", "pydantic-monty, AsyncMonty"),
}

PYTHON_PEERS: Final[Mapping[str, Driver]] = {
    "monty": PEERS["monty"],
    "smolagents": _python_peer("smolagents", "smolagents, LocalPythonExecutor"),
}
"""Of `python -m bench.python`."""
