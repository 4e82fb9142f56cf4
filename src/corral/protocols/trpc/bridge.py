"""`TrpcBridge`: tools as tRPC procedures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import ClassVar

from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document
from corral.bridges.web import RequestHead, WebBridge
from corral.bridges.web.documents import DocumentCache
from corral.calls.grants import Grant
from corral.guest import Transport
from corral.model import declare_tools
from corral.protocols.transports import transport
from corral.protocols.trpc.app import TrpcApp
from corral.protocols.trpc.responses import Transformer, failed
from corral.tools import Tool
from corral.types import CallError, Language, ToolName


@checked
class TrpcBridge(WebBridge):
    """Tools as tRPC procedures, to an app that is mounted in a web server.

    Read-only tools are queries, other tools are mutations, and streams are subscriptions over server-sent events. With
    the transformer `superjson`, which clients must have too, bytes, large integers and NaN keep their types.
    `url`, `allowed_hosts` and `allowed_origins` are those of every `WebBridge`.

    Raises:
        ConfigError: `url` is not an http or https URL.
    """

    name: ClassVar[str] = "trpc"

    def __init__(
        self,
        url: str | None = None,
        *,
        transformer: Transformer = None,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
    ) -> None:
        super().__init__(url, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)
        self.transformer: Transformer = transformer
        self._documents = DocumentCache(self._typed)

    @override
    def routes(self, host: BridgeHost) -> ASGIApp:
        return TrpcApp(host, self.transformer)

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        return failed(error, self.transformer, status)

    @override
    async def document(self, grant: Grant) -> Document:
        return Document(await self._documents.of(grant), "text/plain")

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("trpc", language)

    def _typed(self, tools: Mapping[ToolName, Tool]) -> bytes:
        """Writes the type `AppRouter` for `createTRPCClient<AppRouter>`, over the declarations that programs have."""
        queries = " | ".join(json.dumps(str(name)) for name, tool in tools.items() if tool.read_only) or "never"
        return _ROUTER.format(
            declarations=declare_tools(tools, "typescript"),
            queries=queries,
            transformer="true" if self.transformer else "false",
        ).encode()


_ROUTER = """\
import type {{
  TRPCBuiltRouter,
  TRPCDefaultErrorShape,
  TRPCMutationProcedure,
  TRPCQueryProcedure,
  TRPCSubscriptionProcedure,
}} from "@trpc/server";

{declarations}

type Queries = {queries};
type Input<P extends unknown[]> = P extends [] ? void | undefined : P[0];
type Procedure<Path, F> = F extends (...input: infer P) => AsyncIterable<infer T>
  ? TRPCSubscriptionProcedure<{{ input: Input<P>; output: AsyncIterable<T>; meta: unknown }}>
  : F extends (...input: infer P) => Promise<infer T>
    ? Path extends Queries
      ? TRPCQueryProcedure<{{ input: Input<P>; output: T; meta: unknown }}>
      : TRPCMutationProcedure<{{ input: Input<P>; output: T; meta: unknown }}>
    : never;
type Record_<T, Prefix extends string = ""> = {{
  [K in keyof T & string]: T[K] extends (...input: never[]) => unknown
    ? Procedure<`${{Prefix}}${{K}}`, T[K]>
    : Record_<T[K], `${{Prefix}}${{K}}.`>;
}};
export type AppRouter = TRPCBuiltRouter<
  {{ ctx: object; meta: object; errorShape: TRPCDefaultErrorShape; transformer: {transformer} }},
  Record_<typeof tools>
>;
"""
