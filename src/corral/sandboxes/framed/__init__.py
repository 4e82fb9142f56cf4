"""Execution over a framed channel: the session, its run, how it ended, and stack traces."""

from __future__ import annotations

__all__: list[str] = []
