"""Calls over HTTP and the protocols on it from plain Deno processes: beside an echo, and from many executions."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copy

import deno

from corral.plugins import load_by_name

__all__ = ["measure_latency", "measure_load"]

_CLIENT = Path(__file__).with_name("client.js")
_CALLS = 1_000


@contextmanager
def _server(protocol: str) -> Generator[tuple[str, list[str]]]:
    """A server of its own process: its address, and a token for each execution."""
    command = [sys.executable, "-m", "bench.bridge.server", protocol]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        announced = json.loads(process.stdout.readline())
        try:
            yield announced["url"], announced["tokens"]
        finally:
            process.stdin.close()


def _prepared(directory: Path, protocol: str) -> Path:
    runtime = load_by_name("corral.bridges", protocol).guest_runtime("typescript")
    (directory / "corral.mjs").write_text(runtime, encoding="utf-8")
    return Path(copy(_CLIENT, directory / "client.mjs"))


def _client(script: Path, mode: str, url: str, token: str) -> subprocess.Popen[str]:
    environment: Mapping[str, str] = {
        **os.environ,
        "CORRAL_URL": url,
        "CORRAL_TOKEN": token,
        "DENO_NO_UPDATE_CHECK": "1",
    }
    return subprocess.Popen(
        [deno.find_deno_bin(), "run", "--quiet", "--no-config", "-A", str(script), mode, str(_CALLS)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def measure_latency(rounds: int, directory: Path, protocol: str = "http") -> dict[str, float]:
    """Medians in microseconds of echoes and calls from one program, one after another and 64 at once; and ratios."""
    script = _prepared(directory, protocol)
    found: list[dict[str, float]] = []
    with _server(protocol) as (url, tokens):
        for _ in range(rounds):
            with _client(script, "latency", url, tokens[0]) as client:
                found.append(json.loads(client.communicate()[0]))
    echo, call, echoes, calls = (
        statistics.median(each[name] for each in found) for name in ("echo", "call", "echoes", "calls")
    )
    return {
        "echo": echo,
        "call": call,
        "ratio": call / echo,
        "64 echoes": echoes,
        "64 calls": calls,
        "ratio of 64": calls / echoes,
    }


def measure_load(rounds: int, directory: Path) -> dict[str, float]:
    """The median of calls a second that one server answers to as many processes as it has executions."""
    script = _prepared(directory, "http")
    rates: list[float] = []
    with _server("http") as (url, tokens):
        for _ in range(rounds):
            with ExitStack() as stack:
                clients = [stack.enter_context(_client(script, "load", url, token)) for token in tokens]
                for client in clients:
                    assert client.stdout is not None
                    assert client.stdout.readline() == "ready\n"
                started = time.perf_counter()
                for client in clients:
                    assert client.stdin is not None
                    client.stdin.write("\n")
                    client.stdin.flush()
                for client in clients:
                    assert client.stdout is not None
                    assert client.stdout.readline() == "done\n"
                rates.append(len(clients) * _CALLS / (time.perf_counter() - started))
    return {"executions": float(len(tokens)), "calls a second": statistics.median(rates)}
