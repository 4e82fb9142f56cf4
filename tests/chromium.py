"""A real Chromium for tests of pages."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.foreign import CHROMIUM
from tests.until import LIMIT_SECONDS

__all__ = ["chromium", "watched"]

expect.set_options(timeout=LIMIT_SECONDS * 1_000)


@contextmanager
def chromium(fonts: Path = CHROMIUM / "fonts.conf") -> Generator[Browser]:
    """Runs until the end of the block."""
    libraries = {"LD_LIBRARY_PATH": str(CHROMIUM / "lib"), "FONTCONFIG_FILE": str(fonts)}
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM / "chromium", args=options, env={**os.environ, **libraries}
        )
        yield browser
        browser.close()


def watched(page: Page) -> list[str]:
    """Collects what the page complains about, such as a violation of its content security policy."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    return problems
