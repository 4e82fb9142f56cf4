"""What Python programs can do with tools, and how a Corral runs them: engines, scopes, events, users, event loops."""

from __future__ import annotations

import re
import subprocess
import sys
from enum import StrEnum
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import TypedDict

from corral import Corral, ExecutionContext, define_tool, tool
from corral.errors import StartFailed, UnknownProvider
from corral.events import Event
from corral.results import ProgramCapabilities
from corral.sandboxes import CPythonSandbox, DenoSandbox
from corral.sandboxes.monty import MontySandbox
from corral.tools import ToolRegistry
from tests.conftest import TOOLS
from tests.e2e.python_engines import Python, code_of, provider
from tests.forks import run_forked
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio


async def back(given: Any) -> Any:
    return given


async def here(_: Any) -> str:
    return "here"


LANDLOCK = pytest.param(
    "landlock", marks=pytest.mark.matrix("tests/security attacks this tier; the gate has the other one")
)

# --- results


async def test_the_value_is_what_the_model_meant(python: Python) -> None:
    wrong = Wrong()
    for program, value in [
        ("{'a': 1}", {"a": 1}),
        ("x = 40\nx + 2", 42),
        ("return [1, 2]", [1, 2]),
        ("def main():\n    return 3", 3),
        ("async def main():\n    return await tools.echo(4)\nmain()", 4),
        ("async def main():\n    return await tools.echo(4)\nif __name__ == '__main__':\n    import asyncio\n    asyncio.run(main())", 4),
        ("for n in range(3):\n    result = n", 2),
        ("lambda: 1", 1),
        ("Here:\n\n```python\nn = await tools.echo(5)\nn\n```\nThat is all.", 5),
        ("import tools\nawait tools.echo(6)", 6),
        ("from tools import echo\nawait echo(7)", 7),
    ]:  # fmt: skip
        with wrong.case(program):
            assert await python.value(program) == value
    assert wrong == []


async def test_a_program_without_a_value_is_told_so(python: Python) -> None:
    result = await python.run("for n in range(3):\n    pass")
    assert (result.value, result.language) == (None, "python")
    assert "The program has no result" in result.model_text()


# --- calling


async def test_arguments_become_the_input(python: Python) -> None:
    wrong = Wrong()
    for call, input in [
        ("tools.accept()", {}),
        ("tools.accept(a=1, b=[None, True])", {"a": 1, "b": [None, True]}),
        ("tools.accept({'a': 1})", {"a": 1}),
        ("tools.accept([1, 2])", [1, 2]),
        ("tools.accept('text')", "text"),
        ("tools.accept(None)", None),
        ("tools.accept(**{'odd key': 1})", {"odd key": 1}),
        ("codemode.accept(a=1)", {"a": 1}),
    ]:
        with wrong.case(call):
            python.received.clear()
            assert await python.value(f"await {call}") is None
            assert python.received == [input]
    assert wrong == []


async def test_tools_may_be_kept_passed_on_and_found_by_name(python: Python) -> None:
    program = "ask = tools.echo\nout = [await ask(1)]\nfor each in [tools.echo, tools.add]:\n    out.append(await each(a=1, b=2))\nout"
    assert await python.value(program) == [1, {"a": 1, "b": 2}, 3]


async def test_tools_can_be_listed_and_not_replaced(cpython: Python) -> None:
    program = "try:\n    tools.add = 1\nexcept AttributeError as error:\n    out = str(error)\n[list(tools)[:2], 'add' in tools, 'nope' in tools, out]"
    assert await cpython.value(program) == [["accept", "add"], True, False, "tools.add cannot be set"]
    assert await cpython.value("await tools['add'](a=1, b=2)") == 3
    assert await cpython.value("await getattr(tools, 'add')(a=1, b=2)") == 3


