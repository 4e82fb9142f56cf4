"""Attacks as a model would make them: programs, run by a Corral."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from corral import Corral, ExecutionContext, ExecutionResult, define_tool
from corral.errors import BridgeError, MemoryExceeded, OutputExceeded, ProgramTimeout, SandboxLost
from corral.sandboxes import CPythonSandbox, DenoSandbox
from corral.sandboxes.jailed.guest_starter import GuestKind
from corral.sessions import Sessions
from corral.types import SandboxConfig
from tests.security.attacks import Attack
from tests.security.modes import PYTHON, SESSIONS, SHARING, Mode, Tier, limits_for
from tests.security.surroundings import look

__all__ = ["EVERYBODY", "attacked_corral", "attempt", "outcomes"]

EVERYBODY = ExecutionContext(user_id="everybody", session_id="everybody's")
"""The one user of all attacks in Python."""


# What Deno's node: modules look for as they load, and the guest has removed; an attacker puts back what is missed.
_RESTORE = """
globalThis.SharedArrayBuffer ??= ArrayBuffer;
for (const name of ["Atomics", "Worker", "process", "Buffer", "global"])
  try { globalThis[name] ??= function () {} } catch {}
try { globalThis.Deno ??= { build: { os: "linux", arch: "x86_64" }, env: { get() {} }, errors: {}, version: {} } } catch {}
"""


class GrantedDenoSandbox(DenoSandbox):
    """Deno with every permission: a stand-in for a complete bypass of its own model."""

    def guest_kind(self, config: SandboxConfig) -> GuestKind:
        kind = super().guest_kind(config)
        return kind._replace(arguments=(kind.arguments[0], "--allow-all", *kind.arguments[1:]))


async def _echo(input: Any) -> Any:
    return input


async def _big(input: Any) -> str:
    return "x" * 3_900_000


@asynccontextmanager
async def attacked_corral(mode: Mode, tier: Tier) -> AsyncGenerator[Corral]:
    """A Corral whose sandbox is jailed by `tier`; the sandbox is closed with it."""
    match mode:
        case "granted":
            sandbox = GrantedDenoSandbox(tier=tier, isolation="process", allow_eval=True, allow_wasm=True)
        case "python" | "python-session":
            sandbox = CPythonSandbox(tier=tier)
        case "science":
            sandbox = CPythonSandbox(tier=tier, packages=["numpy", "pandas"])
        case _:
            sandbox = DenoSandbox(tier=tier, isolation="fork")
    try:
        echo = define_tool(name="echo", description="Gives its input back.", execute=_echo)
        big = define_tool(name="big", description="Gives four megabytes.", execute=_big)
        async with Corral(
            tools=[echo, big] if mode in PYTHON else [echo],
            sandbox=sandbox,
            required_tier=tier,
            sessions=Sessions() if mode in SESSIONS else None,
            check=False,
        ) as corral:
            yield corral
    finally:
        await sandbox.aclose()


async def attempt(
    corral: Corral, mode: Mode, attack: Attack, code: str, user: str
) -> tuple[ExecutionResult, ExecutionResult]:
    """The attack's result, and that of a program of the same user that looks around after it."""
    if mode in PYTHON:
        result = await corral.execute(code, context=EVERYBODY, language="python", limits=limits_for(attack))
        return result, await look(corral, EVERYBODY, python=True)
    context = ExecutionContext(user_id=user, session_id=user)
    if mode == "granted":
        code = f"return await new (async () => {{}}).constructor('tools', {json.dumps(_RESTORE + code)})(tools)"
    result = await corral.execute(code, context=context, limits=limits_for(attack))
    return result, await look(corral, context, whole=mode in SHARING)


def outcomes(result: ExecutionResult) -> list[str]:
    """What `result` counts as in the corpus's terms: value, error, timeout, died.

    A guest ended by the host for what it wrote, and one that ran out of memory, are errors of a worker that died.
    """
    if result.error is None:
        return ["value", f"value:{result.value}"]
    match result.error.code:
        case ProgramTimeout.code:
            return ["timeout"]
        case SandboxLost.code:
            return ["died"]
        case MemoryExceeded.code | OutputExceeded.code | BridgeError.code | "malformed_message" | "message_too_large":
            return ["error", "died"]
        case _:
            return ["error"]
