"""`corral doctor`: reports the containment in force on this machine, the language servers, and missing parts."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from corral.cli.options import add_certificates, mutual_tls
from corral.cli.parsing import Commands, add_command
from corral.cli.progress import moving
from corral.cli.screen import counted, printable, screen
from corral.containment import TIERS, ContainmentKind, Tier
from corral.doctor.escape_probe import ATTEMPTS
from corral.doctor.language_servers import FoundServer, try_servers
from corral.doctor.report import Examination, examine
from corral.plugins import load_by_name
from corral.rendering.preview import json_text

_HELP = """\
Examines the containment in force on this machine, layer by layer, and reports missing parts.

For each tier that works, an engine with all of its own permissions is started in the jail and tries to get out by
harmless means. A program in each language runs. The language servers are started and check a right and a wrong
program; a missing one is not a failure.

exit codes: 0 the required tier is reached, nothing got through, and language servers work; 1 otherwise; 2 wrong usage
"""
_YES, _NO = "✓", "✗"


def add_doctor(commands: Commands) -> None:
    parser = add_command(commands, "doctor", _doctor, _HELP)
    parser.add_argument(
        "--containment", choices=TIERS, default="landlock", help="lowest acceptable tier; default: landlock"
    )
    parser.add_argument(
        "--worker", metavar="ADDRESS", help="examine a `corral worker` at host:port instead, as seen from this host"
    )
    add_certificates(parser)
    parser.add_argument("--server-name", metavar="NAME", help="name in the worker's certificate, if not its host")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def _doctor(arguments: argparse.Namespace) -> int:
    if arguments.worker is not None:
        return _worker(arguments)
    required: Tier = arguments.containment
    with screen() as view:
        with moving(view, "examining the containment"):
            result = examine()
        with moving(view, "starting the language servers"):
            servers = try_servers()
        healthy = result.reaches(required) and result.contained and all(each.checks for each in servers if each.ready)
        if arguments.json:
            shown = {"healthy": healthy, "required_tier": required, **asdict(result), "language_servers": servers}
            view.out(json_text(shown, indent=2))
        else:
            for line in _report(result, servers, required, columns=view.size.columns):
                view.out(line)
    return 0 if healthy else 1


def _worker(arguments: argparse.Namespace) -> int:
    with screen() as view:
        with moving(view, f"examining the worker {arguments.worker}"):
            findings: list[tuple[bool, str, str]] = load_by_name(
                "corral.examinations",
                "worker",
                address=arguments.worker,
                tls=mutual_tls(arguments, is_server=False),
                server_name=arguments.server_name,
            )
        healthy = all(good for good, _, _ in findings)
        if arguments.json:
            rows = [{"name": name, "healthy": good, "detail": detail} for good, name, detail in findings]
            view.out(json_text({"healthy": healthy, "worker": rows}, indent=2))
        else:
            wide = max(len(name) for _, name, _ in findings)
            for good, name, detail in findings:
                for line in _row(good, name, detail, wide, view.size.columns):
                    view.out(line)
    return 0 if healthy else 1


def _report(result: Examination, servers: Sequence[FoundServer], required: Tier, *, columns: int) -> Iterator[str]:
    yield result.system
    yield ""
    yield "Layers"
    wide = max(len(layer.name) for layer in result.layers)
    for layer in result.layers:
        yield from _row(layer.in_force, layer.name, layer.detail, wide, columns, layer.remedy)
    yield ""
    yield "Tiers"
    wide = max(map(len, TIERS))
    for verdict in result.verdicts:
        yield from _row(verdict.works, verdict.tier, verdict.detail, wide, columns)
    if result.attempts:
        yield ""
        yield "Escape attempts by an engine with all of its own permissions"
        yield from _attempts(result, columns)
    if result.properties:
        yield ""
        yield f"Differences between tiers, in {result.tier}"
        for name, text in result.properties.items():
            yield f"  {name}"
            yield from _wrapped(text, "    ", columns)
    yield ""
    yield "Language servers, which check programs"
    wide = max(len(server.language) for server in servers)
    for server in servers:
        yield from _row(server.checks, server.language, _detail(server), wide, columns, server.remedy)
    yield ""
    sandboxes = "1 sandbox is" if result.pool_size == 1 else f"{result.pool_size} sandboxes are"
    yield f"{sandboxes} kept ready, unless pool_size says otherwise."
    yield from _conclusion(result, servers, required, columns)


def _attempts(result: Examination, columns: int) -> Iterator[str]:
    """Yields a table with a row per attempt and a column per tier, then details of attempts that were not refused."""
    tiers = list(dict.fromkeys(attempt.tier for attempt in result.attempts))
    outcomes = {(attempt.tier, attempt.name): attempt for attempt in result.attempts}
    wide = max(map(len, ATTEMPTS))
    yield f"    {'':{wide}}" + "".join(f"  {tier:14}" for tier in tiers).rstrip()
    for name in ATTEMPTS:
        row = [outcomes[tier, name] for tier in tiers]
        mark = _YES if all(attempt.contained for attempt in row) else _NO
        cells = "".join(f"  {attempt.outcome:14}" for attempt in row).rstrip()
        yield f"  {mark} {name.replace('_', ' '):{wide}}{cells}"
    for attempt in result.attempts:
        if attempt.outcome != "refused":
            text = f"{attempt.name.replace('_', ' ')}, {attempt.tier}, {attempt.outcome}: {attempt.detail}"
            yield from _wrapped(text, "    ", columns)


def _detail(server: FoundServer) -> str:
    parts = [f"{server.name} {server.version or 'of unknown version'}, {server.path}"] if server.name else []
    if server.ready_seconds is not None:
        parts.append(f"ready in {server.ready_seconds:.1f} s, in tier {server.tier}, {server.memory_mb} MB")
    return ": ".join([*parts, server.reason] if server.reason else parts)


def _conclusion(result: Examination, servers: Sequence[FoundServer], required: Tier, columns: int) -> Iterator[str]:
    if result.typescript is None:
        yield from _wrapped(f"{_NO} No program in TypeScript runs here: {result.reason}", "", columns)
    elif not result.reaches(required):
        yield f"{_NO} Programs run in {_place(result.typescript)}, below the required {required}."
    elif result.tier is None:
        line = f"{_YES} Programs in TypeScript run in {_place(result.typescript)}: {result.reason}."
        yield from _wrapped(line, "", columns)
    else:
        yield f"{_YES} Programs run in tier {result.tier}; {required} is required."
    reason = "" if result.python_reason is None else f": {result.python_reason}"
    if result.python is None:
        yield from _wrapped(f"{_NO} No program in Python runs here{reason}", "", columns)
    elif result.python != result.tier:
        yield from _wrapped(f"{_YES} Programs in Python run in {_place(result.python)}{reason}.", "", columns)
    for each in servers:
        if each.ready and not each.checks:
            yield f"{_NO} Programs in {each.language} are not checked: {each.reason}."
    if not result.contained:
        bad = [attempt for attempt in result.attempts if not attempt.contained]
        yield f"{_NO} {counted(len(bad), 'attempt')} got through or could not be made."


def _place(containment: ContainmentKind) -> str:
    return f"tier {containment}" if containment in TIERS else "a memory-safe interpreter, not jailed"


def _row(good: bool, name: str, detail: str, wide: int, columns: int, remedy: str | None = None) -> Iterator[str]:
    indent = " " * (wide + 6)
    first, *rest = _wrapped(detail, indent, columns)
    yield f"  {_YES if good else _NO} {name:{wide}}  {first.lstrip()}"
    yield from rest
    if remedy is not None:
        yield from _wrapped(f"help: {remedy}", indent, columns)


def _wrapped(text: str, indent: str, columns: int) -> list[str]:
    """Wraps text to the terminal's width, except for longer words such as paths."""
    return textwrap.wrap(
        printable(" ".join(text.split())),
        width=max(columns, len(indent) + 30),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]
