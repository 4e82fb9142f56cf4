"""Programs in a plain Python see the same values and errors over HTTP as those in Deno and Node."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
import pytest

from corral import Corral, ExecutionContext, Limits, tool
from tests.bridges.http.serving import NO_TLS, Server, approve, tools
from tests.bridges.http.test_clients import CODES, GOOD_TOKENS, INVALID, LIMITS, SCOPES, SEEN, CountedTokens, Tools

PRELUDE = """
import asyncio, datetime, json, math, os, re, sys, time
sys.path.insert(0, os.getcwd())
from corral_tools import ArrayBuffer, connect

url, tokens = os.environ["CORRAL_URL"], json.loads(os.environ["TOKENS"])

def show(value):
    match value:
        case None: return None
        case bool() | str(): return value
        case int(): return value if abs(value) < 2**53 else f"{value}n"
        case float(): return value if math.isfinite(value) and str(value) != "-0.0" else SPECIAL[str(value)]
        case ArrayBuffer(): return f"buffer {','.join(map(str, value))}"
        case bytes(): return f"bytes {','.join(map(str, value))}"
        case list(): return [show(each) for each in value]
        case dict(): return [[name, show(each)] for name, each in value.items()]

SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "-0.0": "-0"}

def failure(error):
    message = re.sub(r"id [0-9a-f]{12}\\)", "id …)", str(error))
    message = re.sub(r"[\\d.]+ (s|minutes?|hours?)$", "…", message)
    return [isinstance(error, Exception), type(error).__name__, error.code, message, (error.retry_after_seconds or 0) > 3000]

seen = {}

async def check(name, call):
    try:
        seen[name] = show(await call)
    except Exception as error:
        seen[name] = failure(error)

async def main():
"""

CHECKS = """
tools = connect(url, tokens["main"]).tools
await check("a value", tools.add(a=1, b=2))
async def wrapped(call):
    return [await call]
await check("undefined", wrapped(tools.nothing()))
await check("a scope that is held", tools.inbox())
await check("a text", tools.echo("größer \\u2028 \\0 😀 \\ud800"))
await check("numbers", tools.echo([math.nan, -math.inf, -0.0, 1e21, 2**64, -1, 2**53 + 1]))
await check("bytes", tools.echo([b"\\1\\2", ArrayBuffer(b"\\3")]))
await check("lookalikes", tools.echo([{"$bytes": "x"}, {"$number": "NaN", "a": 1}, {"$object": {}}]))
epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
await check("collections", tools.echo([{1}, {"a": 1}, epoch, (None,)]))
await check("a name", tools.echo({"__proto__": 1, "constructor": 2}))
await check("approved", tools.pay(euros=7))
await check("scope_denied", tools.send(text="x"))
await check("tool_not_found", tools.ad(a=1))
await check("invalid_arguments", tools.add(a="x", c=1))
await check("tool_error", tools.refuse())
await check("tool_failed", tools.break_down())
await check("approval_denied", tools.pay(euros=70))
await check("output too large", tools.much(bytes=20_000))
await check("input too large", tools.echo("x" * 20_000))
await check("not a value", tools.echo([lambda: 1]))
await check("the first of an hour", tools.quote())
await check("rate_limited", tools.quote())
async def many():
    return len(await asyncio.gather(*(tools.gather(count=100) for _ in range(100))))
await check("many at once", many())
async def ordered():
    order = []
    async def told(call, name):
        await call
        order.append(name)
    slow = asyncio.create_task(told(tools.hold(), "slow"))
    await asyncio.create_task(told(tools.add(a=1, b=2), "fast"))
    await tools.let_go()
    await slow
    return order
await check("a slow and a fast call of one turn", ordered())
async def until_refused():
    while True:
        await tools.add(a=1, b=2)
