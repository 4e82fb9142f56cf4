"""The tests for the inner loop: `scripts/test --fast` loads this plugin, which leaves out all that start an engine.

No test that it keeps starts a process or listens on a socket: one that does fails, and says what to do about it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

__all__: list[str] = []

TESTS = Path(__file__).parent
LEFT_OUT = {
    TESTS / name
    for name in """
        audit/test_events.py audit/test_files.py audit/test_log.py audit/test_postgres.py bench protocols/connect protocols/graphql protocols/grpc bridges/http
        calls/test_approvals.py bridges/test_cors.py calls/test_guards.py bridges/test_losses.py bridges/test_peers.py bridges/test_shared_hosts.py calls/test_parking.py calls/test_rates.py calls/test_rates_redis.py
        calls/test_records.py ledger/test_postgres.py bridges/test_runtimes.py bridges/test_selection.py calls/test_services.py calls/test_tokens.py calls/test_turns.py protocols/trpc
        concurrency/test_garbage.py
        model/catalog/test_describing_work.py model/catalog/test_discovery.py model/catalog/test_filling.py model/catalog/test_programs.py
        chat checking cli cluster jail model/declarations docs doctor e2e egress environments running guest integrations model newcomer programs/test_bounds.py programs/test_entry.py
        programs/test_lowering.py programs/test_modules.py programs/test_positions.py
        programs/test_python_bounds.py programs/test_python_unavailable.py programs/test_recover.py
        programs/test_references.py programs/test_results.py programs/test_strip.py programs/test_texts.py
        policy/test_calls.py policy/test_files.py tools/json_schema packages sandboxes security sessions shells sessions soak sources test_gate.py test_logs.py test_public_api.py test_release.py
        testing tools/test_define_tool.py tools/test_streams.py tools/test_tool_call.py jail
    """.split()
}
"""Folders and files of tests that start engines, processes or servers, take seconds, or count all tests."""

_STARTS = frozenset({"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "socket.bind", "subprocess.Popen"})
_running: list[str] = []
_started: dict[str, str] = {}


def pytest_configure() -> None:
    if moved := sorted(str(path.relative_to(TESTS)) for path in LEFT_OUT if not path.exists()):
        raise pytest.UsageError(f"tests/fast.py leaves out files that do not exist: {', '.join(moved)}")
    sys.addaudithook(_note)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path in LEFT_OUT else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    _running.append(item.nodeid)
    try:
        return (yield)
    finally:
        _running.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (event := _started.pop(item.nodeid, None)) is not None:
        name = Path(str(item.path)).relative_to(TESTS)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: {event} in the fast set; put {name} into LEFT_OUT in tests/fast.py"
    return report


def _note(event: str, _: object) -> None:
    if event in _STARTS and _running:
        _started[_running[0]] = event
