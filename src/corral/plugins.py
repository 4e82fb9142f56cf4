"""Providers and protocols by name: our own from a table, others from entry points, so that a package adds one without
touching corral. Nothing is imported before it is asked for."""

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
        "monty": "corral.sandboxes.monty:MontySandbox",
        "python": "corral.sandboxes.auto_python:PythonSandbox",
    },
    "corral.bridges": {"pipe": "corral.bridges.pipe:PipeBridge", "http": "corral.bridges.http:HttpBridge"},
    "corral.tokens": {"http": "corral.bridges.tokens:ExecutionTokens"},
}


def load_by_name(group: str, name: str, **options: Any) -> Any:
    """Constructs what is called `name` in `group` ("corral.sandboxes", "corral.bridges", "corral.tokens").

    Raises:
        UnknownProvider: neither corral nor an installed package has that name.
        MissingExtra: its optional dependency is not installed.
    """
    own = _OWN[group]
    found = [EntryPoint(name, own[name], group)] if name in own else list(entry_points(group=group, name=name))
    if not found:
        known = sorted({*own, *entry_points(group=group).names})
        raise UnknownProvider(
            f"there is no {name!r} in {group}; {did_you_mean(name, known)}there are: {', '.join(known)}"
        )
    try:
        return found[0].load()(**options)
    except ModuleNotFoundError as error:
        remedy = f"pip install 'corral[{name}]'" if name in own else "install what its package asks for"
        raise MissingExtra(f"{name!r} needs the module {error.name}: {remedy}") from error
