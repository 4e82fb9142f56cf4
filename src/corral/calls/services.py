"""Calls of host services, which are not tools: their names begin with `$`.

A source provides one execution's services by name, and frees their resources when the execution ends. The guest
receives the names with START, and calls services by the same frames as tools. Service calls are not counted in
`Limits.calls` and have no `CallRecord` or catalog entry; each service bounds and records its own calls. As for tools,
at most `calls_in_flight` of them are unanswered, and `tool_input_bytes` and `tool_output_bytes` bound their sizes. A
name that is not granted is an unknown tool.

To add a service, add a `ServiceSource` to `Runtime.service_sources`, or to those of one `Execution`:

    class Modules:
        origins = ()                           # origins to list to models

        @asynccontextmanager
        async def serve(self, caller, audit):
            async def module(input):           # decoded, but untrusted
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
"""Function that answers a call from its decoded input. Programs see its errors of `corral.errors`; others only go to
the log."""


class ServiceSource(Protocol):
    """Provider of host services for executions, such as a `Network`."""

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins that programs can reach through the services, to list to models."""
        ...

    def serve(self, caller: Grant, audit: AuditLog | None, /) -> AbstractAsyncContextManager[Mapping[str, Service]]:
        """Yields the services of one execution, by names that begin with `$`. They end with the block."""
        ...


def route_services(handler: Handler) -> Handler:
    """Answers calls of the services in their grant, and passes all other calls to `handler`."""
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
    if grant.flow is not None:
        grant.flow.reads(request.tool)
    value = await grant.host_services[request.tool](request.input)
    encoded = await encode_by_size(value, grant.context)
    if len(encoded.text) > limits.tool_output_bytes:
        raise MessageTooLarge(
            f"{request.tool}: the answer has {len(encoded.text)} bytes; tool_output_bytes={limits.tool_output_bytes}"
        )
    return Reply(encoded=encoded)
