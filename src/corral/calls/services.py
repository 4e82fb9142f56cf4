"""Calls of services of the host, which are no tools: their names begin with `$`.

A source gives one execution its services, by name, and frees what they hold when the execution ends. The guest learns
the names with START, and calls them as it calls tools, by the same frames. Such a call is not counted in
`Limits.calls`, has no `CallRecord`, and is in no catalog; what bounds and records it is the service's own concern. As
for tools, at most `calls_in_flight` of them are unanswered, and `tool_input_bytes` and `tool_output_bytes` bound their
sizes. A name that is not granted is that of an unknown tool.

A further service is a `ServiceSource` in `Runtime.service_sources`, or in those of one `Execution`:

    class Modules:
        origins = ()                           # what a model is told that programs reach

        @asynccontextmanager
        async def serve(self, caller, audit):
            async def module(input):           # decoded, and not to be trusted
                return {"code": "..."}         # or raises an error of `corral.errors`

            yield {"$module": module}

In the guest, `Run.service(name, input)` (run.ts) and `Calls.service(name, input)` (calls.py) call it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from corral.audit import AuditLog
from corral.calls.calls import Call, Handler
from corral.calls.grants import Grant
from corral.calls.guards import convert_errors
from corral.errors import ExecutionEnded, MessageTooLarge
from corral.guest import encode_by_size
from corral.types import Reply

Service: TypeAlias = Callable[[object], Awaitable[object]]
"""Answers a call by its decoded input. Its errors of `corral.errors` reach the program, others only the log."""


class ServiceSource(Protocol):
    """Services of the host for executions, such as a `Network`."""

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins that programs reach by them, for what a model is told."""
        ...

    def serve(self, caller: Grant, audit: AuditLog | None, /) -> AbstractAsyncContextManager[Mapping[str, Service]]:
        """Opens the services of one execution, by names that begin with `$`. They end with the block."""
        ...


def route_services(handler: Handler) -> Handler:
    """Answers calls of services that their grant has, and passes all others to `handler`."""
    answer = convert_errors(_answer)

    def routed(call: Call) -> Awaitable[Reply]:
        if call.request.tool.startswith("$") and call.authenticated and call.request.tool in call.grant.host_services:
            return answer(call)
        return handler(call)

    return routed


async def _answer(call: Call) -> Reply:
    grant, request = call.grant, call.request
    if not grant.live:
        raise ExecutionEnded("the execution of this call has ended")
    limits = grant.limits
    if request.size > limits.tool_input_bytes:
        raise MessageTooLarge(
            f"{request.tool}: the input has {request.size} bytes; {limits.tool_input_bytes} are allowed"
        )
    value = await grant.host_services[request.tool](request.input)
    encoded = await encode_by_size(value, grant.context)
    if len(encoded.text) > limits.tool_output_bytes:
        raise MessageTooLarge(
            f"{request.tool}: the answer has {len(encoded.text)} bytes; tool_output_bytes={limits.tool_output_bytes}"
        )
    return Reply(encoded=encoded)
