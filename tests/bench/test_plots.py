"""The plots of the documentation are those of the data, and the data are those of its tables."""

from __future__ import annotations

import json

from bench.plots import IMAGES, ROOT, Plot, drawings


def test_plots_are_drawn_from_the_data() -> None:
    assert {name: (IMAGES / name).read_text("utf-8") for name in drawings()} == drawings()


def test_the_data_are_in_the_tables_that_they_name() -> None:
    plots: dict[str, Plot] = json.loads((ROOT / "bench/data/costs.json").read_text("utf-8"))
    absent = [
        f"{name}: {value}"
        for name, plot in plots.items()
        for values in plot["series"].values()
        for value in values.values()
        if f"{value:,}" not in (ROOT / plot["source"].partition(",")[0]).read_text("utf-8")
    ]
    assert absent == []
