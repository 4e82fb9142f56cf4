"""The audit log: who called which tool, for whom and when, with the outcome."""

from __future__ import annotations

from corral.audit.digests import digest
from corral.audit.events import AuditEvent, Outcome, new_event_id
from corral.audit.log import AuditLog, as_audit_log
from corral.audit.reader import AuditFilter, AuditReader, open_audit
from corral.audit.sinks.base import AuditSink, CallbackSink
from corral.audit.sinks.factory import AuditSource
from corral.audit.sinks.json_lines import JsonLinesSink
from corral.audit.sinks.postgres import PostgresSink
from corral.audit.sinks.sqlite import SqliteSink
from corral.audit.telemetry import Telemetry

__all__ = [
    "AuditEvent",
    "AuditFilter",
    "AuditLog",
    "AuditReader",
    "AuditSink",
    "AuditSource",
    "CallbackSink",
    "JsonLinesSink",
    "Outcome",
    "PostgresSink",
    "SqliteSink",
    "Telemetry",
    "as_audit_log",
    "digest",
    "new_event_id",
    "open_audit",
]
