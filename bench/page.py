"""Tasks of the chat page's main thread while a program makes 1,000 calls. `python -m bench.page`."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect
from tests.chromium import chromium

_OBSERVE = """
window.tasks = [];
new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((each) => each.duration)))
  .observe({ type: "longtask", buffered: true });
"""
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
    page.add_init_script(_OBSERVE)
    page.goto(address)
    expect(page.get_by_role("heading", name="What shall be done?")).to_be_visible()
    print(f"first paint {page.evaluate(_PAINT):.0f} ms, {page.evaluate(_BYTES) / 1000:.0f} kB")
    longest: dict[str, list[float]] = {"while it runs": [], "shown whole": []}
    for _ in range(rounds):
        page.goto(address.partition("?")[0])
        page.get_by_role("main").get_by_role("button", name="Count the stock").click()
        ended = page.get_by_role("region", name="Program succeeded")
        expect(ended).to_contain_text("1000 calls", timeout=60_000)
        expect(page.get_by_role("region", name="Conversation").get_by_text("All shelves are counted.")).to_be_visible()
        longest["while it runs"].append(_longest(page))
        ended.get_by_role("button", name="Show all of it").click()
        expect(ended.locator(".call")).to_have_count(1_000)
        expect(ended.get_by_role("log").locator("div")).to_have_count(1_000)
        longest["shown whole"].append(_longest(page))
        size = len(ended.get_by_role("log").evaluate("log => log.textContent").encode())
        print(f"console {size / 1000:.0f} kB")
    for name, spent in longest.items():
        print(f"{name}: longest task {statistics.median(spent):.0f} ms, the worst of {rounds} {max(spent):.0f} ms")


def _longest(page: Page) -> float:
    """The longest task since the last look, in milliseconds; 0 if none took 50."""
    tasks: list[Any] = page.evaluate("window.tasks.splice(0)")
    return max(tasks, default=0.0)


if __name__ == "__main__":
    main()
