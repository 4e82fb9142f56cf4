"""What the log holds of a call's input."""

from __future__ import annotations

import hashlib
import json
import math
from functools import reduce
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, TypeAdapter

from corral.audit import AuditLog, digest
from corral.audit.events import _canonical_encoder  # pyright: ignore[reportPrivateUsage]
from corral.types import JsonSchema


def log(arguments: Any) -> AuditLog:
    return AuditLog(print, arguments=arguments)


def digest_of(value: object) -> object:
    return log("digest").shown(value)


def redacted(value: object, schema: JsonSchema | None = None) -> Any:
    return log("redacted").shown(value, schema)


def test_a_digest_is_sha256_of_json_with_sorted_names_and_no_white_space() -> None:
    expected = hashlib.sha256(b'{"a":[1,null,"\\u00e9"],"b":"AP8="}').hexdigest()
    assert digest_of({"b": b"\x00\xff", "a": [1, None, "é"]}) == f"sha256:{expected}"
    assert digest("é") == f"sha256:{hashlib.sha256('é'.encode()).hexdigest()}"


def test_the_order_of_members_does_not_matter_and_values_do() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    values: list[Any] = [
        None,
        {},
        [],
        {"a": 1},
        {"a": "1"},
        {"a": math.nan},
        {"a": math.inf},
        "\ud800",
        "x",
        [[]],
        10**30,
    ]
    assert len({digest_of(value) for value in values}) == len(values)


PLAIN: list[Any] = [
    {"b": [1, -0.0, 1e-7, 1e22, 2**70], "a": {"z": None, "y": True}, "": "", "é\x7f\u2028": '"\\\n\0</'},
    [math.nan, math.inf, -math.inf, "\ud800", "😀", (), {1: 2, 10: 3}, {None: 1}],
    [[[]], {}],
]


@pytest.mark.parametrize("accelerated", [True, False], ids=["with C", "without"])
def test_the_canonical_form_is_that_of_the_standard_library(
    monkeypatch: pytest.MonkeyPatch, *, accelerated: bool
) -> None:
    if not accelerated:
        monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    canonical = _canonical_encoder()
    for value in PLAIN:
        assert canonical(value) == json.dumps(value, sort_keys=True, separators=(",", ":"))


DEEP = reduce(lambda inner, _: [inner], range(100_000), list[Any]())
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError


HOSTILE: dict[str, object] = {
    "deep": DEEP,
    "cycle": CYCLE,
    "keys of two types": {1: 2, "a": 3},
    "huge integer": 10**5000,
    "huge integer within": [10**5000],
    "object that cannot be printed": Unprintable(),
    "set": {"a": {1, 2}},
}


@pytest.mark.parametrize("mode", ["digest", "redacted"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_input_raises_and_every_one_is_short(name: str, mode: str) -> None:
    shown = log(mode).shown(HOSTILE[name])
    assert shown is not None
    assert len(json.dumps(shown)) < 1000


def test_none_holds_nothing() -> None:
    assert log("none").shown({"a": 1}) is None


def test_secrets_are_redacted_by_their_names_at_every_depth() -> None:
    value = {"api_key": "k", "user": {"password": "p", "name": "n"}, "list": [{"accessToken": {"a": 1}}], "pin": 1}
    assert redacted(value) == {
        "api_key": "[redacted]",
        "user": {"password": "[redacted]", "name": "n"},
        "list": [{"accessToken": "[redacted]"}],
        "pin": 1,
    }


class Login(BaseModel):
    pin: SecretStr
    hints: list[SecretStr] | None = None
    user: str


class Request(BaseModel):
    login: Login
    name: str


def test_secrets_are_redacted_by_the_schema_and_by_pydantics_type() -> None:
    value = {"login": {"pin": "1234", "hints": ["a"], "user": "u"}, "name": "n"}
    expected = {"login": {"pin": "[redacted]", "hints": "[redacted]", "user": "u"}, "name": "n"}
    assert redacted(value, TypeAdapter(Request).json_schema()) == expected
    without_schema = redacted(TypeAdapter(Request).validate_python(value))
    assert without_schema["login"]["pin"] == "[redacted]"
    assert without_schema["login"]["hints"] == ["[redacted]"]


def test_copies_are_short_however_large_the_input_is() -> None:
    shown = redacted({"text": "x" * 1_000_000, "rows": [{"a": "y" * 1000}] * 100_000, "k" * 100_000: 1})
    assert len(json.dumps(shown)) < 20_000
    assert "characters left out" in shown["text"]
    assert shown["rows"][-1].endswith("more")
    assert len(json.dumps(redacted({f"{number}": "x" * 150 for number in range(100_000)}))) < 20_000
