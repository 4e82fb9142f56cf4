"""What a program could do is known before it runs, and a program that lacks scopes for it does not start."""

from __future__ import annotations

import pytest

from corral import Corral, ExecutionContext, tool
from corral.results import ProgramCapabilities
from corral.sandboxes import DenoSandbox

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    return "seen"


@tool(scopes={"files:write"}, namespace="files")
async def remove(path: str) -> str:
    return f"removed {path}"


@tool(any_scope={"mail:send", "mail:admin"})
async def send(to: str) -> str:
    return f"sent to {to}"


TOOLS = [look, remove, send]


async def test_the_result_says_which_tools_and_scopes_the_program_names(warm_deno: DenoSandbox) -> None:
    context = ExecutionContext(scopes={"files:write", "mail:admin"})
    program = (
        "await tools.look(); if (0) await tools.files.remove({ path: 'x' }); return (await tools.send({ to: 'y' }))"
    )
    result = await Corral(TOOLS, sandbox=warm_deno, check=False).execute(program, context=context)
    assert result.value == "sent to y"
    assert result.capabilities == ProgramCapabilities(
        tools=("look", "files.remove", "send"), scopes=("files:write", "mail:admin", "mail:send")
    )
    assert '"capabilities":{"tools":["look"' in result.to_json()


async def test_a_program_that_names_tools_it_has_no_scopes_for_does_not_start(warm_deno: DenoSandbox) -> None:
    result = await Corral(TOOLS, sandbox=warm_deno, check=False).execute(
        "await tools.look();\nawait tools.files.remove({ path: 'x' });\nawait tools.send({ to: 'y' });"
    )
    assert (result.status, result.tool_calls, result.containment) == ("rejected", (), None)
    assert result.error is not None
    assert (result.error.code, result.error.name, result.error.line) == ("scope_denied", "ScopeDenied", 2)
    assert result.error.message == (
        "tools.files.remove needs the scope files:write; tools.send needs one of the scopes mail:admin, mail:send"
    )
    assert result.capabilities is not None
    assert result.capabilities.tools == ("look", "files.remove", "send")


async def test_a_computed_name_may_be_any_tool_and_is_denied_when_it_is_called(warm_deno: DenoSandbox) -> None:
    program = "const name = 'se' + 'nd'; try { await tools[name]({ to: 'y' }) } catch (e) { return e.code }"
    result = await Corral(TOOLS, sandbox=warm_deno, check=False).execute(program)
    assert result.value == "scope_denied"
    assert result.capabilities == ProgramCapabilities(any_tool=True)


async def test_a_bare_namespace_means_all_of_its_tools_but_denies_nothing_early(warm_deno: DenoSandbox) -> None:
    result = await Corral(TOOLS, sandbox=warm_deno, check=False).execute(
        "const files = tools.files; return Object.keys(files)"
    )
    assert result.value == ["remove"]
    assert result.capabilities is not None
    assert result.capabilities.tools == ("files.remove",)


async def test_names_of_no_tool_are_left_to_the_call(warm_deno: DenoSandbox) -> None:
    result = await Corral(TOOLS, sandbox=warm_deno, check=False).execute(
        "try { await tools.lok() } catch (e) { return e.message }"
    )
    assert "did you mean look?" in result.value
    assert result.capabilities == ProgramCapabilities()


async def test_implied_scopes_count_for_the_preflight_and_for_the_call(warm_deno: DenoSandbox) -> None:
    corral = Corral(
        TOOLS, implied_scopes={"admin": {"files:write", "mail"}, "mail": {"mail:send"}}, sandbox=warm_deno, check=False
    )
    program = "return [await tools.files.remove({ path: 'x' }), await tools['se' + 'nd']({ to: 'y' })]"
    allowed = await corral.execute(program, context=ExecutionContext(scopes={"admin"}))
    assert allowed.value == ["removed x", "sent to y"]
    denied = await corral.execute(program, context=ExecutionContext(scopes={"mail"}))
    assert (denied.error and denied.error.code) == "scope_denied"


async def test_nothing_is_implied_that_was_not_configured(warm_deno: DenoSandbox) -> None:
    held = {"files", "files:*", "*", "admin", "files:write:all", "FILES:WRITE"}
    result = await Corral(TOOLS, sandbox=warm_deno, check=False).execute(
        "await tools.files.remove({ path: 'x' })", context=ExecutionContext(scopes=held)
    )
    assert (result.error and result.error.code) == "scope_denied"
