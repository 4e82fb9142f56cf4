"""Every way in which the guards refuse a call.

Each check is filed under the guard that it is for. It makes one call that must be refused, and says what is wrong, or
None. `test_guards_removed.py` runs all of them with all guards, and with each guard missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from corral import AuditLog, ExecutionContext, Limits, RateLimits, tool
from corral.audit import AuditEvent, AuditSink
from corral.calls import Call, Grant, Grants, GuardSettings, Handler, pipeline
from corral.calls.tokens import ExecutionTokens, Key, KeyRing
from corral.policy import Policy
from corral.policy.flow import DataFlow
from corral.tools import ToolRegistry
from corral.types import CallRequest, Reply

__all__ = ["DENIALS", "checks_that_fail"]

SECRET = "0123456789abcdef0123456789abcdef"
RAN: list[str] = []


@tool(scopes={"a", "b"})
async def all_of() -> None:
    RAN.append("all_of")


@tool(any_scope={"a", "b"})
async def any_of() -> None:
    RAN.append("any_of")


@tool
async def plain(number: int = 1) -> None:
    RAN.append("plain")


@tool(rate_limit="1/day")
async def rare() -> None:
    RAN.append("rare")


@tool(needs_approval=True)
async def gated() -> None:
    RAN.append("gated")


def _is_much(input: dict[str, float], context: ExecutionContext) -> bool:
    return input["euros"] > 5


@tool(needs_approval=_is_much)
async def pay(euros: float) -> None:
    RAN.append("pay")


@tool
async def large() -> str:
    return "x" * 5000


TOOLS = ToolRegistry(all_of, any_of, plain, rare, gated, pay, large)


class Sink(AuditSink):
    """Keeps events in memory, or fails."""

    def __init__(self, *, fails: bool = False) -> None:
        self.events: list[AuditEvent] = []
        self._fails = fails

    def write(self, events: Sequence[AuditEvent]) -> None:
        if self._fails:
            raise OSError("no space left")
        self.events += events


@dataclass(kw_only=True)
class World:
    """One Corral's guards, and one execution's grant."""

    keys: KeyRing = field(default_factory=lambda: KeyRing(Key("k1", SECRET)))
    rates: RateLimits = field(default_factory=RateLimits)
    approve: Any = None
    policy: Policy | None = None
    flow: DataFlow | None = None
    audit: AuditLog | None = None
    limits: Limits = field(default_factory=Limits)
    context: ExecutionContext = field(
        default_factory=lambda: ExecutionContext(user_id="u", organization_id="o", session_id="s")
    )

    def __post_init__(self) -> None:
        self.tokens = ExecutionTokens(self.keys)
        self.grants = Grants(lambda: self.tokens)
        self.handler: Handler = pipeline(
            GuardSettings(
                grants=self.grants,
                rates=self.rates,
                approve=self.approve,
                policy=self.policy,
                flow=self.flow,
                approval_seconds=0.01,
                audit=self.audit,
            )
        )
        self.grant = self.granted(self.context)

    def granted(self, context: ExecutionContext) -> Grant:
        grant = Grant(context=context, limits=self.limits, tools=TOOLS)
        self.grants.open(grant)
        return grant

    async def call(self, name: str, input: object = None, *, grant: Grant | None = None) -> Reply:
        return await self.handler(Call(CallRequest(name, {} if input is None else input, 1), grant or self.grant))

    async def call_with(self, token: str | None) -> Reply:
        return await self.handler(Call(CallRequest("plain", {}, 1), protocol="http", token=token))


def refused(reply: Reply, code: str, ran: str | None = None) -> str | None:
    """What is wrong with a reply that should be a refusal, and with a tool that should not have run."""
    if reply.error is None:
        return "the call was answered"
    if reply.error.code != code:
        return f"the call failed with {reply.error.code}: {reply.error.message}"
    return f"{ran} ran" if ran in RAN else None


Check = Callable[[], Awaitable[str | None]]
DENIALS: dict[str, list[Check]] = {}


def of(guard: str) -> Callable[[Check], Check]:
    """Files a check under the guard that it is for."""

    def file(check: Check) -> Check:
        DENIALS.setdefault(guard, []).append(check)
        return check

    return file


# --- authenticate


@of("authenticate")
async def a_call_without_a_token() -> str | None:
    return refused(await World().call_with(None), "invalid_token", "plain")


@of("authenticate")
async def a_call_with_garbage_for_a_token() -> str | None:
    return refused(await World().call_with("garbage"), "invalid_token", "plain")


@of("authenticate")
async def a_token_signed_with_another_key() -> str | None:
    world = World()
    forged = ExecutionTokens(KeyRing(Key("k1", SECRET.upper()))).issue(world.grant.execution_id, world.context)
    return refused(await world.call_with(forged), "invalid_token", "plain")


@of("authenticate")
async def a_token_for_another_audience() -> str | None:
    world = World()
    other = ExecutionTokens(world.keys, audience="elsewhere").issue(world.grant.execution_id, world.context)
    return refused(await world.call_with(other), "invalid_token", "plain")


@of("authenticate")
async def a_token_whose_execution_has_ended() -> str | None:
    world = World()
    token = world.grants.issue(world.grant)
    world.grants.close(world.grant)
    return refused(await world.call_with(token), "invalid_token", "plain")


@of("authenticate")
async def a_token_of_another_organization_for_this_execution() -> str | None:
    world = World()
    theirs = ExecutionContext(user_id="u", organization_id="theirs", session_id="s")
    return refused(
        await world.call_with(world.tokens.issue(world.grant.execution_id, theirs)), "invalid_token", "plain"
    )


@of("authenticate")
async def a_token_with_more_scopes_than_its_execution() -> str | None:
    world = World()
    more = world.context.model_copy(update={"scopes": frozenset({"a", "b"})})
    return refused(await world.call_with(world.tokens.issue(world.grant.execution_id, more)), "invalid_token", "plain")


@of("authenticate")
async def a_call_over_the_pipe_of_an_execution_that_has_ended() -> str | None:
    world = World()
    world.grants.close(world.grant)
    wrong = refused(await world.call("plain"), "execution_ended", "plain")
    return wrong or ("it got as far as being counted" if world.grant.calls else None)


# --- authorize


@of("authorize")
async def one_of_two_scopes_that_are_both_needed() -> str | None:
    world = World(context=ExecutionContext(scopes={"a"}))
    return refused(await world.call("all_of"), "scope_denied", "all_of")


@of("authorize")
async def none_of_two_scopes_of_which_one_is_needed() -> str | None:
    return refused(await World(context=ExecutionContext(scopes={"c"})).call("any_of"), "scope_denied", "any_of")


# --- policy


def _rule(text: str) -> Policy:
    return Policy(texts=[f'[[rule]]\nid = "r"\ntools = ["plain"]\n{text}\n[end]'])


@of("enforce_policy")
async def a_call_that_a_rule_denies() -> str | None:
    return refused(await World(policy=_rule('do = "deny"')).call("plain"), "policy_denied", "plain")


@of("enforce_policy")
async def a_call_that_no_rule_allows() -> str | None:
    return refused(await World(policy=_rule('do = "allow"')).call("large"), "policy_denied")


@of("enforce_policy")
async def a_call_about_which_nobody_can_be_asked() -> str | None:
    return refused(await World(policy=_rule('do = "ask"')).call("plain"), "approval_denied", "plain")


@of("enforce_policy")
async def a_call_over_the_rate_of_a_rule() -> str | None:
    world = World(policy=_rule('do = "limit"\nlimit = "1/day"'))
    await world.call("plain")
    RAN.clear()
    return refused(await world.call("plain"), "rate_limited", "plain")


# --- limit


@of("limit_calls")
async def a_call_over_the_budget() -> str | None:
    world = World(limits=Limits(calls=1))
    await world.call("plain")
    RAN.clear()
    return refused(await world.call("plain"), "call_budget_exceeded", "plain")


@of("limit_rates")
async def a_call_over_the_rate_of_its_tool() -> str | None:
    world = World()
    await world.call("rare")
    RAN.clear()
    return refused(await world.call("rare"), "rate_limited", "rare")


async def _second(rates: RateLimits, again: ExecutionContext) -> str | None:
    world = World(rates=rates)
    await world.call("plain")
    RAN.clear()
    return refused(await world.call("plain", grant=world.granted(again)), "rate_limited", "plain")


@of("limit_rates")
async def a_call_over_the_rate_of_its_user() -> str | None:
    same = ExecutionContext(user_id="u", organization_id="o")
    return await _second(RateLimits(user="1/day"), same)


@of("limit_rates")
async def a_call_over_the_rate_of_its_organization() -> str | None:
    colleague = ExecutionContext(user_id="colleague", organization_id="o")
    return await _second(RateLimits(organization="1/day"), colleague)


@of("limit_rates")
async def a_call_over_the_rate_of_everyone() -> str | None:
    stranger = ExecutionContext(user_id="stranger", organization_id="theirs")
    return await _second(RateLimits(everyone="1/day"), stranger)


# --- validate


@of("validate_input")
async def an_input_that_does_not_fit_the_schema() -> str | None:
    return refused(await World().call("plain", {"number": "many"}), "invalid_arguments", "plain")


# --- approve


@of("require_approval")
async def a_call_that_nobody_can_be_asked_about() -> str | None:
    return refused(await World().call("gated"), "approval_denied", "gated")


@of("require_approval")
async def a_call_that_was_not_approved() -> str | None:
    def approve(_: object) -> bool:
        return False

    return refused(await World(approve=approve).call("gated"), "approval_denied", "gated")


@of("require_approval")
async def a_call_for_which_no_answer_came_in_time() -> str | None:
    async def approve(_: object) -> bool:
        await anyio.sleep_forever()
        return True

    return refused(await World(approve=approve).call("gated"), "approval_denied", "gated")


@of("require_approval")
async def a_call_whose_input_makes_it_need_an_approval() -> str | None:
    return refused(await World().call("pay", {"euros": 10}), "approval_denied", "pay")


# --- follow data


@of("follow_flow")
async def a_change_after_untrusted_data_that_nobody_can_be_asked_about() -> str | None:
    labels = '[[label]]\ntools = ["large"]\nuntrusted = true\n[[label]]\ntools = ["plain"]\nchanges = true\n[end]'
    flow = DataFlow(Policy(texts=[labels]))
    world = World(flow=flow)
    world.grant.flow = flow.begin(world.context, "", ["Read it."])
    await world.call("large")
    return refused(await world.call("plain"), "approval_denied", "plain")


# --- what comes back, and what is on record


@of("encode_output")
async def an_output_over_its_bound() -> str | None:
    return refused(await World(limits=Limits(tool_output_bytes=1000)).call("large"), "message_too_large")


@of("audit_calls")
async def a_denial_is_on_record_when_the_reply_is_there() -> str | None:
    sink = Sink()
    log = AuditLog(sink)
    await World(audit=log).call("all_of")
    found = [(event.outcome, event.code, event.user_id, event.organization_id, event.tool) for event in sink.events]
    await log.aclose()
    return None if found == [("denied", "scope_denied", "u", "o", "all_of")] else f"on record: {found}"


@of("audit_calls")
async def a_call_while_nothing_can_be_put_on_record() -> str | None:
    log = AuditLog(Sink(fails=True))
    world = World(audit=log)
    await world.call("all_of")  # the denial that cannot be written shows that the log fails
    RAN.clear()
    wrong = refused(await world.call("plain"), "access_denied", "plain")
    await log.aclose()
    return wrong


async def checks_that_fail() -> dict[str, str]:
    """What the checks find wrong, by their names."""
    wrong: dict[str, str] = {}
    for checks in DENIALS.values():
        for check in checks:
            RAN.clear()
            with anyio.move_on_after(20) as scope:
                try:
                    said = await check()
                except Exception as error:
                    said = f"raised {error!r}"
                if said is not None:
                    wrong[check.__name__] = said
            if scope.cancelled_caught:
                wrong[check.__name__] = "no answer within 20 s"
    return wrong
