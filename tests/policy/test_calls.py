"""A policy decides on calls of real programs, whatever their form, and no spelling passes it by."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp import Client

from corral import ApprovalRequest, Approved, Corral, ExecutionContext, Limits, define_tool, tool
from corral.bridges.http import HttpBridge
from corral.calls import Call, Grant, Grants, GuardSettings, RateLimits, pipeline
from corral.errors import ConfigError
from corral.integrations.mcp import mcp_server
from corral.ledger import SqliteLedger
from corral.policy import Policy, PolicyCall, Verdict
from corral.sandboxes import CPythonSandbox, DenoSandbox
from corral.tools import ToolRegistry
from corral.types import CallRequest, Language, Reply
from tests.audit.events import read
from tests.bridges.http.serving import Server
from tests.bridges.http.test_executions import Elsewhere

pytestmark = pytest.mark.anyio

RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@tool(namespace="pay")
async def refund(amount: float = 10) -> str:
    """Refunds an order."""
    RAN.append(f"refund {amount:g}")
    return f"refunded {amount:g}"


@tool(namespace="pay", name="export")
async def export_all() -> str:
    """Exports all payments."""
    RAN.append("export")
    return "all"


@tool(stream=True)
async def rows(limit: int) -> AsyncIterator[int]:
    """Reads rows."""
    for number in range(limit):
        RAN.append("row")
        yield number


TOOLS = [refund, export_all, rows]


def rules(*tables: str, first: str = "") -> str:
    return "\n".join([first, *(f"[[rule]]\n{each}" for each in tables), "[end]"])


CAPS = rules(
    'id = "all"\ntools = ["**"]\ndo = "allow"',
    'id = "cap"\ntools = ["pay.refund"]\ndo = "deny"\nunless = { amount = { maximum = 500 } }\nreason = "over 500"',
    'id = "look"\ntools = ["pay.refund"]\ndo = "ask"\nunless = { amount = { maximum = 100 } }',
    'id = "no-export"\ntools = ["pay.export"]\ndo = "deny"',
    'id = "rows"\ntools = ["rows"]\ndo = "deny"\nunless = { limit = { maximum = 2 } }',
)

TYPESCRIPT = """
const said = [];
const attempt = async (call) => { try { said.push(await call()) } catch (e) { said.push(e.name) } };
await attempt(() => tools.pay.refund({ amount: 50 }));
await attempt(() => tools.pay.refund({ amount: 501 }));
await attempt(() => tools["pa" + "y"]["re" + "fund"]({ amount: 600 }));
await attempt(() => tools.pay.refund({ amount: 200 }));
await attempt(async () => { const all = []; for await (const row of tools.rows({ limit: 2 })) all.push(row); return all });
await attempt(async () => { for await (const row of tools.rows({ limit: 3 })) said.push(row) });
await attempt(() => tools.pay.export({}));
await attempt(() => tools.pay["exp" + "ort_"]({}));
await attempt(async () => (await tools.search()).items.map((each) => each.name));
return said;
"""
PYTHON = """
said = []
async def attempt(call):
    try:
        said.append(await call())
    except Exception as error:
        said.append(type(error).__name__)
async def read(limit):
    return [row async for row in tools.rows(limit=limit)]
await attempt(lambda: tools.pay.refund(amount=50))
await attempt(lambda: tools.pay.refund(amount=501))
await attempt(lambda: getattr(getattr(tools, "pa" + "y"), "re" + "fund")(amount=600))
await attempt(lambda: tools.pay.refund(amount=200))
await attempt(lambda: read(2))
await attempt(lambda: read(3))
await attempt(lambda: getattr(tools.pay, "exp" + "ort")())
await attempt(lambda: getattr(tools.pay, "exp" + "ort_")())
async def names():
    return [each["name"] for each in (await tools.search())["items"]]
