"""Attacks without anything of ours in the guest: a bare main program of Deno with every permission, in a jail."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import deno

from corral.errors import StartFailed
from corral.jail import Engine, LauncherClient, Plan
from corral.jail.jail import jails_to_try
from tests.security.attacks import Attack
from tests.security.canaries import LEAKED
from tests.security.modes import Tier, raw_seconds

__all__ = ["BEGAN", "RawStarter", "attempt_raw", "raw_starter"]

BEGAN = "The attack begins."
_ARGUMENTS = (
    "run", "--allow-all", "--quiet", "--no-prompt", "--no-config", "--no-lock", "--no-npm", "--no-remote",
    "--no-code-cache", "--ext=js", "-",
)  # fmt: skip
_ENVIRONMENT = {"DENO_DIR": "/dev/null/deno", "NO_COLOR": "1"}
_DATA_BYTES = 1 << 30
_MAX_OUTPUT = 1 << 20
_START_SECONDS = 20.0
"""For the engine to come to the attack, whose deadline begins then."""
_GRACE_SECONDS = 20.0
"""For the pipes of an ended guest to close: nothing of it is left that could hold them."""
_PROBE_SECONDS = 30.0

# The body stands on lines of its own; what it returns or throws is printed, as a program of ours would hand it back.
_MAIN = """
const print = Deno.stdout.writeSync.bind(Deno.stdout), bytes = TextEncoder.prototype.encode.bind(new TextEncoder());
const say = (value) => { let text; try { text = typeof value === "string" ? value : Deno.inspect(value, { depth: 9, strAbbreviateSize: 1e6 }) } catch (error) { text = "?" } print(bytes(text + "\\n")) };
const leave = Deno.exit.bind(Deno);
say("%s");
const tools = { echo: async (input) => input };
try { say(await (async (tools) => {
%s
})(tools)) } catch (error) { say(error) }
leave(0);
"""


@dataclass(slots=True)
class RawGuest:
    """An engine that runs: the harness's ends of its pipes, and how to end it."""

    stdin: int
    stdout: int
    stderr: int
    end: Callable[[], object]


RawStarter = Callable[[], RawGuest]


async def attempt_raw(start: RawStarter, attack: Attack, code: str) -> str:
    """Runs it until its end or its deadline; returns what it wrote to its standard output and error."""
    if attack.kind == "module":  # which does not say that it begins
        return await anyio.to_thread.run_sync(partial(_run, start, code, raw_seconds(attack), start_seconds=0))
    return await anyio.to_thread.run_sync(partial(_run, start, _MAIN % (BEGAN, code), raw_seconds(attack)))


@contextlib.contextmanager
def raw_starter(tier: Tier) -> Generator[RawStarter]:
    """What starts bare engines in the jail of `tier`, as the product would choose it.

    Raises:
        StartFailed: no jail of that tier works here.
    """
    engine = Path(deno.find_deno_bin())
    if tier == "none":
        yield partial(_unjailed, engine)
        return
    with tempfile.TemporaryDirectory(prefix="corral-") as directory:
        Path(directory).chmod(0o755)
        launcher = LauncherClient()
        try:
            said = ""
            for jail in jails_to_try(tier, Engine(engine), Path(directory)):
                start = partial(_jailed, launcher, jail.plan(_ARGUMENTS, _ENVIRONMENT, data_bytes=_DATA_BYTES))
                said = _run(start, f"console.log('{BEGAN}')", _PROBE_SECONDS)
                if BEGAN in said:
                    yield start
                    return
            raise StartFailed(f"no jail of tier {tier} works here: {said}")
        finally:
            launcher.close()


def _jailed(launcher: LauncherClient, plan: Plan) -> RawGuest:
    child = launcher.spawn(replace(plan, connection=None))
    assert child.stderr is not None

    def end() -> None:
        child.lifeline.close()
        if child.info is not None:  # not before: what makes the jail writes to it
            os.close(child.info)

    return RawGuest(child.stdin, child.stdout, child.stderr, end)


def _unjailed(engine: Path) -> RawGuest:
    """Without any jail; descriptors are handed on too, as a careless spawn would."""
    pipes = [os.pipe() for _ in range(3)]
    (stdin, input_), (output, stdout), (errors, stderr) = pipes
    process = subprocess.Popen(
        (str(engine), *_ARGUMENTS),
        env=_ENVIRONMENT,
        cwd="/",
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        close_fds=False,
    )
    for theirs in (stdin, stdout, stderr):
        os.close(theirs)

    def end() -> None:
        process.kill()
        process.wait()

    return RawGuest(input_, output, errors, end)


def _run(start: RawStarter, source: str, seconds: float, *, start_seconds: float = _START_SECONDS) -> str:
    guest = start()
    try:
        with contextlib.suppress(BrokenPipeError):
            os.write(guest.stdin, source.encode())  # less than a pipe holds
        os.close(guest.stdin)
        before, open_ = _read({guest.stdout, guest.stderr}, start_seconds, until=BEGAN.encode())
        said, open_ = _read(open_, seconds)
    finally:
        guest.end()
    rest, open_ = _read(open_, _GRACE_SECONDS)
    if open_:
        rest += f"\n{LEAKED} something outlives the guest\n".encode()
    for descriptor in (guest.stdout, guest.stderr):
        os.close(descriptor)
    return (before + said + rest).decode("utf-8", "replace")


def _read(pipes: set[int], seconds: float, until: bytes | None = None) -> tuple[bytes, set[int]]:
    """Reads all `pipes` to their ends, or until the time is over, or `until` came; also returns those that have not ended."""
    said = bytearray()
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fd)
                elif len(said) < _MAX_OUTPUT:
                    said += data
            if until is not None and until in said:
                break
        return bytes(said), {key.fd for key in selector.get_map().values()}