@pytest.mark.parametrize("name", ["get-weather", "class", "2fa"])
async def test_a_tool_whose_name_is_no_identifier_can_be_called_as_it_is_declared(python: Python, name: str) -> None:
    weather = define_tool(name=name, description="The weather.", execute=here)
    registry = ToolRegistry(weather)
    declared = Corral(registry, check=False).model.declarations("python")
    [shown] = [str(each) for each in registry.snapshot()]
    assert shown.isidentifier()
    assert f"{shown}(" in declared
    if python.engine == "monty" and shown.startswith("_"):  # it asks nobody for names like that
        assert "has no attribute" in str((await python.run(f"await tools.{shown}()", tools=registry)).error)
    else:
        assert await python.value(f"await tools.{shown}()", tools=registry) == "here"


def test_a_tool_that_does_not_say_what_it_returns_is_declared_as_any(caplog: pytest.LogCaptureFixture) -> None:
    corral = Corral([define_tool(name=name, execute=print) for name in ("one", "two")], check=False)
    for _ in range(2):
        assert "async def one(" in corral.model.declarations("python")
    assert "Any" in corral.model.declarations("python")
    assert len([record for record in caplog.records if "do not declare a return type" in record.message]) == 1
    assert "one, two" in caplog.text


def test_two_types_of_the_same_name_are_told_apart() -> None:
    def with_address(name: str, member: str) -> Any:
        address = {
            "type": "object",
            "title": "Address",
            "properties": {member: {"type": "string"}},
            "required": [member],
        }
        schema = {"type": "object", "properties": {"to": {"$ref": "#/$defs/Address"}}, "$defs": {"Address": address}}
        return define_tool(name=name, input_schema=schema, execute=print)

    declared = Corral(
        [with_address("ship", "street"), with_address("mail", "mailbox")], check=False
    ).model.declarations("python")
    shapes = re.findall(r"class (\w*Address\w*)\(", declared)
    assert len(set(shapes)) == 2
    assert "street" in declared
    assert "mailbox" in declared


class Severity(StrEnum):
    """In declarations a `Literal`."""

    SEVERE = "severe"
    IN_REVIEW = "in-review"


class Alarm(TypedDict):
    number: int
    severity: Severity
    causes: list[Alarm]


@tool
async def raise_alarm(alarm: Alarm, others: list[Severity]) -> Alarm:
    return alarm


TYPED = "a = Alarm(number=1, severity='severe', causes=[])\n"


@pytest.mark.parametrize("check", [True, False])
async def test_declared_types_are_there_where_a_program_uses_them_as_values(cpython: Python, check: bool) -> None:
    wrong = Wrong()
    for program, value in [
        (f"{TYPED}(await tools.raise_alarm(alarm=a, others=[]))['number']", 1),
        ("from typing import cast\na = cast(Alarm, {'number': 2})\na['number']", 2),
        ("from typing import get_args\nlist(get_args(Severity))", ["severe", "in-review"]),
        ("class More(Alarm):\n    note: str\n\nMore(number=3, severity='severe', causes=[], note='a')['note']", "a"),
        ("from typing import get_type_hints\nlist(get_type_hints(Alarm))", ["number", "severity", "causes"]),
        ("from typing import Generic, TypeVar\nT = TypeVar('T', bound=Alarm)\nclass Box(Generic[T]):\n    pass\n\nclass Alarms(Box[Alarm]):\n    pass\n\n4", 4),
        ("from collections import defaultdict\nd = defaultdict[str, list[Alarm]](list)\nlen(d['a'])", 0),
        (f"from tools import Alarm, raise_alarm\n{TYPED}(await raise_alarm(alarm=a, others=[]))['number']", 1),
        ("class Alarm:\n    number = 5\n\nAlarm.number", 5),
    ]:  # fmt: skip
        with wrong.case(program):
            assert await cpython.value(program, tools=ToolRegistry(raise_alarm), check=check) == value
    assert wrong == []


