"""Execution over a framed channel: the session, its run, how it ended, and stack traces."""
