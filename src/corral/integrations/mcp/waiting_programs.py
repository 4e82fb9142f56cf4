"""Programs that outlive the request that sent them, because the client is asked between two requests.

Since 2026-07-28 servers send no requests. The answer to a tool call may be that input is required; the client then
sends the call again with the input, and with a state that identifies the program.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp_types import ElicitRequest, InputRequests, InputRequiredResult, InputResponses

from corral import ApprovalRequest, Corral, ExecutionContext, ExecutionResult, Later
from corral.integrations.mcp.elicitation import Client, decision_of, question
from corral.integrations.mcp.notifications import Notices
from corral.integrations.mcp.sessions import LogLevels

_TOGETHER_SECONDS = 0.05
"""Delay in which further questions join the first: clients bound how often they are asked."""
_RETURN_SECONDS = 600.0
"""Seconds that a program waits for its client to come back."""


class Programs:
    """The waiting programs of one server, while it runs."""

    def __init__(self, tasks: TaskGroup, corral: Corral) -> None:
        self.levels = LogLevels()
        self.corral = corral
        self._tasks = tasks
        self._away: dict[str, Program] = {}

    def start(self, program: Program, run: Callable[[], Awaitable[ExecutionResult]]) -> None:
        self._tasks.start_soon(program.drive, run)

    def part(self, program: Program) -> str:
        """Detaches a program from its client. Returns the state by which it is found again, once."""
        state = secrets.token_urlsafe(32)
        self._away[state] = program
        program.leave(lambda: self._away.pop(state, None))
        return state

    def meet(self, state: str, context: ExecutionContext, arguments: Mapping[str, Any]) -> Program | None:
        """The program that this caller left with this state, if it still waits."""
        program = self._away.get(state)
        if program is None or not program.belongs_to(context, arguments):
            return None
        del self._away[state]
        program.come_back()
        return program


class Program(Client):
    """A program whose client is asked by the answers to its own call."""

    def __init__(self, programs: Programs, context: ExecutionContext, arguments: Mapping[str, Any]) -> None:
        self.notices = Notices()
        self._programs = programs
        self._owner = (context.user_id, context.organization_id)
        self._arguments = dict(arguments)
        self._questions: dict[str, tuple[ApprovalRequest, ElicitRequest]] = {}
        self._result: ExecutionResult | None = None
        self._changed = anyio.Event()
        self._taken = anyio.Event()
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._forget: Callable[[], object] = lambda: None

    async def ask(self, request: ApprovalRequest) -> Later:
        self._questions[f"approval-{request.sequence}"] = request, question(request)
        self._changed.set()
        return Later()

    async def drive(self, run: Callable[[], Awaitable[ExecutionResult]]) -> None:
        """Runs it to its end, and keeps its result for the client."""
        try:
            with self._scope:
                self._result = await run()
                self._changed.set()
                await self._taken.wait()
        finally:
            self._forget()
            self._ended.set()
            self._changed.set()

    async def attend(self, answers: InputResponses | None = None) -> ExecutionResult | InputRequiredResult | None:
        """Its result, or questions, after which it goes on without a client; None if it was ended.

        Cancelled with whoever waits for it.
        """
        for key, answer in (answers or {}).items():
            if key in self._questions:
                request, _ = self._questions[key]
                self._programs.corral.decide(request.execution_id, request.sequence, decision_of(answer, request))
        try:
            asked = await self._wait()
        except BaseException:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._ended.wait()
            raise
        if self._result is not None:
            self._taken.set()
            return self._result
        if self._ended.is_set():
            return None
        return InputRequiredResult(input_requests=asked, request_state=self._programs.part(self))

    async def _wait(self) -> InputRequests:
        """Until it has ended, or asks."""
        while self._result is None and not self._ended.is_set():
            if self._unanswered():
                await anyio.sleep(_TOGETHER_SECONDS)
                if asked := self._unanswered():
                    return asked
            else:
                self._changed = anyio.Event()
                await self._changed.wait()
        return {}

    def _unanswered(self) -> InputRequests:
        pending = {(each.execution_id, each.sequence) for each in self._programs.corral.pending()}
        return {
            key: form
            for key, (request, form) in self._questions.items()
            if (request.execution_id, request.sequence) in pending
        }

    def belongs_to(self, context: ExecutionContext, arguments: Mapping[str, Any]) -> bool:
        """True if it was sent by this user, with these arguments."""
        return self._owner == (context.user_id, context.organization_id) and self._arguments == dict(arguments)

    def leave(self, forget: Callable[[], object]) -> None:
        """Bounds the time until the client has to be back; `forget` is called when the program is over."""
        self._forget = forget
        self._scope.deadline = anyio.current_time() + _RETURN_SECONDS

    def come_back(self) -> None:
        self._scope.deadline = math.inf
