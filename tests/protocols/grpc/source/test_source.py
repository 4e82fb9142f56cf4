"""The methods of a real server as tools of programs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from corral import Corral, ExecutionContext
from corral.errors import ConfigError, InvalidArguments, StartFailed, ToolError
from corral.protocols.grpc.source import GrpcApi
from corral.sandboxes import DenoSandbox
from corral.tools import Tool, ToolCall
from tests.protocols.grpc.source.service import Shop, compiled

LOOPBACK = ("127.0.0.0/8",)
ORDER = {
    "number": 2**62,
    "state": "SHIPPED",
    "lines": [{"article": "a", "count": 2}],
    "prices": {"a": 1.5},
    "by_place": {"3": {"article": "b", "count": 0}},
    "note": "",
    "most": 2**64 - 1,
    "paid": True,
    "weight": 0.5,
    "card": "1234",
    "made": "2026-01-02T03:04:05Z",
    "took": "1.500s",
    "anything": {"x": [None, 1.5]},
    "wrapped": 7,
    "mask": "note,lines",
    "replaces": {"number": 1},
    "history": ["OPEN", "SHIPPED"],
}
EMPTY: dict[str, Any] = {
    "number": 0,
    "state": "STATE_UNSPECIFIED",
    "lines": [],
    "prices": {},
    "by_place": {},
    "label": b"",
    "most": 0,
    "paid": False,
    "weight": 0.0,
    "history": [],
}


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compiled(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def shop(descriptors: bytes) -> Iterator[Shop]:
    with Shop(descriptors) as shop:
        yield shop


def source(shop: Shop, **options: Any) -> GrpcApi:
    options = {"tls": False, "exempt_networks": LOOPBACK, **options}
    return GrpcApi("shop", f"127.0.0.1:{shop.port}", **options)


class Caller:
    """What a source offers, and a way to call it."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        self.problem: str | None = None

    def offer(self, tools: Iterable[Tool], problem: str | None = None) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.problem = problem

    async def __call__(self, name: str, input: object = None, context: ExecutionContext | None = None) -> Any:
        tool, call = self.tools[name], ToolCall(context or ExecutionContext())
        parsed = await tool.parse_input({} if input is None else input)
        return await tool.dump_output(await tool.execute(parsed, call))


@asynccontextmanager
async def calling(source: GrpcApi) -> AsyncGenerator[Caller]:
    caller = Caller()
    async with source.open(caller.offer):
        yield caller


@pytest.mark.anyio
@pytest.mark.parametrize("reflects", [True, False], ids=["reflection", "descriptors"])
async def test_values(shop: Shop, descriptors: bytes, *, reflects: bool) -> None:
    made = source(shop) if reflects else source(shop, descriptors=descriptors)
    assert len(made.tools) == (0 if reflects else 5)
    async with calling(made) as call:
        assert call.problem is None
        assert sorted(call.tools) == ["Admin_Get", "Echo", "Fail", "Orders_Get", "Watch"]
        assert [(each.method, each.reason) for each in made.skipped] == [
            ("shop.v1.Orders/Upload", "it streams requests")
        ]
        assert await call("Echo", {**ORDER, "label": b"\x00\xff"}) == {
            **ORDER,
            "label": b"\x00\xff",
            "replaces": {**EMPTY, "number": 1},
        }
        assert await call("Echo") == EMPTY
        assert await call("Admin_Get") == {"admin": [1.5, None]}
        get = call.tools["Orders_Get"]
        assert get.read_only
        assert not call.tools["Echo"].read_only
        assert get.description == ("" if reflects else "Finds an order by its number.")
        assert get.input_schema is not None
        assert get.input_schema["properties"]["number"]["type"] == "integer"
        assert await call("Watch", {"number": 2}) == [{**EMPTY, "number": 1}, {**EMPTY, "number": 2}]
        assert call.tools["Watch"].stream


@pytest.mark.anyio
async def test_inputs_that_do_not_fit(shop: Shop) -> None:
    async with calling(source(shop)) as call:
        for input, text in {
            '{"number": "x"}': "number",
            '{"nix": 1}': "nix",
            '{"state": "LOST"}': "state",
            '{"card": "1", "account": "2"}': "exclude each other",
            '{"made": "yesterday"}': "made",
            '{"by_place": {"x": {}}}': "by_place",
            '{"lines": [{"count": 3000000000}]}': "count",
        }.items():
            with pytest.raises((InvalidArguments, ToolError), match=text):
                await call("Echo", json.loads(input))


@pytest.mark.anyio
async def test_errors_say_what_came_and_no_secrets(shop: Shop) -> None:
    async with calling(source(shop, credentials={"Authorization": "Bearer hunter2"})) as call:
        with pytest.raises(ToolError, match="NOT_FOUND") as raised:
            await call("Orders_Get")
        assert "hunter2" not in str(raised.value)
        assert raised.value.outcome_known
        with pytest.raises(ToolError, match="INVALID_ARGUMENT: bad; code: is wrong"):
            await call("Fail", {"code": 3, "message": "bad"})
        with pytest.raises(ToolError, match=r"INTERNAL: oh; .*it may have taken effect") as raised:
            await call("Fail", {"code": 13, "message": "oh"})
        assert not raised.value.outcome_known
        with pytest.raises(ToolError, match="ABORTED"):
            await call("Watch", {"number": 3})


