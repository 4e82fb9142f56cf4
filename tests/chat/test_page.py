"""The page in a real Chromium, before `corral chat --demo`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright
from playwright.sync_api import Browser as Chromium

from tests.foreign import CHROMIUM
from tests.forks import CORRAL

REFUND = "Refund the customers whose parcels are late"


@pytest.fixture(scope="module")
def chromium() -> Generator[Chromium]:
    libraries = {"LD_LIBRARY_PATH": str(CHROMIUM / "lib"), "FONTCONFIG_FILE": str(CHROMIUM / "fonts.conf")}
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--headless", "--disable-gpu", "--single-process"]
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM / "chromium", args=options, env={**os.environ, **libraries}
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address that the command prints."""
    store = tmp_path_factory.mktemp("chat") / "chats.db"
    command = [CORRAL, "chat", "--demo", "--port", "0", "--store", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
        assert process.wait(20) == 0
    assert Path(store).stat().st_mode & 0o777 == 0o600


@pytest.fixture(scope="module")
def person(chromium: Chromium, login: str) -> Generator[BrowserContext]:
    context = chromium.new_context(viewport={"width": 1200, "height": 1000})
    page = context.new_page()
    page.goto(login)
    expect(page.get_by_role("heading", name="What shall be done?")).to_be_visible()
    assert "code=" not in page.url
    page.close()
    yield context
    context.close()


@pytest.fixture
def page(person: BrowserContext, login: str) -> Generator[Page]:
    page = person.new_page()
    page.set_default_timeout(20_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(login.partition("?")[0])
    yield page
    page.close()
    assert problems == []


def test_an_approval_is_given_another_denied_and_a_reload_in_between_loses_nothing(page: Page) -> None:
    page.get_by_role("button", name=REFUND).click()
    first = page.get_by_role("group", name="Approval of refund")
    expect(first).to_have_count(1)
    expect(first.get_by_role("row").first).to_contain_text("order")
    expect(first.get_by_role("row").nth(1)).to_contain_text("24")
    page.reload()
    expect(first.get_by_role("row").nth(1)).to_contain_text("24")
    first.get_by_role("button", name="Approve").click()
    expect(first.get_by_role("row").first).to_contain_text("1003")
    first.get_by_label("Reason for a denial").fill("too much")
    first.get_by_role("button", name="Deny").click()
    program = page.get_by_role("region", name=re.compile("Program succeeded"))
    expect(program).to_contain_text("refunded 24.00 euros of order 1001")
    expect(program).to_contain_text("denied by")
    expect(program.get_by_role("log")).to_contain_text("was not approved: too much")
    expect(page.get_by_text("That is done.")).to_be_visible()
