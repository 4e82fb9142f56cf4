"""`python -m bench.sessions`: costs of sessions: opening one, a small file in each language, a request, an idle one."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.memory import Memory, tree_memory
from bench.options import positive
from corral import Corral, ExecutionContext, Session
from corral.egress import EgressPolicy, Network, SafeClient
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider, pool
from corral.types import Language

_FILES: dict[Language, str] = {
    "typescript": """
import fs from "fs";
const times = [];
for (let round = 0; round < 500; round++) {
  const began = performance.now();
  fs.writeFileSync("small.txt", "x".repeat(100));
  fs.readFileSync("small.txt", "utf8");
  times.push((performance.now() - began) * 1000);
}
return times.sort((a, b) => a - b)[250];
""",
    "python": """
import time, statistics
times = []
for _ in range(500):
    began = time.perf_counter()
    with open("small.txt", "w") as file: file.write("x" * 100)
    with open("small.txt") as file: file.read()
    times.append((time.perf_counter() - began) * 1e6)
statistics.median(times)
""",
}
_REQUESTS: dict[Language, str] = {
    "typescript": """
const times = [];
for (let round = 0; round < 50; round++) {
  const began = performance.now();
  await (await fetch("URL")).text();
  times.push(performance.now() - began);
}
return times.sort((a, b) => a - b)[25];
""",
    "python": """
import time, statistics, urllib.request
times = []
for _ in range(50):
    began = time.perf_counter()
    urllib.request.urlopen("URL").read()
    times.append((time.perf_counter() - began) * 1e3)
statistics.median(times)
""",
}
_ANN = ExecutionContext(user_id="ann")
_IDLE = 3
"""Idle sessions: with more, and guests in two languages, the longest idle would retire."""
_SETTLE_SECONDS = 2.0
"""Servers warm up, and fork ahead."""


class _Hello(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together; else the kernel holds the second back for 40 ms

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


async def _timed(rounds: int, work: Callable[[], Awaitable[object]]) -> float:
    """Median in milliseconds."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


async def _value(session: Session, source: str, language: Language) -> float:
    result = await session.execute(source, language=language)
    result.raise_for_error()
    assert isinstance(result.value, float | int)
    return result.value


def _own_kilobytes() -> int:
    """Memory of this process's own."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def _opened(corral: Corral, *languages: Language) -> None:
    async with corral.session(context=_ANN, languages=languages or None):
        pass


async def _measure_idle() -> None:
    """Prints what an idle session takes, in the host and in its guests, without guests before and after it had some."""
    typescript, python = DenoSandbox(isolation="fork", pool_size=0), CPythonSandbox(pool_size=0)
    sandboxes: dict[Language, str | SandboxProvider] = {"typescript": typescript, "python": python}
    async with Corral(check=False, sandbox=sandboxes) as corral, AsyncExitStack() as stack:

        async def measured(label: str) -> tuple[Memory, Memory]:
            await asyncio.sleep(_SETTLE_SECONDS)
            gc.collect()
            host, guests = tree_memory(os.getpid())
            if label:
                parts = [each.each(since, _IDLE) for each, since in ((host, before[0]), (guests, before[1]))]
                sizes = ", ".join(f"{part['pss_mb']:.2f} ({part['private_mb']:.2f})" for part in parts)
                processes = parts[1]["processes"]
                print(f"idle, {label:22} host, guests: {sizes} MB Pss (private), {processes:.1f} processes")
            return host, guests

        for language in (*_FILES, *_FILES):  # twice: the servers of no session are then as they stay
            await corral.execute("1", language=language)
            await _opened(corral, language)
            await asyncio.sleep(_SETTLE_SECONDS)
        before = await measured("")
        sessions = [await stack.enter_async_context(corral.session(context=_ANN)) for _ in range(_IDLE)]
        await measured("no guest yet")
        for language, label in (("typescript", "a guest of TypeScript"), ("python", "one of Python too")):
            for session in sessions:
                await session.execute("1", language=language)
            await measured(label)
        pool._MAX_IDLE_SECONDS = 0.0  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        for language in _FILES:
            await corral.execute("1", language=language)
        await measured("guests retired")


async def _measure(rounds: int, url: str) -> None:
    network = Network(allow=[url], exempt_networks=["127.0.0.0/8"], requests=1000)
    policy = EgressPolicy(exempt_networks=["127.0.0.0/8"], ports=[int(url.rpartition(":")[2])], schemes=["http"])
    async with Corral(check=False) as corral, SafeClient(policy) as client:
        for language in _FILES:
            await corral.execute("1", language=language)
        await _opened(corral)
        print(f"open, no guest:            {await _timed(rounds, lambda: _opened(corral)):8.1f} ms")
        for language in _FILES:
            took = await _timed(rounds, partial(_opened, corral, language))
            print(f"open, {language} guest ready: {took:8.1f} ms")
        alone = await _timed(rounds * 5, lambda: client.get(url))
        print(f"request, SafeClient alone: {alone:8.2f} ms")
        async with corral.session(context=_ANN, network=network) as session:
            for language in _FILES:
                files = [await _value(session, _FILES[language], language) for _ in range(rounds)]
                requests = _REQUESTS[language].replace("URL", url)
                asked = [await _value(session, requests, language) for _ in range(rounds)]
                ratio = statistics.median(asked) / alone
                print(f"small file, {language}:   {statistics.median(files):8.1f} µs, written and read")
                print(f"request, {language}:      {statistics.median(asked):8.2f} ms, {ratio:.1f} times SafeClient")
        before = _own_kilobytes(), _descriptors()
        sessions = [corral.session(context=_ANN) for _ in range(20)]
        for each in sessions:
            await each.__aenter__()
        after = _own_kilobytes(), _descriptors()
        kilobytes, descriptors = ((then - now) / 20 for then, now in zip(after, before, strict=True))
        print(f"idle, in this process:     {kilobytes:8.0f} kB, {descriptors:.0f} descriptors")
        for each in sessions:
            await each.__aexit__(None, None, None)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sessions", description="Medians, on this machine as it is.")
    parser.add_argument("--rounds", metavar="N", type=positive, default=9, help="how many rounds (default: 9)")
    rounds: int = parser.parse_args().rounds
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asyncio.run(_measure(rounds, f"http://127.0.0.1:{server.server_port}"))
    server.shutdown()
    asyncio.run(_measure_idle())


if __name__ == "__main__":
    main()
