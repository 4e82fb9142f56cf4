"""The audit log: who called which tool, for whom and when, with the outcome."""

from __future__ import annotations

from corral.audit.events import AuditEvent, Outcome, digest, new_event_id
from corral.audit.log import AuditLog, as_audit_log
from corral.audit.sinks import (
    AuditFilter,
    AuditReader,
    AuditSink,
    AuditSource,
    CallbackSink,
    JsonLinesSink,
    PostgresSink,
    SqliteSink,
    open_audit,
)
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
