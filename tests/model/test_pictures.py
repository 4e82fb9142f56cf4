"""Pictures in values, in the forms that tools and frameworks have them, and what stands for them in texts."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral import ExecutionResult
from corral.rendering.images import Picture, pictures_in, without_pictures
from corral.types import LogEntry
from tests.integrations.scenario import PNG

JPEG = b"\xff\xd8\xff\xe0" + bytes(range(256)) * 4
CODED = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{CODED}"
TOLD = "[picture image/png, 70 bytes]"


def result(value: Any, **fields: Any) -> ExecutionResult:
    return ExecutionResult(execution_id="x", status="succeeded", language="typescript", value=value, **fields)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (PNG, TOLD),
        (bytearray(PNG), TOLD),
        (URL, TOLD),
        ({"type": "image", "mimeType": "image/png", "data": CODED}, TOLD),
        ({"type": "image", "mimeType": "image/jpeg", "data": CODED}, TOLD),
        ({"type": "image", "data": CODED.rstrip("=")}, TOLD),
        ({"type": "image", "mimeType": "image/png", "data": PNG, "annotations": {"priority": 1}}, TOLD),
        ({"type": "image", "base64": CODED, "mime_type": "image/png"}, TOLD),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": CODED}}, None),
        ({"type": "image_url", "image_url": {"url": URL}}, None),
        ({"type": "input_image", "image_url": URL}, None),
        ({"type": "image", "image_url": URL, "detail": "low"}, None),
        ({"kind": "binary", "media_type": "image/png", "data": base64.urlsafe_b64encode(PNG).decode()}, TOLD),
        ({"type": "resource", "resource": {"uri": "a:b", "mimeType": "image/png", "blob": CODED}}, None),
        ({"name": "a.png", "mimeType": "image/png", "data": CODED, "width": 1},
         {"name": "a.png", "mimeType": "image/png", "data": TOLD, "width": 1}),
        ([1, {"deep": [{"mimeType": "image/png", "data": CODED}]}], [1, {"deep": [TOLD]}]),
        ({"media_type": "image/svg+xml", "data": base64.b64encode(b"<svg/>").decode()},
         "[picture image/svg+xml, 6 bytes]"),
    ],
)  # fmt: skip
def test_a_picture_is_found_in_any_form_and_shown_by_its_size(value: object, shown: object) -> None:
    rest, [picture] = pictures_in(value)
    assert picture.data in (PNG, b"<svg/>")
    assert CODED not in result(value).model_text()
    assert CODED[:-2] not in str(rest)
    assert str(picture) in str(rest)
    if shown is not None:
        assert rest == shown


@pytest.mark.parametrize(
    "value",
    [
        b"plain bytes",
        CODED,
        "data:image/png,plain",
        "data:image/png;base64,?",
        {"type": "image"},
        {"type": "image", "data": "?", "mimeType": "image/png"},
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"mimeType": "text/plain", "data": "aGk="},
        {"mimeType": ["image/png"], "data": CODED},
        {"data": CODED},
        [{"a": None}, 1.5, ()],
    ],
)
def test_what_is_no_picture_stays_as_it_is(value: object) -> None:
    rest, pictures = pictures_in(value)
    assert pictures == ()
    assert rest is value


def test_too_many_pictures_are_named_and_not_shown() -> None:
    rest, pictures = pictures_in([PNG] * 30)
    assert len(pictures) == 20
    assert rest[-1] == "[picture image/png, 70 bytes, one too many to be shown]"
    _, large = pictures_in([JPEG + bytes(9_000_000)] * 3)
    assert [picture.media_type for picture in large] == ["image/jpeg"] * 2


def test_a_wide_and_a_deep_value_are_looked_through_only_so_far() -> None:
    deep: Any = PNG
    for _ in range(100_000):
        deep = [deep]
    assert pictures_in(deep)[1] == ()
    assert pictures_in([*range(100_000), PNG])[1] == ()


def test_what_is_printed_of_a_picture_is_shortened() -> None:
    coded = base64.b64encode(JPEG).decode()
    printed = f"a {coded} b data:image/jpeg;base64,{coded} c {JPEG!r} d {'A' * 400}"
    shown = (
        f"a [picture image/jpeg, 1,028 bytes] b [picture image/jpeg, 1,028 bytes] c [picture, as bytes] d {'A' * 400}"
    )
    assert without_pictures(printed).replace("1,029", "1,028").replace("1,030", "1,028") == shown
    text = result(None, logs=(LogEntry(level="log", text=printed),)).model_text()
    assert coded not in text


def test_a_picture_says_what_it_is() -> None:
    assert repr(Picture(PNG, "image/png")) == "Picture(media_type='image/png')"
    assert Picture(PNG, "image/png").url == URL
    assert not Picture(b"<svg/>", "image/svg+xml").is_common
    assert Picture(b"RIFF\0\0\0\0WEBPVP8 ", "image/webp").is_common


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(PNG) | st.just(URL)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "data", "mimeType", "x"]), inner),
    max_leaves=20,
)


@given(VALUES)
def test_any_value_has_a_text_without_the_data_of_pictures(value: object) -> None:
    text = result(value).model_text()
    text.encode()
    assert CODED not in text
