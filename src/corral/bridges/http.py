"""`HttpBridge`: calls as JSON over HTTP, for programs elsewhere. docs/http.md specifies the protocol.

Needs the extra `http`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, ClassVar

import anyio.lowlevel
from pydantic_core import to_json
from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document, Receive, Send
from corral.bridges.web import Batch, Body, BridgeApp, RequestHead, WebBridge, load_of, parse_json, watch_request
from corral.bridges.web.batches import CALLS_SCHEMA, PlainLineStream, error_content, items_writer, line
from corral.bridges.web.bridge import Answer
from corral.bridges.web.documents import DocumentCache
from corral.bridges.web.request_load import most_body_bytes
from corral.bridges.web.request_watch import ended
from corral.bridges.web.responses import NOT_JSON, Response, ResponseStream, failed
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.guest import Transport, http_transport, plain_json
from corral.tools import Tool
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, JsonSchema, Language, Reply, ToolName

__all__ = ["HttpBridge"]

_NDJSON = "application/x-ndjson"


class _HttpApp(BridgeApp):
    """Serves `/calls` for corral's own runtimes, and `/tools/{tool}` for any HTTP client."""

    def __init__(self, bridge: HttpBridge, host: BridgeHost) -> None:
        super().__init__(bridge, host)
        self._answers: Mapping[str, Mapping[str, Answer]] = {
            "/calls": {"POST": self._calls},
            "/token": {"POST": self.renew},
            "/openapi.json": {"GET": self._document},
        }

    @override
    def answers(self, path: str) -> Mapping[str, Answer]:
        tool = path.removeprefix("/tools/")
        if tool != path and tool and "/" not in tool:
            return {"POST": partial(self._tool, tool[:MAX_TOOL_PATH])}
        return self._answers.get(path, {})

    async def _calls(self, head: RequestHead, grant: Grant, receive: Receive, send: Send) -> ASGIApp | None:
        """Writes a line for each call as soon as it has a reply. If the client disconnects, its calls are cancelled."""
        if not head.is_json:
            return self.refuse(head, NOT_JSON, 415)
        lines = _lines(send)
        batch: Batch | None = None
        async with (
            watch_request(grant, receive, partial(lines.write, b"\n")) as watch,
            Body(head, receive, most_body_bytes(grant), grant) as body,
        ):
            batch = await Batch.read(self._host, grant, "http", body)
            watch.body_received()
            await batch.answer(lines.write)
            return None
        if batch is None:
            return self.refuse(head, watch.reason)
        await batch.end(lines.write)
        return None

    async def _tool(self, name: str, head: RequestHead, grant: Grant, receive: Receive, send: Send) -> ASGIApp | None:
        if not head.is_json:
            return self.refuse(head, NOT_JSON, 415)
        if _accepts_lines(head) and (tool := grant.peek_tool(name)) is not None and tool.stream:
            return await self._stream(name, head, grant, receive, send)
        async with (
            watch_request(grant, receive, anyio.lowlevel.checkpoint) as watch,
            Body(head, receive, grant.limits.tool_input_bytes, grant) as body,
        ):
            called = _request(name, body, grant)
            watch.body_received()
            reply = await self._host.handle(Call(called, grant, protocol="http"))
            if reply.error is not None:
                return self.refuse(head, reply.error)
            return Response(plain_json(reply.value))
        return self.refuse(head, watch.reason)

    async def _stream(self, name: str, head: RequestHead, grant: Grant, receive: Receive, send: Send) -> ASGIApp | None:
        """Writes a stream's lines as they arrive. Returns an error response if there was no line before the failure."""
        lines = _lines(send)
        items = PlainLineStream(items_writer(1, lines.write))

        async def heartbeat() -> None:
            if lines.started:
                await lines.write(b"\n")

        async with (
            watch_request(grant, receive, heartbeat) as watch,
            Body(head, receive, grant.limits.tool_input_bytes, grant) as body,
        ):
            called = _request(name, body, grant)._replace(open_stream=items.open)
            watch.body_received()
            async with items.written():
                reply = await self._host.handle(Call(called, grant, protocol="http"))
            if reply.error is not None and not lines.started:
                return self.refuse(head, reply.error)
            await lines.write(line(1, reply), last=True)
            return None
        if not lines.started:
            return self.refuse(head, watch.reason)
        await lines.write(line(1, Reply(error=ended())), last=True)
        return None

    async def _document(self, head: RequestHead, grant: Grant, receive: Receive, _send: Send) -> ASGIApp:
        load_of(grant).count(1)
        async with watch_request(grant, receive, anyio.lowlevel.checkpoint) as watch:
            watch.body_received()  # a GET has no body
            description = await self._bridge.document(grant)
            assert description is not None
            return Response(description.content, media_type=description.media_type)
        return self.refuse(head, watch.reason)


def _lines(send: Send) -> ResponseStream:
    return ResponseStream(send, (b"content-type", _NDJSON.encode()))


def _request(name: str, body: bytes, grant: Grant) -> CallRequest:
    input = parse_json(body)
    return CallRequest(name, input, load_of(grant).count(1), len(body), partial(parse_json, body))


def _accepts_lines(head: RequestHead) -> bool:
    """True if the client accepts NDJSON. Parses only this header, because this is a hot path."""
    for name, value in head.scope["headers"]:  # noqa: SIM110 - a generator costs a frame for each header
        if name == b"accept" and _NDJSON.encode() in value:
            return True
    return False


