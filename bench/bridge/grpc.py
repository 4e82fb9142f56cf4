"""Calls over gRPC by grpcio, beside an echo of the same server stack; each side is a process of its own.

`python -m bench.bridge.grpc server` and `... client ADDRESS ECHO TOKEN` are those; `measure_grpc` starts them.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from bench.bridge.server import add
from corral import Corral, ExecutionContext, Limits, tool
from corral.protocols.grpc.bridge import GrpcBridge
from corral.protocols.grpc.methods import CallMessage, CallReply

__all__ = ["measure_grpc"]

_COUNT = 1_000
_SKIPPED = 200
_AT_ONCE = 64


def measure_grpc(rounds: int) -> dict[str, float]:
    """Medians in microseconds of echoes and calls, one after another and 64 at once; and ratios."""
    command = [sys.executable, "-m", "bench.bridge.grpc"]
    found: list[dict[str, float]] = []
    with subprocess.Popen([*command, "server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        addresses = json.loads(server.stdout.readline())
        try:
            for _ in range(rounds):
                done = subprocess.run([*command, "client", *addresses], capture_output=True, check=True, text=True)
                found.append(json.loads(done.stdout))
        finally:
            server.stdin.close()
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


class _Echo(grpc.GenericRpcHandler):
    """Gives back the bytes of any method."""

    def service(self, handler_call_details: Any) -> Any:  # noqa: ARG002
        async def echo(request: bytes, _context: object) -> bytes:
            return request

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(echo)


async def _serve() -> None:
    bridge = GrpcBridge()
    echo = grpc.aio.server(handlers=[_Echo()])
    port = echo.add_insecure_port("127.0.0.1:0")
    await echo.start()
    async with Corral([tool(add)], bridge=["pipe", bridge], limits=Limits(calls=10_000_000)) as corral:
        token = corral.remote.grant(ExecutionContext(user_id="ann")).token()
        print(json.dumps([bridge.address, f"127.0.0.1:{port}", token]), flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await echo.stop(None)


async def _measure(address: str, echo_address: str, token: str) -> None:
    metadata = (("authorization", f"Bearer {token}"),)
    message = CallMessage(tool="add", input=b'{"a":1,"b":2}', tagged=False)
    async with grpc.aio.insecure_channel(address) as channel, grpc.aio.insecure_channel(echo_address) as other:
        method: Any = channel.unary_unary("/corral.v1.Bridge/Call", CallMessage.SerializeToString, CallReply.FromString)
        echo_method: Any = other.unary_unary("/echo", CallMessage.SerializeToString, CallMessage.FromString)

        async def call() -> None:
            assert (await method(message, metadata=metadata)).value == b"3"

        async def echo() -> None:
            await echo_method(message, metadata=metadata)

        for _ in range(_SKIPPED):
            await echo()
            await call()
        times = 2 * _COUNT // _AT_ONCE
        found = {
            "echoes": await _median(lambda: asyncio.gather(*(echo() for _ in range(_AT_ONCE))), times),
            "calls": await _median(lambda: asyncio.gather(*(call() for _ in range(_AT_ONCE))), times),
            "echo": await _median(echo, _COUNT),
            "call": await _median(call, _COUNT),
        }
    print(json.dumps(found))


async def _median(action: Callable[[], Awaitable[object]], times: int) -> float:
    spent: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        await action()
        spent.append((time.perf_counter() - started) * 1e6)
    return statistics.median(spent)


if __name__ == "__main__":
    asyncio.run(_serve() if sys.argv[1] == "server" else _measure(*sys.argv[2:]))
