"""Base of bridges over HTTP: request checks, authentication by token, and bounds for each execution."""

from corral.bridges.base import ASGIApp, Message, Receive, Scope, Send
from corral.bridges.web.batches import CALLS_SCHEMA, Batch, calls_of, error_content, items_writer, line
from corral.bridges.web.bridge import WebBridge, grant_of
from corral.bridges.web.refusals import NOT_JSON, ended, late, refusal_headers, status_of
from corral.bridges.web.request_filter import FastPath, RequestHead
from corral.bridges.web.request_load import MAX_CALLS, Body, load_of, most_body_bytes, parse_json, read_body
from corral.bridges.web.request_watch import RequestWatch, watch_request
from corral.bridges.web.streams import LineStream, PlainLineStream

__all__ = [
    "CALLS_SCHEMA",
    "MAX_CALLS",
    "NOT_JSON",
    "ASGIApp",
    "Batch",
    "Body",
    "FastPath",
    "LineStream",
    "Message",
    "PlainLineStream",
    "Receive",
    "RequestHead",
    "RequestWatch",
    "Scope",
    "Send",
    "WebBridge",
    "calls_of",
    "ended",
    "error_content",
    "grant_of",
    "items_writer",
    "late",
    "line",
    "load_of",
    "most_body_bytes",
    "parse_json",
    "read_body",
    "refusal_headers",
    "status_of",
    "watch_request",
]
