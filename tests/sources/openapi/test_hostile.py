"""A document that is broken, or made to break its reader, is refused or skipped in a sentence, and soon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.errors import ConfigError
from corral.sources.openapi import OpenApi
from corral.sources.openapi.documents import load_yaml
from tests.sources.openapi.service import document, operation
from tests.work import calls_of, examples

URL = "http://localhost"
YAML = """
openapi: 3.0.3
info: {title: Norway, version: 2026-01-01}
paths:
  /countries/no:
    get:
      operationId: get_country
      parameters:
        - {name: on, in: query, schema: {type: string, enum: [no, yes, on, 0o7, 1_000, 2026-01-01, "1"]}}
      responses:
        200: {description: ok, content: {application/json: {schema: {type: string}}}}
        default: {description: error}
"""


MOST_CALLS = 5_000_000
"""Of functions; the dearest document takes two million, and one that is expanded without a bound takes any number."""


def refused(said: Any) -> str:
    def read() -> None:
        with pytest.raises(ConfigError) as raised:
            OpenApi(None, said, base_url=URL)
        errors.append(raised.value)

    errors: list[ConfigError] = []
    assert calls_of(read) < MOST_CALLS
    [raised] = errors
    assert len(str(raised)) < 800
    return str(raised)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("{", "neither JSON nor YAML"),
        ("[]\n", "is not an object"),
        ("a: [\n", "neither JSON nor YAML"),
        ("a: !!python/object/apply:os.system [ls]\n", "neither JSON nor YAML"),
        ("no-such-file.yaml", "no-such-file.yaml cannot be read"),
        (Path("no-such-file.json"), "cannot be read"),
        ("https://example.com/openapi.json", "is a URL: download it first; nothing is fetched"),
        ({"swagger": "1.2"}, "OpenAPI 3.0 or 3.1, or Swagger 2.0; it is swagger 1.2"),
        ({"openapi": "4.0.0"}, 'it is openapi "4.0.0"'),
        ({"openapi": 3.0}, "it is openapi 3.0"),
        ({}, "it is openapi null"),
        ({"openapi": "3.0.0", "paths": []}, "#/paths: is not an object"),
        ({"openapi": "3.0.0", "components": []}, "#/components: is not an object"),
        ({"openapi": "3.0.0", "components": {"securitySchemes": {"a": []}}}, "#/components/securitySchemes/a: is not an object"),
        ({"openapi": "3.0.0", "x": {1.5: 1}}, "#/x: has the non-string key 1.5"),
        ({"openapi": "3.0.0", "x": [{None: 1}]}, "#/x/0: has the non-string key None"),
        ({"openapi": "3.0.0", "x": {"a/b": {1, 2}}}, "#/x/a~1b: has a set, which is not data"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" * 100_000 + "\n", "nested too deeply"),
        ("- " * 100_000 + "\n", "neither JSON nor YAML"),
        ('{"openapi": "3.0.0", "x": ' + "[" * 300 + "]" * 300 + "}", "nested too deeply"),
        ("a: &a [*a]\nopenapi: 3.0.0\n", "nested too deeply"),
        pytest.param(
            *("x: [" + "1," * 600_000 + "1]\n", "neither JSON nor YAML: it has too many parts"),
            marks=pytest.mark.matrix("bombs of aliases and merges have too many parts in the gate"),
        ),
        ("x" * 9_000_000 + "\n", "the maximum is 8000000; JSON can be longer"),
    ],
    ids=range(24),
)  # fmt: skip
def test_what_is_no_document_is_refused(said: Any, text: str) -> None:
    assert text in refused(said)


def test_yaml_is_read_as_json_would_be(tmp_path: Path) -> None:
    path = tmp_path / "norway.yaml"
    path.write_text(YAML, encoding="utf-8")
    for said in (YAML, path, str(path)):
        [tool] = OpenApi(None, said, base_url=URL).tools
        assert tool.input_schema is not None
        assert tool.input_schema["properties"]["on"]["enum"] == ["no", "yes", "on", "0o7", "1_000", "2026-01-01", "1"]
        assert tool.output_schema == {"type": "string"}


def test_json_is_read_from_text_and_from_files(tmp_path: Path) -> None:
    text = json.dumps(document(operation()))
    path = tmp_path / "a.json"
    path.write_text(f"\ufeff{text}", encoding="utf-8")
    for said in (text, path, f"\ufeff  {text}"):
        assert len(OpenApi(None, said, base_url=URL).tools) == 1


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert "parts; at most 5000000 are allowed" in refused("openapi: 3.0.0\n" + "\n".join(lines))


def test_a_bomb_of_merges_is_refused() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: 1}}" for n in range(1, 1_000)]
    assert "its merge keys (<<) add more than" in refused("openapi: 3.0.0\n" + "\n".join(lines))


def test_merges_that_repeat_each_other_do_not_multiply() -> None:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 30)]
    found: list[object] = []

    def read() -> None:
        try:
            found.append(load_yaml("\n".join(lines))["a29"])
        except ValueError as error:
            found.append(str(error))

    assert calls_of(read) < MOST_CALLS
    # PyYAML leaves out repetitions since 6.0.4; before, they are too much.
    assert found == [{"x": 1, "y": 2}] or "merge keys (<<) add more than" in str(found)


def test_aliases_and_merges_of_a_usual_size_are_read() -> None:
    text = YAML.replace(
        "default: {description: error}", "default: &e {description: error}\n        404: {<<: *e}\n        500: *e"
    )
    assert len(OpenApi(None, text, base_url=URL).tools) == 1


def test_too_many_operations_are_refused() -> None:
    many: dict[str, Any] = {f"/{n}": {"get": {"responses": {}}} for n in range(10_001)}
    assert "more than 10000 operations" in refused(document(many))


def test_half_of_a_surrogate_pair_does_no_harm() -> None:
    said = document(
        operation(description="\ud800", operationId="a\udc00b", parameters=[{"name": "\ud800", "in": "query"}])
    )
    [tool] = OpenApi(None, said, base_url=URL).tools
    assert (tool.name, tool.description) == ("a?b", "?")


BROKEN: list[tuple[Any, str]] = [
        ({"$ref": "#/components/pathItems/A"}, "refers to #/components/pathItems/A, which does not exist"),
        ({"$ref": "https://example.com/x"}, "is not in this document"),
        ({"$ref": "#/paths/~1x"}, "are circular"),
        ([], "#/paths/~1x: is not an object"),
        ({"get": []}, "#/paths/~1x/get: is not an object"),
        ({"get": {"parameters": {}}}, "#/paths/~1x/get/parameters: is not a list"),
        ({"get": {"parameters": ["a"]}}, "#/paths/~1x/get/parameters/0: is not an object"),
        ({"get": {"parameters": [{"name": 1}]}}, "/name: is not a string"),
        ({"get": {"parameters": [{"$ref": "#/x/y"}]}}, "refers to #/x/y"),
        ({"get": {"responses": []}}, "#/paths/~1x/get/responses: is not an object"),
        ({"get": {"responses": {"99": {}}}}, "/responses/99: is neither a status nor a range of them"),
        ({"get": {"responses": {"200": "ok"}}}, "/responses/200: is not an object"),
        ({"get": {"responses": {"200": {"$ref": "a.yaml"}}}}, "which is not in this document"),
        ({"get": {"responses": {"200": {"content": []}}}}, "/content: is not an object"),
        ({"get": {"responses": {"200": {"headers": 5}}}}, "/headers: is not an object"),
        ({"get": {"operationId": ["a"]}}, "/operationId: is not a string"),
        ({"get": {"tags": "a"}}, "/tags: is not a list"),
        ({"get": {"security": {}}}, "/security: is not a list"),
        ({"get": {"security": ["a"]}}, "/security/0: is not an object"),
        ({"get": {"security": [{"a": []}]}}, "it needs a credential: a (which is not declared)"),
        ({"get": {"deprecated": "yes"}}, "/deprecated: is neither true nor false"),
        ({"get": {"servers": [{"url": "http://a:b"}]}}, "is not a URL"),
        ({"post": {"requestBody": []}}, "/requestBody: is not an object"),
        ({"post": {"requestBody": {"content": 5}}}, "/content: is not an object"),
        ({"post": {"requestBody": {"required": 1, "content": {"a/b": {}}}}}, "/required: is neither true nor false"),
    ]  # fmt: skip


@pytest.mark.parametrize(("said", "where"), BROKEN)
def test_an_operation_that_cannot_be_read_is_skipped_and_others_are_not(said: Any, where: str) -> None:
    source = OpenApi(None, document({"/x": said, "/y": {"get": {"operationId": "y", "responses": {}}}}), base_url=URL)
    assert [tool.name for tool in source.tools] == ["y"]
    [skipped] = source.skipped
    assert where in skipped.reason


WHOLE = document(
    {
        "/x/{id}": {
            "parameters": [{"$ref": "#/components/parameters/Id"}],
            "servers": [{"url": "/{v}", "variables": {"v": {"default": "1"}}}],
            "post": {
                "operationId": "a",
                "tags": ["t"],
                "security": [{"key": []}],
                "parameters": [{"name": "q", "in": "query", "style": "deepObject", "content": {"application/json": {}}}],
                "requestBody": {
                    "content": {
                        "multipart/form-data": {
                            "schema": {"$ref": "#/components/schemas/A"},
                            "encoding": {"a": {"contentType": "image/png", "style": "form"}},
                        }
                    }
                },
                "responses": {"200": {"headers": {"Link": {"schema": {}}}, "content": {"text/x": {"schema": {}}}}},
            },
        }
    },
    schemas={"A": {"allOf": [{"properties": {"a": {"readOnly": True, "enum": [1]}}, "required": ["a"]}], "discriminator": {"propertyName": "a", "mapping": {"a": "A"}}}},
    components={
        "parameters": {"Id": {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}},
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "k"}},
    },
)  # fmt: skip


def members(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(cast("dict[Any, Any]", value).items())
    return list(enumerate(cast("list[Any]", value))) if isinstance(value, list) else []


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, each in members(value):
        yield from places(each, (*path, key))


def with_other(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    copied = {key: with_other(each, path[1:], other) if key == path[0] else each for key, each in members(value)}
    return copied if isinstance(value, dict) else list(copied.values())


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 300)
    | st.floats()
    | st.sampled_from(["", "a", "#/x", "{", "string", "..", "\x00"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$ref", "type", "a", "properties", ""]), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=examples(200))
@given(place=st.sampled_from(list(places(WHOLE))), other=ANYTHING)
def test_whatever_stands_anywhere_a_document_is_read_or_refused(place: tuple[Any, ...], other: Any) -> None:
    try:
        source = OpenApi(None, with_other(WHOLE, place, other), base_url=URL, without_credentials=True)
    except ConfigError:
        return
    for tool in source.tools:
        assert tool.input_schema is not None
        assert tool.output_schema is not None
