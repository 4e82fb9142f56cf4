"""Options of one execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from corral.errors import ConfigError
from corral.events import OnEvent
from corral.running.request import Check, ExecutionRequest
from corral.running.session import Session
from corral.tools.tool_sources import Tools
from corral.types import Approve, ExecutionContext, Language, Limits


class LiveOptions(TypedDict, total=False):
    """Options of one execution that are objects of this process."""

    tools: Tools | None
    on_event: OnEvent | None
    approve: Approve | None
    session: Session | None


class RunOptions(LiveOptions, total=False):
    """Options of one execution, overriding the defaults of its `Corral`."""

    language: Language
    compiler: str | None
    context: ExecutionContext | None
    limits: Limits | None
    env: Mapping[str, str] | None
    check: Check | None
    hide_denied: bool | None
    tool_call_id: str | None
    asked: Sequence[str]
    durable: bool
    after: str | None
    execution_id: str | None


def request_of(source: str | ExecutionRequest, options: RunOptions) -> ExecutionRequest:
    """Returns the request in the arguments of `execute`, or creates it from them.

    Raises:
        ConfigError: a request is combined with options that belong in the request.
    """
    own: dict[str, Any] = {name: value for name, value in options.items() if name not in LiveOptions.__annotations__}
    if isinstance(source, str):
        session = options.get("session")
        if session is not None and own.get("context") is None:
            own["context"] = session.context
        return ExecutionRequest(source=source, **{name: value for name, value in own.items() if value is not None})
    if own:
        names = ", ".join(own)
        raise ConfigError(f"{names}: an ExecutionRequest has its own; set them in the request")
    return source
