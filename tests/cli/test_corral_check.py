"""`Corral.check`: what a program that is not run is told."""

from __future__ import annotations

import pytest

from corral import Corral, Limits, define_tool
from corral.checking import CheckResult
from corral.checking.servers.language_server import spares
from corral.errors import ConfigError
from corral.results import Diagnostic
from tests.conftest import add, echo
from tests.processes import assert_ending, descendants

pytestmark = pytest.mark.anyio


async def test_on_a_corral_that_is_not_open_the_server_ends_with_it() -> None:
    spares.end()
    corral, before = Corral([add]), set(descendants())
    assert await corral.check("return await tools.add({ a: 1, b: 2 })") == CheckResult(
        language="typescript", checked=True
    )
    started = set(descendants()) - before
    assert started
    await corral.aclose()
    spares.end()
    assert_ending(started)
    with pytest.raises(ConfigError, match="closed"):
        await corral.check("return 1")


async def test_a_program_is_checked_against_the_tools_that_it_would_get() -> None:
    async with Corral([add]) as corral:
        mistaken = await corral.check('await tools.add(a="one", b=2)', "python")
        assert (mistaken.checked, mistaken.passed) == (True, False)
        [error] = mistaken.diagnostics
        assert (error.severity, error.line) == ("error", 1)
        assert "declared: tools.add(" in mistaken.model_text()
        other = await corral.check("await tools.add(a=1, b=2)", "python", tools=[echo])
        assert not other.passed


async def test_the_first_check_waits_until_all_tools_are_declared() -> None:
    async def execute(input: object) -> object:
        return input

    tools = [define_tool(name=f"look_up_{number}", description="x", execute=execute) for number in range(500)]
    async with Corral(tools) as corral:
        assert (await corral.check("return await tools.look_up_1({})")).checked


def test_without_an_event_loop_it_works_too() -> None:
    program = "return await tools.add({ a: 1, b: 2 })"
    with Corral([add]) as corral:
        assert corral.sync.check(program).checked
        assert corral.sync.execute(program, check=True).checked
        assert corral.sync.check("return process.env.A", env=True).passed


async def test_what_cannot_be_a_program_needs_no_server() -> None:
    corral, before = Corral(limits=Limits(source_bytes=28)), set(descendants())
    broken = await corral.check("x = 1\ntools.add(a=1, b=2)", "python")
    assert [(each.code, each.line) for each in broken.diagnostics] == [("program_rejected", 2)]
    assert broken.model_text().startswith("The program would not run.\nline 2, column 1: tools.add(...) ")
    large = await corral.check("return 'more than is allowed'")
    assert [each.message for each in large.diagnostics] == ["the program has 29 bytes; 28 are allowed"]
    assert (broken.checked, large.checked) == (False, False)
    assert set(descendants()) <= before
    with pytest.raises(ConfigError, match="takes 'typescript' or 'python', not 'ruby'"):
        await corral.check("1", "ruby")  # pyright: ignore[reportArgumentType]


def test_a_model_reads_what_keeps_a_program_from_running_before_the_rest() -> None:
    warning = Diagnostic(severity="warning", message="a bit odd", line=1, column=2)
    error = Diagnostic(severity="error", message="all wrong", line=3, column=4)
    shown = {
        (
            error,
            warning,
        ): "The program would not run.\nline 3, column 4: all wrong\n\nNotes:\n- line 1, column 2: a bit odd",
        (warning,): "The program fits the declarations.\n\nNotes:\n- line 1, column 2: a bit odd",
        (): "The program fits the declarations.",
    }
    for diagnostics, text in shown.items():
        assert CheckResult(language="python", checked=True, diagnostics=diagnostics).model_text() == text
    unchecked = CheckResult(language="python", checked=False)
    assert unchecked.model_text() == "The program parses. Its types were not checked."
    assert len(CheckResult(language="python", checked=True, diagnostics=(error,) * 99).model_text(1_000)) <= 1_000
