"""Programs in plain Deno and plain Node see the same values and errors as over the pipe, and the statuses of HTTP."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import anyio
import pytest

from corral import Corral, ExecutionContext, Limits, define_tool, tool
from corral.calls import RemoteExecution
from corral.calls.tokens import Claims, ExecutionTokens, KeyRing
from corral.errors import InvalidToken
from corral.guest import ArrayBuffer
from corral.tools import ToolRegistry
from tests.bridges.http.engines import ENGINES, run_elsewhere
from tests.bridges.http.serving import Server, approve, tools

HERE = Path(__file__).parent
CHECKS = (HERE / "checks.js").read_text(encoding="utf-8")
OUTSIDE = (HERE / "outside.js").read_text(encoding="utf-8")
GOOD_TOKENS = 4
RENEWALS = f"""
while ((await tools.issued()) < {2 * GOOD_TOKENS}) await tools.nap({{ seconds: 0.02 }});
return await tools.add({{ a: 1, b: 2 }});
"""
VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (HERE.parents[1] / "guest" / "vectors.json").read_text(encoding="utf-8")
)
LIMITS = Limits(calls=300, tool_input_bytes=10_000, tool_output_bytes=10_000)
SCOPES = {"mail:read"}


class Tools:
    """The tools of all programs; what one execution does is kept apart by its user."""

    def __init__(self) -> None:
        self.taken: defaultdict[str, list[str]] = defaultdict(list)
        self.executions: dict[str, RemoteExecution] = {}
        self.cancelled: Counter[str] = Counter()
        self._events: defaultdict[tuple[str, str], anyio.Event] = defaultdict(anyio.Event)
        self._gathered: Counter[str] = Counter()

    def registry(self) -> ToolRegistry:
        @tool
        async def nothing() -> None: ...

        @tool
        async def gather(count: int, *, context: ExecutionContext) -> None:
            """Returns when so many calls wait here at once."""
            self._gathered[context.user_id] += 1
            event = self._events[context.user_id, "gathered"]
            if self._gathered[context.user_id] == count:
                event.set()
            await event.wait()

        @tool
        async def hold(*, context: ExecutionContext) -> None:
            await self._events[context.user_id, "held"].wait()

        @tool
        async def let_go(*, context: ExecutionContext) -> None:
            self._events[context.user_id, "held"].set()

        @tool
        async def wait(*, context: ExecutionContext) -> None:
            try:
                self._events[context.user_id, "waits"].set()
                await anyio.sleep_forever()
            finally:
                self.cancelled[context.user_id] += 1

        @tool
        async def end_execution(*, context: ExecutionContext) -> None:
            await self._events[context.user_id, "waits"].wait()
            self.executions[context.user_id].end()

        @tool
        async def binary() -> list[Any]:
            return [b"\1\2", float("nan"), 2**64]

        @tool(namespace="maths")
        async def twice(number: int) -> int:
            return 2 * number

        async def take(input: Any, context: ExecutionContext) -> None:
            self.taken[context.user_id].append(repr(input["value"]))

        async def vector(input: dict[str, int]) -> Any:
            value = eval(VECTORS["from_host"][input["index"]]["python"], {"ArrayBuffer": ArrayBuffer})  # noqa: S307
            return [value]  # None alone would be undefined

        return ToolRegistry(
            *tools(), nothing, gather, hold, let_go, wait, end_execution, binary, twice,
            define_tool(name="take", execute=take), define_tool(name="vector", execute=vector),
        )  # fmt: skip


def vectors() -> str:
    """The golden values of the codec, both ways."""
    checks = ", ".join(f"([value]) => {vector['check']}" for vector in VECTORS["from_host"])
    values = ", ".join(f"() => {vector['javascript']}" for vector in VECTORS["from_guest"])
    return f"""
    const right = [];
    for (const [index, check] of [{checks}].entries()) right.push(check(await tools.vector({{ index }})));
    for (const value of [{values}]) await tools.take({{ value: value() }});
    return right;
    """


class Outcomes:
    """What each way of running the programs came to, by its name: "pipe", "deno", "node"."""

    def __init__(self, folder: Path) -> None:
        self.tools = Tools()
        self.corral = Corral(self.tools.registry(), approve=approve, limits=LIMITS, check=False)
        self.checks: dict[str, dict[str, Any]] = {}
        self.vectors: dict[str, list[bool]] = {}
        self.outside: dict[str, dict[str, Any]] = {}
        with Server(self.corral.remote.asgi_app()) as self._server, ThreadPoolExecutor(2) as threads:
            list(threads.map(self._run, ENGINES, [folder] * len(ENGINES)))
        with Corral(self.tools.registry(), approve=approve, limits=LIMITS, check=False) as piped:
            context = ExecutionContext(user_id="pipe", scopes=SCOPES)
            self.checks["pipe"] = piped.sync.execute(CHECKS, context=context).raise_for_error().value
            self.vectors["pipe"] = piped.sync.execute(vectors(), context=context).raise_for_error().value

    def _token(self, user: str, **options: Any) -> str:
        """A token of an execution of its own."""
        context = ExecutionContext(user_id=user, scopes=SCOPES)
        execution = self._server.do(lambda: self.corral.remote.grant(context, **options))
        self.tools.executions[user] = execution
        return self._server.do(execution.token)

    def _run(self, engine: str, folder: Path) -> None:
        url = self._server.url
        self.checks[engine] = run_elsewhere(engine, folder, url, {"main": self._token(engine)}, CHECKS)
        self.vectors[engine] = run_elsewhere(engine, folder, url, {"main": self._token(engine)}, vectors())
        tokens = {
            "plain": self._token(f"{engine} plain"),
            "ended": self._token(f"{engine} ended"),
            "small": self._token(f"{engine} small", limits=Limits(tool_input_bytes=1000)),
            "one": self._token(f"{engine} one", limits=Limits(calls=1)),
            "once": self._server.do(
                lambda: self.corral.remote.token(ExecutionContext(user_id="once"), ttl_seconds=100)
            ),
        }
        self.outside[engine] = run_elsewhere(engine, folder, url, tokens, OUTSIDE)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return Outcomes(tmp_path_factory.mktemp("programs"))


def error(name: str, code: str, message: str, *, retry: bool = False) -> list[object]:
    return [True, name, code, message, retry]


SEEN: dict[str, Any] = {
    "a value": 3,
    "undefined": ["undefined"],
    "a scope that is held": ["Lunch?"],
    "a text": "größer \u2028 \0 \U0001f600 \ufffd",
    "numbers": ["NaN", "-Infinity", "-0", 1e21, "18446744073709551616n", -1, "9007199254740993n"],
    "bytes": ["bytes 1,2", "buffer 3"],
    "lookalikes": [[["$bytes", "x"]], [["$number", "NaN"], ["a", 1]], [["$object", []]]],
    "collections": [[1], [["a", 1]], "1970-01-01T00:00:00.000Z", [None]],
    "a name": [["__proto__", 1], ["constructor", 2]],
    "approved": 7,
    "scope_denied": error("ScopeDenied", "scope_denied", "tools.send needs the scope mail:send"),
    "tool_not_found": error("ToolNotFound", "tool_not_found", 'no tool "ad"; did you mean add?'),
    "invalid_arguments": error(
        "InvalidArguments",
        "invalid_arguments",
        'tool "add": 3 problems: a: expected integer, got string "x"; b: field required; c: unexpected field',
    ),
    "tool_error": error("ToolError", "tool_error", "größer\nnot today"),
    "tool_failed": error("ToolFailed", "tool_failed", "tools.break_down failed (correlation id …)"),
    "approval_denied": error("ApprovalDenied", "approval_denied", "tools.pay was not approved"),
    "the first of an hour": 1,
    "many at once": 100,
    "a slow and a fast call of one turn": ["fast", "slow"],
}
CODES = {
    "output too large": "message_too_large",
    "input too large": "message_too_large",
    "not a value": "invalid_arguments",
    "rate_limited": "rate_limited",
    "call_budget_exceeded": "call_budget_exceeded",
}
FOUND_BY_THE_GUEST = {"input too large", "call_budget_exceeded"}
"""In a sandbox the guest knows the limits and says these itself, in other words."""


@pytest.mark.parametrize("way", ["pipe", *ENGINES])
def test_a_program_sees_values_and_errors(way: str, outcomes: Outcomes) -> None:
    seen = dict(outcomes.checks[way])
    errors = {name: seen.pop(name) for name in CODES}
    assert seen == SEEN
    assert errors == {name: [True, ANY, code, ANY, name == "rate_limited"] for name, code in CODES.items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_all_is_the_same_as_over_the_pipe(engine: str, outcomes: Outcomes) -> None:
    seen, over_the_pipe = outcomes.checks[engine], outcomes.checks["pipe"]
    assert {name for name in over_the_pipe if seen[name] != over_the_pipe[name]} == FOUND_BY_THE_GUEST
    assert seen.keys() == {*SEEN, *CODES}


@pytest.mark.parametrize("way", ["pipe", *ENGINES])
def test_the_golden_values_travel_both_ways(way: str, outcomes: Outcomes) -> None:
    assert outcomes.vectors[way] == [True] * len(VECTORS["from_host"])
    assert outcomes.tools.taken[way] == [repr(eval(each["python"])) for each in VECTORS["from_guest"]]  # noqa: S307


INVALID = ["InvalidToken", "invalid_token", "the execution of this token has ended", None]
OUTCOMES: dict[str, Any] = {
    "before its end": 3,
    "a call that runs at its end": INVALID,
    "after its end": INVALID,
    "an input over the host's limit": "message_too_large",
    "an input over all limits": "message_too_large",
    "a token of nobody": [*INVALID[:2], "the token is malformed", None],
    "a token that is not renewed": 3,
    "fetch: a value": [200, 3, None],
    "fetch: without a body": [200, ["Lunch?"], None],
    "fetch: bytes and numbers": [200, ["AQI=", None, 18446744073709552000], None],
    "fetch: nothing": [200, None, None],
    "fetch: tags are plain data": [200, {"$bytes": "AQI="}, None],
    "fetch: a namespace": [200, 8, None],
    "fetch: invalid_arguments": [422, "invalid_arguments", None],
    "fetch: not JSON": [400, "malformed_message", None],
    "fetch: tool_not_found": [404, "tool_not_found", None],
    "fetch: tool_error": [422, "tool_error", None],
    "fetch: tool_failed": [502, "tool_failed", None],
    "fetch: scope_denied": [403, "scope_denied", None],
    "fetch: approval_denied": [403, "approval_denied", None],
    "fetch: the first of an hour": [200, 1, None],
    "fetch: rate_limited": [429, "rate_limited", "3600"],
    "fetch: message_too_large": [413, "message_too_large", None],
    "fetch: invalid_token": [401, "invalid_token", None],
    "fetch: call_budget_exceeded": [429, "call_budget_exceeded", None],
    "fetch: a fresh token": [200, True, [200, 3, None]],
    "fetch: a token that is not renewed": [403, "access_denied", None],
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_outside_of_a_sandbox(engine: str, outcomes: Outcomes) -> None:
    assert outcomes.outside[engine] == OUTCOMES


@pytest.mark.parametrize("engine", ENGINES)
def test_the_tool_of_a_call_that_ran_at_the_end_was_cancelled(engine: str, outcomes: Outcomes) -> None:
    assert outcomes.tools.cancelled[f"{engine} ended"] == 1


class CountedTokens(ExecutionTokens):
    """Tokens that are counted, and of which the last ones of each user are good.

    By the clocks of programs, which are ahead of the host's, they are over: programs renew them as often as they may.
    """

    def __init__(self) -> None:
        earlier = time.time() - 10
        super().__init__(KeyRing.generate(clock=lambda: earlier), ttl_seconds=1)
        self.issued: defaultdict[str, list[str]] = defaultdict(list)

    def issue(
        self,
        execution_id: str,
        context: ExecutionContext,
        *,
        ttl_seconds: float | None = None,
        host: str | None = None,
    ) -> str:
        self.issued[context.user_id].append(super().issue(execution_id, context, ttl_seconds=ttl_seconds, host=host))
        return self.issued[context.user_id][-1]

    def verify(self, token: str) -> Claims:
        claims = super().verify(token)
        if token not in self.issued[claims.user_id][-GOOD_TOKENS:]:
            raise InvalidToken("it is an old one")
        return claims


@pytest.mark.matrix("guest/test_http_runtime.py renews tokens in the gate; here a whole program outlives them")
def test_a_program_outlives_its_tokens(tmp_path: Path) -> None:
    counted = CountedTokens()

    @tool
    async def issued(*, context: ExecutionContext) -> int:
        """Tokens so far."""
        return len(counted.issued[context.user_id])

    corral = Corral([*tools(), issued], tokens=counted, limits=Limits(calls=100_000), check=False)

    def run(engine: str) -> object:
        execution = server.do(lambda: corral.remote.grant(ExecutionContext(user_id=engine)))
        return run_elsewhere(engine, tmp_path, server.url, {"short": execution.token()}, RENEWALS)

    with Server(corral.remote.asgi_app()) as server, ThreadPoolExecutor(2) as threads:
        assert list(threads.map(run, ENGINES)) == [3, 3]
    for tokens in counted.issued.values():
        with pytest.raises(InvalidToken, match="it is an old one"):
            counted.verify(tokens[0])
