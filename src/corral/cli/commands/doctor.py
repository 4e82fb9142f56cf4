"""`corral doctor`: which isolation is really in force on this machine, what checks programs, and what is missing."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from corral.cli.parsing import Commands, add_command
from corral.cli.progress import moving
from corral.cli.screen import screen
from corral.cli.text import counted, printable
from corral.doctor.escape_probe import ATTEMPTS
from corral.doctor.language_servers import FoundServer, try_servers
from corral.doctor.report import Examination, examine
from corral.isolation import TIERS, Tier
from corral.rendering.preview import json_text

_EPILOG = """\
For each tier that works, an engine with every permission of its own is started in its jail and tries to get out, by
harmless means. A program in each language runs. The language servers that check programs are started, and given a
right and a wrong program; one that is missing is no failure.

exit codes: 0 the required tier is reached, nothing got through, and what checks programs does; 1 not so; 2 wrong usage
"""
_YES, _NO = "✓", "✗"


def add_doctor(commands: Commands) -> None:
    parser = add_command(
        commands,
        "doctor",
        _doctor,
        help="examine the isolation on this machine",
        description="Examines which isolation is in force on this machine, layer by layer, and what is missing.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--required-tier", choices=TIERS, default="landlock", help="the least that is enough; default: landlock"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def _doctor(arguments: argparse.Namespace) -> int:
    required: Tier = arguments.required_tier
    with screen() as view:
        with moving(view, "examining the isolation"):
            found = examine()
        with moving(view, "starting the language servers"):
            servers = try_servers()
        healthy = found.reaches(required) and found.contained and all(each.checks for each in servers if each.ready)
        if arguments.json:
            shown = {"healthy": healthy, "required_tier": required, **asdict(found), "language_servers": servers}
            view.out(json_text(shown, indent=2))
        else:
            for line in _report(found, servers, required, columns=view.size.columns):
                view.out(line)
    return 0 if healthy else 1


def _report(found: Examination, servers: Sequence[FoundServer], required: Tier, *, columns: int) -> Iterator[str]:
    yield found.system
    yield ""
    yield "Layers"
    wide = max(len(layer.name) for layer in found.layers)
    for layer in found.layers:
        yield from _row(layer.in_force, layer.name, layer.detail, wide, columns, layer.remedy)
    yield ""
    yield "Tiers"
    wide = max(map(len, TIERS))
    for verdict in found.verdicts:
        yield from _row(verdict.works, verdict.tier, verdict.detail, wide, columns)
    if found.attempts:
        yield ""
        yield "What an engine with every permission of its own tried in them"
        yield from _attempts(found, columns)
    if found.properties:
        yield ""
        yield f"What differs between tiers, in {found.tier}"
        for name, text in found.properties.items():
            yield f"  {name}"
            yield from _wrapped(text, "    ", columns)
    yield ""
    yield "Language servers, which check programs"
    wide = max(len(server.language) for server in servers)
    for server in servers:
        yield from _row(server.checks, server.language, _detail(server), wide, columns, server.remedy)
    yield ""
    kept = "1 sandbox is" if found.pool_size == 1 else f"{found.pool_size} sandboxes are"
    yield f"{kept} kept ready, unless pool_size says otherwise."
    yield from _conclusion(found, servers, required, columns)


def _attempts(found: Examination, columns: int) -> Iterator[str]:
    """A table: a row for each attempt, a column for each tier. Below it, what is not plainly refused."""
    tiers = list(dict.fromkeys(attempt.tier for attempt in found.attempts))
    outcomes = {(attempt.tier, attempt.name): attempt for attempt in found.attempts}
    wide = max(map(len, ATTEMPTS))
    yield f"    {'':{wide}}" + "".join(f"  {tier:14}" for tier in tiers).rstrip()
    for name in ATTEMPTS:
        row = [outcomes[tier, name] for tier in tiers]
        mark = _YES if all(attempt.contained for attempt in row) else _NO
        cells = "".join(f"  {attempt.outcome:14}" for attempt in row).rstrip()
        yield f"  {mark} {name.replace('_', ' '):{wide}}{cells}"
    for attempt in found.attempts:
        if attempt.outcome != "refused":
            text = f"{attempt.name.replace('_', ' ')}, {attempt.tier}, {attempt.outcome}: {attempt.detail}"
            yield from _wrapped(text, "    ", columns)


def _detail(server: FoundServer) -> str:
    named = [f"{server.name} {server.version or 'of unknown version'}, {server.path}"] if server.name else []
    if server.ready_seconds is not None:
        named.append(f"ready in {server.ready_seconds:.1f} s, in tier {server.tier}, {server.memory_mb} MB")
    return ": ".join([*named, server.reason] if server.reason else named)


def _conclusion(found: Examination, servers: Sequence[FoundServer], required: Tier, columns: int) -> Iterator[str]:
    if found.tier is None:
        yield from _wrapped(f"{_NO} No program in TypeScript runs here: {found.reason}", "", columns)
    elif not found.reaches(required):
        yield f"{_NO} Programs run in tier {found.tier}, below the required {required}."
    else:
        yield f"{_YES} Programs run in tier {found.tier}; {required} is required."
    reason = "" if found.python_reason is None else f": {found.python_reason}"
    if found.python is None:
        yield from _wrapped(f"{_NO} No program in Python runs here{reason}", "", columns)
    elif found.python != found.tier:
        place = "Monty, without a jail" if found.python == "interpreter" else f"tier {found.python}"
        yield from _wrapped(f"{_YES} Programs in Python run, in {place}{reason}.", "", columns)
    for each in servers:
        if each.ready and not each.checks:
            yield f"{_NO} Programs in {each.language} are not checked: {each.reason}."
    if not found.contained:
        bad = [attempt for attempt in found.attempts if not attempt.contained]
        yield f"{_NO} {counted(len(bad), 'attempt')} got through or could not be made."


def _row(good: bool, name: str, detail: str, wide: int, columns: int, remedy: str | None = None) -> Iterator[str]:
    indent = " " * (wide + 6)
    first, *rest = _wrapped(detail, indent, columns)
    yield f"  {_YES if good else _NO} {name:{wide}}  {first.lstrip()}"
    yield from rest
    if remedy is not None:
        yield from _wrapped(f"help: {remedy}", indent, columns)


def _wrapped(text: str, indent: str, columns: int) -> list[str]:
    """Lines no wider than the terminal, but for words that are, such as paths."""
    return textwrap.wrap(
        printable(" ".join(text.split())),
        width=max(columns, len(indent) + 30),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]
