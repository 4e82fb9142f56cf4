"""Formats values as HTML for a notebook, with all tags in values escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import islice
from typing import Any, cast

from corral.rendering.images import pictures_in
from corral.rendering.preview import preview_json, preview_text

_MOST_ROWS, _MOST_COLUMNS, _CELL_CHARS, _TEXT_CHARS = 50, 12, 200, 10_000


def value_html(value: Any) -> str:
    """Returns a list of objects as a table and other values as JSON or plain text, followed by the value's pictures."""
    shown, pictures = pictures_in(value)
    images = [
        f'<img src="{escape(each.url)}" alt="{escape(str(each))}" style="max-width: 100%">'
        for each in pictures
        if each.is_common
    ]
    is_picture = len(images) == 1 and isinstance(value, bytes)
    if is_picture:
        body = []
    elif (rows := _rows(shown)) is not None:
        body = [_table(rows)]
    else:
        body = [text_html(shown if isinstance(shown, str) else preview_json(shown, _TEXT_CHARS))]
    return "\n".join([*body, *images])


def text_html(text: str) -> str:
    return f"<pre>{escape(preview_text(text, _TEXT_CHARS))}</pre>"


def _rows(value: Any) -> list[Mapping[str, Any]] | None:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return items if items and all(isinstance(each, dict) for each in items) else None


def _table(rows: list[Mapping[str, Any]]) -> str:
    first = rows[:_MOST_ROWS]
    names = dict.fromkeys(name for row in first for name in islice(row, _MOST_COLUMNS + 1))
    columns = list(names)[:_MOST_COLUMNS]
    head = "".join(f"<th>{escape(preview_text(name, _CELL_CHARS))}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row, name)}</td>' for name in columns)}</tr>" for row in first)
    omitted = [f"{len(rows) - len(first)} more rows"] if len(rows) > len(first) else []
    omitted += [f"{len(names) - len(columns)} or more other columns"] if len(names) > len(columns) else []
    note = f"<p>… {' and '.join(omitted)}</p>" if omitted else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _cell(row: Mapping[str, Any], name: str) -> str:
    if name not in row:
        return ""
    value = row[name]
    return escape(preview_text(value, _CELL_CHARS) if isinstance(value, str) else preview_json(value, _CELL_CHARS))
