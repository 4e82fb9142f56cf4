"""Loads plug-ins by name: corral's own from a table, others from entry points. Each is imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from corral.arguments import did_you_mean
from corral.errors import MissingExtra, UnknownProvider

_OWN: Mapping[str, Mapping[str, str]] = {
    "corral.sandboxes": {
        "deno": "corral.sandboxes.deno:DenoSandbox",
        "cpython": "corral.sandboxes.cpython:CPythonSandbox",
        "daytona": "corral.shells.sandboxes.shell:DaytonaSandbox",
        "e2b": "corral.shells.sandboxes.shell:E2BSandbox",
        "kubernetes": "corral.cluster:AgentSandbox",
        "monty": "corral.sandboxes.monty:MontySandbox",
        "python": "corral.sandboxes.automatic:PythonSandbox",
        "ray": "corral.cluster:RaySandbox",
        "typescript": "corral.sandboxes.automatic:TypeScriptSandbox",
        "vercel": "corral.shells.sandboxes.shell:VercelSandbox",
        "wasm": "corral.sandboxes.wasm:WasmSandbox",
        "workers": "corral.cluster:WorkerSandbox",
    },
    "corral.bridges": {
        "connect": "corral.protocols.connect:ConnectBridge",
        "graphql": "corral.protocols.graphql.bridge:GraphqlBridge",
        "grpc": "corral.protocols.grpc.bridge:GrpcBridge",
        "http": "corral.bridges.http:HttpBridge",
        "pipe": "corral.bridges.base:PipeBridge",
        "trpc": "corral.protocols.trpc:TrpcBridge",
    },
    "corral.commands": {
        "chat": "corral.chat.command:add_chat",
        "shell": "corral.shells.command:add_shell",
        "worker": "corral.cluster.command:add_worker",
    },
    "corral.examinations": {"worker": "corral.cluster.examination:examine_worker"},
    "corral.shells": {"jailed": "corral.shells.jailed:JailedShell", "session": "corral.shells.jailed:SessionShells"},
    "corral.tokens": {"http": "corral.calls.tokens:ExecutionTokens"},
}


def load_by_name(group: str, name: str, **options: Any) -> Any:
    """Constructs the plug-in `name` of a group, such as "corral.sandboxes" or "corral.bridges".

    Raises:
        UnknownProvider: neither Corral nor any installed package defines the name.
        MissingExtra: the plug-in's optional dependency is not installed.
    """
    own = _OWN[group]
    matches = [EntryPoint(name, own[name], group)] if name in own else list(entry_points(group=group, name=name))
    if not matches:
        known = sorted({*own, *entry_points(group=group).names})
        raise UnknownProvider(f"unknown name {name!r} in {group}; {did_you_mean(name, known)}known: {', '.join(known)}")
    try:
        return matches[0].load()(**options)
    except ModuleNotFoundError as error:
        remedy = f"pip install 'corral[{name}]'" if name in own else "install its package's dependencies"
        raise MissingExtra(f"{name!r} needs the module {error.name}: {remedy}") from error
