"""Attacks as a model would make them: programs, run by a Corral."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

from corral import Corral, ExecutionContext, ExecutionResult, define_tool
from corral.errors import BridgeError, MemoryExceeded, OutputExceeded, ProgramTimeout, SandboxLost
from corral.sandboxes import CPythonSandbox, DenoSandbox, deno
from corral.sandboxes.jailed.guest_starter import GuestCommand, GuestStarter
from corral.sandboxes.wasm import WasmSandbox
from corral.sessions import Sessions
from corral.types import Language, SandboxConfig
from tests.security.attacks import Attack
from tests.security.modes import CELLS, PYTHON, SESSIONS, Mode, Tier, limits_for

__all__ = ["attacked_corral", "attempt", "outcomes"]


# What Deno's node: modules look for as they load, and the guest has removed; an attacker puts back what is missed.
_RESTORE = """
globalThis.SharedArrayBuffer ??= ArrayBuffer;
for (const name of ["Atomics", "Worker", "process", "Buffer", "global"])
  try { globalThis[name] ??= function () {} } catch {}
try { globalThis.Deno ??= { build: { os: "linux", arch: "x86_64" }, env: { get() {} }, errors: {}, version: {} } } catch {}
"""


class GrantedDenoSandbox(DenoSandbox):
    """Deno with every permission: a stand-in for a complete bypass of its own model."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _grant_everything(self._starter)


_GIVEN = 'globalThis[Symbol.for("given")]'
"""A function, into whose results `surroundings` does not look."""
_IMPORTED = 'await import("node:fs")'  # which does not load any more where the guest has removed what it looks for
_KEPT = (
    (
        'native.permissions.revokeSync({ name: "ffi" });',
        f'import("node:fs").then((files) => {{ {_GIVEN} = () => [native, files]; }});',
    ),
    ('throw new Error("the engine still grants native calls")', "0"),
)
"""Changes of the server that forks: a stand-in for a program that finds a way to native calls."""


@contextmanager
def _native_forks(sandbox: DenoSandbox) -> Generator[None]:
    """Has the servers of this sandbox start with every permission, and keep them."""
    forks, original = sandbox._forks, deno.typescript_server
    assert forks is not None
    starter = forks._starter
    usual = starter.command

    def server() -> str:
        code = original()
        for old, new in _KEPT:
            assert code.count(old) == 1, old
            code = code.replace(old, new)
        return code

    deno.typescript_server = server
    _grant_everything(starter)
    try:
        yield
    finally:
        deno.typescript_server, starter.command = original, usual


def _grant_everything(starter: GuestStarter) -> None:
    usual = starter.command

    def command(config: SandboxConfig) -> GuestCommand:
        engine, (first, *rest) = usual(config)
        return GuestCommand(engine, (first, "--allow-all", *(each for each in rest if each != "--allow-ffi")))

    starter.command = command


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
        case "wasm":
            sandbox = WasmSandbox(tier=tier)
        case "python" | "python-session" | "python-cells":
            sandbox = CPythonSandbox(tier=tier)
        case "science":
            sandbox = CPythonSandbox(tier=tier, packages=["numpy", "pandas"])
        case _:
            native = mode == "native"
            sandbox = DenoSandbox(tier=tier, isolation="fork", allow_eval=native, allow_wasm=native)
    changed = _native_forks(sandbox) if mode == "native" and isinstance(sandbox, DenoSandbox) else nullcontext()
    with changed:
        async with _corral(mode, tier, sandbox) as corral:
            yield corral


@asynccontextmanager
async def _corral(
    mode: Mode, tier: Tier, sandbox: DenoSandbox | CPythonSandbox | WasmSandbox
) -> AsyncGenerator[Corral]:
    try:
        echo = define_tool(name="echo", description="Gives its input back.", execute=_echo)
        big = define_tool(name="big", description="Gives four megabytes.", execute=_big)
        async with Corral(
            tools=[echo, big] if mode in PYTHON else [echo],
            sandbox=sandbox,
            containment=tier,
            limits=limits_for(mode),
            sessions=Sessions(keep="variables" if mode in CELLS else "files") if mode in SESSIONS else None,
            check=False,
        ) as corral:
            yield corral
    finally:
        await sandbox.aclose()


async def attempt(corral: Corral, mode: Mode, attack: Attack, code: str, user: ExecutionContext) -> ExecutionResult:
    if mode in CELLS:
        notebooks = corral._runtime.notebooks
        for key in [each for each in notebooks._kept if each.session.context.session_id == user.session_id]:
            await notebooks.close(key)
        first = "earlier = 1\nearlier" if mode in PYTHON else "const earlier = 1;\nreturn earlier"
        language: Language = "python" if mode in PYTHON else "typescript"
        (await corral.execute(first, context=user, language=language, limits=limits_for(mode))).raise_for_error()
    if mode in PYTHON:
        return await corral.execute(code, context=user, language="python", limits=limits_for(mode, attack))
    if mode == "native":
        code = f"const [Deno, files] = {_GIVEN}();\n{code.replace(_IMPORTED, 'files')}"
    if mode in ("granted", "native"):
        code = f"return await new (async () => {{}}).constructor('tools', {json.dumps(_RESTORE + code)})(tools)"
    return await corral.execute(code, context=user, limits=limits_for(mode, attack))


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