@pytest.mark.parametrize("named", [False, True])
async def test_no_text_of_a_schema_runs_with_the_types_that_a_program_uses(cpython: Python, named: bool) -> None:
    ends = ['"""', "'''", '\\"""', '"', "\\", "\r", "\x0c", "\x1c", "\x85", "\u2028", "\n"]
    texts = [f'a{end}\n    x = print("ran"){before}print("ran")\n{end}' for end in ends for before in ("\n", ";", "\r")]
    schema: dict[str, Any] = {
        "title": "Order",
        "type": "object",
        "description": "\n\n".join(texts),
        "properties": {
            (text if named else f"p{number}"): {"description": text, "enum": ["a", text], "default": text}
            for number, text in enumerate(texts)
        },
    }

    def execute(input: object) -> object: ...

    hostile = define_tool(name="get_order", execute=execute, output_schema=schema)
    program = "order = Order()\n[order, list[Order] is not None]"
    result = await cpython.run(program, tools=ToolRegistry(hostile), check=False)
    assert (result.value, result.console) == ([{}, True], "")


async def test_a_literal_that_is_taken_for_an_enum_is_answered_with_what_to_write(cpython: Python) -> None:
    wrong = Wrong()
    for program, hint in [
        ("Severity.in_review", 'Write `"in-review"`.'),
        ("Severity['SEVERE']", 'Write `"severe"`.'),
        ("Severity.mild", 'the values "severe", "in-review". Write one of them.'),
        ("Severity('severe')", "Write the value itself."),
        ("[each for each in Severity]", "Write `typing.get_args(Severity)`."),
    ]:
        with wrong.case(program):
            result = await cpython.run(program, tools=ToolRegistry(raise_alarm), check="required")
            assert hint in str(result.error)
    assert wrong == []


async def test_namespaces_are_attributes(python: Python) -> None:
    registry = ToolRegistry()
    registry.register(define_tool(name="issues", execute=back), namespace="github")
    assert await python.value("await tools.github.issues(open=True)", tools=registry) == {"open": True}
    result = await python.run("await tools.github.isues()", tools=registry)
    assert code_of(result) == "tool_not_found"
    assert "github.issues" in str(result.error)


async def test_a_tool_added_or_removed_while_a_program_runs_is_seen_at_once(python: Python) -> None:
    registry = ToolRegistry()
    late, early = (define_tool(name=name, execute=here) for name in ("late", "early"))

    @tool
    async def change() -> None:
        registry.register(late)
        registry.remove("early")

    registry.register(change, early)
    program = "out = [await tools.early()]\nawait tools.change()\nout.append(await tools.late())\nawait tools.early()"
    result = await python.run(program, tools=registry)
    assert code_of(result) == "tool_not_found"
    assert [call.error is None for call in result.tool_calls] == [True, True, True, False]


async def test_what_tools_get_of_the_context_no_program_sees(python: Python) -> None:
    @tool
    async def who(context: ExecutionContext) -> str:
        return f"{context.user_id} of {context.organization_id}"

    context = ExecutionContext(user_id="u1", organization_id="acme")
    assert await python.value("await tools.who()", tools=[who], context=context) == "u1 of acme"
    stubs = Corral([who], check=False).model.declarations("python")
    assert "who()" in stubs
    assert "acme" not in stubs


async def test_the_environment_is_what_the_caller_gave_and_nothing_of_the_hosts(
    python: Python, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "hunter2")
    program = "import os\n[os.environ['A'], os.getenv('HOST_SECRET'), len(os.environ)]"
    assert await python.value(program, env={"A": "1"}) == ["1", None, 1]


@pytest.mark.parametrize("tier", ["namespaces", LANDLOCK])
async def test_nothing_of_the_system_is_reached(tiers: dict[str, Corral], tier: str) -> None:
    wrong = Wrong()
    for program, error in [
        ("open('/etc/passwd').read()", ("FileNotFoundError", "PermissionError")),
        ("open('new.txt', 'w')", ("PermissionError", "FileNotFoundError")),
        ("import socket\nsocket.create_connection(('127.0.0.1', 80))", ("PermissionError",)),
        ("import subprocess\nsubprocess.run(['ls'])", ("PermissionError",)),
        ("import os\nos.kill(1, 9)", ("PermissionError", "ProcessLookupError")),
    ]:
        with wrong.case(program):
            result = await tiers[tier].execute(program, language="python")
            assert (result.containment, result.status) == (tier, "failed")
            assert result.error is not None
            assert result.error.name in error
    assert wrong == []


