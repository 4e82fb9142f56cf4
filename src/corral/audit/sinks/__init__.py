"""Destinations of audit events: files, databases, OpenTelemetry, callbacks."""

from __future__ import annotations

__all__: list[str] = []
