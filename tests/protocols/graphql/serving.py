"""Tools of many kinds behind a `GraphqlBridge` in a real server, and a bare client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, NamedTuple

import httpx
from pydantic import BaseModel, Field

from corral import Corral, tool
from corral.calls import RemoteExecution
from tests.bridges.http.serving import CONTEXT, NO_TLS, Audited, Server, Waiting

__all__ = ["Client", "Served", "tools"]


class Point(BaseModel):
    """A point of the plane."""

    x: int
    y: float = 0.5
    tags: list[str] = []
    side: Literal["left", "right"] | None = None


class Node(BaseModel):
    name: str
    children: list[Node] = []


@tool(read_only=True)
async def move(point: Point, by: int = 1) -> Point:
    """Moves a point."""
    return point.model_copy(update={"x": point.x + by})


@tool(read_only=True)
async def tree() -> Node:
    """A tree."""
    return Node(name="root", children=[Node(name="leaf")])


@tool(read_only=True, namespace="odd-things")
async def values() -> dict[str, Any]:
    """Values that JSON has no form for."""
    return {"big": 2**70, "nan": float("nan"), "bytes": b"\x00\xff"}


@tool(read_only=True)
async def large(digits: int) -> int:
    """A large number."""
    return int(10**digits)


@tool(read_only=True)
async def small(number: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]) -> int:
    """A number of 32 bits."""
    return number


@tool(stream=True)
async def numbers(n: int) -> AsyncIterator[int]:
    """Counts."""
    for number in range(n):
        yield number


def tools() -> list[Any]:
    return [move, tree, values, large, small, numbers]


class Served(NamedTuple):
    corral: Corral
    server: Server
    audit: Audited
    waiting: Waiting

    def grant(self) -> RemoteExecution:
        """An execution that runs elsewhere."""
        return self.server.do(lambda: self.corral.remote.grant(CONTEXT))


class Client:
    """Sends operations with the token of one execution."""

    def __init__(self, url: str, token: str | None) -> None:
        self.headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._url = url
        self.url = f"{url}/graphql"

    def send(self, content: object, path: str = "/graphql", **headers: str) -> httpx.Response:
        """Sends a body, which is JSON unless it is bytes."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        headers = {"content-type": "application/json", **self.headers} | headers
        return httpx.post(self._url + path, content=body, headers=headers, trust_env=False, timeout=30, verify=NO_TLS)

    def get(self, path: str = "/graphql", **parameters: str) -> httpx.Response:
        return httpx.get(
            self._url + path, params=parameters, headers=self.headers, trust_env=False, timeout=30, verify=NO_TLS
        )

    def run(self, query: str, **variables: object) -> dict[str, Any]:
        """Executes an operation."""
        response = self.send({"query": query, "variables": variables})
        assert response.status_code == 200
        return response.json()

    def data(self, query: str, **variables: object) -> dict[str, Any]:
        """Executes an operation that succeeds."""
        result = self.run(query, **variables)
        assert "errors" not in result, result
        return result["data"]

    def codes(self, query: str, **variables: object) -> list[str]:
        """Executes an operation that fails; its codes."""
        return [error["extensions"]["code"] for error in self.run(query, **variables)["errors"]]

    def events(self, query: str, **variables: object) -> list[dict[str, Any]]:
        """Executes a subscription to its end."""
        response = self.send({"query": query, "variables": variables}, accept="text/event-stream")
        assert response.headers["content-type"] == "text/event-stream"
        events = [event for event in response.text.removesuffix("\n\n").split("\n\n") if event != ":"]
        assert events.pop() == "event: complete\ndata:"
        return [json.loads(event.removeprefix("event: next\ndata: ")) for event in events]
