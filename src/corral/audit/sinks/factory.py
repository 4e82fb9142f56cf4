"""Creates the sink for a path, a URL or a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from corral.audit.events import AuditEvent
from corral.audit.sinks.base import AuditSink, CallbackSink
from corral.audit.sinks.json_lines import JsonLinesSink
from corral.audit.sinks.postgres import PostgresSink
from corral.audit.sinks.sqlite import SqliteSink
from corral.errors import ConfigError

AuditSource: TypeAlias = str | Path | AuditSink | Callable[[Sequence[AuditEvent]], object]
"""Path of a file, URL of a database, sink, or function that takes batches of events."""


def as_sink(source: Any) -> AuditSink:
    """Returns the sink for `source`. Raises ConfigError."""
    match source:
        case AuditSink():
            return source
        case str() if source.startswith(("postgresql://", "postgres://")):
            return PostgresSink(source)
        case str() | Path() if Path(source).suffix in (".jsonl", ".ndjson"):
            return JsonLinesSink(source)
        case str() | Path() if Path(source).suffix in (".sqlite", ".sqlite3", ".db"):
            return SqliteSink(source)
        case _ if callable(source):
            return CallbackSink(source)
        case _:
            raise ConfigError(
                f"{source!r} cannot be an audit log; pass a path that ends in .jsonl or .sqlite, "
                "a postgresql:// URL, a sink, or a function that takes a list of events"
            )
