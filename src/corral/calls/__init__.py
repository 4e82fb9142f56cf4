"""Tool calls pass through guards, `Call -> Reply`, whichever bridge carried them. `guards.pipeline` defines their
order."""

from corral.calls.calls import Call, Handler
from corral.calls.grants import Grant, Grants, RemoteExecution, Services, Tokens, new_execution_id
from corral.calls.guards import GuardSettings, ParkedCalls, Pipeline, outcome_of, pipeline, record_denial, undo_call
from corral.calls.rates import MemoryRates, RateLimits, RateStore
from corral.calls.records import CallRecorder, ValueRoom, remarks_on
from corral.calls.scopes import ImpliedScopes, capabilities_of, early_denial, hidden_denial
from corral.calls.services import Service, ServiceSource

__all__ = [
    "Call",
    "CallRecorder",
    "Grant",
    "Grants",
    "GuardSettings",
    "Handler",
    "ImpliedScopes",
    "MemoryRates",
    "ParkedCalls",
    "Pipeline",
    "RateLimits",
    "RateStore",
    "RemoteExecution",
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
    "undo_call",
]
