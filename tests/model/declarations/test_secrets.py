"""Which parameters look as if a model were to pass a secret."""

from __future__ import annotations

from typing import Any

import pytest

from corral.model import secret_parameters
from corral.types import JsonSchema

STRING: JsonSchema = {"type": "string"}


def properties(*names: str, **schemas: Any) -> JsonSchema:
    return {"type": "object", "properties": dict.fromkeys(names, STRING) | schemas}


SECRET = """
    openai_api_key apiKey API_KEY X-Api-Key apikey access_token authToken accessToken token password passwordConfirmation
    db_passwd user.password client_secret clientSecret secret secrets private_key privateKey SSHKey credentials jwt
    Authorization bearer_token access_tokens passphrase api_keys AWS_SECRET_ACCESS_KEY
""".split()
HARMLESS = """
    tokenizer openai_model max_tokens tokens token_count page_token nextPageToken next_token key keys primary_key key_id
    secretary password_policy passwordless compass passenger author authorize keyboard monkey sort_key
""".split()


@pytest.mark.parametrize("name", SECRET)
def test_names_of_secrets_are_found(name: str) -> None:
    assert secret_parameters(properties(name)) == (name,)


@pytest.mark.parametrize("name", HARMLESS)
def test_names_that_only_resemble_them_are_not(name: str) -> None:
    assert secret_parameters(properties(name)) == ()


def test_secrets_are_found_wherever_they_are() -> None:
    schema = properties(
        "api_key",
        servers={"type": "array", "items": properties("password", "host")},
        pair={"prefixItems": [STRING, properties("token")]},
        auth={"anyOf": [properties("user", "password"), {"allOf": [properties("jwt")]}, {"type": "null"}]},
        hosts={"additionalProperties": properties("secret")},
        login={"$ref": "#/$defs/Login"},
    )
    schema["$defs"] = {"Login": properties("passphrase", again={"$ref": "#/$defs/Login"}), "Unused": properties("pwd")}
    assert set(secret_parameters(schema)) == {
        "api_key",
        "servers[].password",
        "pair[].token",
        "auth.password",
        "auth.jwt",
        "hosts.*.secret",
        "login.passphrase",
    }


def test_each_secret_is_named_once() -> None:
    schema = {"anyOf": [properties("api_key"), properties("api_key")], "properties": {"api_key": STRING}}
    assert secret_parameters(schema) == ("api_key",)
    both = properties(a={"$ref": "#/$defs/Login"}, b={"$ref": "#/$defs/Login"}) | {
        "$defs": {"Login": properties("token")}
    }
    assert secret_parameters(both) == ("a.token",)


def test_the_type_counts_too() -> None:
    assert secret_parameters(properties(password={"type": "boolean"}, token={"type": "integer"})) == ()
    assert secret_parameters(properties(pin={"type": "string", "format": "password"})) == ("pin",)


@pytest.mark.parametrize("schema", [None, {}, {"type": "string"}, {"$ref": "#"}, {"$ref": "#/nowhere"}])
def test_schemas_without_secrets(schema: JsonSchema | None) -> None:
    assert secret_parameters(schema) == ()
