"""Tools that a caller may not call are hidden from it: nothing that it sees tells them from tools that never were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from corral import Corral, ExecutionContext, ExecutionResult, Tool, define_tool, tool
from corral.sandboxes import DenoSandbox
from corral.sandboxes.selection import Sandboxes
from corral.tools import ToolRegistry
from corral.types import Language
from tests.audit.events import read

pytestmark = pytest.mark.anyio

ROOT = ExecutionContext(user_id="root", scopes={"root"})
ANN = ExecutionContext(user_id="ann", scopes={"mail"})
IMPLIED = {"root": {"admin", "billing"}}


@tool
async def get_user(id: int) -> str:
    """Gets a user."""
    return f"user {id}"


@tool(namespace="mail", scopes={"mail"})
async def send(to: str) -> str:
    """Sends a mail."""
    return f"sent to {to}"


@tool(scopes={"admin"})
async def get_user_secret(id: int, password: str = "") -> str:
    """Gets the secret of a user."""
    return "s3cret"


@tool(namespace="billing", any_scope={"billing", "auditor"})
async def refund(order: int) -> str:
    """Refunds an order."""
    return f"refunded {order}"


VISIBLE, HIDDEN = [get_user, send], [get_user_secret, refund]

PROGRAMS: dict[Language, list[str]] = {
    "typescript": [
        "return [Object.keys(tools), 'billing' in tools, tools.get_user_secret, tools.billing, await tools.mail.send({ to: 'x' })]",
        "await tools.get_user_secret({ id: 1 })",
        "await tools.billing.refund({ order: 1 })",
        "await tools.billing.refunds({ order: 1 })",
        "if (false) await tools.billing.refund({ order: 'x' }); return 1",
        "const { refund } = tools.billing; return refund",
        "get_user_secret({ id: 1 })",
        "return await tools['get_user_' + 'secret']({ id: 1 })",
        "try { await tools['bill' + 'ing'].refund(1) } catch (e) { return [e.name, e.code, e.message] }",
        (
            "const all = ['secret', 'refund', 'billing', 'get_user_secret', 'tools.billing.refund', ''];"
            "return await Promise.all(all.map((query) => tools.search(query)))"
        ),
        "return await tools.search({ namespace: 'billing' })",
        "return await tools.describe(['get_user_secret', 'billing.refund', 'billing', 'get_usr'])",
        "return await tools.describe('billing')",
    ],
    "python": [
        "[list(tools), await tools.mail.send(to='x')]",
        "await tools.get_user_secret(id=1)",
        "await tools.billing.refund(order=1)",
        "get_user_secret(id=1)",
        "await tools['get_user_' + 'secret'](id=1)",
        (
            "try:\n    r = await getattr(tools, 'bill' + 'ing').refund(order=1)\n"
            "except Exception as e:\n    r = [e.code, str(e)]\nr"
        ),
        "[await tools.search(q) for q in ['secret', 'refund', 'billing', 'get_user_secret', '']]",
        "await tools.describe(['get_user_secret', 'billing.refund', 'get_usr'])",
    ],
}


def without_times(result: ExecutionResult) -> ExecutionResult:
    calls = tuple(replace(each, started=0, duration_ms=0) for each in result.tool_calls)
    return replace(result, execution_id="", duration_ms=0, tool_calls=calls)


def many() -> list[Tool]:
    """So many that programs are checked against those alone that they name."""

    def execute(input: object) -> None: ...

    return [define_tool(name=f"t{number}", execute=execute) for number in range(201)]


@pytest.mark.parametrize(
    ("language", "check"),
    [
        pytest.param("typescript", "required", id="typescript-checked"),
        pytest.param("python", False, id="python-unchecked"),
        *(
            pytest.param(
                *(language, check),
                id=f"{language}-{'checked' if check else 'unchecked'}",
                marks=pytest.mark.matrix("the gate checks it in one language and not in the other"),
            )
            for language, check in (("typescript", False), ("python", "required"))
        ),
    ],
)
async def test_to_a_program_they_are_as_if_they_had_never_been(language: Language, check: Any, warm: Sandboxes) -> None:
    more = many() if check else []
    options: Any = {"sandbox": warm, "check": check}
    async with (
        Corral([*VISIBLE, *HIDDEN, *more], hide_denied=True, implied_scopes=IMPLIED, **options) as hiding,
        Corral([*VISIBLE, *more], implied_scopes=IMPLIED, **options) as bare,
    ):
        for program in PROGRAMS[language]:
            await hiding.execute(program, language=language, context=ROOT)  # what is kept of it is not for others
            result = await hiding.execute(program, language=language, context=ANN)
            assert without_times(result) == without_times(await bare.execute(program, language=language, context=ANN))


async def test_who_has_the_scopes_also_by_others_that_imply_them_sees_and_calls_them() -> None:
    async with Corral([*VISIBLE, *HIDDEN], hide_denied=True, implied_scopes=IMPLIED, check="required") as corral:
        program = "return [Object.keys(tools), await tools.billing.refund({ order: 2 }), (await tools.search('secret')).total]"
        result = await corral.execute(program, context=ROOT)
        assert result.value == [["get_user", "get_user_secret", "billing"], "refunded 2", 1]
        shown = await corral.execute("return Object.keys(tools)", context=ANN, hide_denied=False)
        assert shown.value == ["get_user", "get_user_secret", "billing", "mail"]
        assert (await corral.check("return tools.billing.refund({ order: 1 })", context=ROOT)).passed
        assert not (await corral.check("return tools.billing.refund({ order: 1 })")).passed


async def test_one_execution_may_hide_what_others_see(warm_deno: DenoSandbox) -> None:
    corral = Corral([*VISIBLE, *HIDDEN], sandbox=warm_deno, check=False)
    program = "try { return await tools['get_user_' + 'secret']({ id: 1 }) } catch (e) { return e.code }"
    assert (await corral.execute(program)).value == "scope_denied"
    assert (await corral.execute(program, hide_denied=True)).value == "tool_not_found"
    own = await corral.execute("return Object.keys(tools)", tools=[get_user_secret, get_user], hide_denied=True)
    assert own.value == ["get_user"]


async def test_a_tool_that_comes_while_a_program_runs_is_seen_by_those_who_may_call_it(warm_deno: DenoSandbox) -> None:
    tools = ToolRegistry()

    @tool
    async def change() -> None:
        tools.register(*VISIBLE, *HIDDEN)

    tools.register(change)
    program = (
        "await tools.change(); const found = (await tools.search()).items.map((each) => each.name);"
        "try { return [found, await tools.billing.refund({ order: 1 })] } catch (e) { return [found, e.code] }"
    )
    async with Corral(tools, hide_denied=True, implied_scopes=IMPLIED, sandbox=warm_deno, check=False) as corral:
        assert (await corral.execute(program, context=ANN)).value == [
            ["change", "get_user", "mail.send"],
            "tool_not_found",
        ]
        for name in ("get_user", "mail.send", "get_user_secret", "billing.refund"):
            tools.remove(name)
        assert (await corral.execute(program, context=ROOT)).value == [
            ["change", "get_user", "get_user_secret", "billing.refund"],
            "refunded 1",
        ]


async def test_what_was_hidden_is_on_record_as_denied(tmp_path: Path) -> None:
    place = tmp_path / "audit.jsonl"
    async with Corral([*VISIBLE, *HIDDEN], hide_denied=True, check="required", audit=str(place)) as corral:
        named = await corral.execute("await tools.billing.refund({ order: 1 })")
        found = await corral.execute("await tools['get_user_' + 'secret']({ id: 1, password: 'hunter2' })")
        await corral.execute("await tools['get_user_' + 'secrets']({ id: 1 })")
    assert named.error is not None
    assert found.error is not None
    assert (named.error.code, found.error.code) == ("program_rejected", "tool_not_found")
    events = await read(place)
    assert [(each.tool or each.kind, each.outcome, each.code) for each in events] == [
        ("execution", "denied", "scope_denied"),
        ("get_user_secret", "denied", "scope_denied"),
        ("execution", "failed", "tool_not_found"),
        ("get_user_secrets", "failed", "tool_not_found"),
        ("execution", "failed", "tool_not_found"),
    ]
    assert events[0].reason == "tools.billing.refund needs one of the scopes auditor, billing"
    assert events[1].reason == "tools.get_user_secret needs the scope admin"
    assert "hunter2" not in place.read_text()


async def test_a_program_elsewhere_sees_no_more(warm_deno: DenoSandbox) -> None:
    corral = Corral([*VISIBLE, *HIDDEN], hide_denied=True, implied_scopes=IMPLIED, sandbox=warm_deno, check=False)
    transport = httpx.ASGITransport(corral.remote.asgi_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for context, status, total in ((ANN, 404, 0), (ROOT, 200, 1)):
            with corral.remote.grant(context) as execution:
                client.headers["authorization"] = f"Bearer {execution.token()}"
                assert (await client.post("/tools/billing.refund", json={"order": 1})).status_code == status
                assert (await client.post("/tools/search", json="refund")).json()["total"] == total