@pytest.mark.anyio
async def test_credentials_are_those_of_the_caller(shop: Shop) -> None:
    def of(context: ExecutionContext) -> Mapping[str, str] | None:
        return None if context.user_id == "eve" else {"Authorization": f"Bearer {context.user_id}"}

    async with calling(source(shop, credentials=of)) as call:
        shop.seen.clear()
        await call("Echo", context=ExecutionContext(user_id="ann"))
        assert [each["authorization"] for each in shop.seen] == ["Bearer ann"]
        with pytest.raises(ToolError, match="no credential"):
            await call("Echo", context=ExecutionContext(user_id="eve"))


@pytest.mark.anyio
async def test_functions_of_tools_are_shown_without_credentials(shop: Shop) -> None:
    made: list[Tool] = []

    def offer(tools: Iterable[Tool], *, problem: str | None = None) -> None:
        made.extend(tools)

    async with source(shop, credentials={"Authorization": "Bearer hunter2"}).open(offer):
        shown = [repr(tool.function) for tool in made]
    assert shown
    assert "hunter2" not in "".join(shown)


@pytest.mark.anyio
async def test_bounds(shop: Shop) -> None:
    made = source(shop, max_message_bytes=10_000, include=["shop.v1.Orders/*"], needs_approval=True)
    async with calling(made) as call:
        assert sorted(call.tools) == ["Echo", "Fail", "Get", "Watch"]
        assert not call.tools["Get"].needs_approval
        assert call.tools["Echo"].needs_approval
        with pytest.raises(ToolError, match="RESOURCE_EXHAUSTED"):
            await call("Get", {"number": 20_000})


@pytest.mark.anyio
async def test_leaving_a_stream_cancels_its_call(shop: Shop) -> None:
    async with calling(source(shop)) as call:
        tool = call.tools["Watch"]
        items: Any = await tool.open_stream(await tool.parse_input({"number": -1}), ToolCall(ExecutionContext()))
        shop.cancelled.clear()
        assert (await anext(items))["number"] == 1
        await items.aclose()
        assert await anyio.to_thread.run_sync(shop.cancelled.wait, 10)


@pytest.mark.anyio
@pytest.mark.parametrize("target", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "0x7f.1:{port}"])
async def test_private_addresses_are_refused(shop: Shop, target: str) -> None:
    made = GrpcApi("shop", target.format(port=shop.port), tls=False)
    async with calling(made) as call:
        assert call.tools == {}
        assert "blocked" in (call.problem or "")
        assert "allow internal networks with exempt_networks=[...]" in (call.problem or "")


@pytest.mark.anyio
async def test_what_is_out_of_order_is_a_problem(descriptors: bytes) -> None:
    with Shop(descriptors, reflects=False) as shop:
        async with calling(source(shop)) as call:
            assert "does not support reflection" in (call.problem or "")
        async with calling(source(shop, tls=True, timeout_seconds=5)) as call:
            assert "UNAVAILABLE" in (call.problem or "")
            assert "if the server has no TLS, set tls=False" in (call.problem or "")
    async with calling(source(shop, timeout_seconds=5)) as call:
        assert "UNAVAILABLE" in (call.problem or "")
    with pytest.raises(StartFailed, match="UNAVAILABLE"):
        async with calling(source(shop, timeout_seconds=5, required=True)):
            pass


@pytest.mark.anyio
async def test_a_server_that_comes_late_is_asked_again(descriptors: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.sources.opening._RETRY_SECONDS", 0.01)
    with Shop(descriptors) as shop:
        pass
    caller = Caller()
    offered = anyio.Event()

    def offer(tools: Iterable[Tool], problem: str | None = None) -> None:
        caller.offer(tools, problem)
        if problem is None:
            offered.set()

    async with source(shop).open(offer):
        assert "UNAVAILABLE" in (caller.problem or "")
        with Shop(descriptors, port=shop.port):
            await offered.wait()
            assert await caller("Echo") == EMPTY


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"target": "http://x:1"}, "not host:port"),
        ({"target": "x"}, "not host:port"),
        ({"descriptors": b"nonsense"}, "FileDescriptorSet"),
        ({"descriptors": "/nowhere"}, "cannot be read"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"target": "x:1", **options}
    with pytest.raises(ConfigError, match=text):
        GrpcApi("shop", **given)


@pytest.mark.anyio
async def test_programs_call_it(shop: Shop) -> None:
    program = """
    const order = await tools.shop.Echo({ number: 1n, label: new Uint8Array([1, 2]), state: "OPEN" });
    const seen = [];
    for await (const each of tools.shop.Watch({ number: 2 })) seen.push(each.number);
    return [order.label, order.state, seen];
    """
    async with Corral([source(shop)], sandbox=DenoSandbox(isolation="process", pool_size=0), check=False) as corral:
        result = await corral.execute(program)
    assert result.error is None
    assert result.value == [b"\x01\x02", "OPEN", [1, 2]]
