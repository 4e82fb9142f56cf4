"""What a notebook shows of a result."""

from __future__ import annotations

from typing import Any

import pytest

from corral import Corral, ExecutionResult
from corral.rendering.html import value_html
from corral.sandboxes import DenoSandbox
from tests.integrations.scenario import PNG

TABLE = (
    "<table><thead><tr><th>n</th><th>&lt;s&gt;</th></tr></thead><tbody>"
    "<tr><td>1</td><td>&lt;script&gt;</td></tr><tr><td>[2]</td><td></td></tr></tbody></table>"
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "<pre>3</pre>"),
        (None, "<pre>null</pre>"),
        ("a <b>", "<pre>a &lt;b&gt;</pre>"),
        ({"<i>": ["&"]}, "<pre>{&quot;&lt;i&gt;&quot;:[&quot;&amp;&quot;]}</pre>"),
        ([{"n": 1, "<s>": "<script>"}, {"n": [2]}], TABLE),
        ([{"n": 1}, 2], "<pre>[{&quot;n&quot;:1},2]</pre>"),
    ],
)
def test_values_are_escaped_and_lists_of_objects_are_tables(value: Any, shown: str) -> None:
    assert value_html(value) == shown


def test_a_large_value_is_bounded_and_what_is_left_out_is_counted() -> None:
    wide = value_html([{f"column {number}": "x" * 10_000 for number in range(100)}] * 1_000)
    assert len(wide) < 200_000
    assert wide.count("<tr>") == 51
    assert wide.endswith("<p>… 950 more rows and 1 or more other columns</p>")
    assert len(value_html("x" * 1_000_000)) < 11_000


def test_pictures_are_shown_alone_or_below() -> None:
    assert value_html(PNG).startswith('<img src="data:image/png;base64,')
    assert "<pre>" not in value_html(PNG)
    below = value_html({"title": "Sales", "plot": PNG})
    assert below.index("Sales") < below.index("<img")


@pytest.mark.anyio
async def test_a_result_shows_value_console_or_error(warm_deno: DenoSandbox) -> None:
    async with Corral(sandbox=warm_deno, check=False) as corral:
        good = await corral.execute("console.log('<hello>'); return [{ a: 1 }]")
        bad = await corral.execute("throw new Error('no <b>')")
    shown: list[str] = [each._repr_html_() for each in (good, bad)]  # pyright: ignore[reportPrivateUsage]
    assert shown[0].endswith("</table>\n<pre>&lt;hello&gt;\n</pre>")
    assert shown[1].startswith("<pre>The program failed")
    assert "no &lt;b&gt;" in shown[1]
    assert isinstance(good, ExecutionResult)
