"""Plug-ins by name: Corral's own from a table, others from entry points of packages. Imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from corral.arguments import did_you_mean
from corral.errors import MissingExtra, UnknownProvider

__all__ = ["load_by_name"]

_OWN: Mapping[str, Mapping[str, str]] = {
    "corral.sandboxes": {
        "deno": "corral.sandboxes.deno:DenoSandbox",
        "cpython": "corral.sandboxes.cpython:CPythonSandbox",
        "daytona": "corral.sandboxes.clouds:DaytonaSandbox",
        "e2b": "corral.sandboxes.clouds:E2BSandbox",
        "monty": "corral.sandboxes.monty:MontySandbox",
        "python": "corral.sandboxes.auto_python:PythonSandbox",
        "vercel": "corral.sandboxes.clouds:VercelSandbox",
    },
    "corral.bridges": {
        "connect": "corral.bridges.connect:ConnectBridge",
        "graphql": "corral.bridges.graphql:GraphqlBridge",
        "grpc": "corral.bridges.grpc:GrpcBridge",
        "http": "corral.bridges.http:HttpBridge",
        "pipe": "corral.bridges.base:PipeBridge",
        "trpc": "corral.bridges.trpc:TrpcBridge",
    },
    "corral.tokens": {"http": "corral.bridges.tokens:ExecutionTokens"},
}


def load_by_name(group: str, name: str, **options: Any) -> Any:
    """Constructs the plug-in `name` of `group` ("corral.sandboxes", "corral.bridges", "corral.tokens").

    Raises:
        UnknownProvider: neither Corral nor an installed package defines the name.
        MissingExtra: the plug-in's optional dependency is not installed.
    """
    own = _OWN[group]
    found = [EntryPoint(name, own[name], group)] if name in own else list(entry_points(group=group, name=name))
    if not found:
        known = sorted({*own, *entry_points(group=group).names})
        raise UnknownProvider(f"unknown name {name!r} in {group}; {did_you_mean(name, known)}known: {', '.join(known)}")
    try:
        return found[0].load()(**options)
    except ModuleNotFoundError as error:
        remedy = f"pip install 'corral[{name}]'" if name in own else "install the dependencies of its package"
        raise MissingExtra(f"{name!r} needs the module {error.name}: {remedy}") from error
