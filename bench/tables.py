"""A report as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.summary import Measure, Report, Row
from bench.workloads import KEYS, MEMORY, WORKLOADS

__all__ = ["show"]

_TITLES = {"cold": "a fresh provider's first result", **{workload.key: workload.title for workload in WORKLOADS}}
_HEADINGS = {"W6": "W6 /s", "call": "call µs", "timer-call": "timer-call µs"}
_ABSENT = "–"


def show(report: Report, *, detail: bool) -> str:
    """The report's header, medians, ratios and memory; with `detail`, each measure's spread too."""
    host = report["host"]
    measured = [row for row in report["rows"] if row["measures"]]
    keys = [key for key in KEYS if any(key in row["measures"] for row in measured)]
    parts = [
        f"{host['cpu']}, {host['cores']} cores, {host['memory_mb']} MB, {host['system']}, load {host['load']}",
        f"{host['python']}, {host['event_loop']}; rounds: {report['rounds']}",
        *(f"{row['name']}: {_versions(row)}" for row in report["rows"] if row["versions"]),
        "",
        "Floors: " + ", ".join(f"{key} {_number(m['median'])} {m['unit']}" for key, m in report["floors"].items()),
        "",
        "Medians, in ms if not said otherwise",
        *_table(
            ["", *(_HEADINGS.get(key, key) for key in keys)],
            ([row["name"], *(_cell(row, key) for key in keys)] for row in measured),
        ),
        "",
        *_ratios(measured, keys),
        *_memory(measured),
    ]
    if detail:
        for key in keys:
            parts += [*_spread(key, measured), ""]
    parts += _problems(report["rows"])
    return "\n".join(parts).rstrip()


def _versions(row: Row) -> str:
    return ", ".join(f"{name} {version}" for name, version in row["versions"].items())


def _cell(row: Row, key: str) -> str:
    measure = row["measures"].get(key)
    if measure is None and key in row["errors"]:
        return "failed"
    return _ABSENT if measure is None else _number(measure.get("per_second", measure["median"]))


def _ratios(rows: Sequence[Row], keys: Iterable[str]) -> list[str]:
    compared = [key for key in keys if any(_ratio(row["measures"].get(key)) != _ABSENT for row in rows)]
    if not compared:
        return []
    return [
        "Times the floor: cold and W1 to start, W5 to fib, calls to echo",
        *_table(
            ["", *compared], ([row["name"], *(_ratio(row["measures"].get(key)) for key in compared)] for row in rows)
        ),
        "",
    ]


def _ratio(measure: Measure | None) -> str:
    return _ABSENT if measure is None or "times_floor" not in measure else f"{measure['times_floor']:.2f}"


def _memory(rows: Sequence[Row]) -> list[str]:
    columns = [
        (f"{state} {label}", state, name)
        for state in ("rest", "idle", "live")
        for label, name in (("procs", "processes"), ("rss", "rss_mb"), ("pss", "pss_mb"), ("private", "private_mb"))
    ]
    with_memory = [row for row in rows if row["memory"]]
    if not with_memory:
        return []
    return [
        "Memory in MB: all of the provider's processes at rest; one idle sandbox; one live sandbox",
        *_table(
            ["", *(heading for heading, _, _ in columns)],
            (
                [
                    row["name"],
                    *(
                        _number(row["memory"][state][name]) if state in row["memory"] else _ABSENT
                        for _, state, name in columns
                    ),
                ]
                for row in with_memory
            ),
        ),
        "",
    ]


def _spread(key: str, rows: Sequence[Row]) -> list[str]:
    cells: list[list[str]] = []
    for row in rows:
        measure = row["measures"].get(key)
        if measure is not None:
            numbers = [_number(measure["median"]), _number(measure["min"]), _number(measure["p90"])]
            cells.append([row["name"], *numbers, str(measure["samples"]), _ratio(measure)])
    unit = next(measure["unit"] for row in rows if (measure := row["measures"].get(key)) is not None)
    heading = ["", f"median {unit}", "min", "p90", "samples", "x floor"]
    return [f"{key}: {_TITLES[key]}", *_table(heading, cells)]


def _problems(rows: Sequence[Row]) -> list[str]:
    lines: list[str] = []
    for row in rows:
        if row["reason"] is not None or row["status"] != "measured":
            lines.append(f"{row['name']}: {row['status']}: {row['reason']}")
        lines += [f"{row['name']}, {key}: {reason}" for key, reason in row["errors"].items() if key in (*KEYS, MEMORY)]
    return lines


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heading, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    return [
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
