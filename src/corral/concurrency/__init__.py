"""Helpers for tasks, threads, event loops and forks, used by every other room."""

from __future__ import annotations

__all__: list[str] = []