await check("call_budget_exceeded", until_refused())
"""
OUTSIDE = """
ended = connect(url, tokens["ended"]).tools
await check("before its end", ended.add(a=1, b=2))
running = asyncio.create_task(check("a call that runs at its end", ended.wait()))
await ended.end_execution()
await running
await check("after its end", ended.add(a=1, b=2))
small = connect(url, tokens["small"], max_input_bytes=10_000_000).tools
await check("an input over the host's limit", small.echo("x" * 2000))
await check("an input over all limits", small.echo("x" * 1_200_000))
await check("a token of nobody", connect(url, "x.y.z").tools.add())
"""
RENEWALS = f"""
tools = connect(url, tokens["short"]).tools
while await tools.issued() < {2 * GOOD_TOKENS}:
    time.sleep(0.02)  # the event loop stands still
seen["large"] = [len(await tools.much(bytes=3_000_000)), len(await tools.echo("ü" * 400_000))]
"""


def run(folder: Path, server: Server, source: str, **tokens: str) -> dict[str, Any]:
    """What a program saw. The process has the runtime that the bridge serves and the standard library."""
    (folder / "corral_tools.py").write_text(
        httpx.get(f"{server.url}/corral_tools.py", timeout=30, verify=NO_TLS).text, encoding="utf-8"
    )
    program = f"{PRELUDE}{textwrap.indent(source, '    ')}\nasyncio.run(main())\nprint(json.dumps(seen))\n"
    (folder / "program.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-W", "error", "program.py"],
        env={"CORRAL_URL": server.url, "TOKENS": json.dumps(tokens)},
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


class Outcomes:
    def __init__(self, folder: Path) -> None:
        self.tools = Tools()
        corral = Corral(self.tools.registry(), approve=approve, limits=LIMITS, check=False)
        with Server(corral.remote.asgi_app()) as server:

            def token(user: str, **options: Any) -> str:
                context = ExecutionContext(user_id=user, scopes=SCOPES)
                execution = self.tools.executions[user] = server.do(lambda: corral.remote.grant(context, **options))
                return server.do(execution.token)

            self.checks = run(folder, server, CHECKS, main=token("main"))
            small = token("small", limits=Limits(tool_input_bytes=1000))
            self.outside = run(folder, server, OUTSIDE, ended=token("ended"), small=small)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return Outcomes(tmp_path_factory.mktemp("programs"))


IN_PYTHON: dict[str, Any] = SEEN | {"undefined": [None]}


def test_a_program_sees_values_and_errors(outcomes: Outcomes) -> None:
    seen = dict(outcomes.checks)
    errors = {name: seen.pop(name) for name in CODES}
    assert seen == IN_PYTHON
    assert errors == {name: [True, ANY, code, ANY, name == "rate_limited"] for name, code in CODES.items()}


OUTCOMES: dict[str, Any] = {
    "before its end": 3,
    "a call that runs at its end": [ANY, *INVALID[:3], ANY],
    "after its end": [ANY, *INVALID[:3], ANY],
    "an input over the host's limit": [ANY, "MessageTooLarge", "message_too_large", ANY, ANY],
    "an input over all limits": [ANY, "MessageTooLarge", "message_too_large", ANY, ANY],
    "a token of nobody": [ANY, *INVALID[:2], "the token is malformed", ANY],
}


def test_outside_of_a_sandbox(outcomes: Outcomes) -> None:
    assert outcomes.outside == OUTCOMES


def test_the_tool_of_a_call_that_ran_at_the_end_was_cancelled(outcomes: Outcomes) -> None:
    assert outcomes.tools.cancelled["ended"] == 1


@pytest.mark.matrix("guest/test_http_runtime_python.py has such a program in the gate; here a whole server")
def test_a_program_that_computes_outlives_its_tokens(tmp_path: Path) -> None:
    counted = CountedTokens()

    @tool
    async def issued(*, context: ExecutionContext) -> int:
        """Tokens so far."""
        return len(counted.issued[context.user_id])

    corral = Corral([*tools(), issued], tokens=counted, limits=Limits(calls=100_000), check=False)
    with Server(corral.remote.asgi_app()) as server:
        execution = server.do(lambda: corral.remote.grant(ExecutionContext(user_id="ada")))
        seen = run(tmp_path, server, RENEWALS, short=execution.token())
    assert seen["large"] == [3_000_000, 400_000]
