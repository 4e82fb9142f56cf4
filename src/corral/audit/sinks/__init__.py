"""Destinations of audit events: files, databases, OpenTelemetry, callbacks."""
