"""Language servers on this machine: whether they start and check programs, how long that takes, and how much memory."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from corral import tool
from corral.checking.base import DeclarationsUnread
from corral.checking.case import Case
from corral.checking.checker import verdict_of
from corral.checking.declared_tools import ToolSets
from corral.checking.servers.lsp import ServerLost
from corral.checking.servers.specs import SERVERS, ServerKind
from corral.checking.servers.workspace import Workspace
from corral.containment import Tier
from corral.doctor.layers import proc_status, program_version
from corral.errors import StartFailed
from corral.jail import Engine
from corral.programs import read_program
from corral.tools import ToolRegistry
from corral.types import Language, References

_READY_SECONDS = 60.0
_VERSION = re.compile(r"\d\S*")
_BEST: dict[Language, tuple[str, str]] = {
    "typescript": ("tsgo", "pip install 'corral[tsgo]'"),
    "python": ("ty", "pip install ty"),
}
"""The preferred server, and the command to install it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """Language server for one language, with test results. Without a `name`, none is installed."""

    language: Language
    name: str | None = None
    version: str | None = None
    path: str | None = None
    ready: bool = False
    checks: bool = False
    """True if it rejected a wrong program and accepted a right one."""
    tier: Tier | None = None
    """Tier of its jail."""
    ready_seconds: float | None = None
    memory_mb: int | None = None
    """Resident memory once it is ready (VmRSS)."""
    reason: str | None = None
    """Reason why the server is not ready or does not check."""
    remedy: str | None = None
    """Command that installs the preferred server, if this is another one."""


@tool
async def double(n: int) -> int:
    """Twice the number."""
    return 2 * n


RIGHT: dict[Language, str] = {
    "typescript": "return await tools.double({ n: 21 })",
    "python": "await tools.double(n=21)",
}
_WRONG: dict[Language, str] = {
    "typescript": "return await tools.double({ n: [] })",
    "python": "await tools.double(n=[])",
}


def find_server(language: Language) -> tuple[ServerKind, Engine] | None:
    """Returns the server that checks would use for a language."""
    for kind in SERVERS:
        if kind.language == language and (engine := kind.engine()) is not None:
            return kind, engine
    return None


def install_command(language: Language) -> str:
    """Returns the command that installs the preferred server for a language."""
    return _BEST[language][1]


def try_servers() -> list[FoundServer]:
    """Starts and ends the server of each language. Blocks, with Deno's server for seconds."""
    return [_try(language) for language in get_args(Language)]


def _try(language: Language) -> FoundServer:
    server = find_server(language)
    if server is None:
        return FoundServer(language=language, reason="not installed", remedy=install_command(language))
    kind, engine = server
    best, command = _BEST[language]
    result = FoundServer(
        language=language,
        name=kind.name,
        version=_version(engine.executable),
        path=str(engine.executable),
        remedy=None if kind.name == best else command,
    )
    started = time.perf_counter()
    try:
        with closing(Workspace(kind)) as workspace:
            workspace.open(engine)
            document = workspace.document("", time.monotonic() + _READY_SECONDS)
            document.write("")
            document.remarks()
            seconds = time.perf_counter() - started
            status = proc_status(workspace.pid)
            reason = _unfit(language, workspace)
    except (StartFailed, ServerLost, OSError) as error:
        return replace(result, reason=f"it does not start: {error}")
    return replace(
        result,
        ready=True,
        checks=reason is None,
        reason=reason,
        tier=_tier(status),
        ready_seconds=seconds,
        memory_mb=int(status["VmRSS"].split()[0]) >> 10,
    )


def _unfit(language: Language, workspace: Workspace) -> str | None:
    """Returns the reason why the server's checks are unreliable; None if they are reliable."""
    tools = ToolRegistry(double)
    declared = ToolSets().declared(tools, language, References(), must=True)
    assert declared is not None
    passed: list[bool] = []
    for source in (RIGHT[language], _WRONG[language]):
        case = Case(read_program(source, language), tools, must=True)
        try:
            passed.append(verdict_of(case, declared, _READY_SECONDS, workspace).rejection is None)
        except DeclarationsUnread as error:
            return f"it checks nothing: {error}"
    return {(True, False): None, (True, True): "it lets a wrong program pass"}.get(
        (passed[0], passed[1]), "it rejects a right program"
    )


def _version(executable: Path) -> str | None:
    match = _VERSION.search(program_version(executable) or "")
    return match and match[0]


def _tier(status: dict[str, str]) -> Tier:
    """Returns a process's jail according to the kernel: it has its own namespaces, or one filter more than this
    process."""
    if len(status["NSpid"].split()) > 1:
        return "namespaces"
    filters = [int(each.get("Seccomp_filters", 0)) for each in (status, proc_status())]
    return "landlock" if filters[0] > filters[1] else "none"
