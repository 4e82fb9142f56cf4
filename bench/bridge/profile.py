"""`python -m bench.bridge.profile http|graphql|trpc|connect`: where the processor time of a call goes in an app.

The app is driven without a server and without sockets. cProfile says how the time is divided, and runs without it how
much that is. What a built-in function takes counts for its caller. gRPC's server is in C and has no app; `connect`
serves the same methods.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import Any, TypeAlias

from bench.bridge.server import BRIDGES, add
from corral import Corral, ExecutionContext, Limits, tool
from corral.bridges import ASGIApp
from corral.guest.python.values import encode

_STAGES: Mapping[str, re.Pattern[str]] = {
    stage: re.compile(pattern)
    for stage, pattern in {
        "token and headers": r"request_filter\.py:(__init__|token|length|is_json|of)$|bridge\.py:grant_of|"
        r"(tokens|grants)\.py:(find|verify)",
        "guards of the request": r"request_(filter|watch|load)\.py:(?!parse_json)|/asyncio/|/anyio/",
        "guards of the call": r"/bridges/(?!web/|http/|graphql/|trpc/|connect/|grpc/)",
        "tool and validation": r"/corral/(tools|json_schema)/|bench/bridge/server\.py",
        "encoding": r"/corral/guest/",
        "framing": r"/corral/bridges/|/graphql/|/starlette/|/protobuf/",
    }.items()
}
"""Stages by the functions in them, as `file:function`; the first that fits counts."""
_REST = "the rest"
_SKIPPED = 500

Call: TypeAlias = Callable[[], Awaitable[None]]
"""Makes one call. Each has a number of its own: for one that came before, the remembered reply would be sent."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bridge.profile", description=__doc__)
    parser.add_argument("protocol", choices=sorted(BRIDGES))
    parser.add_argument("--calls", type=int, default=3_000, help="calls of a round (default: 3,000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the median is printed (default: 5)")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="print the N functions that take most")
    arguments = parser.parse_args()
    total, profile = asyncio.run(_measure(arguments.protocol, arguments.calls, arguments.rounds))
    if arguments.functions:
        pstats.Stats(profile).sort_stats("tottime").print_stats(arguments.functions)
    print(f"{arguments.protocol}: {total:.1f} us of processor time a call")
    for stage, share in _shares(profile).items():
        print(f"  {stage:22} {share * total:6.1f} us  {share:4.0%}")


async def _measure(protocol: str, calls: int, rounds: int) -> tuple[float, cProfile.Profile]:
    """Returns microseconds a call without the profiler, and the profile of as many calls."""
    corral = Corral([tool(add)], limits=Limits(calls=10_000_000))
    make, path = BRIDGES[protocol]
    with corral.remote.grant(ExecutionContext(user_id="ann")) as execution:
        request = _requests(corral.remote.asgi_app(make()), protocol, path, execution.token())
        made = 0

        async def run(count: int, profile: cProfile.Profile | None = None) -> float:
            """Makes calls; returns the microseconds of one."""
            nonlocal made
            requests = [request(number) for number in range(made + 1, made + count + 1)]
            made += count
            started = time.process_time()
            with profile or nullcontext():
                for each in requests:
                    await each()
            return (time.process_time() - started) * 1e6 / count

        await run(_SKIPPED)
        spent = [await run(calls) for _ in range(rounds)]
        profile = cProfile.Profile()
        await run(calls, profile)
    await corral.aclose()
    return statistics.median(spent), profile


def _requests(app: ASGIApp, protocol: str, path: str, token: str) -> Callable[[int], Call]:
    """Prepares calls as the runtime for Python makes them, and as an ASGI server passes them on."""
    module: Any = import_module(f"corral.guest.python.transports.{protocol}")
    transport: Any = getattr(module, f"_{protocol.capitalize()}Transport")()
    input = encode({"a": 1, "b": 2}, "input", 1_000, plain=True)

    def prepare(number: int) -> Call:
        request = transport.request([transport.encode(number, '"add"', input)])
        place, _, query = f"{path}{request.path}".partition("?")
        headers = {
            "host": "127.0.0.1",
            "accept-encoding": "identity",
            "content-length": str(len(request.body)),
            "authorization": f"Bearer {token}",
            "content-type": request.content_type,
        }
        scope = {
            "type": "http",
            "method": "POST",
            "path": place,
            "raw_path": place.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        message = {"type": "http.request", "body": request.body, "more_body": False}
        sent: list[bytes] = []

        async def receive() -> dict[str, Any]:
            return message

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        async def call() -> None:
            await app(scope, receive, send)
            if number == 1:
                reader = transport.reader([1], 1_000)
                assert [*reader.feed(b"".join(sent)), *reader.end()] == [(1, None, 3)]

        return call

    return prepare


def _shares(profile: cProfile.Profile) -> dict[str, float]:
    """Shares of the stages in the time of all of them. The benchmark's own functions are left out."""
    found = dict.fromkeys((*_STAGES, _REST), 0.0)
    stats: Any = pstats.Stats(profile)
    for function, (_, _, seconds, _, callers) in stats.stats.items():
        if function[0] != "~":
            _count(found, function, seconds)
        else:
            for caller, (_, _, each, _) in callers.items():
                _count(found, caller, each)
    total = sum(found.values())
    return {stage: seconds / total for stage, seconds in found.items()}


def _count(found: dict[str, float], function: tuple[str, int, str], seconds: float) -> None:
    file, _, name = function
    if file in (__file__, "~"):
        return
    place = f"{file}:{name}"
    stage = next((stage for stage, pattern in _STAGES.items() if pattern.search(place)), _REST)
    found[stage] += seconds


if __name__ == "__main__":
    main()
