"""`corral audit`: prints the events of an audit log."""

from __future__ import annotations

import argparse
import json
import re
import time
from datetime import datetime
from typing import get_args

import anyio

from corral.audit import AuditEvent, AuditFilter, AuditReader, Outcome, open_audit
from corral.cli.parsing import Commands, add_command
from corral.cli.screen import Screen, counted, fitted, screen, width
from corral.errors import ConfigError
from corral.rendering.full_text import escape_hidden

_FOLLOW_SECONDS = 0.5
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_COLUMNS = (
    ("TIME", 23),
    ("OUTCOME", 9),
    ("TOOL", 24),
    ("USER", 16),
    ("ORGANIZATION", 14),
    ("MS", 9),
    ("EXECUTION", 26),
    ("REASON", 0),
)
_HELP = """\
Prints the last events of an audit log that match all options, oldest first.

examples:
  corral audit audit.jsonl --outcome denied --since 2h
  corral audit audit.sqlite --organization acme --json
  corral audit postgresql://localhost/app --tool orders.refund --follow

exit codes: 0 the log was read, even if no event matches, 2 wrong usage or unreadable log
"""


def add_audit(commands: Commands) -> None:
    parser = add_command(commands, "audit", _audit, _HELP, takes="SOURCE")
    parser.add_argument("source", metavar="SOURCE", help="a .jsonl or .sqlite file, or a postgresql:// URL")
    for option in ("user", "organization", "session", "execution"):
        parser.add_argument(f"--{option}", metavar="ID", dest=f"{option}_id", help=f"only of this {option}")
    parser.add_argument("--tool", metavar="NAME", help="only calls of this tool, as name or namespace.name")
    parser.add_argument("--outcome", choices=get_args(Outcome), help="only events with this outcome")
    parser.add_argument("--code", help="only events with this error, such as scope_denied")
    parser.add_argument("--kind", choices=("call", "execution"), help="only calls, or only executions")
    parser.add_argument("--since", metavar="TIME", help="15m, 2h, 7d, or a date and time such as 2026-01-31T12:00")
    parser.add_argument("--until", metavar="TIME", help="before this time; as --since")
    parser.add_argument("--limit", metavar="N", type=int, default=100, help="at most the last N; default: 100")
    parser.add_argument("--json", action="store_true", help="print each event as a line of JSON")
    parser.add_argument("--follow", action="store_true", help="continue, and print events as they are written")


def _audit(arguments: argparse.Namespace) -> int:
    if arguments.limit < 1:
        raise ConfigError(f"--limit {arguments.limit} is too small; it must be at least 1")
    fields = vars(arguments)
    criteria = AuditFilter(**{name: fields[name] for name in AuditFilter._fields})
    criteria = criteria._replace(
        since=seconds_of(fields["since"], "--since"), until=seconds_of(fields["until"], "--until")
    )
    reader = open_audit(arguments.source)
    with screen() as view:
        anyio.run(_print, reader, criteria, arguments, view)
    return 0


async def _print(reader: AuditReader, criteria: AuditFilter, arguments: argparse.Namespace, view: Screen) -> None:
    try:
        if not arguments.json:
            view.out(_row([name for name, _ in _COLUMNS]))
        events = await read_events(reader, criteria, arguments.limit)
        while True:
            for event in events:
                view.out(_json(event) if arguments.json else _row(_cells(event)))
            if not arguments.follow:
                break
            await anyio.sleep(_FOLLOW_SECONDS)
            events = await read_events(reader, criteria, 1_000_000)
    finally:
        if reader.torn:
            view.err(f"{counted(reader.torn, 'torn line')} left out")
        with anyio.CancelScope(shield=True):
            await reader.aclose()


async def read_events(reader: AuditReader, criteria: AuditFilter, limit: int) -> list[AuditEvent]:
    """Reads events from a log.

    Raises:
        ConfigError: the log cannot be read.
    """
    try:
        return list(await reader.read(criteria, limit))
    except ConfigError:
        raise
    except Exception as error:  # errors of three libraries
        raise ConfigError(f"the audit log cannot be read: {type(error).__name__}: {error}") from error


def _json(event: AuditEvent) -> str:
    """Encodes an event in ASCII, so that the JSON is the same on a terminal and in a pipe."""
    return json.dumps(json.loads(event.to_json()), separators=(",", ":"))


def _cells(event: AuditEvent) -> list[str]:
    return [
        _moment(event.time),
        event.outcome,
        event.tool or "" if event.kind == "call" else f"({counted(event.calls or 0, 'call')})",
        event.user_id or "",
        event.organization_id or "",
        f"{event.duration_ms:9.1f}",
        event.execution_id or "",
        event.reason or event.code or "",
    ]


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"


def _row(cells: list[str]) -> str:
    shown: list[str] = []
    for (_, columns), cell in zip(_COLUMNS, cells, strict=True):
        text = escape_hidden(cell)
        text = fitted(text, columns) if columns else text
        shown.append(text + " " * (columns - width(text)))
    return "  ".join(shown).rstrip()


def seconds_of(text: str | None, option: str) -> float | None:
    """Parses `15m` (ago), or an ISO date and time (local unless it has a zone), into seconds since the epoch."""
    if text is None:
        return None
    if ago := re.fullmatch(r"(\d{1,9})([smhd])", text):
        return time.time() - int(ago[1]) * _UNIT_SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(f"{option} {text!r} is neither 15m, 2h or 7d, nor a date such as 2026-01-31") from None
