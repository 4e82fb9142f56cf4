"""`GraphqlBridge`: tools as queries, mutations and subscriptions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document
from corral.bridges.web import RequestHead, WebBridge
from corral.bridges.web.documents import DocumentCache
from corral.calls.grants import Grant
from corral.concurrency.threads import run_in_own_thread
from corral.guest import Transport
from corral.protocols.graphql.bridge.app import GraphqlApp
from corral.protocols.graphql.bridge.graphiql import Graphiql
from corral.protocols.graphql.bridge.responses import failed
from corral.protocols.graphql.bridge.schema import ToolSchema, make_schema
from corral.protocols.transports import transport
from corral.types import CallError, Language


def _size(tools: ToolSchema) -> int:
    return tools.estimated_bytes


@checked
class GraphqlBridge(WebBridge):
    """Tools as GraphQL, to an app that is mounted in a web server. It needs asyncio.

    Read-only tools are queries, other tools are mutations, and streams are subscriptions over server-sent events. A
    token's schema has the tools that its scopes allow. `graphiql`, a `node_modules` with graphiql 3, react 18 and
    react-dom 18, serves GraphiQL at `/graphiql`; the page itself needs no token. `url`, `allowed_hosts` and
    `allowed_origins` are those of every `WebBridge`.

    Raises:
        ConfigError: `url` is not an http or https URL, or `graphiql` lacks a package.
    """

    name: ClassVar[str] = "graphql"

    def __init__(
        self,
        url: str | None = None,
        *,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        graphiql: str | Path | None = None,
    ) -> None:
        super().__init__(url, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)
        self._schemas = DocumentCache(make_schema, _size)
        self._graphiql = None if graphiql is None else Graphiql(Path(graphiql))
        self._has_page = self._graphiql is not None

    @override
    def routes(self, host: BridgeHost) -> ASGIApp:
        return GraphqlApp(host, self._schemas, self._graphiql)

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        return failed(error, status)

    @override
    async def document(self, grant: Grant) -> Document:
        tools = await self._schemas.of(grant)
        return Document(await run_in_own_thread(tools.to_sdl), "text/plain")

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("graphql", language)
