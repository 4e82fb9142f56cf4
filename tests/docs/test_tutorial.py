"""The tutorial, followed word by word: its files, and its commands in the order of the page."""

from __future__ import annotations

import base64
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.chromium import chromium, watched
from tests.docs.markdown import ROOT, blocks

PAGE = ROOT / "docs" / "tutorial.md"
QUESTION = "Refund the damaged orders."
ANSWER = 'Result: ["order 1002: 15.5 EUR refunded","order 1003: 99.0 EUR refunded"]'


def test_the_tutorial_shows_its_files_as_they_are() -> None:
    shown = {Path(block.title).name: block.text for block in blocks(PAGE) if block.title}
    files = {path.name: path.read_text("utf-8") for path in (ROOT / "docs_src" / "tutorial").glob("*.py")}
    assert shown == files


@pytest.fixture
def environment(tmp_path: Path) -> Generator[Mapping[str, str]]:
    """Saves the files of the page, starts its stand-in for a model, and yields the variables of its terminal."""
    for block in blocks(PAGE):
        if block.title:
            (tmp_path / Path(block.title).name).write_text(block.text, encoding="utf-8")
    variables = {
        "CORRAL_LEDGER_KEYS": f"2026-11={base64.b64encode(bytes(32)).decode()}",
        "OPENAI_API_KEY": "none",
        "MODEL": "openai-chat:script",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }
    # Another port than the page's, which might be taken: the server prints the one that it was given.
    text = (tmp_path / "model_server.py").read_text("utf-8")
    starts = 'ThreadingHTTPServer(("127.0.0.1", 8901), Handler).serve_forever()'
    assert starts in text
    prints = 'server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)\n    print(server.server_port)\n    server.serve_forever()'
    (tmp_path / "model_server.py").write_text(text.replace(starts, prints), encoding="utf-8")
    environment = {**os.environ, **variables}
    with subprocess.Popen(
        [sys.executable, "model_server.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, encoding="utf-8"
    ) as server:
        try:
            assert server.stdout is not None
            yield {**environment, "OPENAI_BASE_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"}
        finally:
            server.terminate()


@pytest.mark.matrix(
    "the gate tests each part of it: agents, pauses, sessions and spans; the tutorial from start to end"
)
def test_the_commands_of_the_tutorial_print_what_stands_below_them(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    printed: dict[str, str] = {}
    expected: dict[str, str] = {}
    for block in (each for each in blocks(PAGE) if each.language == "console"):
        command, _, expected[block.place] = block.text.partition("\n")
        done = subprocess.run(
            shlex.split(command.removeprefix("$ ")),
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        printed[block.place] = done.stdout
    assert len(expected) == 6
    assert printed == expected


@pytest.mark.matrix("the gate sends requests to the chat's server; step 8 of the tutorial in a browser")
def test_the_page_of_the_tutorial_pays_refunds_that_a_person_approves(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    [block] = [each for each in blocks(PAGE) if each.heading.startswith("8.") and each.language == "sh"]
    steps = " ".join(PAGE.read_text("utf-8").partition(block.text)[2].partition("Ctrl-C")[0].split())
    assert f'ask "{QUESTION}" again, and click "Approve" for each of the two' in steps
    command = [*shlex.split(block.text), "--port", "0"]
    log = tmp_path / "log.txt"  # standard output has the address alone; what tools print goes to standard error
    with (
        chromium() as browser,
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8"
        ) as server,
    ):
        assert server.stdout is not None
        try:
            page = browser.new_page()
            problems = watched(page)
            page.goto(server.stdout.readline().strip())
            page.get_by_label("Message", exact=True).fill(QUESTION)
            page.keyboard.press("Enter")
            for amount in ("15.5", "99"):
                approval = page.get_by_role("group", name="Approval of refund").filter(has_text=amount)
                approval.get_by_role("button", name="Approve").click()
            expect(page.get_by_role("region", name="Conversation").get_by_text("Result: [")).to_have_text(ANSWER)
            assert problems == []
        finally:
            server.send_signal(signal.SIGINT)
            try:
                assert server.wait(20) == 0
            finally:
                server.kill()
    assert log.read_text("utf-8").count("(the shop pays") == 2
    assert (tmp_path / "chats.db").exists()