@pytest.fixture(scope="module")
async def tiers() -> Any:
    """A Corral for each tier that works here."""
    async with (
        Corral(sandbox=CPythonSandbox(tier="namespaces"), containment="namespaces", check=False) as namespaces,
        Corral(sandbox=CPythonSandbox(tier="landlock"), check=False) as landlock,
    ):
        yield {"namespaces": namespaces, "landlock": landlock}


@pytest.mark.parametrize("tier", ["namespaces", LANDLOCK])
async def test_time_zones_and_the_standard_library_are_there_in_every_tier(tiers: dict[str, Corral], tier: str) -> None:
    program = (
        "import csv, decimal, difflib, hashlib, json, math, random, re, sqlite3, statistics, zoneinfo\n"
        "from datetime import datetime\n"
        "try:\n    zone = zoneinfo.ZoneInfo('Europe/Oslo')\nexcept zoneinfo.ZoneInfoNotFoundError:\n    zone = None\n"
        "[statistics.mean([1, 2, 3]), hashlib.sha256(b'').hexdigest()[:4], zone and datetime(2026, 7, 1, tzinfo=zone).isoformat()]"
    )
    result = await tiers[tier].execute(program, language="python")
    assert result.error is None
    assert result.value == [2, "e3b0", "2026-07-01T00:00:00+02:00" if _has_zones() else None]


