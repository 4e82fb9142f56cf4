"""Decisions on calls that wait on other hosts behind the same address."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Protocol, TypeAlias

from pydantic import TypeAdapter, ValidationError

from corral.bridges import PeerHosts
from corral.errors import BridgeError, CorralError, HostLost, MalformedMessage
from corral.guest import decode_value, encode_value
from corral.ledger import Query
from corral.logs import get_logger
from corral.running.recorded import pack_request, unpack_request
from corral.types import ApprovalRequest, Approved, Denied, ExecutionContext, Settlement

logger = get_logger("corral.hosts")

_KIND = "decisions"
"""Kind of these messages between hosts."""
_WAITING = "waiting"
_SETTLE = "settle"
_MOST_BYTES = 3_000_000
"""Maximum bytes of the calls in one answer."""
_Callers: TypeAlias = tuple[str | None, str | None]
"""User and organization of the calls that a peer asks about. None stands for all."""


class _Settle(Protocol):
    def __call__(
        self,
        execution_id: str,
        decisions: Mapping[int, Settlement],
        *,
        by: str | ExecutionContext | None,
        digests: Mapping[int, str] | None,
    ) -> Awaitable[frozenset[int]]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Decided:
    """Message that decides on calls."""

    execution_id: str
    approved: dict[int, dict[str, Any]]
    denied: dict[int, dict[str, Any]]
    by: str | None
    person: dict[str, Any] | None
    digests: dict[int, str]


class PeerDecisions:
    """Asks the peers of this host about waiting calls, and answers when they ask."""

    def __init__(self, peers: PeerHosts, waiting: Callable[[], tuple[ApprovalRequest, ...]], settle: _Settle) -> None:
        """`waiting` returns the calls that wait in this process, and `settle` decides on them."""
        self._peers = peers
        self._waiting_here = waiting
        self._settle_here = settle
        peers.answer(_KIND, self._answer)

    async def waiting(self, query: Query) -> list[ApprovalRequest]:
        """Returns the calls of a query's callers that wait on other hosts. Those of a host that does not answer are
        left out."""
        requests: list[ApprovalRequest] = []
        body = json.dumps([query.user_id, query.organization_id]).encode()
        for host, answer in (await self._peers.ask(f"{_KIND}/{_WAITING}", body)).items():
            try:
                requests += _unpacked(host, answer)
            except CorralError as error:
                logger.warning("calls that wait at another host are not listed: %s", error)
        return requests

    async def settle(
        self,
        execution_id: str,
        decisions: Mapping[int, Settlement],
        by: str | ExecutionContext | None,
        digests: Mapping[int, str],
    ) -> frozenset[int]:
        """Decides on calls of an execution at the host where they wait. Returns those that were decided.

        Raises:
            DecisionDenied: the person has no right to decide. HostLost: a host does not answer, and no other host has
            the execution.
        """
        message = _Decided(
            execution_id,
            {key: {"by": each.by, "for_session": each.for_session} for key, each in _of(Approved, decisions)},
            {key: {"by": each.by, "reason": each.reason} for key, each in _of(Denied, decisions)},
            by if isinstance(by, str) else None,
            by.model_dump(mode="json") if isinstance(by, ExecutionContext) else None,
            {**digests},
        )
        decided, failures = set[int](), list[CorralError]()
        body = json.dumps(dataclasses.asdict(message)).encode()
        for answer in (await self._peers.ask(f"{_KIND}/{_SETTLE}", body)).values():
            if isinstance(answer, CorralError):
                failures.append(answer)
            else:
                decided.update(_messages()[1].validate_json(answer))
        if failures and not decided:
            raise next((each for each in failures if not isinstance(each, HostLost)), failures[0])
        return frozenset(decided)

    async def _answer(self, name: str, body: bytes) -> bytes:
        if name == _WAITING:
            return self._pack(_query_of(body))
        if name != _SETTLE:
            raise BridgeError(f"the release of corral on this host has no {name!r}; run the same release on all hosts")
        try:
            message = _messages()[0].validate_json(body)
            decisions: dict[int, Settlement] = {key: Approved(**each) for key, each in message.approved.items()}
            decisions |= {key: Denied(**each) for key, each in message.denied.items()}
            person = None if message.person is None else ExecutionContext.model_validate(message.person)
        except (ValidationError, TypeError) as error:
            raise MalformedMessage(f"a peer's decision cannot be read: {error}") from error
        decided = await self._settle_here(
            message.execution_id, decisions, by=person or message.by, digests=message.digests
        )
        return json.dumps(sorted(decided)).encode()

    def _pack(self, query: Query) -> bytes:
        rows, size = list[Any](), 0
        for request in self._waiting_here():
            if not query.includes(request.context.owner):
                continue
            text, tagged = encode_value(request.arguments)
            row = [request.execution_id, request.sequence, request.tool, text.decode(), tagged]
            packed = pack_request(request, b"").decode()
            size += len(packed) + len(text)
            if size > _MOST_BYTES:
                logger.warning("another host is told only %d of the calls that wait here", len(rows))
                break
            rows.append([*row, packed])
        return json.dumps(rows).encode()


def _query_of(body: bytes) -> Query:
    try:
        user_id, organization_id = _messages()[2].validate_json(body)
    except ValidationError as error:
        raise MalformedMessage(f"a peer's question about waiting calls cannot be read: {error}") from error
    return Query(user_id, organization_id)


def _of(kind: type[Any], decisions: Mapping[int, Settlement]) -> list[tuple[int, Any]]:
    return [(sequence, each) for sequence, each in decisions.items() if isinstance(each, kind)]


@cache
def _messages() -> tuple[TypeAdapter[_Decided], TypeAdapter[set[int]], TypeAdapter[_Callers]]:
    return TypeAdapter(_Decided), TypeAdapter(set[int]), TypeAdapter(_Callers)


def _unpacked(host: str, answer: bytes | CorralError) -> list[ApprovalRequest]:
    """Reads the calls that wait at a host.

    Raises:
        CorralError: the host's answer is an error, or unreadable.
    """
    if isinstance(answer, CorralError):
        raise answer
    try:
        return [
            unpack_request(
                packed,
                tool=tool,
                arguments=decode_value(text.encode(), tagged=tagged),
                execution_id=execution_id,
                sequence=sequence,
            )[1]
            for execution_id, sequence, tool, text, tagged, packed in json.loads(answer)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedMessage(f"the answer of the host {host!r} cannot be read: {error}") from error
