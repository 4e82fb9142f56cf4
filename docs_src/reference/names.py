"""The public names, and what the source says of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import griffe

__all__ = ["MODULES", "Found", "found_in"]

MODULES: Mapping[str, str] = {
    "corral": "*",
    "corral.tools": "ToolName ToolRegistry ToolSource",
    "corral.model": "Catalog LearntResults LearntTool ModelTool",
    "corral.results": "CallRecord Diagnostic ExecutionError FileChanges LogEntry ProgramCapabilities Unawaited",
    "corral.events": "ApprovalDecided ApprovalRequested ConsoleOutput Event ExecutionFinished "
    "ExecutionStarted Observation OnEvent ProgramChecked ToolCallFinished ToolCallProgress ToolCallStarted",
    "corral.sessions": "Directory Mount Scratch",
    "corral.types": "Approve Language",
    "corral.checking": "CheckResult",
    "corral.containment": "ContainmentKind",
    "corral.errors": "AccessDenied BridgeError LedgerError ProgramError SandboxError",
    "corral.ledger": "Ledger MemoryLedger PostgresLedger Retry Settled SqliteLedger",
    "corral.sandboxes": "DenoSandbox CPythonSandbox FramedProvider GuestChannel ChannelLost LocalGuest "
    "SandboxProvider Sandbox Job",
    "corral.packages": "NpmPackages PythonPackages",
    "corral.compilers": "*",
    "corral.sandboxes.monty": "*",
    "corral.sources.mcp": "McpServer mcp_servers",
    "corral.protocols.graphql.source": "*",
    "corral.protocols.grpc.source": "*",
    "corral.sources.openapi": "*",
    "corral.integrations.pydantic_ai": "CodeMode",
    "corral.integrations.openai_agents": "CodeMode",
    "corral.integrations.langchain": "CodeMode",
    "corral.integrations.anthropic": "*",
    "corral.shells.integrations.anthropic": "*",
    "corral.shells.integrations.openai": "*",
    "corral.shells.integrations.openai_agents": "*",
    "corral.shells.integrations.deepagents": "*",
    "corral.shells.integrations.langchain": "*",
    "corral.shells.integrations.pydantic_ai": "*",
    "corral.integrations.openai": "*",
    "corral.integrations.google_adk": "*",
    "corral.integrations.mcp": "mcp_server ask_client",
    "corral.bridges": "BridgeProtocol BridgeHost Document",
    "corral.calls": "MemoryRates RateStore RemoteExecution",
    "corral.protocols.connect": "*",
    "corral.protocols.graphql.bridge": "*",
    "corral.protocols.grpc.bridge": "*",
    "corral.bridges.http": "*",
    "corral.bridges.peers": "*",
    "corral.bridges.peers_redis": "*",
    "corral.testing": "*",
    "corral.protocols.trpc": "*",
    "corral.calls.tokens": "ExecutionTokens Key KeyRing",
    "corral.calls.rates_redis": "*",
    "corral.policy": "Policy PolicyCall PolicySource Verdict",
    "corral.audit": "AuditEvent AuditSink JsonLinesSink SqliteSink PostgresSink Telemetry CallbackSink "
    "open_audit AuditFilter AuditReader",
    "corral.cluster": "*",
    "corral.egress": "*",
    "corral.chat": "*",
    "corral.chat.agents": "*",
    "corral.chat.agents.anthropic": "*",
    "corral.chat.agents.google_adk": "*",
    "corral.chat.agents.langchain": "*",
    "corral.chat.agents.openai": "*",
    "corral.chat.agents.openai_agents": "*",
    "corral.chat.agents.pydantic_ai": "*",
}
"""The modules of the page, and their names: all that they export, or those that are for users."""

_DATA = ("dataclass", "NamedTuple", "BaseModel", "TypedDict", "Frozen")
_UNPACKED = re.compile(r"Unpack\[(\w+)\]")


@dataclass(frozen=True)
class Found:
    """A public name, or a method of one."""

    name: str
    source: Any
    """A class, function or attribute of griffe."""
    owner: Found | None = None

    @property
    def title(self) -> str:
        return f"{self.owner.name}.{self.name}" if self.owner else self.name

    @property
    def heading(self) -> str:
        """The name and what it is, as names differ in case alone from others."""
        return f"{'Class' if self.source.is_class else 'Function' if self.source.is_function else 'Type'} {self.title}"

    @property
    def anchor(self) -> str:
        return self.heading.lower().replace(" ", "-")

    @property
    def docstring(self) -> griffe.Docstring | None:
        """Its own, or that of what it overrides."""
        if self.source.docstring is not None or self.owner is None:
            return self.source.docstring
        inherited = (base.members.get(self.name) for base in _bases(self.owner.source))
        return next((each.docstring for each in inherited if each is not None and each.docstring), None)

    @property
    def is_data(self) -> bool:
        """True if it is made of its fields."""
        classes = (self.source, *_bases(self.source))
        marks = [str(each) for one in classes for each in (*one.bases, *(mark.value for mark in one.decorators))]
        return any(kind in mark for mark in marks for kind in _DATA)

    def fields(self) -> list[Any]:
        """The attributes of a class that users read."""
        return [
            each
            for each in self._members()
            if each.is_attribute and (each.docstring or (self.is_data and "instance-attribute" in each.labels))
        ]

    def methods(self) -> list[Found]:
        """Those that users call; the tests of a suite say in their names what they show."""
        if not self.source.is_class:
            return []
        functions = [each for each in self._members() if each.is_function and each.name != "__init__"]
        return [Found(each.name, each, self) for each in functions if not each.name.startswith("test_")]

    def _members(self) -> Iterator[Any]:
        for name, member in self.source.members.items():
            if not name.startswith("_") or name == "__call__":
                yield member

    def parameters(self) -> list[griffe.Parameter]:
        """Those of a function, with the members of an unpacked TypedDict in place of `**options`."""
        found: list[griffe.Parameter] = []
        for each in self.source.parameters:
            unpacked = _UNPACKED.fullmatch(str(each.annotation))
            options = None if unpacked is None else _resolved(self.source.module, unpacked[1])
            if options is None:
                found.append(each)
            else:
                found += [
                    griffe.Parameter(
                        name, annotation=member.annotation, kind=griffe.ParameterKind.keyword_only, default="..."
                    )
                    for name, member in _options(options).items()
                ]
        return found


def found_in(package: griffe.Object | griffe.Alias, module: str) -> list[Found]:
    """The public names of a module."""
    source: Any = package[module.removeprefix("corral.")] if module != "corral" else package
    names = MODULES[module]
    wanted = [str(each).strip("'\"") for each in source.exports] if names == "*" else names.split()
    return [Found(name, _resolved(source, name)) for name in wanted]


def _resolved(module: Any, name: str) -> Any:
    """The object that a name of a module stands for, never a module of the same name."""
    found = module.members[name]
    while found.is_alias:
        found = found.target
    return found.members[name] if found.is_module else found


def _bases(source: Any) -> list[Any]:
    found: list[Any] = []
    for base in source.bases:
        try:
            resolved = _resolved(source.module, str(base).partition("[")[0])
        except (KeyError, griffe.AliasResolutionError):  # of another package
            continue
        if resolved.is_class:
            found += [resolved, *_bases(resolved)]
    return found


def _options(source: Any) -> dict[str, Any]:
    members = {name: each for name, each in source.members.items() if each.is_attribute}
    return {**members, **{name: each for base in _bases(source) for name, each in _options(base).items()}}
