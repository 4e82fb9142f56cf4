"""What Python programs print: every line, in order, whichever way it was written, and no more than is allowed."""

from __future__ import annotations

import pytest

from corral import Limits
from corral.events import ToolCallStarted
from tests.e2e.clocks import WallClock
from tests.e2e.python_engines import Python
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio


async def entries(python: Python, program: str) -> list[tuple[str, str]]:
    result = (await python.run(program)).raise_for_error()
    return [(entry.level, entry.text) for entry in result.logs]


async def test_each_line_is_an_entry(python: Python) -> None:
    wrong = Wrong()
    for program, lines in [
        ("print('hi')\n3", ["hi"]),
        ("print('a', end='')\nprint('b')", ["ab"]),
        ("print('a', end='')", ["a"]),
        ("print(1, 2.5, [3], sep='|')", ["1|2.5|[3]"]),
        ("print()\nprint('')\nprint('a\\nb')", ["", "", "a", "b"]),
        ("for n in range(3): print(n, end=' ')", ["0 1 2 "]),
        ("print('\u00fc \U0001f600')", ["\u00fc \U0001f600"]),
        ("print('x' * 20_000)\nprint('y')", ["x" * 20_000, "y"]),
        ("print('a', flush=True)", ["a"]),
    ]:
        with wrong.case(program):
            assert await entries(python, program) == [("log", line) for line in lines]
    assert wrong == []


async def test_all_ways_of_writing_come_in_order(cpython: Python) -> None:
    wrong = Wrong()
    for program, expected in [
        (
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('out again')",
        [("log", "out"), ("error", "err"), ("log", "out again")],
        ),
        ("import sys\nsys.stdout.write('x\\ny')\nsys.stderr.write('e\\n')\nprint('z')", [("log", "x"), ("error", "e"), ("log", "yz")]),
        ("import sys\nprint(sys.stdout.writable(), file=sys.stderr)", [("error", "True")]),
        ("import sys\nsys.stdout.write('x' * 9000)\nsys.stdout.write('\\ny\\n')", [("log", "x" * 9000), ("log", "y")]),
        ("import logging\nlogging.warning('w %d', 3)\nlogging.info('i')", [("error", "WARNING:root:w 3")]),
        ("import logging\nlogging.basicConfig(level=logging.INFO)\nlogging.getLogger('x').info('i')", [("error", "INFO:x:i")]),
        ("```python\n\nimport warnings\nwarnings.warn('careful')\n```", [("error", 'File "program.py", line 4: UserWarning: careful')]),
        ("import threading\nthread = threading.Thread(target=print, args=['in a thread'])\nthread.start()\nthread.join()", [("log", "in a thread")]),
        ("import pprint\npprint.pprint({'a': 1})", [("log", "{'a': 1}")]),
        ("print('a\\ud800')", [("log", "a\ufffd")]),
    ]:  # fmt: skip
        with wrong.case(program):
            assert (
                await entries(cpython, f"{program}\nresult = 1\nresult" if "```" not in program else program)
                == expected
            )
    assert wrong == []


async def test_lines_of_many_threads_are_never_mixed(cpython: Python) -> None:
    program = (
        "import threading\ndef work(n):\n    for _ in range(50): print(f'{n}' * 100)\n"
        "threads = [threading.Thread(target=work, args=[n]) for n in range(4)]\n"
        "for each in threads: each.start()\nfor each in threads: each.join()"
    )
    lines = [text for _, text in await entries(cpython, program)]
    assert "".join(sorted("".join(lines))) == "".join(f"{n}" * 5000 for n in range(4))


async def test_what_is_redirected_is_the_programs_own(cpython: Python) -> None:
    program = "import contextlib, io\ntext = io.StringIO()\nwith contextlib.redirect_stdout(text):\n    print('x')\ntext.getvalue()"
    result = await cpython.run(program)
    assert (result.value, result.logs) == ("x\n", ())


async def test_nothing_that_is_printed_reaches_the_hosts_own_output(
    python: Python, capfd: pytest.CaptureFixture[str]
) -> None:
    program = "print('secret')\nimport sys\nprint('secret', file=sys.stderr)\n3"
    result = await python.run(program)
    assert (result.value, result.console) == (3, "secret\nsecret\n")
    assert capfd.readouterr() == ("", "")


async def test_value_and_console_reach_the_model_apart(python: Python) -> None:
    result = await python.run("print('hi')\n3")
    assert (result.value, result.console) == (3, "hi\n")
    text = result.model_text()
    assert "hi" in text
    assert "3" in text


async def test_output_over_the_limit_is_cut_and_counted(python: Python) -> None:
    result = await python.run("for n in range(100): print('0123456789')\n1", limits=Limits(log_bytes=100))
    assert result.value == 1
    assert 90 <= len(result.console) <= 100
    [said] = result.truncated
    assert "bytes of console output over the limit were dropped" in said


async def test_one_huge_line_is_cut_too(python: Python) -> None:
    result = await python.run("print('\u00fc' * 100_000)\n1", limits=Limits(log_bytes=1001))
    assert set(result.console) == {"\u00fc", "\n"}
    assert len(result.console.encode()) <= 1001
    assert result.truncated


@pytest.mark.parametrize(
    ("end", "limits"),
    [
        ("while True: pass", Limits(cpu_seconds=0.2, wall_seconds=600)),
        ("kept = []\nwhile True: kept.append('x' * 1_000_000)", Limits(cpu_seconds=100, wall_seconds=300)),
        ("await tools.wait(seconds=3600)", Limits(wall_seconds=3600)),
    ],
    ids=["time", "memory", "a call"],
)
async def test_a_line_that_has_not_ended_is_kept_when_the_program_is_killed(
    python: Python, wall_clock: WallClock, end: str, limits: Limits
) -> None:
    result = await python.run(
        f"print('whole')\nprint('a', end='')\nprint(1, 2, sep='-', end=' ')\n{end}",
        limits=limits,
        on_event=wall_clock.run_out_at(ToolCallStarted),
    )
    assert not result.success
    assert result.console == "whole\na1-2 \n"


async def test_lines_are_the_same_in_however_many_pieces_they_are_written(cpython: Python) -> None:
    result = await cpython.run(
        "import sys\nfor n in range(3000): sys.stdout.write('ab'); print('c', end=''); print()\n"
        "for n in range(3000): print('.', end='')\nprint(file=sys.stderr, end='err')\nprint('!', 1, sep='')"
    )
    assert result.console == "abc\n" * 3000 + "." * 3000 + "!1\nerr\n"


async def test_print_takes_what_the_built_in_takes(cpython: Python) -> None:
    result = await cpython.run(
        "import io\nfile = io.StringIO()\nprint(1, None, file=file, sep=None, end=None, flush=True)\n"
        "try:\n    print(1, sep=3)\nexcept TypeError as error:\n    print(error)\n[file.getvalue(), repr(print)[:15]]"
    )
    assert result.value == ["1 None\n", "<function print"]
    assert result.console == "sep must be None or a string, not int\n"


async def test_what_was_printed_is_kept_when_the_program_fails(python: Python) -> None:
    result = await python.run("print('a', end='')\nprint('b')\nprint('c', end='')\n1 / 0")
    assert (result.status, result.console) == ("failed", "ab\nc\n")
