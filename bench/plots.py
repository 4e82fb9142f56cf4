"""Draws the plots of docs/costs.md and docs/workers.md as SVG, from measurements in bench/data.

`python -m bench.plots` writes them. The colours follow the reader's scheme, light or dark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict

__all__ = ["Plot", "drawings"]

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
_COLOURS = ("a", "b")
_WIDTH, _LEFT, _RIGHT, _BAR, _GAP, _TOP = 640, 170, 90, 18, 12, 44
_STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 12px; fill: #59636e }
.a { fill: #2f6f5e } .b { fill: #7a5cb8 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .a { fill: #5fb49c } .b { fill: #b39ddb }
}"""


class Plot(TypedDict):
    """Horizontal bars: the value of each group of each series. A group without a name has one bar."""

    title: str
    source: str
    series: Mapping[str, Mapping[str, float]]


def drawings() -> dict[str, str]:
    """The SVG of each plot, by the name of its file."""
    plots: dict[str, Plot] = {}
    for file in sorted((ROOT / "bench" / "data").glob("*.json")):
        plots |= json.loads(file.read_text(encoding="utf-8"))
    return {f"{name}.svg": _draw(plot) for name, plot in plots.items()}


def _draw(plot: Plot) -> str:
    rows = [*_rows(plot)]
    longest = max(value for _, value, _, _ in rows)
    height = _TOP + sum(_BAR + after for *_, after in rows) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">',
        f"<style>\n{_STYLE}\n</style>",
        f'<text x="0" y="18" font-weight="600">{plot["title"]}</text>',
    ]
    y = _TOP
    for label, value, colour, after in rows:
        length = round(value / longest * (_WIDTH - _LEFT - _RIGHT), 1)
        lines += [
            f'<text x="{_LEFT - 10}" y="{y + 14}" text-anchor="end">{label}</text>',
            f'<rect class="{colour}" x="{_LEFT}" y="{y}" width="{length}" height="{_BAR}" rx="2"/>',
            f'<text x="{_LEFT + length + 8}" y="{y + 14}">{value:,}</text>',
        ]
        y += _BAR + after
    lines += [f'<text class="small" x="0" y="{height - 8}">{plot["source"]}</text>', "</svg>"]
    return "\n".join(lines) + "\n"


def _rows(plot: Plot) -> Iterator[tuple[str, float, str, int]]:
    """Label, value, colour of each bar, and the space below it: series side by side in each group."""
    series = plot["series"]
    groups = dict.fromkeys(group for values in series.values() for group in values)
    for group in groups:
        for place, (name, values) in enumerate(series.items()):
            colour = _COLOURS[place % 2 if group else bool(place)]
            yield f"{name}, {group}" if group else name, values[group], colour, 3 if group and not place else _GAP


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, text in drawings().items():
        (IMAGES / name).write_text(text, encoding="utf-8")
        print(f"written: {IMAGES / name}")
