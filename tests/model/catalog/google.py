"""Two thousand tools, made of the documents of Google's APIs that the package `google-api-python-client` carries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import chain, islice
from typing import Any

from corral import Tool, define_tool

__all__ = ["COUNT", "google_tools"]

COUNT = 2_000
_SERVICES = """
    gmail.v1 calendar.v3 drive.v3 sheets.v4 docs.v1 slides.v1 forms.v1 people.v1 tasks.v1 chat.v1 keep.v1 youtube.v3
    classroom.v1 admin.directory_v1 translate.v3 language.v1 vision.v1 speech.v1 books.v1 blogger.v3 civicinfo.v2
    customsearch.v1 pagespeedonline.v5 webfonts.v1 safebrowsing.v4 storage.v1 bigquery.v2 pubsub.v1 sqladmin.v1 dns.v1
    cloudbilling.v1 secretmanager.v1 cloudkms.v1 cloudscheduler.v1 cloudtasks.v2 cloudfunctions.v2 artifactregistry.v1
    androidpublisher.v3 monitoring.v3 cloudresourcemanager.v3 firestore.v1 searchconsole.v1 analyticsdata.v1beta
    tagmanager.v2 fitness.v1 games.v1 iam.v1 logging.v2 spanner.v1 redis.v1 dataproc.v1
""".split()
"""What they are taken from, in this order; there are more methods in these than are needed."""


@cache
def google_tools(count: int = COUNT) -> tuple[Tool, ...]:
    """The first so many tools, the same in every run with one version of the package."""
    return tuple(islice(chain.from_iterable(map(_tools_of, _SERVICES)), count))


def _tools_of(service: str) -> Iterator[Tool]:
    documents = files("googleapiclient.discovery_cache.documents")
    document = json.loads(documents.joinpath(f"{service}.json").read_text(encoding="utf-8"))
    definitions = _Definitions({name: _schema(each) for name, each in document["schemas"].items()})
    for method in _methods(document):
        yield _tool(service.partition(".")[0], method, definitions)


def _methods(resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from resource.get("methods", {}).values()
    for each in resource.get("resources", {}).values():
        yield from _methods(each)


def _tool(namespace: str, method: dict[str, Any], definitions: _Definitions) -> Tool:
    parameters = method.get("parameters", {})
    properties = {name: _schema(each) for name, each in parameters.items()}
    required = [name for name, each in parameters.items() if each.get("required")]
    if "request" in method:
        properties["body"] = _schema(method["request"])
    given = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    returned = definitions.document(_schema(method["response"])) if "response" in method else {"type": "null"}
    return define_tool(
        name=method["id"].partition(".")[2],
        namespace=namespace,
        description=method.get("description", ""),
        input_schema=definitions.document(given),
        output_schema=returned,
        execute=_call,
        read_only=method["httpMethod"] == "GET",
    )


def _call(input: Any) -> Any:
    return {}


class _Definitions:
    """The definitions of one service, and which ones each of them refers to."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas
        self._references = {name: set(_references(each)) for name, each in schemas.items()}

    def document(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema with the definitions that it refers to, directly or by way of others."""
        needed: set[str] = set()
        coming = set(_references(schema))
        while coming:
            needed |= coming
            coming = {found for name in coming for found in self._references[name]} - needed
        definitions = {"$defs": {name: self._schemas[name] for name in sorted(needed)}} if needed else {}
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, **definitions}


def _references(schema: Any) -> Iterator[str]:
    match schema:
        case {"$ref": str() as reference}:
            yield reference.removeprefix("#/$defs/")
        case dict():
            yield from chain.from_iterable(map(_references, schema.values()))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        case _:
            pass


def _schema(said: dict[str, Any]) -> dict[str, Any]:
    """What a document of Google's says of a value, as JSON Schema."""
    if said.get("repeated"):
        return {"type": "array", "items": _schema({**said, "repeated": False})}
    schema: dict[str, Any] = {key: said[key] for key in ("description", "enum", "format", "pattern") if key in said}
    if "$ref" in said:
        schema["$ref"] = f"#/$defs/{said['$ref']}"
    if said.get("type", "any") != "any":
        schema["type"] = said["type"]
    if "properties" in said:
        schema["properties"] = {name: _schema(each) for name, each in said["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in said:
            schema[key] = _schema(said[key])
    return schema
