"""`python -m bench.policy`: what a policy adds to a call, in processor time of the guards, without an engine.

Each case is a pipeline with the same tool; the cases take turns, and the minimum of the rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from typing import Any

from bench.host import describe_host
from corral import ExecutionContext, Limits, define_tool
from corral.calls import Call, Grant, Grants, GuardSettings, RateLimits, pipeline
from corral.policy import Policy
from corral.policy.flow import DataFlow
from corral.tools import ToolRegistry
from corral.types import CallRequest, References

__all__ = ["main"]

_INPUT = {"amount": 3, "to": "ann@acme.com", "note": "the usual"}
_MEMBERS = {"amount": {"type": "number"}, "to": {"type": "string"}, "note": {"type": "string"}}
_SCHEMA = {"type": "object", "properties": _MEMBERS}


def _rules(count: int, tools: str, condition: str, do: str = "deny") -> str:
    rules = [
        f'[[rule]]\nid = "r{number}"\ntools = ["{tools.format(number, number % 20)}"]\ndo = "{do}"\n'
        + condition.replace("N", str(500 + number))
        for number in range(count)
    ]
    return "\n".join(['default = "allow"', *rules, "[end]"])


_CONDITION = "unless = { amount = { maximum = N } }"
_PATTERN = "{ to = { pattern = '^evilN@' } }"
_TWO = "unless = { amount = { maximum = N }, to = { pattern = '^[^@]+@' } }"
_CASES = {
    "no policy": None,
    "one rule, of another tool": _rules(1, "other", _CONDITION),
    "one rule with a condition": _rules(1, "ns3.tool143", _CONDITION),
    "200 rules, one about the tool": _rules(200, "ns{1}.tool{0}*", _CONDITION),
    "200 rules, ten about the tool": _rules(200, "ns{1}.*", _CONDITION),
    "200 on one tool, bounds": _rules(200, "**", _CONDITION),
    "200 on one tool, patterns in when": _rules(200, "**", f"when = {_PATTERN}"),
    "200 on one tool, patterns in unless": _rules(200, "**", f"unless = {_PATTERN.replace('^evilN', '^[^N]+')}"),
    "200 on one tool, two fields": _rules(200, "**", _TWO),
    "200 on one tool, when and unless": _rules(200, "**", f"when = {_PATTERN}\n{_CONDITION}"),
    "200 on one tool, one matches": _rules(200, "**", "when = { amount = { minimum = N } }", "allow").replace(
        "500", "3"
    ),
    "200 on one tool, all match": _rules(200, "**", "when = { amount = { maximum = N } }", "allow"),
    "labels": '[[label]]\ntools = ["**"]\nuntrusted = false\nsends = ["to"]\nchanges = true\n[end]',
}
_SEEN = " ".join(f"word{number}@example.com" for number in range(11_000))[:250_000] + " ann@acme.com, the usual"
"""Text of a person, about as long as the longest that a session keeps."""


async def _run(input: Any) -> int:  # noqa: ARG001
    return 1


class _Case:
    def __init__(self, name: str, text: str | None) -> None:
        self.name = name
        grants = Grants(lambda: None)  # pyright: ignore[reportArgumentType] - no tokens
        policy = None if text is None else Policy(texts=[text])
        self.flow = None if policy is None else DataFlow(policy)
        self.handler = pipeline(GuardSettings(grants=grants, rates=RateLimits(), policy=policy, flow=self.flow))
        tool = define_tool(name="tool143", namespace="ns3", input_schema=_SCHEMA, execute=_run)
        limits = Limits(calls=1_000_000_000)
        self.grant = Grant(context=ExecutionContext(scopes=["a"]), limits=limits, tools=ToolRegistry(tool))
        grants.open(self.grant)
        self.best = self.reading = float("inf")

    async def measure(self, calls: int) -> None:
        request = CallRequest("ns3.tool143", _INPUT, 1, size=60)
        if self.flow is not None:
            self.grant.flow = self.flow.begin(self.grant.context, "return 1", [_SEEN], continues=True)
            if self.grant.flow is not None:
                self.grant.flow.references = References()
                started = time.process_time()
                self.grant.flow.read_texts()  # once for each new text
                self.reading = min(self.reading, (time.process_time() - started) * 1e3)
        started = time.process_time()
        for _ in range(calls):
            reply = await self.handler(Call(request, self.grant))
            assert reply.error is None
        self.best = min(self.best, (time.process_time() - started) / calls * 1e6)


async def _measured(rounds: int, calls: int) -> list[_Case]:
    cases = [_Case(name, text) for name, text in _CASES.items()]
    for _ in range(rounds):
        for case in cases:
            await case.measure(calls)
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.policy", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=500)
    arguments = parser.parse_args()
    cases = asyncio.run(_measured(arguments.rounds, arguments.calls))
    print(describe_host(uvloop=False), f"load {os.getloadavg()[0]:.1f}")
    for case in cases:
        print(f"{case.name:36} {case.best:8.1f} us  +{case.best - cases[0].best:7.1f}")
    print(f"reading {len(_SEEN)} characters of a person's text, once: {cases[-1].reading:.1f} ms")


if __name__ == "__main__":
    main()
