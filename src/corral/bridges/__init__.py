"""Bridges carry calls from a guest to the host: `CallRequest -> Reply`."""

from corral.bridges.base import ASGIApp, BridgeHost, BridgeProtocol, Document, PeerHosts, PipeBridge
from corral.bridges.web.documents import DocumentCache
from corral.types import ApprovalRequest, Approve

__all__ = [
    "ASGIApp",
    "ApprovalRequest",
    "Approve",
    "BridgeHost",
    "BridgeProtocol",
    "Document",
    "DocumentCache",
    "PeerHosts",
    "PipeBridge",
]
