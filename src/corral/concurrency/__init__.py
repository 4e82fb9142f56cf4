"""Helpers for tasks, threads, event loops and forks, used by every other room."""
