"""Base of bridges over HTTP: request checks, authentication by token, and bounds for each execution.

These names are for bridges of other packages, as docs/bridges.md describes; the modules below are internal.
"""

from corral.bridges.web.batches import Batch
from corral.bridges.web.bridge import BridgeApp, WebBridge, grant_of
from corral.bridges.web.request_filter import RequestHead
from corral.bridges.web.request_load import Body, load_of, parse_json, read_body
from corral.bridges.web.request_watch import watch_request
from corral.bridges.web.responses import status_of

__all__ = [
    "Batch",
    "Body",
    "BridgeApp",
    "RequestHead",
    "WebBridge",
    "grant_of",
    "load_of",
    "parse_json",
    "read_body",
    "status_of",
    "watch_request",
]
