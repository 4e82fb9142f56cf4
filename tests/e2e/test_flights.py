"""The programs of examples/flights, in both languages, against the same questions asked of the same data in SQL."""

from __future__ import annotations

import importlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from math import floor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from corral import Corral, Limits
from corral.sandboxes import DenoSandbox
from corral.types import Language

EXAMPLE = Path(__file__).parents[2] / "examples" / "flights"
pytestmark = pytest.mark.anyio

DATA = pytest.mark.matrix(
    "programs of this kind run in the gate with less data; these read a year of flights, in 17 s of processor time"
)
PROGRAMS = ("bad_weather", "plane_age", "when_to_leave")


@dataclass(frozen=True)
class Example:
    """Modules of the example, which import each other by bare names."""

    database: ModuleType
    report: ModuleType
    tools: ModuleType


@dataclass(frozen=True)
class Ran:
    """What is kept of a result: the rows themselves would fill memory."""

    value: Any
    console: str
    tool_bytes: int
    model_bytes: int
    answer: str
    traffic: str


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    names = ("database", "report", "tools")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
        yield Example(**{name: importlib.import_module(name) for name in names})
    for name in names:
        del sys.modules[name]


def source(language: Language, name: str) -> tuple[str, str]:
    """The name of a program's file, and its text."""
    [file] = EXAMPLE.glob(f"programs/{language}/{name}.*")
    return str(file.relative_to(EXAMPLE)), file.read_text(encoding="utf-8")


async def run(example: Example, corral: Corral, language: Language, name: str) -> Ran:
    _, text = source(language, name)
    result = (await corral.execute(text, language=language)).raise_for_error()
    traffic = example.report.traffic(text, result)
    return Ran(
        value=result.value,
        console=result.console,
        tool_bytes=traffic.tool_bytes,
        model_bytes=traffic.result_bytes,
        answer=example.report.answer(result.value),
        traffic=str(traffic),
    )


@pytest.fixture(scope="module")
def database(example: Example) -> Path:
    """Built from nothing."""
    shutil.rmtree(example.database.DATABASE.parent, ignore_errors=True)
    return example.database.ensure_database()


@pytest.fixture(scope="module")
async def ran(example: Example, database: Path, warm_deno: DenoSandbox, anyio_backend: object) -> dict[str, Ran]:
    """What became of the programs in TypeScript."""
    async with Corral(tools=example.tools.TOOLS, sandbox=warm_deno, check=False) as corral:
        return {name: await run(example, corral, "typescript", name) for name in PROGRAMS}


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "utf8", "-W", "error", EXAMPLE / "main.py", *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, check=False)


@pytest.fixture(scope="module")
def shown(database: Path) -> dict[str, str]:
    """What the script shows of each program in Python."""
    done = script("--language", "python", *PROGRAMS)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(zip(PROGRAMS, done.stdout.split("━━━ ")[1:], strict=True))


@pytest.fixture(scope="module")
def data(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database)) as connection:
        yield connection


@DATA
def test_the_database_is_built_from_nothing_with_all_rows(data: sqlite3.Connection, database: Path) -> None:
    counts = [
        data.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - names from this line
        for table in ("flights", "weather", "planes", "airports", "airlines")
    ]
    assert counts == [336_776, 26_115, 3_322, 1_458, 16]
    assert [file.name for file in database.parent.iterdir()] == ["flights.sqlite"]


@DATA
def test_missing_values_of_the_files_are_null_in_the_database(data: sqlite3.Connection) -> None:
    cancelled, marked = data.execute(
        "SELECT sum(dep_delay IS NULL), sum(dep_delay = 'NA' OR tailnum = 'NA') FROM flights WHERE tailnum IS NOT NULL"
    ).fetchone()
    assert cancelled > 0
    assert marked == 0


