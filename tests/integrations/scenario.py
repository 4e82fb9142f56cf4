"""What a scripted model does in every framework: a program with a mistake, the same mended, then an answer.

The mended program calls three tools that wait for each other, so it gets nowhere unless they run at the same time.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from corral import Corral, ExecutionContext, tool
from corral.sandboxes import DenoSandbox
from tests.until import LIMIT_SECONDS

__all__ = [
    "ANSWER",
    "PICTURE",
    "PICTURE_TEXT",
    "PNG",
    "QUESTION",
    "RIGHT",
    "WRONG",
    "Endless",
    "Scenario",
    "add",
    "caller",
    "picture",
    "screenshot",
]

QUESTION = "What is it like in Oslo?"
WRONG = """\
const weather = await tools.get_weather({ town: "Oslo" });
return weather.degrees;
"""
RIGHT = """\
const [weather, people, zone] = await Promise.all([
  tools.get_weather({ city: "Oslo" }),
  tools.get_population({ city: "Oslo" }),
  tools.get_timezone({ city: "Oslo" }),
]);
return `${weather.degrees} °C, ${people} people, ${zone}`;
"""
_RESULT = "-2.5 °C, 709000 people, Europe/Oslo"
ANSWER = f"Oslo: {_RESULT}."


class Scenario:
    """The tools of a test, and what became of them."""

    def __init__(self) -> None:
        self.contexts: list[ExecutionContext] = []
        """Of every call of `get_weather`."""
        self.begin()

    def begin(self) -> None:
        """Forgets what was before."""
        self.contexts.clear()
        self._waiting = 0
        self._all_there = anyio.Event()

    @property
    def tools(self) -> list[Any]:
        @tool
        async def get_weather(city: str, *, context: ExecutionContext) -> dict[str, float]:
            """The weather in a city."""
            self.contexts.append(context)
            await self._meet()
            return {"degrees": -2.5}

        @tool
        async def get_population(city: str) -> int:
            """How many people live in a city."""
            await self._meet()
            return 709_000

        @tool
        async def get_timezone(city: str) -> str:
            """The time zone of a city, as IANA names it."""
            await self._meet()
            return "Europe/Oslo"

        return [get_weather, get_population, get_timezone]

    async def _meet(self) -> None:
        self._waiting += 1
        if self._waiting == 3:
            self._all_there.set()
        with anyio.fail_after(LIMIT_SECONDS):
            await self._all_there.wait()

    @asynccontextmanager
    async def corral(self, sandbox: DenoSandbox) -> AsyncGenerator[Corral]:
        """No program of it runs unchecked."""
        async with Corral(self.tools, sandbox=sandbox, check="required") as corral:
            yield corral

    def after_wrong(self, text: str) -> None:
        """Judges what the model reads of its first program."""
        assert "rejected" in text
        assert "nothing ran" in text
        assert "town" in text
        assert "line 1" in text
        assert self.contexts == []

    def after_right(self, text: str) -> None:
        """Judges what the model reads of its second program."""
        assert _RESULT in text
        assert len(self.contexts) == 1


class Endless:
    """`wait`, a tool that takes for ever, and what is known of its call."""

    def __init__(self) -> None:
        self.begun, self.ended = anyio.Event(), anyio.Event()

    @property
    def tool(self) -> Any:
        @tool
        async def wait() -> None:
            """Waits."""
            self.begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.ended.set()

        return wait


@tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE = 'return { note: "two", shots: [await tools.screenshot(), await tools.picture()] };'
"""Returns pictures as bytes, and as MCP writes them."""
PICTURE_TEXT = 'Result: {"note":"two","shots":["[picture image/png, 70 bytes]","[picture image/png, 70 bytes]"]}'


@tool
def screenshot() -> bytes:
    """A picture."""
    return PNG


@tool
def picture() -> dict[str, str]:
    """A picture."""
    return {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PNG).decode()}


@tool
async def caller(*, context: ExecutionContext) -> str:
    """Who calls."""
    return context.user_id
