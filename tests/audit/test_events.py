"""Events, their identifiers and their form as JSON."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from corral.audit import AuditEvent, new_event_id
from corral.audit.events import cleaned
from tests.audit.events import POISON, event


def test_an_event_comes_back_from_json() -> None:
    made = event(
        kind="execution", outcome="denied", code="scope_denied", reason="no", execution_id="e", user_id="u",
        organization_id="o", session_id="s", tool="a.b", sequence=3, arguments={"a": [1, None, "é"]},
        correlation_id="c", language="typescript", containment="landlock", calls=2, program="sha256:00",
        decision="denied", decided_by="ann", policy="0f", verdict="deny", rule="r", doubts="d",
    )  # fmt: skip
    assert None not in made
    assert AuditEvent.from_json(made.to_json()) == made
    assert json.loads(made.to_json()).keys() == {"v", *AuditEvent._fields}


@pytest.mark.parametrize("fields", POISON.values(), ids=POISON)
def test_hostile_fields_become_one_line_that_can_be_read(fields: dict[str, Any]) -> None:
    text = event(**fields).to_json()
    assert "\n" not in text
    assert len(text) < 4000
    assert AuditEvent.from_json(text).id
    assert json.loads(text.encode())["v"] == 1


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"v":1}', '{"v":2,"id":"a"}', '{"v":1,"id":"a', "[" * 10_000, "\0", b"\xff"]
)
def test_what_is_no_event_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of pydantic, or ours
        AuditEvent.from_json(text)


def test_a_line_of_a_later_format_is_not_misread() -> None:
    later = event().to_json().replace('"v":1', '"v":2')
    with pytest.raises(ValueError, match="format"):
        AuditEvent.from_json(later)


def test_identifiers_sort_by_time_and_are_unique_in_all_threads() -> None:
    assert new_event_id(1e9) < new_event_id(1e9 + 1e-5) < new_event_id(2e9)
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(new_event_id, [5.0] * 4_000))
    assert len(set(ids)) == 4_000


def test_a_forked_process_makes_identifiers_of_its_own() -> None:
    ours = new_event_id(5.0)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, new_event_id(5.0).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert theirs[:14] == ours[:14]
    assert theirs[14:22] != ours[14:22]


LONG = ["x" * 100_000, "é" * 251, "\U00020000" * 1000, "\ud800" * 501, "\0" * 167, "€" * 200 + "x"]


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_texts_that_readers_look_for_are_short_in_bytes_and_stay_different(text: str) -> None:
    fields = dict.fromkeys(("tool", "user_id", "organization_id", "session_id", "execution_id", "code", "id"), text)
    short = cleaned(event(**fields))
    [cut] = {getattr(short, name) for name in fields}
    assert 450 < len(cut.encode()) <= 500
    assert cut[:100] == text[:100].replace("\ud800", "?").replace("\0", "\ufffd")
    assert cleaned(event(tool=text + "y")).tool != cut
    assert cleaned(short) == short


def test_texts_of_up_to_500_bytes_and_long_reasons_stay_as_they_are() -> None:
    whole = event(tool="é" * 250, user_id="x" * 500, reason="é" * 1000)
    assert cleaned(whole) == whole
    assert len(cleaned(event(reason="é" * 1001)).reason or "") <= 1000
