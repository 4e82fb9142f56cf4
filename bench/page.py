"""Tasks of the chat page's main thread, for 1,000 calls and 200 kB of console. `python -m bench.page`."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect
from tests.chromium import chromium

_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_BYTES = "performance.getEntriesByType('resource').reduce((sum, each) => sum + each.transferSize, 0)"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how many programs; default: 5")
    rounds = parser.parse_args().rounds
    command = [str(Path(sys.executable).with_name("corral")), "chat", "--demo", "--port", "0"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server,
        chromium() as browser,
    ):
        assert server.stdout is not None
        try:
            _measure(browser, server.stdout.readline().strip(), rounds)
        finally:
            server.terminate()


def _measure(browser: Browser, address: str, rounds: int) -> None:
    page = browser.new_context(viewport={"width": 1200, "height": 1000}).new_page()
    trace = _Trace(page)
    page.goto(address)
    expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
    print(f"first paint {page.evaluate(_PAINT):.0f} ms, {page.evaluate(_BYTES) / 1000:.0f} kB")
    longest: dict[str, list[tuple[float, float]]] = {"while it runs": [], "shown whole": []}
    for _ in range(rounds):
        page.goto(address.partition("?")[0])
        # Expectations of Playwright would read the page's whole layout again and again.
        with trace.longest(longest["while it runs"]):
            page.get_by_role("main").get_by_role("button", name="Count the stock").click()
            page.locator(".assistant .actions").wait_for(timeout=60_000)
        ended = page.get_by_role("group", name="Program succeeded")
        expect(ended).to_contain_text("1,000 calls")
        ended.get_by_role("button", name="Ran a program").click()
        with trace.longest(longest["shown whole"]):
            ended.get_by_role("button", name="count_stock × 1,000").click()
            page.locator(".call .call:nth-child(1000)").wait_for(state="attached")
            page.locator(".console > div:nth-child(1000)").wait_for(state="attached")
        size = len(ended.get_by_role("log").evaluate("log => log.textContent").encode())
        print(f"console {size / 1000:.0f} kB")
    for name, found in longest.items():
        spent, took = ([each[place] for each in found] for place in (0, 1))
        print(
            f"{name}: longest task {statistics.median(spent):.0f} ms of processor time "
            f"(worst of {rounds}: {max(spent):.0f} ms); by the clock {statistics.median(took):.0f} ms "
            f"(worst: {max(took):.0f} ms)"
        )


class _Trace:
    """Tasks of the page's main thread, by the browser's own trace: with their processor time."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session: Any = page.context.new_cdp_session(page)
        self._events: list[Any] = []
        self._complete = False
        self._session.on("Tracing.dataCollected", self._collect)
        self._session.on("Tracing.tracingComplete", self._end)

    def _collect(self, data: dict[str, Any]) -> None:
        self._events += data["value"]

    def _end(self, _told: dict[str, Any]) -> None:
        self._complete = True

    @contextmanager
    def longest(self, found: list[tuple[float, float]]) -> Generator[None]:
        """Adds the processor time of the block's longest task, and the duration of its longest, in milliseconds."""
        self._events, self._complete = [], False
        config = {"includedCategories": ["toplevel", "__metadata"]}
        self._session.send("Tracing.start", {"traceConfig": config, "transferMode": "ReportEvents"})
        yield
        self._session.send("Tracing.end")
        while not self._complete:
            self._page.wait_for_timeout(20)
        threads = {
            (each["pid"], each["tid"])
            for each in self._events
            if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
        }
        tasks = [each for each in self._events if (each["pid"], each["tid"]) in threads and "tdur" in each]
        found.append((max(each["tdur"] for each in tasks) / 1000, max(each["dur"] for each in tasks) / 1000))


if __name__ == "__main__":
    main()
