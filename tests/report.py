"""What a run of the tests leaves behind: how long each took, and how to run those that failed again.

`scripts/test` loads this plugin. `scripts/test --durations` shows the dearest of the last run.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest

DURATIONS = Path(sys.prefix) / "durations.tsv"
"""A line for each test, the dearest first: its seconds with set-up and teardown, and its id."""
FAILED = Path(sys.prefix) / "failed"
"""The ids of those that failed, a line each, as pytest reads them from `@FILE`."""
_MOST_NAMED = 20


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # in a run of several processes, the first knows of all tests
        config.pluginmanager.register(_Report())


class _Report:
    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration  # pyright: ignore[reportArgumentType] - a counter of seconds
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        lines = (f"{seconds:.3f}\t{test}\n" for test, seconds in self.seconds.most_common())
        DURATIONS.write_text("".join(lines), encoding="utf-8")
        FAILED.write_text("".join(f"{test}\n" for test in self.failed), encoding="utf-8")
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if not self.failed or reporter is None:
            return
        tests = shlex.join(self.failed) if len(self.failed) <= _MOST_NAMED else f"@{FAILED}"
        seed = os.environ.get("PYTHONHASHSEED", "random")
        reporter.write_line(f"\n{len(self.failed)} failed. This runs exactly them, with the same seed of hashes:")
        reporter.write_line(f"PYTHONHASHSEED={seed} scripts/test {tests}")
