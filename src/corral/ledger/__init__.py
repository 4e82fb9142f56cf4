"""Ledger of durable executions: requests, calls, replies and decisions, in a store."""

from corral.ledger.base import Ledger
from corral.ledger.postgres import PostgresLedger
from corral.ledger.records import WAITING, Recorded, Records
from corral.ledger.rows import (
    NOT_KEPT,
    SAVED,
    CallRow,
    CallStatus,
    ExecutionStatus,
    Query,
    StoredCall,
    StoredDecision,
    StoredExecution,
    StoredSession,
    pack_reply,
)
from corral.ledger.sqlite import LedgerSource, MemoryLedger, SqliteLedger, as_ledger
from corral.ledger.writer import LEASE_SECONDS, Claim
from corral.types import Retry, Settled

__all__ = [
    "LEASE_SECONDS",
    "NOT_KEPT",
    "SAVED",
    "WAITING",
    "CallRow",
    "CallStatus",
    "Claim",
    "ExecutionStatus",
    "Ledger",
    "LedgerSource",
    "MemoryLedger",
    "PostgresLedger",
    "Query",
    "Recorded",
    "Records",
    "Retry",
    "Settled",
    "SqliteLedger",
    "StoredCall",
    "StoredDecision",
    "StoredExecution",
    "StoredSession",
    "as_ledger",
    "pack_reply",
]
