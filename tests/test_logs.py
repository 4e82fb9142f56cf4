"""What programs, tools and engines say cannot forge a line of the host's log, nor drive the terminal it is read in."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from corral import Corral, ExecutionContext, tool
from corral.errors import StartFailed
from corral.logs import Lines, get_logger
from corral.sandboxes import CPythonSandbox, DenoSandbox, Sandbox, SandboxProvider
from corral.types import Capabilities, Language, SandboxConfig

ANN = ExecutionContext(user_id="ann")
FORGED = "x\n2026-01-01 12:00:00 CRITICAL app: forged\r\n\x1b[2J\x1b]0;owned\x07\u2028\u202e\x85end"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("LOG %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger("corral")
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield written
    root.removeHandler(handler)
    root.setLevel(level)


def assert_fit(text: str) -> None:
    assert text
    for line in text.removesuffix("\n").split("\n"):
        assert line.startswith(("LOG ", "    | ")), line
        assert line.replace("\t", "").isprintable(), line


@pytest.mark.parametrize("given", [FORGED, ValueError(FORGED), [FORGED], FORGED.encode()])
@pytest.mark.parametrize("template", ["told %s", "told %r"])
def test_whatever_a_record_is_given_is_one_line(log: io.StringIO, given: object, template: str) -> None:
    get_logger("corral.test").warning(template, given)
    assert_fit(log.getvalue())
    assert log.getvalue().count("\n") == 1
    assert "forged" in log.getvalue()


def test_tracebacks_and_programs_are_indented(log: io.StringIO) -> None:
    try:
        raise ValueError(FORGED) from KeyError(FORGED)
    except ValueError:
        get_logger("corral.test").exception("%d failed", 7)
    get_logger("corral.test").debug("runs:\n%s", Lines(FORGED))
    assert_fit(log.getvalue())
    assert "    | ValueError: x\n    | 2026-01-01" in log.getvalue()


def test_a_long_text_is_shortened_and_numbers_stay_numbers(log: io.StringIO) -> None:
    get_logger("corral.test").warning("%s %.1f %d %s", "x" * 1_000_000, 1.25, 3, None)
    assert len(log.getvalue()) < 11_000
    assert log.getvalue().endswith("x 1.2 3 None\n")
    assert "990000 characters" in log.getvalue()


@tool
async def broken(text: str) -> str:
    """Raises what it is given."""
    raise RuntimeError(text)


@pytest.mark.anyio
async def test_a_tools_own_frames_are_in_the_log_and_what_the_line_is_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Corral([broken], sandbox="monty", check=False) as corral:
        for level in (logging.INFO, logging.DEBUG):
            with caplog.at_level(level, "corral.tools"):
                await corral.execute("await tools.broken(text='x')", language="python", context=ANN)
    short, long = (each for each in caplog.records if "failed in execution" in each.getMessage())
    frames = [line for line in (short.exc_text or "").splitlines() if 'File "' in line]
    assert [line.partition(", in ")[2] for line in frames] == ["broken"]
    assert "dispatch.py" in (long.exc_text or "")
    fields = vars(short)
    assert (fields["tool"], fields["user_id"]) == ("broken", "ann")
    assert fields["execution_id"] in short.getMessage()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("python", f"import os\nos.write(2, {FORGED.encode()!r})\nos._exit(3)"),
        ("python", f"try:\n    await tools.broken(text={FORGED!r})\nexcept ToolError: pass\n{FORGED!r}"),
        ("typescript", f"await tools[{FORGED[:100]!r}]({{}})".replace("\\x1b", "\\u001b").replace("\\x07", "")),
    ],
)
async def test_no_program_writes_a_line_of_the_log(
    log: io.StringIO, language: Language, program: str, warm: dict[Language, str | SandboxProvider]
) -> None:
    async with Corral([broken], sandbox=warm, check=False) as corral:
        await corral.execute(program, language=language)
    assert_fit(log.getvalue())


@pytest.mark.anyio
async def test_a_name_that_no_tool_can_have_does_not_leave_a_python_program(
    log: io.StringIO, warm_cpython: CPythonSandbox
) -> None:
    async with Corral([broken], sandbox=warm_cpython, check=False) as corral:
        result = await corral.execute(f"await tools[{FORGED[:100]!r}]()", language="python")
    assert result.error is not None
    assert result.error.code == "tool_not_found"
    assert "forged" not in log.getvalue().lower()


class Absent(SandboxProvider):
    name = "absent"

    @property
    def capabilities(self) -> Capabilities:
        return DenoSandbox().capabilities

    async def start(self, config: SandboxConfig) -> Sandbox:
        raise StartFailed("there is no engine at /opt/engines/deno: ==== C stack trace ====\n")


@pytest.mark.anyio
async def test_why_a_sandbox_does_not_start_is_the_operators_to_know(log: io.StringIO) -> None:
    async with Corral([broken], sandbox=Absent(), check=False) as corral:
        with pytest.raises(StartFailed, match="/opt/engines"):
            await corral.execute("1")
        with pytest.raises(StartFailed, match="correlation id") as told:
            await corral.model.tools()[0].run({"code": "1"})
    assert "/opt" not in str(told.value)
    assert "/opt/engines/deno: ==== C stack trace" in log.getvalue()
    assert str(told.value).split("correlation id ")[1].rstrip(")") in log.getvalue()
    assert_fit(log.getvalue())