_REFERENCE = re.compile(rb'(?<!\\)"\$ref":"#')

_ERROR: JsonSchema = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "name": {"type": "string"},
        "message": {"type": "string"},
        "retryAfterSeconds": {"type": "number"},
    },
    "required": ["code", "name", "message"],
}
_REFUSALS = {
    "400": "The request is malformed.",
    "401": "The token is missing or invalid.",
    "403": "A policy denies the call.",
    "413": "The request is too large.",
    "414": "The request's address is too long.",
    "415": "The request is not JSON.",
    "421": "The request's Host is not allowed.",
    "431": "The request has too many headers.",
}
_TOOL_REFUSALS = {
    "404": "Tool not found.",
    "422": "The input does not match the schema, or the tool reported an error.",
    "429": "Too many calls.",
    "502": "The tool failed.",
    "503": "The execution ended.",
}


def openapi(tools: Mapping[ToolName, Tool]) -> bytes:
    """Returns an OpenAPI 3.1 document as JSON. Its paths are relative to the document's own URL."""
    body = dict(CALLS_SCHEMA)
    own: dict[str, Any] = {"Error": _ERROR, **body.pop("$defs"), "Calls": body}
    schemas = {name: to_json(schema) for name, schema in own.items()}
    paths: dict[str, Any] = {
        "/calls": {"post": _operation("call_many", "Calls tools; each line is the reply to one call.", _CALLS_BODY)},
        "/token": {"post": _operation("renew_token", "Returns a fresh token for this execution.", {})},
        "/health": {
            "get": {"operationId": "health", "security": [], "responses": {"200": {"description": "Running."}}}
        },
    }
    paths["/calls"]["post"]["responses"]["200"] = {
        "description": "JSON lines, in the order in which the calls end.",
        "content": {_NDJSON: {}},
    }
    for name, tool in tools.items():
        paths[f"/tools/{name}"] = {"post": _tool(str(name), tool, schemas)}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "corral bridge", "version": version("corral")},
        "servers": [{"url": "."}],
        "security": [{"token": []}],
        "paths": paths,
    }
    scheme = to_json({"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}})
    members = b",".join(b"%b:%b" % (to_json(name), schema) for name, schema in schemas.items())
    return b'%b,"components":{"securitySchemes":%b,"schemas":{%b}}}' % (to_json(document)[:-1], scheme, members)


_CALLS_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Calls"}}},
    }
}


def _operation(name: str, summary: str, more: Mapping[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "Done.", "content": {"application/json": {}}}}
    return {"operationId": name, "summary": summary, **more, "responses": responses | _refused(_REFUSALS)}


def _tool(name: str, tool: Tool, schemas: dict[str, bytes]) -> dict[str, Any]:
    """Returns the operation of one tool, and adds its schemas to `schemas`, as JSON."""
    number = len(schemas)

    def referred(schema: JsonSchema | None, role: str) -> JsonSchema:
        if schema is None:
            return {}
        key = f"tool{number}.{role}"
        schemas[key] = _rebased(schema, f"#/components/schemas/{key}")
        return {"$ref": f"#/components/schemas/{key}"}

    body = {"content": {"application/json": {"schema": referred(tool.input_schema, "input")}}}
    operation = _operation(f"tool_{name}", tool.description[:300] or name, {"requestBody": body})
    output = referred(tool.output_schema, "output")
    output = {"type": "array", "items": output} if tool.stream else output
    operation["responses"]["200"]["content"]["application/json"] = {"schema": output}
    if tool.stream:
        operation["responses"]["200"]["content"][_NDJSON] = {}
    operation["responses"] |= _refused(_TOOL_REFUSALS)
    return operation


def _refused(reasons: Mapping[str, str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"error": {"$ref": "#/components/schemas/Error"}}, "required": ["error"]}
    content = {"application/json": {"schema": schema}}
    return {status: {"description": reason, "content": content} for status, reason in reasons.items()}


def _rebased(schema: JsonSchema, base: str) -> bytes:
    """Makes a schema part of the document: prefixes its internal references with `base`.

    Edits the JSON text, which is several times faster than copying the objects. There, quotes inside strings have a
    backslash and those around member names do not.
    """
    return _REFERENCE.sub(rb'"$ref":"' + base.encode(), to_json(schema))


@checked
class HttpBridge(WebBridge):
    """Calls as JSON over HTTP, to an app that is mounted in a web server.

    `url` is the bridge's address for programs, by default the environment variable TOOL_BRIDGE_URL; only executions
    whose sandbox runs elsewhere need it. The Host of a request must be that of `url`, one of `allowed_hosts`, or a
    loopback name; `"*"` allows any. Requests with an Origin come from web pages, and are only accepted if it is one of
    `allowed_origins`.

    Raises:
        ConfigError: `url` is not an http or https URL.
    """

    name: ClassVar[str] = "http"

    def __init__(
        self,
        url: str | None = None,
        *,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
    ) -> None:
        url = os.environ.get("TOOL_BRIDGE_URL") if url is None else url
        super().__init__(url, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)
        self._documents = DocumentCache(lambda tools: openapi(tools))

    @override
    def routes(self, host: BridgeHost) -> ASGIApp:
        return _HttpApp(self, host)

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        return failed(to_json({"error": error_content(error)}), error, status)

    @override
    async def document(self, grant: Grant) -> Document:
        return Document(await self._documents.of(grant), "application/json")

    @override
    def guest_transport(self, language: Language) -> Transport:
        return http_transport(language)
