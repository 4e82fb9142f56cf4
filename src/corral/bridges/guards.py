"""The guards between a guest's call and the tool. Each takes a handler and returns a handler; `pipeline` orders them.

A guard refuses by raising an error of `corral.errors`, which `answered` turns into a reply. So a handler made by
`pipeline` never raises for anything that a guest or a tool does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from corral.audit import AuditLog
from corral.bridges.approvals import Approve, approved
from corral.bridges.auditing import audited
from corral.bridges.budget import limited
from corral.bridges.dispatch import being_cancelled, dispatch, encoded, unexpected
from corral.bridges.grants import Grants, called, current_grant, granted
from corral.bridges.rates import RateLimits
from corral.bridges.scopes import require_scopes
from corral.errors import CorralError, ExecutionEnded, MessageTooLarge
from corral.logs import get_logger
from corral.types import Call, CallError, Handler, Reply

__all__ = [
    "Pipeline",
    "Policy",
    "answered",
    "audited",
    "authenticated",
    "authorized",
    "pipeline",
    "rated",
    "recorded",
    "sequenced",
    "validated",
]

logger = get_logger("corral.tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What one Corral's guards hold calls to, besides what tools and executions ask for themselves."""

    grants: Grants
    rates: RateLimits
    audit: AuditLog | None = None
    approve: Approve | None = None
    approval_seconds: float = 300.0


Pipeline: TypeAlias = Callable[[Policy], Handler]
"""Puts guards in order; `Corral(pipeline=...)` takes another one than `pipeline`."""


def pipeline(policy: Policy) -> Handler:
    """audit ▸ authenticate ▸ authorize ▸ limit ▸ validate ▸ approve ▸ dispatch; read from the last line up."""
    handler = dispatch()
    handler = sequenced(handler)
    handler = encoded(handler)
    handler = approved(handler, policy.approve, policy.approval_seconds)
    handler = validated(handler)
    handler = rated(handler, policy.rates)
    handler = limited(handler)
    handler = authorized(handler)
    handler = answered(handler)
    handler = recorded(handler)
    handler = authenticated(handler, policy.grants)
    handler = answered(handler)
    return audited(handler, policy.audit)


def answered(handler: Handler) -> Handler:
    """Turns errors into replies: ours with their text, anything else as a failure whose details go to the log only."""

    async def answer(call: Call) -> Reply:
        try:
            return await handler(call)
        except CorralError as error:
            return Reply(error=CallError.of(error))
        except anyio.get_cancelled_exc_class():
            if being_cancelled():
                raise
            return Reply(error=CallError.of(unexpected(call)))  # something was that a guard of the host's waited for
        except Exception:
            return Reply(error=CallError.of(unexpected(call)))

    return answer


def authenticated(handler: Handler, grants: Grants) -> Handler:
    """Finds the live grant that a call is made under: by its token, unless the bridge knows whose it is."""

    async def authenticate(call: Call) -> Reply:
        if call.grant is None:
            call.grant = grants.find(call.token)
        elif not granted(call).live:
            raise ExecutionEnded("the execution of this call has ended")
        before = current_grant.set(granted(call))
        try:
            return await handler(call)
        finally:
            current_grant.reset(before)

    return authenticate


def recorded(handler: Handler) -> Handler:
    """Records the call and its outcome for the result; at level DEBUG also in the log, without its values."""

    async def record(call: Call) -> Reply:
        recorder = granted(call).recorder
        if recorder is None:
            return await handler(call)
        entry = recorder.start(call)
        started = time.perf_counter()
        try:
            reply = await handler(call)
        except BaseException:
            recorder.cut_short(entry, call, (time.perf_counter() - started) * 1000)
            raise
        duration_ms = (time.perf_counter() - started) * 1000
        recorder.finish(entry, call, reply, duration_ms)
        if logger.isEnabledFor(logging.DEBUG):
            outcome = "answered" if reply.error is None else reply.error.name
            execution_id = granted(call).execution_id
            logger.debug("tools.%s %s in %.1f ms in execution %s", call.tool, outcome, duration_ms, execution_id)
        return reply

    return record


def authorized(handler: Handler) -> Handler:
    """Compares the scopes that a tool asks for with those that the caller holds."""

    async def authorize(call: Call) -> Reply:
        grant = granted(call)
        require_scopes(called(call), call.tool, grant.scopes)
        return await handler(call)

    return authorize


def rated(handler: Handler, rates: RateLimits) -> Handler:
    """Holds the rates of the tool, the user, the organization and everyone."""

    async def rate(call: Call) -> Reply:
        grant, tool = granted(call), called(call)
        buckets = grant.buckets.get(tool)
        if buckets is None:
            buckets = grant.buckets[tool] = rates.buckets(tool, call.tool, grant.context)
        if buckets:
            await rates.take(buckets, call.tool)
        return await handler(call)

    return rate


def validated(handler: Handler) -> Handler:
    """Validates the input by the tool's schema, if it is not too large."""

    async def validate(call: Call) -> Reply:
        allowed = granted(call).limits.tool_input_bytes
        if call.size > allowed:
            raise MessageTooLarge(f"tools.{call.tool}: the input has {call.size} bytes; {allowed} are allowed")
        call.parsed = await called(call).parse_input(call.input, granted(call).context)
        return await handler(call)

    return validate


def sequenced(handler: Handler) -> Handler:
    """Starts calls in the order in which they come: one of a sequential tool when all before it have ended, and those
    after it when it has."""

    async def sequence(call: Call) -> Reply:
        turns = granted(call).turns
        alone = called(call).sequential
        if alone or turns.contended:
            await turns.wait(alone=alone)
        else:
            turns.running += 1
        try:
            return await handler(call)
        finally:
            turns.running -= 1
            if turns.contended:
                turns.pass_on()

    return sequence
