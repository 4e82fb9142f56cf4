"""Random programs that agents, MCP clients and the page continue, at two hosts of one database in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from typing_extensions import override

from corral import Corral, ExecutionContext, Limits
from corral.chat import MemoryChats, chat_app
from corral.integrations.mcp import ask_client, mcp_server
from corral.ledger import PostgresLedger
from corral.sandboxes import DenoSandbox
from tests.audit.conftest import own_server as own_server
from tests.audit.conftest import postgres_server as postgres_server
from tests.chat.conftest import Browser
from tests.chat.test_pauses import Durable, decide, ended, program_of
from tests.integrations.mcp.serving import Elicitation
from tests.integrations.pausing import AGENTS, ANN, Agent
from tests.postgres import fresh_url
from tests.running.random_programs import PROGRAMS, Randomly

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.matrix("test_pauses.py has one program for each framework; here random ones that are cut off"),
]


class McpClient(Agent):
    """A client of a server that is started for each call."""

    _state: str

    @override
    async def start(self, corral: Corral) -> str | None:
        return await self._call(corral, ANN)

    @override
    async def answer(
        self, corral: Corral, decisions: bool | str | Mapping[int, bool | str], context: ExecutionContext = ANN
    ) -> str | None:
        assert isinstance(decisions, Mapping)
        responses = {
            f"approval-{sequence}": types.ElicitResult(action="accept", content={"approve": each is True})
            for sequence, each in decisions.items()
        }
        return await self._call(corral, context, input_responses=responses, request_state=self._state)

    async def _call(self, corral: Corral, context: ExecutionContext, **options: Any) -> str | None:
        def refuse(_: str) -> types.ElicitResult:
            raise AssertionError("the questions are in results")

        server = mcp_server(corral, context=lambda _: context)
        async with Client(server, mode="2026-07-28", elicitation_callback=Elicitation(refuse)) as client:
            result: Any = await client.session.call_tool(
                "execute_code", {"code": self.source}, allow_input_required=True, **options
            )
        if isinstance(result, types.InputRequiredResult):
            assert result.request_state is not None
            self._state = result.request_state
            return None
        return result.content[0].text


class Page(Agent):
    """The requests of the page, to a server that is started for each answer. All decisions are given on one pause."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._chats = MemoryChats()

    def _browser(self, corral: Corral) -> Browser:
        app: Any = chat_app(corral, Durable(corral), authenticate=lambda _: ANN, store=self._chats)
        return Browser(app, "ann")

    async def _read(self, ann: Browser) -> str | None:
        data = program_of((await ended(ann))["messages"][1])
        return None if data["status"] == "paused" else f"Result: {data['status']}"

    @override
    async def start(self, corral: Corral) -> str | None:
        ann = self._browser(corral)
        await ann.send(self.source)
        return await self._read(ann)

    @override
    async def answer(
        self, corral: Corral, decisions: bool | str | Mapping[int, bool | str], context: ExecutionContext = ANN
    ) -> str | None:
        ann = self._browser(corral)
        execution = program_of((await ann.get("/api/conversations/talk"))["messages"][1])["id"]
        assert isinstance(decisions, Mapping)
        for sequence, each in decisions.items():
            assert (await decide(ann, execution, sequence, each is True)).status_code == 200
        return await self._read(ann)


class Resumed(Randomly):
    """Starts random programs by an agent, which continues them until they end."""

    async def agent(self, agent: Agent, hosts: Sequence[Corral], *, cuts: bool) -> None:
        turns, retried = cycle(hosts), set[str]()
        decisions: dict[int, bool | str] = {}
        text: str | None = None
        for attempt in range(60):
            corral = next(turns)
            self._calls_left = self._random.randrange(1, 8) if cuts and 0 < attempt < 30 else 0
            with anyio.CancelScope() as self._scope:
                if (text := await (agent.answer(corral, decisions) if attempt else agent.start(corral))) is not None:
                    break
                [waiting] = await corral.executions.waiting()
                retried |= {call.input["key"] for call in waiting.calls if call.reason}
                decisions = {call.sequence: bool(call.reason) or self._random.random() < 0.7 for call in waiting.calls}
                self.counts["pauses"] += 1
                continue
            self.counts["cuts"] += 1
            await corral.executions.list()  # behind the end of its claim, which the other host would not see yet
        [execution] = await hosts[0].executions.list()
        assert text is not None
        assert text.startswith("Result: "), text
        assert execution.status == "succeeded"
        assert [key for key, number in self.effects.items() if number > 1 and key not in retried] == []
        assert (await hosts[0].executions.replay(execution.execution_id)).status == "succeeded"


SOURCE = f'await tools.ask({{ key: "first" }}).catch(() => 0);{PROGRAMS["typescript"]}'
KINDS: Mapping[str, Callable[[str], Agent]] = {**AGENTS, "mcp": McpClient, "page": Page}


@pytest.mark.parametrize("kind", KINDS)
async def test_random_programs_end_with_no_change_made_twice(
    kind: str, warm_deno: DenoSandbox, postgres_server: str
) -> None:
    counts = Counter[str]()
    for seed in range(2):
        url = await anyio.to_thread.run_sync(fresh_url, postgres_server)
        runs = Resumed(warm_deno, PostgresLedger(url, keys={}), seed)
        settings: dict[str, Any] = {"sandbox": warm_deno, "check": False, "limits": Limits(calls=1_000)}
        if kind == "mcp":
            settings["approve"] = ask_client
        async with AsyncExitStack() as stack:
            hosts = [
                await stack.enter_async_context(Corral(runs.tools, ledger=PostgresLedger(url, keys={}), **settings))
                for _ in range(2)
            ]
            await runs.agent(KINDS[kind](SOURCE), hosts, cuts=kind != "page")
        counts += runs.counts
    assert counts["pauses"] >= 2
    assert kind == "page" or counts["cuts"] >= 2
