"""Fakes for tests of hosts: a sandbox without an engine, and a model without a provider."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, ClassVar, TypeAlias, get_args

from corral.containment import ContainmentKind
from corral.errors import ProgramFailed
from corral.guest import UnencodableValue, decode_value, encode_value
from corral.model.model_tools import ModelTool
from corral.sandboxes import Job, Sandbox, SandboxProvider
from corral.types import (
    CallError,
    CallRequest,
    Capabilities,
    Endpoint,
    ExecutionContext,
    ExecutionError,
    Exit,
    Language,
    LimitName,
    LogEntry,
    LogLevel,
    PipeEndpoint,
    RequestHandler,
    SandboxConfig,
)


class CallFailed(Exception):
    """Failure of a tool call in a `FakeProgram`. `error` has the code, name and message that a real program would
    see."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error.message)
        self.error = error


class FakeGuest:
    """Gives a `FakeProgram` access to tools, console and environment."""

    def __init__(self, job: Job, handler: RequestHandler) -> None:
        self.source = job.program.source
        """The model's complete answer."""
        self.env = None if job.env is None else dict(job.env)
        self._job = job
        self._handler = handler
        self._calls = 0

    async def call(self, tool: str, input: object = None) -> Any:
        """Calls a tool by its path, through all guards. Input and result are copied, as they are between processes.

        Raises:
            CallFailed: the call failed.
        """
        self._calls += 1
        encoded_input = encode_value({} if input is None else input)
        value = decode_value(encoded_input.text, tagged=encoded_input.tagged)
        reply = await self._handler(CallRequest(tool, value, self._calls, len(encoded_input.text)))
        if reply.error is not None:
            raise CallFailed(reply.error)
        if reply.nothing:
            return None
        encoded_result = reply.encoded or encode_value(reply.value)
        return decode_value(encoded_result.text, tagged=encoded_result.tagged)

    def log(self, text: str, level: LogLevel = "log") -> None:
        """Prints to the program's console."""
        self._job.on_log(LogEntry(level=level, text=text, time=time.time()))


FakeProgram: TypeAlias = Callable[[FakeGuest], Awaitable[object]]
"""Function in place of a program. It returns the program's value or raises its error."""


class FakeSandbox(SandboxProvider):
    """Runs a Python function in this process instead of each program, so that tests of a host need no engine.

    It claims `containment` and `enforces`, by default everything, but isolates nothing. The only limits that work are
    those that the host enforces: the wall clock, and limits of calls. Programs are still parsed and checked: pass
    `Corral(check=False)` and a source such as `"return 1"`.
    """

    name: ClassVar[str] = "fake"

    def __init__(
        self,
        program: FakeProgram,
        *,
        containment: ContainmentKind | None = None,
        enforces: Collection[LimitName] = get_args(LimitName),
    ) -> None:
        self._program = program
        self._containment = containment or ContainmentKind("fake", "vm")
        self._enforces = frozenset(enforces)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(languages=frozenset(get_args(Language)), enforces=self._enforces)

    async def start(self, config: SandboxConfig) -> Sandbox:  # noqa: ARG002
        return _FakeBox(self._program, self._containment)


class _FakeBox(Sandbox):
    def __init__(self, program: FakeProgram, containment: ContainmentKind) -> None:
        self.containment = containment
        self._program = program

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        assert isinstance(bridge, PipeEndpoint)
        try:
            encoded = encode_value(await self._program(FakeGuest(job, bridge.handler)))
        except CallFailed as failed:
            return _failed(failed.error.code, failed.error.name, failed.error.message)
        except UnencodableValue as problem:
            return _failed(ProgramFailed.code, "TypeError", f"the result cannot leave the program: {problem}")
        except Exception as error:
            return _failed(ProgramFailed.code, type(error).__name__, str(error))
        return Exit(value=decode_value(encoded.text, tagged=encoded.tagged))

    async def aclose(self) -> None:
        """Does nothing."""


def _failed(code: str, name: str, message: str) -> Exit:
    return Exit(status="failed", error=ExecutionError(code=code, name=name, message=message))


class ScriptedModel:
    """Model with scripted answers: programs, or functions that make a program from the last result's text.

    It calls a real `ModelTool`, so programs, errors and results are those of a real model.
    """

    def __init__(self, *answers: str | Callable[[str], str]) -> None:
        self._answers = answers

    async def converse(self, tool: ModelTool, context: ExecutionContext | None = None) -> tuple[str, ...]:
        """Sends each answer to the tool in turn. Returns the model's text of each result."""
        texts: list[str] = []
        for answer in self._answers:
            code = answer if isinstance(answer, str) else answer(texts[-1] if texts else "")
            texts.append(await tool({"code": code}, context))
        return tuple(texts)