await attempt(names)
said
"""


async def test_programs_in_both_languages_are_held_to_the_policy(
    warm_deno: DenoSandbox, warm_cpython: CPythonSandbox, tmp_path: Path
) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    log = tmp_path / "audit.jsonl"
    options: dict[str, Any] = {"policy": Policy(texts=[CAPS]), "approve": approve, "check": False, "hide_denied": False}
    programs: list[tuple[Language, Any, str]] = [
        ("typescript", warm_deno, TYPESCRIPT),
        ("python", warm_cpython, PYTHON),
    ]
    for language, sandbox, source in programs:
        async with Corral(TOOLS, sandbox=sandbox, audit=str(log), **options) as corral:
            result = await corral.execute(source, language=language)
            denied = "PolicyDenied"
            assert result.value == [
                "refunded 50", denied, denied, "ApprovalDenied", [0, 1], denied, denied, denied,
                ["rows", "pay.export", "pay.refund"],
            ], result.error  # fmt: skip
        assert RAN == ["refund 50", "row", "row"]
        RAN.clear()
        (request,) = asked
        assert [each.text for each in request.doubts] == ["rule look asks for approval"]
        assert request.reason is None
        asked.clear()
    events = [each for each in await read(log) if each.kind == "call"]
    assert len(events) == 18
    assert {each.policy for each in events} == {Policy(texts=[CAPS]).digest}
    by_tool = [(each.verdict, each.rule, each.outcome) for each in events if each.tool == "pay.refund"]
    once = [("allow", "all", "succeeded"), *[("deny", "cap", "denied")] * 2, ("ask", "look", "denied")]
    assert sorted(by_tool, key=str) == sorted([*once, *once], key=str)


async def test_denied_tools_are_hidden_and_conditions_are_shown(warm_deno: DenoSandbox) -> None:
    async with Corral(TOOLS, sandbox=warm_deno, policy=Policy(texts=[CAPS])) as corral:
        declared = corral.model.declarations()
        assert "export" not in declared
        assert "Policy: denied unless amount <= 500; needs approval unless amount <= 100" in declared
        assert "export" not in corral.model.catalog().text
        result = await corral.execute("return (await tools.search()).items.map((each) => each.name)")
        assert result.value == ["rows", "pay.refund"]
        result = await corral.execute("return await tools.pay.export({})", check=False)
        assert result.error is not None
        assert result.error.code == "tool_not_found"
        assert "denied unless amount <= 500" in corral.model.declarations("python")
    assert RAN == []


async def test_clients_of_mcp_find_no_denied_tool() -> None:
    corral = Corral(TOOLS, policy=Policy(texts=[CAPS]), check=False)
    async with corral.connected(), Client(mcp_server(corral)) as client:
        texts = [str((await client.list_tools()).tools[0].description)]
        for name, arguments in (
            ("search_tools", {"query": "exports all payments"}),
            ("describe_tools", {"name": "pay.refund"}),
            ("describe_tools", {"name": "pay.export"}),
        ):
            texts.append(str((await client.call_tool(name, arguments)).content))
    assert "no tool" in texts.pop()
    assert [("pay" in text, "export" in text) for text in texts] == [(True, False)] * 3, texts


# --- without an engine


class World:
    """Guards of a Corral with this policy, and one execution."""

    def __init__(self, policy: Any, *tools: Any, context: ExecutionContext | None = None) -> None:
        self.tools = ToolRegistry(*tools)
        grants = Grants(lambda: None)  # pyright: ignore[reportArgumentType]
        self.rates = RateLimits()
        self.handler = pipeline(GuardSettings(grants=grants, rates=self.rates, policy=policy))
        self.grant = Grant(context=context or ExecutionContext(), limits=Corral().limits, tools=self.tools)
        grants.open(self.grant)

    async def call(self, name: str, input: Any = None) -> Reply:
        return await self.handler(Call(CallRequest(name, {} if input is None else input, 1), self.grant))


def code_of(reply: Reply) -> str | None:
    return reply.error and reply.error.code


def named(name: str, namespace: str | None = "gh") -> Any:
    async def run(input: Any) -> str:
        RAN.append(name)
        return name

    return define_tool(name=name, namespace=namespace, execute=run)


async def test_no_other_spelling_of_a_tool_passes_a_rule() -> None:
    deny = 'id = "d"\ntools = ["gh.repo_delete", "gh.import_", "**.drop"]\ndo = "deny"'
    world = World(
        Policy(texts=[rules(deny)]), named("repo-delete"), named("import"), named("DROP"), named("drop", None)
    )
    for name in ("gh.repo_delete", "gh.import", "gh.import_", "gh.DROP", "drop"):
        assert code_of(await world.call(name)) == "policy_denied", name
    for name in ("gh.repo-delete", "GH.repo_delete", "gh.Repo_Delete", "gh..repo_delete", "repo_delete", " drop"):
        assert code_of(await world.call(name)) == "tool_not_found", name
    world.tools.register(named("repo_delete"))  # which takes the name, so that the first one gets another
    renamed = [str(name) for name in world.tools if name.name.startswith("repo_delete_")]
    for name in ("gh.repo_delete", *renamed):
        assert code_of(await world.call(name)) == "policy_denied", name
    assert len(renamed) == 1
    world.tools.exchange([world.tools.get("drop")], [named("drop", None)])  # pyright: ignore[reportArgumentType]
    assert code_of(await world.call("drop")) == "policy_denied"
    assert RAN == []


async def test_the_tool_sees_no_value_that_the_policy_did_not() -> None:
    world = World(Policy(texts=[CAPS]), refund)
    assert code_of(await world.call("pay.refund", {"amount": "501"})) == "policy_denied"
    assert code_of(await world.call("pay.refund", {"amount": "5"})) == "policy_denied"  # as passed, it is a text
    assert code_of(await world.call("pay.refund", {})) == "policy_denied"  # its default is in bounds, but is not passed
    when = rules('id = "d"\ntools = ["pay.refund"]\ndo = "deny"\nwhen = { amount = { exclusiveMinimum = 500 } }')
    world = World(Policy(texts=[when]), refund)
    assert code_of(await world.call("pay.refund", {"amount": "501"})) == "policy_denied"
    assert RAN == []
    assert code_of(await world.call("pay.refund", {"amount": "5"})) is None


async def test_tools_of_one_rule_share_its_limit_and_callers_do_not() -> None:
    text = rules('id = "few"\ntools = ["pay.*"]\ndo = "limit"\nlimit = "2/day"')
    world = World(Policy(texts=[text]), *TOOLS, context=ExecutionContext(user_id="ann"))
    assert [code_of(await world.call(f"pay.{name}")) for name in ("refund", "export", "refund")] == [
        None,
        None,
        "rate_limited",
    ]
    assert code_of(await World(Policy(texts=[text]), *TOOLS).call("pay.refund")) is None
    shared = text.replace('"2/day"', '{ organization = "1/day" }')
    world = World(Policy(texts=[shared]), *TOOLS)
    codes: list[str | None] = []
    for user, organization in (("ann", "north"), ("bob", "north"), ("ann", "south")):
        world.grant.context = ExecutionContext(user_id=user, organization_id=organization)
        codes.append(code_of(await world.call("pay.refund")))
    assert codes == [None, "rate_limited", None]
    (limit,) = Policy(texts=[text]).decide(PolicyCall("pay.refund", {}, ExecutionContext())).limits
    (bucket,) = RateLimits().buckets_of([limit], ExecutionContext(organization_id="north"))
    assert bucket.organization == "5:north"  # the node of a Redis Cluster that counts it


async def test_a_policy_of_another_engine_decides_and_one_that_fails_denies() -> None:
    class Engine:
        def decide(self, call: PolicyCall) -> Verdict:
            if call.tool == "rows":
                raise OSError("no connection")
            if call.tool == "pay.export":
                return Verdict(decision="denied")  # pyright: ignore[reportArgumentType]
            return Verdict(decision="allow" if call.scopes else "deny", rule="engine")

    assert code_of(await World(Engine(), *TOOLS).call("pay.refund")) == "policy_denied"
    scoped = ExecutionContext(scopes={"any"})
    assert code_of(await World(Engine(), *TOOLS, context=scoped).call("pay.refund")) is None
    assert code_of(await World(Engine(), *TOOLS, context=scoped).call("rows", {"limit": 1})) == "policy_denied"
    assert code_of(await World(Engine(), *TOOLS, context=scoped).call("pay.export")) == "policy_denied"
    assert RAN == ["refund 10"]


@asynccontextmanager
async def over(
    bridge: Literal["pipe", "http"], tools: list[Any], sandbox: Any, **options: Any
) -> AsyncGenerator[Corral]:
    """A Corral whose programs call over the pipe, or from another process over HTTP."""
    if bridge == "pipe":
        async with Corral(tools, sandbox=sandbox, check=False, **options) as corral:
            yield corral
        return
    protocol = HttpBridge()
    async with Corral(tools, sandbox=sandbox, bridge=protocol, containment="none", check=False, **options) as corral:
        with Server(corral.remote.asgi_app()) as server:
            protocol.url = server.url
            yield corral


class Waiting:
    """Engine that does not answer before it is told to."""

    def __init__(self) -> None:
        self.asked, self.answers = anyio.Event(), anyio.Event()
        self.ended: list[str] = []

    async def decide(self, call: PolicyCall) -> Verdict:
        self.asked.set()
        try:
            await self.answers.wait()
        finally:
            self.ended.append(call.tool)
        return Verdict(decision="allow")


async def test_a_call_that_is_cancelled_while_an_engine_decides_is_not_made() -> None:
    engine = Waiting()
    world = World(engine, *TOOLS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.call, "pay.refund")
        await engine.asked.wait()
        tasks.cancel_scope.cancel()
    assert (engine.ended, RAN) == (["pay.refund"], [])
    engine.answers.set()
    assert code_of(await world.call("pay.refund")) is None


@pytest.mark.matrix("a call that is cancelled while an engine decides; here real programs end")
@pytest.mark.parametrize("end", ["cancelled", "timed_out"])
async def test_a_program_that_ends_while_an_engine_decides_leaves_nothing(warm_deno: DenoSandbox, end: str) -> None:
    engine = Waiting()
    limits = Limits(wall_seconds=2 if end == "timed_out" else 60)
    async with Corral(TOOLS, sandbox=warm_deno, policy=engine, check=False, limits=limits) as corral:
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                result = await corral.execute("return await tools.pay.refund({})")
                assert result.status == "timed_out"

            tasks.start_soon(run)
            await engine.asked.wait()
            if end == "cancelled":
                tasks.cancel_scope.cancel()
        assert (engine.ended, RAN) == (["pay.refund"], [])
        engine.answers.set()
        assert (await corral.execute("return await tools.pay.refund({})")).value == "refunded 10"


SPELLINGS = """
const outcomes = [];
const attempt = async (call) => { try { outcomes.push(await call()) } catch (e) { outcomes.push(e.name) } };
await attempt(() => tools.pay.refund({ amount: 501 }));
await attempt(() => tools["pay"]["refund"]({ amount: 501 }));
await attempt(() => { const { pay } = tools; const { refund: r } = pay; return r({ amount: 501 }) });
await attempt(() => Reflect.get(Reflect.get(tools, "pa" + "y"), atob("cmVmdW5k"))({ amount: 501 }));
await attempt(() => tools["pay.refund"]({ amount: 501 }));
await attempt(() => tools.Pay.refund({ amount: 501 }));
await attempt(() => tools.pay.REFUND({ amount: 501 }));
await attempt(() => tools.pay.refund({ amount: 5010e-1, AMOUNT: 1 }));
await attempt(() => tools.pay.refund({ "amount": "501" }));
await attempt(() => tools.pay.refund([{ amount: 501 }]));
await attempt(() => tools.pay.refund({ __proto__: { amount: 1 }, amount: 501 }));
await attempt(() => tools.pay.refund(Object.create({ amount: 1 })));
await attempt(async () => { await tools.swap(); return await tools.pay.refund({ amount: 501 }) });
return outcomes;
"""


@pytest.mark.matrix("test_no_other_spelling_of_a_tool_passes_a_rule; here over each protocol, and a tool is replaced")
@pytest.mark.parametrize("bridge", ["pipe", "http"])
async def test_no_program_passes_a_rule_over_any_protocol(
    warm_deno: DenoSandbox, tmp_path: Path, bridge: Literal["pipe", "http"]
) -> None:
    @tool
    def swap() -> None:
        corral.tools.exchange([refund], [replaced])

    @tool(namespace="pay", name="refund")
    async def replaced(amount: float = 10) -> str:
        RAN.append(f"replaced {amount:g}")
        return "replaced"

    policy = Policy(texts=[CAPS])
    sandbox = warm_deno if bridge == "pipe" else Elsewhere("node", tmp_path)
    async with over(bridge, [*TOOLS, swap], sandbox, policy=policy) as corral:
        result = await corral.execute(SPELLINGS)
        outcomes: Any = result.value
        assert outcomes, result.error
        assert len(outcomes) == 13
        assert set(outcomes) <= {"PolicyDenied", "ToolNotFound", "InvalidArguments", "TypeError"}
        assert outcomes[-1] == "PolicyDenied"
        assert RAN == []
        assert (await corral.execute("return await tools.pay.refund({ amount: 50 })")).value == "replaced"


# --- files


def test_files_add_up_and_the_second_only_narrows(tmp_path: Path) -> None:
    organization = rules('id = "reads"\ntools = ["*.get_*"]\ndo = "allow"')
    team = rules('id = "all"\ntools = ["**"]\ndo = "allow"', 'id = "no"\ntools = ["hr.**"]\ndo = "deny"')
    for name, text in (("organization", organization), ("team", team)):
        (tmp_path / name).write_text(text)
    both = Policy(tmp_path / "organization", tmp_path / "team")
    decisions = {
        name: both.decide(PolicyCall(name, {}, ExecutionContext())).decision
        for name in ("a.get_b", "a.set_b", "hr.get_b")
    }
    assert decisions == {"a.get_b": "allow", "a.set_b": "deny", "hr.get_b": "deny"}
    with pytest.raises(ConfigError, match="has a rule 'all' too"):
        Policy(texts=[team, team])


def test_a_broken_file_stops_the_corral_and_a_broken_change_keeps_the_rules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "policy.toml"
    with pytest.raises(ConfigError, match=r"policy\.toml cannot be read"):
        Corral(TOOLS, policy=file)
    for wrong in (5, [5], [], "a\0"):
        with pytest.raises(ConfigError):
            Corral(TOOLS, policy=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"Policy\(\): texts"):
        Policy(texts="[end]")
    file.write_text(CAPS[: -len("[end]")])
    with pytest.raises(ConfigError, match="the last line must be"):
        Corral(TOOLS, policy=str(file))
    file.write_text(CAPS)
    policy = Policy(file)
    before = policy.digest
    for broken in ("", "default = 1\n[end]", CAPS.replace('"deny"', '"dent"'), CAPS[:-9]):
        file.write_text(broken)
        with pytest.raises(ConfigError):
            policy.reload()
        assert policy.digest == before
    file.unlink()
    with pytest.raises(ConfigError):
        policy.reload()
    assert policy.decide(PolicyCall("pay.export", {}, ExecutionContext())).decision == "deny"


async def test_a_changed_file_is_in_force_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.policy.policy._LOOK_SECONDS", 0.0)
    file = tmp_path / "policy.toml"
    file.write_text(CAPS)
    world = World(Policy(file), *TOOLS)
    assert code_of(await world.call("pay.export")) == "policy_denied"
    file.write_text(rules('id = "none"\ntools = ["pay.refund"]\ndo = "deny"'))
    assert code_of(await world.call("pay.export")) is None
    assert code_of(await world.call("pay.refund", {"amount": 5})) == "policy_denied"
    with caplog.at_level(logging.ERROR, "corral.policy"):
        file.write_text("broken")
        assert code_of(await world.call("pay.refund", {"amount": 5})) == "policy_denied"
    assert "stays in force" in caplog.text


def test_patterns_that_no_call_could_use_are_refused_with_the_file() -> None:
    tools = ", ".join(f'"{number}{"**k" * 60}"' for number in range(400))
    for table in (f'[[rule]]\nid = "wide"\ntools = [{tools}]\ndo = "deny"', f"[[label]]\ntools = [{tools}]"):
        with pytest.raises(ConfigError, match="400 patterns of tools are too many"):
            Policy(texts=[f"{table}\n[end]"])


def test_a_slow_reader_does_not_bring_back_old_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(CAPS)
    policy = Policy(file)
    file.write_text(rules('id = "old"\ntools = ["rows"]\ndo = "deny"'))
    read, has_read, goes_on = Policy._read, threading.Event(), threading.Event()  # pyright: ignore[reportPrivateUsage]

    def slowly(policy: Policy) -> dict[str, str]:
        texts = read(policy)
        if threading.current_thread() is first:
            has_read.set()
            goes_on.wait()
        return texts

    monkeypatch.setattr(Policy, "_read", slowly)
    first, second = threading.Thread(target=policy.reload), threading.Thread(target=policy.reload)
    first.start()
    has_read.wait()
    file.write_text(rules('id = "new"\ntools = ["**"]\ndo = "deny"'))
    second.start()
    if not policy._reading.locked():  # pyright: ignore[reportPrivateUsage]
        second.join()  # else it waits for the first one
    goes_on.set()
    first.join()
    second.join()
    assert policy.decide(PolicyCall("pay.export", {}, ExecutionContext())).rule == "new"


async def test_an_observing_file_records_and_lets_pass() -> None:
    world = World(Policy(texts=[rules('id = "d"\ntools = ["**"]\ndo = "deny"', first='mode = "observe"')]), *TOOLS)
    call = Call(CallRequest("pay.refund", {}, 1), world.grant)
    assert code_of(await world.handler(call)) is None
    assert call.verdict is not None
    assert (call.verdict.decision, call.verdict.would, call.verdict.rule) == ("allow", "deny", "d")
    policy = Policy(texts=[CAPS, rules('id = "d"\ntools = ["**"]\ndo = "deny"', first='mode = "observe"')])
    assert "pay.refund" in [
        str(name) for name in world.tools.visible_to(frozenset(), policy.view(ExecutionContext(), frozenset()))
    ]
    assert code_of(await World(policy, *TOOLS).call("pay.export")) == "policy_denied"


async def test_a_rule_can_deny_search_and_a_default_does_not(warm_deno: DenoSandbox) -> None:
    source = "try { return (await tools.search()).total } catch (e) { return e.name }"
    strict = rules('id = "refund"\ntools = ["pay.refund"]\ndo = "allow"')
    for text, value in ((strict, 1), (rules('id = "no"\ntools = ["search"]\ndo = "deny"'), "PolicyDenied")):
        corral = Corral(TOOLS, sandbox=warm_deno, policy=Policy(texts=[text]), check=False)
        assert (await corral.execute(source)).value == value


# --- tenants

TENANTS = rules(
    'id = "all"\ntools = ["**"]\ndo = "allow"',
    'id = "north-cap"\ntools = ["pay.refund"]\ndo = "deny"\nwho = { organizations = ["north"] }\n'
    'unless = { amount = { maximum = 100 } }\nreason = "northern contract"',
    'id = "south-none"\ntools = ["pay.export"]\ndo = "deny"\nwho = { organizations = ["south"] }\n'
    'reason = "southern contract"',
)


async def expect_separation(sandbox: DenoSandbox, count: int) -> None:
    """Mixed executions of two organizations: each gets its own decisions and texts."""
    source = """
    const said = [];
    for (const call of [() => tools.pay.refund({ amount: 200 }), () => tools.pay.export({})])
      try { said.push(await call()) } catch (e) { said.push(e.message) }
    return [said, (await tools.search()).items.map((each) => each.name)];
    """
    policy = Policy(texts=[TENANTS])
    expected: dict[str, tuple[list[str], str]] = {
        "north": (
            ["tools.pay.refund: rule north-cap denies this call: northern contract", "all"],
            "rows pay.export pay.refund",
        ),
        "south": (["refunded 200", "no tool"], "rows pay.refund"),
    }
    async with Corral(TOOLS, sandbox=sandbox, policy=policy, check=False) as corral:
        for number in range(count):
            organization = "north" if number * 7 % 3 else "south"
            context = ExecutionContext(user_id="same", organization_id=organization)
            result = await corral.execute(source, context=context)
            assert result.error is None
            said, found = result.value
            (own, names) = expected[organization]
            assert all(text.startswith(each) for text, each in zip(said, own, strict=True)), said
            assert found == names.split()
            assert ("north" if organization == "south" else "south") not in str(result.value)


async def test_organizations_see_only_their_own_rules(warm_deno: DenoSandbox) -> None:
    await expect_separation(warm_deno, 12)


@pytest.mark.matrix("12 of the same executions; here 1,000")
async def test_a_thousand_executions_of_two_organizations_see_only_their_own_rules(warm_deno: DenoSandbox) -> None:
    await expect_separation(warm_deno, 1_000)


# --- durable executions


async def test_a_resumed_program_is_held_to_the_policy_then_in_force(warm_deno: DenoSandbox, tmp_path: Path) -> None:
    source = """
    const first = await tools.pay.refund({ amount: 200 });
    try { return [first, await tools.pay.refund({ amount: 300 })] } catch (e) { return [first, e.message] }
    """
    options: dict[str, Any] = {
        "sandbox": warm_deno,
        "ledger": SqliteLedger(tmp_path / "runs.db", keys={}),
        "check": False,
    }
    async with Corral(TOOLS, policy=Policy(texts=[CAPS]), **options) as corral:
        paused = await corral.execute(source, durable=True)
        assert (paused.status, RAN) == ("paused", [])
    narrower = CAPS.replace("maximum = 500", "maximum = 250")
    async with Corral(TOOLS, policy=Policy(texts=[narrower]), **options) as corral:
        (pending,) = await corral.executions.waiting()
        (request,) = pending.calls
        assert [each.text for each in request.doubts] == ["rule look asks for approval"]
        await corral.executions.settle(request.execution_id, {request.sequence: Approved()})
        result = await corral.executions.resume(request.execution_id)
        assert result.value == ["refunded 200", "tools.pay.refund: rule cap denies this call: over 500"]
    assert RAN == ["refund 200"]