@DATA
def test_time_lost_to_bad_weather_is_what_sql_says(ran: dict[str, Ran], data: sqlite3.Connection) -> None:
    expected = data.execute("""
        WITH observed AS (
            SELECT f.carrier, f.origin, f.hour, f.dep_delay,
                   w.visib < 3 OR w.precip >= 0.1 OR ifnull(w.wind_gust, 0) >= 30 AS bad
            FROM flights f JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
        ), usual AS (
            SELECT carrier, origin, hour, avg(dep_delay) AS delay
            FROM observed WHERE NOT bad AND dep_delay IS NOT NULL GROUP BY carrier, origin, hour
        ), late AS (
            SELECT carrier, count(*) AS departures, avg(o.dep_delay) AS delay, avg(u.delay) AS usually,
                   sum(o.dep_delay - u.delay) / 60 AS hours
            FROM observed o JOIN usual u USING (carrier, origin, hour)
            WHERE bad AND dep_delay IS NOT NULL GROUP BY carrier
        ), cancelled AS (
            SELECT carrier, avg(CASE WHEN bad THEN dep_delay IS NULL END) * 100 AS then_percent,
                   avg(CASE WHEN NOT bad THEN dep_delay IS NULL END) * 100 AS usually_percent
            FROM observed GROUP BY carrier
        )
        SELECT name, departures, delay, usually, hours, then_percent, usually_percent, sum(hours) OVER () AS total
        FROM late JOIN cancelled USING (carrier) JOIN airlines USING (carrier) ORDER BY hours DESC LIMIT 8
    """).fetchall()
    value = ran["bad_weather"].value
    found = [list(row.values()) for row in value["airlines"]]
    assert [row[:2] for row in found] == [list(row[:2]) for row in expected]
    for row, (_, _, delay, usually, hours, then_percent, usually_percent, _) in zip(found, expected, strict=True):
        assert row[4] == pytest.approx(hours, abs=0.501)
        assert [row[2], row[3], row[5], row[6]] == pytest.approx(
            [delay, usually, then_percent, usually_percent], abs=0.0501
        )
    assert value["hoursLostByAll"] == pytest.approx(expected[0][-1], abs=0.501)


@DATA
def test_flights_without_weather_are_counted_and_not_guessed(ran: dict[str, Ran], data: sqlite3.Connection) -> None:
    value = ran["bad_weather"].value
    assert (value["flightsScheduled"], value["flightsWithoutWeather"]) == data.execute("""
        SELECT count(*), sum(NOT EXISTS (
            SELECT 1 FROM weather w WHERE w.origin = flights.origin AND w.time_hour = flights.time_hour
        )) FROM flights
    """).fetchone()


SUMMER = """
    WITH arrived AS (
        SELECT carrier, arr_delay >= 15 AS late, p.tailnum IS NOT NULL AS known, p.year, p.model
        FROM flights f LEFT JOIN planes p ON p.tailnum = f.tailnum
        WHERE f.month BETWEEN 6 AND 8 AND arr_delay IS NOT NULL
    )
"""


@DATA
def test_lateness_by_age_is_what_sql_says(ran: dict[str, Ran], data: sqlite3.Connection) -> None:
    expected = data.execute(f"""{SUMMER}
        SELECT CASE WHEN year IS NULL THEN 'not recorded' WHEN year >= 2008 THEN 'up to 5 years'
                    WHEN year >= 1998 THEN '6 to 15 years' ELSE '16 years and more' END AS age,
               count(*), round(100.0 * sum(late) / count(*), 1)
        FROM arrived WHERE known GROUP BY age ORDER BY age
    """).fetchall()  # noqa: S608 - two constants
    ages = [tuple(row.values()) for row in ran["plane_age"].value["ages"]]
    assert sorted(ages) == expected


@DATA
def test_lateness_by_model_is_what_sql_says(ran: dict[str, Ran], data: sqlite3.Connection) -> None:
    expected = data.execute(f"""{SUMMER},
        airline AS (SELECT carrier, avg(late) AS share FROM arrived GROUP BY carrier),
        most AS (
            SELECT model, carrier, row_number() OVER (PARTITION BY model ORDER BY count(*) DESC) AS place
            FROM arrived WHERE known GROUP BY model, carrier
        )
        SELECT model, (SELECT name FROM most JOIN airlines USING (carrier) WHERE most.model = a.model AND place = 1),
               count(*) AS arrivals, avg(late) * 100 AS late_percent, avg(share) * 100
        FROM arrived a JOIN airline USING (carrier)
        WHERE known GROUP BY model HAVING arrivals >= 500 ORDER BY late_percent DESC LIMIT 6
    """).fetchall()  # noqa: S608 - two constants
    found = [list(row.values()) for row in ran["plane_age"].value["models"]]
    assert [row[:3] for row in found] == [list(row[:3]) for row in expected]
    for row, (*_, late, usual) in zip(found, expected, strict=True):
        assert row[3:] == pytest.approx([late, usual], abs=0.0501)


