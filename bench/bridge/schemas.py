"""Descriptions of 500 tools in the language of each protocol: milliseconds of processor time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from corral.bridges.http import openapi
from corral.concurrency.garbage import gc_disabled
from corral.model import declare_tools
from corral.protocols.graphql.tool_schema import make_schema
from corral.protocols.grpc.tool_schema import ToolSchema as GrpcSchema
from corral.tools import Tool, ToolRegistry, tool
from corral.types import ToolName

__all__ = ["measure_schemas"]

_TOOLS = 500


class _City(BaseModel):
    """A city."""

    name: str = Field(description="Its English name.")
    country: str
    inhabitants: int
    capital: bool
    height: float | None = None


async def _small(query: str, limit: int = 10, *, exact: bool = False) -> list[_City]:
    """Finds cities by a part of their name."""
    raise NotImplementedError


class _Address(BaseModel):
    """Where somebody is."""

    street: str
    town: str = Field(description="Without the district.")
    postcode: str
    country: Literal["de", "fr", "it"]


class _Customer(BaseModel):
    """Who ordered."""

    name: str
    email: str | None = None
    address: _Address
    tags: list[str] = []


class _Line(BaseModel):
    """Part of an order."""

    article: str
    count: int
    price: float = Field(description="Of one, in euros.")
    options: dict[str, str] = {}


class _Order(BaseModel):
    """An order with all of its parts."""

    number: int
    ordered: datetime
    state: Literal["open", "paid", "sent"]
    customer: _Customer
    delivery: _Address | None
    lines: list[_Line]
    notes: list[str] = []


class _Page(BaseModel):
    orders: list[_Order]
    next: str | None
    total: int


async def _large(
    customer: _Customer, since: datetime, states: list[str], limit: int = 50, after: str | None = None
) -> _Page:
    """Lists orders of a customer, newest first."""
    raise NotImplementedError


def _snapshot(function: Callable[..., object]) -> Mapping[ToolName, Tool]:
    registry = ToolRegistry()
    make: Callable[..., Callable[..., Tool]] = tool
    registry.register(*(make(name=f"tool_{number}")(function) for number in range(_TOOLS)))
    return registry.snapshot()


_MAKERS: Mapping[str, Callable[[Mapping[ToolName, Tool]], object]] = {
    "openapi": openapi,
    "graphql": make_schema,
    "protobuf": GrpcSchema,
    "trpc types": lambda tools: declare_tools(tools, "typescript"),
}


def measure_schemas(rounds: int) -> dict[str, float]:
    """Medians, for small and for large tools."""
    found: dict[str, float] = {}
    for size, function in ("small", _small), ("large", _large):
        tools = _snapshot(function)
        for name, make in _MAKERS.items():
            spent: list[float] = []
            for _ in range(rounds):
                with gc_disabled():
                    started = time.thread_time()
                    make(tools)
                    spent.append((time.thread_time() - started) * 1000)
            found[f"{name}, {size}"] = statistics.median(spent)
    return found
