"""Chat with an agent of Google's Agent Development Kit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from google.adk.agents import BaseAgent, RunConfig
from google.adk.agents.run_config import StreamingMode  # pyright: ignore[reportPrivateImportUsage]
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from corral.arguments import checked
from corral.chat.turn import ChatAgent, ChatTurn, Part, texts_of
from corral.types import Positive

__all__ = ["from_google_adk"]

_APP = "corral"


class _AdkChat:
    def __init__(self, agent: BaseAgent, steps: int) -> None:
        self._agent = agent
        self._run_config = RunConfig(streaming_mode=StreamingMode.SSE, max_llm_calls=steps)

    async def reply(self, turn: ChatTurn) -> AsyncIterator[Part]:
        # New sessions for each reply, because two organizations can have a user and a conversation with the same names.
        sessions = InMemorySessionService()
        runner = Runner(app_name=_APP, agent=self._agent, session_service=sessions)
        user, name = turn.context.user_id, turn.conversation_id
        session = await sessions.create_session(app_name=_APP, user_id=user, session_id=name)
        for role, text in texts_of(turn.messages[:-1]):
            await sessions.append_event(session, self._event(role, text))
        message = types.Content(role="user", parts=[types.Part(text=turn.text)])
        number, streamed = 0, False
        events = runner.run_async(user_id=user, session_id=name, new_message=message, run_config=self._run_config)
        async with aclosing(events):
            async for event in events:
                if event.error_code:
                    raise RuntimeError(f"the model failed: {event.error_code} {event.error_message}")
                for part in (event.content.parts if event.content else None) or []:
                    if part.text and not part.thought and (event.partial or not streamed):
                        if not streamed:
                            yield {"type": "text-start", "id": f"text-{number}"}
                        streamed = True
                        yield {"type": "text-delta", "id": f"text-{number}", "delta": part.text}
                if event.partial:
                    continue
                if streamed:  # the event repeats the streamed text
                    yield {"type": "text-end", "id": f"text-{number}"}
                    number, streamed = number + 1, False
                for part in _calls(event):
                    yield part

    def _event(self, role: str, text: str) -> Event:
        content = types.Content(role="user" if role == "user" else "model", parts=[types.Part(text=text)])
        return Event(author="user" if role == "user" else self._agent.name, content=content)


@checked
def from_google_adk(agent: BaseAgent, *, steps: Positive = 32) -> ChatAgent:
    """Adapts an agent whose programs run by `corral.integrations.google_adk.CodeMode(corral, context=turn_context)`.

    `steps` limits the model's requests per reply. The model gets the texts of earlier messages without their programs.
    Services of a runner, such as memory and artifacts, are not available.
    """
    return _AdkChat(agent, steps)


def _calls(event: Event) -> list[Part]:
    """Makes parts for the calls that an event begins and ends."""
    parts: list[Part] = []
    for call in event.get_function_calls():
        named = {"toolCallId": call.id, "toolName": call.name}
        parts.append({"type": "tool-input-available", **named, "input": dict(call.args or {})})
    for response in event.get_function_responses():
        output = "\n".join(map(_text_of, (response.response or {}).values()))
        parts.append({"type": "tool-output-available", "toolCallId": response.id, "output": output})
    return parts


def _text_of(value: Any) -> str:
    """Returns the text of a member of a tool's answer, without pictures, which the program's card shows."""
    return value if isinstance(value, str) else ""
