"""Records the commands of README.md in a terminal, as an animated SVG. `scripts/pictures` runs it."""

from __future__ import annotations

import html
import os
import pty
import re
import select
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from docs_src.site.pages import ROOT
from rich.style import Style
from rich.text import Text

TARGET = ROOT / "docs" / "images" / "terminal.svg"
_COLUMNS, _CHAR, _LINE, _EDGE = 96, 7.8, 18, 16
_SHORTEST = 0.5
"""Seconds for which each step is shown at least. Most took some milliseconds."""
_LAST = 5.0
_PAUSE = 0.004
"""Seconds after which what was written counts as a step."""
_COLOURS = {1: "#ff7b72", 2: "#7ee787", 3: "#e3b341", 4: "#79c0ff", 6: "#76e3ea"}
"""The terminal's first eight colours, as far as the commands use them."""
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
_SPINNER = re.compile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]")
_CONTROL = re.compile(r"\x1b\[(\d*)F|\x1b\[J|\x1b\[\?\d+[hl]|\r")

_WRONG = """\
const orders = await tools.list_orders();
return await Promise.all(orders.map((number) => tools.get_order({ number })));
"""
_PROGRAM = """\
const orders = await tools.list_orders();
const details = await Promise.all(orders.map((order) => tools.get_order({ order })));
const damaged = orders.filter((_, place) => details[place].status === "damaged");
await Promise.all(damaged.map((order) => tools.refund({ order, amount: 10 })));
return `${damaged.length} of ${orders.length} refunded`;
"""


class Scene(NamedTuple):
    command: str
    answers: tuple[str, ...] = ()
    """Keys that are pressed, one for each question."""


SCENES = [
    Scene("cat first.ts"),
    Scene("corral check first.ts --tools shop.py:TOOLS"),
    Scene("cat refund.ts"),
    Scene("corral run refund.ts --tools shop.py:TOOLS", ("y", "y")),
]


def screens(scene: Scene, folder: Path) -> Iterator[list[str]]:
    """Runs a command in a terminal, and yields the lines on its screen after each write, with their colours."""
    lines = [f"\x1b[1m$ {scene.command}\x1b[0m"]
    yield [*lines]
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ.update(
            COLUMNS=str(_COLUMNS), TERM="xterm-256color", PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin"
        )
        command, *arguments = scene.command.split()
        os.execvp(command, [command, *arguments])  # noqa: S606
    answers = iter(scene.answers)
    rest, row = "", len(lines)
    while True:
        try:
            rest += os.read(terminal, 65_536).decode()
        except OSError:  # the command has ended
            break
        *whole, rest = rest.split("\n")
        for line in whole:
            for control in _CONTROL.finditer(line):
                if control[0].endswith("F"):
                    row = max(1, row - int(control[1] or 1))
                elif control[0].endswith("J"):
                    del lines[row:]
            lines[row:] = [_CONTROL.sub("", line)]
            row += 1
        if not select.select([terminal], [], [], _PAUSE)[0]:
            yield [*lines]
        if whole and "needs your approval" in whole[-1] and (answer := next(answers, None)):
            os.write(terminal, answer.encode())
    yield lines
    os.close(terminal)
    if os.waitpid(process, 0)[1] and "check" not in scene.command:
        raise SystemExit(f"{scene.command} failed:\n" + "\n".join(lines))


def frames() -> list[list[str]]:
    """Records all scenes, and returns the screens that differ in more than a spinner."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "shop.py").write_bytes((ROOT / "docs_src" / "tutorial" / "shop.py").read_bytes())
        (folder / "first.ts").write_text(_WRONG, encoding="utf-8")
        (folder / "refund.ts").write_text(_PROGRAM, encoding="utf-8")
        above: list[str] = []
        recorded: list[list[str]] = []
        for scene in SCENES:
            shown: list[str] = []
            for shown in screens(scene, folder):
                whole = [_SPINNER.sub("⠿", line) for line in [*above, *shown]]
                if not recorded or whole != recorded[-1]:
                    recorded.append(whole)
            above += [*shown, ""]
    return recorded


def svg(recorded: list[list[str]]) -> str:
    """Draws each line of the recording once, visible while it is on the screen. Without animation, the end is seen."""
    total = len(recorded) * _SHORTEST + _LAST
    seen: dict[tuple[int, str], list[int]] = {}
    for number, screen in enumerate(recorded):
        for row, line in enumerate(screen):
            if line:
                seen.setdefault((row, line), []).append(number)
    drawn: list[str] = []
    for (row, line), numbers in seen.items():
        changes = [(0.0, 0 in numbers)]
        for number in range(1, len(recorded)):
            if (number in numbers) != changes[-1][1]:
                changes.append((number * _SHORTEST / total, number in numbers))
        step = ""
        if len(changes) > 1:
            times = ";".join(f"{time:.4f}".rstrip("0").rstrip(".") for time, _ in changes)
            values = ";".join("visible" if shown else "hidden" for _, shown in changes)
            step = f'<animate attributeName="visibility" calcMode="discrete" dur="{total}s" repeatCount="indefinite"'
            step += f' values="{values}" keyTimes="{times}"/>'
        hidden = "" if changes[-1][1] else ' visibility="hidden"'
        drawn.append(f'<text x="{_EDGE}" y="{_EDGE + 13 + row * _LINE}"{hidden}>{_coloured(line)}{step}</text>')
    width, height = _COLUMNS * _CHAR + 2 * _EDGE, max(map(len, recorded)) * _LINE + 2 * _EDGE
    style = f"text {{ font: 13px {_FONTS}; white-space: pre; fill: #e6edf3 }}"
    parts = [f"<style>{style}</style>", '<rect width="100%" height="100%" rx="8" fill="#0d1117"/>', *drawn]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">',
            *parts,
            "</svg>",
            "",
        ]
    )


def _coloured(line: str) -> str:
    """Returns the line's parts as SVG, with the colours of its control sequences."""
    text = Text.from_ansi(line)
    edges = sorted({0, len(text.plain), *(edge for span in text.spans for edge in (span.start, span.end))})
    parts: list[str] = []
    for start, end in pairwise(edges):
        styles = [span.style for span in text.spans if span.start <= start and end <= span.end]
        style = Style.combine([Style(), *(style for style in styles if isinstance(style, Style))])
        colour = _COLOURS.get(style.color.number or 0) if style.color else None
        attributes = f' fill="{colour}"' if colour else ""
        attributes += ' font-weight="600"' if style.bold else ""
        attributes += ' opacity="0.6"' if style.dim else ""
        content = html.escape(text.plain[start:end], quote=False)
        parts.append(f"<tspan{attributes}>{content}</tspan>" if attributes else content)
    return "".join(parts)


def main() -> None:
    drawing = svg(frames())
    TARGET.write_text(drawing, encoding="utf-8")
    print(f"written: {TARGET}, {len(drawing.encode()):,} bytes")


if __name__ == "__main__":
    main()
