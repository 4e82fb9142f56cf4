"""Bridges carry calls from a guest to the tools: `CallRequest -> Reply`. `guards.pipeline` orders their guards."""

from corral.bridges.auditing import outcome_of, record_denial
from corral.bridges.base import ASGIApp, BridgeHost, BridgeProtocol, Document, PipeBridge
from corral.bridges.calls import Call, Handler
from corral.bridges.grants import Grant, Grants, OutsideExecution, Services, Tokens, new_execution_id
from corral.bridges.guards import Pipeline, Policy, pipeline
from corral.bridges.parking import ApprovalRequest, Approve, ParkedCalls
from corral.bridges.rates import MemoryRates, RateLimits, RateStore
from corral.bridges.records import CallRecorder, ValueRoom, remarks_on
from corral.bridges.scopes import ImpliedScopes, capabilities_of, early_denial, hidden_denial
from corral.bridges.services import Service, ServiceSource
from corral.bridges.web.documents import DocumentCache

__all__ = [
    "ASGIApp",
    "ApprovalRequest",
    "Approve",
    "BridgeHost",
    "BridgeProtocol",
    "Call",
    "CallRecorder",
    "Document",
    "DocumentCache",
    "Grant",
    "Grants",
    "Handler",
    "ImpliedScopes",
    "MemoryRates",
    "OutsideExecution",
    "ParkedCalls",
    "PipeBridge",
    "Pipeline",
    "Policy",
    "RateLimits",
    "RateStore",
    "Service",
    "ServiceSource",
    "Services",
    "Tokens",
    "ValueRoom",
    "capabilities_of",
    "early_denial",
    "hidden_denial",
    "new_execution_id",
    "outcome_of",
    "pipeline",
    "record_denial",
    "remarks_on",
]