@DATA
def test_flights_that_say_nothing_of_age_are_counted(ran: dict[str, Ran], data: sqlite3.Connection) -> None:
    value = ran["plane_age"].value
    [not_arrived] = data.execute(
        "SELECT count(*) FROM flights WHERE month IN (6, 7, 8) AND arr_delay IS NULL"
    ).fetchone()
    [unknown] = data.execute(f"{SUMMER} SELECT sum(NOT known) FROM arrived").fetchone()  # noqa: S608 - a constant
    assert (value["cancelledOrDiverted"], value["arrivedOnUnknownPlane"]) == (not_arrived, unknown)


@DATA
def test_best_and_worst_hours_are_what_sql_says(ran: dict[str, Ran], data: sqlite3.Connection) -> None:
    busiest = data.execute("SELECT dest FROM flights GROUP BY dest ORDER BY count(*) DESC, dest LIMIT 8").fetchall()
    expected: list[dict[str, object]] = []
    for dest in [*(dest for (dest,) in busiest), "SJU"]:
        hours = sorted(
            (-floor(1000 * on_time / scheduled + 0.5) / 10, f"{origin} {hour:02}:00")
            for origin, hour, scheduled, on_time in data.execute(
                "SELECT origin, hour, count(*), sum(ifnull(arr_delay, 999) < 15) FROM flights "
                "WHERE dest = ? GROUP BY origin, hour HAVING count(*) >= 100",
                [dest],
            )
        )
        named = data.execute("SELECT name || ' (' || faa || ')' FROM airports WHERE faa = ?", [dest]).fetchone()
        (best, leave), (worst, avoid) = hours[0], hours[-1]
        expected.append(
            {
                "to": named[0] if named else dest,
                "leave": leave,
                "onTimePercent": -best,
                "avoid": avoid,
                "thenOnTimePercent": -worst,
            }
        )
    assert ran["when_to_leave"].value["destinations"] == expected


@DATA
def test_a_tools_error_is_caught_by_the_program_and_told(ran: dict[str, Ran]) -> None:
    assert ran["when_to_leave"].console == "the table of airports has no 'SJU'\n"


@DATA
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_script_shows_the_same_in_python_with_a_time_line(
    ran: dict[str, Ran], shown: dict[str, str], name: str
) -> None:
    said = shown[name]
    assert f"\n{source('python', name)[0]}: succeeded in " in said
    assert f"\n{ran[name].answer}\n" in said
    assert (f"console: {ran[name].console}\n" if ran[name].console else "\n") in said
    assert f"\n{ran[name].traffic.splitlines()[0]}\n" in said
    assert sum("█" in line for line in said.splitlines()) == 12


@DATA
def test_the_script_counts_the_calls(shown: dict[str, str]) -> None:
    assert "26 calls, 0 of them failed, at most " in shown["plane_age"]


@DATA
async def test_monty_runs_the_same_program_in_more_memory(ran: dict[str, Ran], example: Example) -> None:
    async with Corral(
        example.tools.TOOLS, sandbox={"python": "monty"}, limits=Limits(memory_mb=128), check=False
    ) as corral:
        found = await run(example, corral, "python", "plane_age")
    assert found.answer == ran["plane_age"].answer


@DATA
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_comes_back_is_a_tiny_part_of_what_stayed(ran: dict[str, Ran], name: str) -> None:
    assert ran[name].tool_bytes > 10_000_000
    assert ran[name].model_bytes < 2_000


@DATA
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_readme_shows_the_program_with_its_answer_and_sizes(ran: dict[str, Ran], name: str) -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert source("typescript", name)[0] in readme
    assert source("python", name)[0] in readme
    assert ran[name].answer in readme
    assert ran[name].traffic in readme


@pytest.mark.parametrize("language", ["typescript", "python"])
def test_the_readme_shows_one_program_whole(language: Language) -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert source(language, "when_to_leave")[1] in readme


@pytest.mark.matrix(
    "an argument of the example's script, in a process that imports corral; the gate runs scripts in forks"
)
def test_the_script_names_its_programs_when_asked_for_another() -> None:
    done = script("other")
    assert done.returncode == 2
    assert done.stderr.endswith(f"no such program: other; there are: {', '.join(PROGRAMS)}\n")
