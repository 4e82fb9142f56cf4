"""Takes the pictures of the chat page for README.md. `scripts/pictures` runs it."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from docs_src.site.pages import ROOT
from PIL import Image
from playwright.sync_api import Page, ViewportSize, expect
from tests.chromium import chromium
from tests.foreign import CHROMIUM

IMAGES = ROOT / "docs" / "images"
_QUESTION = "Refund the customers whose parcels are late"
_SIZE = ViewportSize(width=1180, height=800)
_COLOURS = 64
"""Enough for a page of flat colours, and a third of the bytes."""


@contextmanager
def demo() -> Generator[str]:
    """Runs `corral chat --demo`, and yields its address."""
    command = [Path(sys.executable).parent / "corral", "chat", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        try:
            yield next(match[0] for line in process.stdout if (match := re.search(r"http://\S+", line)))
        finally:
            process.send_signal(signal.SIGINT)


@contextmanager
def fonts() -> Generator[Path]:
    """Lets Chromium use the monospaced font of matplotlib beside its own fonts, as it has none."""
    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    with tempfile.TemporaryDirectory() as cache:
        file = Path(cache, "fonts.conf")
        alias = "<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>"
        sans = "<alias><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>"
        folders = f"<dir>{CHROMIUM}/fonts</dir><dir>{folder}</dir><cachedir>{cache}</cachedir>"
        file.write_text(f"<fontconfig>{folders}{alias}{sans}</fontconfig>", encoding="utf-8")
        yield file


def take(page: Page, target: Path) -> None:
    """Waits until the demo's program asks for an approval, and takes the picture."""
    page.get_by_role("main").get_by_role("button", name=_QUESTION).click()
    expect(page.get_by_role("group", name="Approval of refund").get_by_role("button", name="Approve")).to_be_enabled()
    page.mouse.move(0, 0)
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").quantize(_COLOURS).save(target, optimize=True)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with fonts() as file, chromium(fonts=file) as browser:
        for scheme in ("light", "dark"):
            with demo() as address, browser.new_context(viewport=_SIZE, color_scheme=scheme) as context:
                page = context.new_page()
                page.goto(address)
                target = IMAGES / f"page-{scheme}.png"
                take(page, target)
                print(f"written: {target}, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
