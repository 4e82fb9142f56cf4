"""Base of bridges over HTTP: checks of every request, authentication by token, and bounds for each execution."""

from corral.bridges.base import ASGIApp, Message, Receive, Scope, Send
from corral.bridges.web.bridge import WebBridge, grant_of
from corral.bridges.web.refusals import NOT_JSON, ended, late, refusal_headers, status_of
from corral.bridges.web.request_filter import FastPath, RequestHead
from corral.bridges.web.request_load import MAX_CALLS, Body, load_of, parse_json, read_body
from corral.bridges.web.request_watch import RequestWatch, watch_request

__all__ = [
    "MAX_CALLS",
    "NOT_JSON",
    "ASGIApp",
    "Body",
    "FastPath",
    "Message",
    "Receive",
    "RequestHead",
    "RequestWatch",
    "Scope",
    "Send",
    "WebBridge",
    "ended",
    "grant_of",
    "late",
    "load_of",
    "parse_json",
    "read_body",
    "refusal_headers",
    "status_of",
    "watch_request",
]
