"""Base of bridges over HTTP: request checks, authentication by token, and bounds for each execution."""

from corral.bridges.base import ASGIApp, Message, Receive, Scope, Send
from corral.bridges.web.batches import (
    CALLS_SCHEMA,
    Batch,
    LineStream,
    PlainLineStream,
    calls_of,
    error_content,
    items_writer,
    line,
)
from corral.bridges.web.bridge import Answer, BridgeApp, WebBridge, grant_of
from corral.bridges.web.request_filter import RequestHead
from corral.bridges.web.request_load import MAX_CALLS, Body, load_of, most_body_bytes, parse_json, read_body
from corral.bridges.web.request_watch import RequestWatch, ended, late, watch_request
from corral.bridges.web.responses import NOT_JSON, EventStream, Response, ResponseStream, failed, status_of

__all__ = [
    "CALLS_SCHEMA",
    "MAX_CALLS",
    "NOT_JSON",
    "ASGIApp",
    "Answer",
    "Batch",
    "Body",
    "BridgeApp",
    "EventStream",
    "LineStream",
    "Message",
    "PlainLineStream",
    "Receive",
    "RequestHead",
    "RequestWatch",
    "Response",
    "ResponseStream",
    "Scope",
    "Send",
    "WebBridge",
    "calls_of",
    "ended",
    "error_content",
    "failed",
    "grant_of",
    "items_writer",
    "late",
    "line",
    "load_of",
    "most_body_bytes",
    "parse_json",
    "read_body",
    "status_of",
    "watch_request",
]