def _has_zones() -> bool:
    """Whether this system has a database of time zones of its own."""
    program = (
        "import sysconfig, zoneinfo; zoneinfo.reset_tzpath(); print('Europe/Oslo' in zoneinfo.available_timezones())"
    )
    interpreter: str = getattr(sys, "_base_executable")  # noqa: B009
    done = subprocess.run([interpreter, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


# --- two users


@pytest.mark.parametrize("engine", ["cpython", "monty"])
async def test_two_users_and_two_runs_see_nothing_of_each_other(engine: str) -> None:
    async with Corral(TOOLS, sandbox=provider(engine), check=False) as corral:
        seen: dict[tuple[str, int], object] = {}

        async def one(user: str, run: int) -> None:
            program = (
                "import json\ntry:\n    found = json.own\nexcept AttributeError:\n    found = None\n"
                "try:\n    before = own\nexcept NameError:\n    before = None\n"
                f"own = {user!r}\nprint(own)\nawait tools.wait(seconds=0.01)\n[found, before, own]"
            )
            context = ExecutionContext(user_id=user, organization_id="acme")
            result = await corral.execute(program, language="python", context=context)
            seen[user, run] = result.raise_for_error().value, result.console

        for run in range(2):
            async with anyio.create_task_group() as tasks:
                for user in ("u1", "u2"):
                    tasks.start_soon(one, user, run)
    assert seen == {(user, run): ([None, None, user], f"{user}\n") for user in ("u1", "u2") for run in range(2)}


# --- preflight


@tool
async def look() -> str:
    return "seen"


@tool(scopes={"files:write"}, namespace="files")
async def remove(path: str) -> str:
    return f"removed {path}"


SCOPED = [look, remove]


async def test_the_result_says_which_tools_and_scopes_the_program_names(python: Python) -> None:
    result = await python.run(
        "await tools.look()\nawait tools.files.remove(path='x')",
        tools=SCOPED,
        context=ExecutionContext(scopes={"files:write"}),
    )
    assert result.value == "removed x"
    assert result.capabilities == ProgramCapabilities(tools=("look", "files.remove"), scopes=("files:write",))


async def test_a_program_that_names_tools_it_has_no_scopes_for_does_not_start(python: Python) -> None:
    result = await python.run("await tools.look()\nawait tools.files.remove(path='x')", tools=SCOPED)
    assert (result.status, result.tool_calls, result.containment) == ("rejected", (), None)
    assert result.error is not None
    assert (result.error.code, result.error.line) == ("scope_denied", 2)
    assert result.error.message == "tools.files.remove needs the scope files:write"


async def test_a_computed_name_may_be_any_tool_and_is_denied_when_it_is_called(cpython: Python) -> None:
    program = "name = 'rem' + 'ove'\ntry:\n    await getattr(tools.files, name)(path='x')\nexcept PermissionError as error:\n    out = error.code\nout"
    result = await cpython.run(program, tools=SCOPED)
    assert result.value == "scope_denied"
    assert result.capabilities is not None
    assert result.capabilities.any_tool or "files.remove" in result.capabilities.tools


@pytest.mark.parametrize("engine", ["cpython", "monty"])
async def test_a_denied_approval_is_an_error_that_can_be_caught(engine: str) -> None:
    @tool(needs_approval=True)
    async def send() -> str:
        return "sent"

    program = "try:\n    await tools.send()\nexcept PermissionError as error:\n    out = str(error)\nout"
    async with Corral([send], sandbox=provider(engine), approve=lambda _: False, check=False) as corral:
        result = await corral.execute(program, language="python")
    assert "not approved" in result.raise_for_error().value
    assert [call.error and call.error.code for call in result.tool_calls] == ["approval_denied"]


# --- events


async def test_events_tell_what_happens_in_order(python: Python) -> None:
    seen: list[str] = []

    def note(event: Event) -> None:
        seen.append(event.type)

    program = "print('x')\nawait tools.echo(1)\ntry:\n    await tools.fail()\nexcept Exception: pass"
    result = await python.run(program, on_event=note)
    assert seen == [
        "execution_started",
        "console_output",
        "tool_call_started",
        "tool_call_finished",
        "tool_call_started",
        "tool_call_finished",
        "execution_finished",
    ]
    assert [(call.name, call.sequence, call.error is None) for call in result.tool_calls] == [
        ("echo", 1, True),
        ("fail", 2, False),
    ]


async def test_a_run_can_be_followed_and_cancelled(python: Python) -> None:
    async with python.corral.start("print('x')\nwhile True: pass", language="python") as run:
        async for event in run:
            if event.type == "console_output":
                for _ in range(1_000):  # the host's event loop turns while the program does not end
                    await anyio.lowlevel.checkpoint()
                run.cancel()
    result = await run.result()
    assert (result.status, code_of(result), result.console) == ("cancelled", "cancelled", "x\n")
    assert await python.value("1 + 1") == 2


# --- which engine


@pytest.mark.parametrize(
    ("sandbox", "isolation"),
    [
        ("auto", ("namespaces", "landlock")),
        ("cpython", ("namespaces", "landlock")),
        ("monty", ("interpreter",)),
        ({"python": "monty", "typescript": "deno"}, ("interpreter",)),
        ({"python": CPythonSandbox(), "typescript": DenoSandbox()}, ("namespaces", "landlock")),
        (MontySandbox(), ("interpreter",)),
    ],
    ids=["auto", "cpython", "monty", "names", "objects", "object"],
)
async def test_the_sandbox_may_be_chosen_for_each_language(sandbox: Any, isolation: tuple[str, ...]) -> None:
    result = await Corral(TOOLS, sandbox=sandbox, check=False).execute("await tools.add(a=1, b=2)", language="python")
    assert (result.value, result.containment in isolation) == (3, True), result


async def test_one_corral_runs_both_languages() -> None:
    async with Corral(TOOLS, check=False) as corral:
        typescript = await corral.execute("return await tools.add({ a: 1, b: 2 })")
        python = await corral.execute("await tools.add(a=1, b=2)", language="python")
    assert [typescript.value, python.value] == [3, 3]
    assert [typescript.language, python.language] == ["typescript", "python"]


async def test_where_no_jail_works_auto_takes_monty(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(tier: str) -> str:
        return f"no {tier} here"

    monkeypatch.setattr("corral.jail.jail.unavailable_reason", lacks)
    corral = Corral(TOOLS, check=False)
    results = [await corral.execute("await tools.add(a=1, b=2)", language="python") for _ in range(2)]
    assert [(result.value, result.containment) for result in results] == [(3, "interpreter")] * 2
    with pytest.raises(StartFailed, match="no "):
        await Corral(sandbox="cpython", check=False).execute("1", language="python")


async def test_a_sandbox_that_does_not_run_the_language_is_refused() -> None:
    with pytest.raises(UnknownProvider, match=r"deno.*python"):
        await Corral(sandbox=DenoSandbox(), check=False).execute("1", language="python")
    with pytest.raises(UnknownProvider, match=r"monty.*typescript"):
        await Corral(sandbox=MontySandbox(), check=False).execute("1", language="typescript")


async def test_a_tier_that_monty_does_not_have_is_refused() -> None:
    with pytest.raises(StartFailed, match="without a jail"):
        await Corral(sandbox="monty", containment="namespaces", check=False).execute("1", language="python")


# --- without an event loop, and on each of them

SCRIPT = """
import anyio
from corral import Corral, Limits, tool
from corral.sandboxes.monty import MontySandbox

arrived = 0

@tool
async def meet(name: str) -> str:
    global arrived, met
    arrived += 1
    if arrived % 2:
        met = anyio.Event()
        await met.wait()
    else:
        met.set()
    return name

@tool
async def hang() -> None:
    await anyio.sleep_forever()

@tool
def double(n: int) -> int:
    return 2 * n

PROGRAM = '''
import asyncio
print("hello")
met = await asyncio.gather(tools.meet(name="a"), tools.meet(name="b"))
[met, await tools.double(n=21)]
'''

async def main():
    for sandbox in ("cpython", MontySandbox(pool_size=1)):
        async with Corral([meet, hang, double], sandbox=sandbox) as corral:
            async with corral.start(PROGRAM, language="python") as run:
                print([event.type async for event in run])
            print((await run.result()).value)
            async with corral.start("print('x')\\nwhile True: pass", language="python") as run:
                async for event in run:
                    if event.type == "console_output":
                        run.cancel()
            print((await run.result()).status)
            limits = Limits(wall_seconds=0.1)
            print((await corral.execute("await tools.hang()", language="python", limits=limits)).status)
"""
EXPECTED = """\
['execution_started', 'program_checked', 'console_output', 'tool_call_started', 'tool_call_started', 'tool_call_finished', 'tool_call_finished', 'tool_call_started', 'tool_call_finished', 'execution_finished']
[['a', 'b'], 42]
cancelled
timed_out
"""


@pytest.mark.parametrize(
    "start",
    [
        *(
            pytest.param(each, marks=pytest.mark.matrix("tests/e2e/test_event_loops.py runs TypeScript on this loop"))
            for each in (
                "import trio; trio.run(main)",
                "import asyncio; asyncio.run(main())",
                "import uvloop; uvloop.run(main())",
            )
        ),
    ],
    ids=["trio", "asyncio", "uvloop"],
)
def test_programs_run_on_every_event_loop(start: str) -> None:
    command = [sys.executable, "-W", "error", "-c", SCRIPT + start]
    shown = run_forked(command)
    assert (shown.stdout, shown.stderr) == (EXPECTED * 2, "")


@pytest.mark.parametrize("engine", ["cpython", "monty"])
def test_programs_run_without_an_event_loop_of_the_callers(engine: str) -> None:
    corral = Corral(TOOLS, sandbox=provider(engine), check=False)
    assert corral.sync.execute("await tools.add(a=1, b=2)", language="python").value == 3
    with Corral(TOOLS, sandbox=provider(engine), check=False) as corral:
        values = [corral.sync.execute(f"await tools.add(a={n}, b=0)", language="python").value for n in (2, 3)]
    assert values == [2, 3]
