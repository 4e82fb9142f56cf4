"""The tutorial, followed word by word: its files, and its commands in the order of the page."""

from __future__ import annotations

import base64
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks

PAGE = ROOT / "docs" / "tutorial.md"


def test_the_tutorial_shows_its_files_as_they_are() -> None:
    shown = {Path(block.title).name: block.text for block in blocks(PAGE) if block.title}
    files = {path.name: path.read_text("utf-8") for path in (ROOT / "docs_src" / "tutorial").glob("*.py")}
    assert shown == files


@pytest.mark.matrix(
    "the gate tests each part of it: agents, pauses, sessions and spans; the tutorial from start to end"
)
def test_the_commands_of_the_tutorial_print_what_stands_below_them(tmp_path: Path) -> None:
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
            environment["OPENAI_BASE_URL"] = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
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
        finally:
            server.terminate()
    assert len(expected) == 6
    assert printed == expected
