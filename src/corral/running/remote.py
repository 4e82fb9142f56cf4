"""`Corral.remote`: programs that run elsewhere, with tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from corral.arguments import checked
from corral.bridges import ASGIApp, BridgeProtocol
from corral.calls import Grant, RemoteExecution, new_execution_id
from corral.errors import ConfigError
from corral.running.runtime import Runtime
from corral.running.tool_views import ToolViews
from corral.tools.tool_sources import Tools
from corral.types import ExecutionContext, Language, Limits


class Remote:
    """Tool calls of programs that run elsewhere: `Corral.remote`."""

    _shown_as = "Corral.remote"  # in errors

    def __init__(
        self,
        runtime: Runtime,
        views: ToolViews,
        *,
        expect_usable: Callable[[], None],
        expect_sources: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._views = views
        self._expect_usable = expect_usable
        self._expect_sources = expect_sources

    @checked
    def grant(
        self,
        context: ExecutionContext,
        *,
        limits: Limits | None = None,
        tools: Tools | None = None,
        ttl_seconds: float | None = None,
        language: Language = "typescript",
        hide_denied: bool | None = None,
        asked: Sequence[str] = (),
    ) -> RemoteExecution:
        """Lets a program elsewhere call tools through `asgi_app`, until the block ends or `ttl_seconds` have passed.

        Only the limits of calls apply, because nothing else of the program runs here. `language` is used by
        `tools.describe`. `asked` are the texts that persons wrote; whatever such a program reads of others is taken to
        reach its model.

        Raises:
            ConfigError: the Corral is closed, or the language is unknown.
        """
        self._expect_usable()
        self._expect_sources()
        registry, services = self._views.callable_tools(tools, context, hide_denied, language)
        grant = Grant(
            context=context,
            scopes=self._runtime.implied.held_with(context.scopes),
            limits=limits or self._runtime.limits,
            tools=registry,
            lives_seconds=ttl_seconds,
            services=services,
        )
        if self._runtime.flow is not None:
            grant.flow = self._runtime.flow.begin(context, None, asked)
            if grant.flow is not None:
                grant.flow.join_later(new_execution_id())
        self._runtime.grants.open(grant)
        return RemoteExecution(grant, self._runtime.grants)

    @checked
    def token(self, context: ExecutionContext, *, ttl_seconds: float = 300.0) -> str:
        """Issues a token for one program that runs elsewhere. It expires after `ttl_seconds`, at most 300, and cannot
        be renewed.

        Raises:
            ConfigError: `ttl_seconds` or the context does not fit a token.
            MissingExtra: the extra `http` is not installed.
        """
        execution = self.grant(context, ttl_seconds=ttl_seconds)
        try:
            return execution.token(ttl_seconds)
        except BaseException:
            execution.end()
            raise

    @checked
    def asgi_app(self, protocol: str | BridgeProtocol | None = None) -> ASGIApp:
        """Returns a bridge as an app for a web server: `protocol`, or else a bridge of this Corral, or else
        `HttpBridge()`.

        Raises:
            ConfigError: the protocol is unknown, or cannot be mounted in a web server.
            MissingExtra: the protocol's extra is not installed.
        """
        protocols = self._runtime.protocols
        return protocols.mounted(protocol).asgi_app(protocols.host)

    @checked
    async def document(
        self, protocol: str | BridgeProtocol | None = None, *, scopes: Collection[str] | None = None
    ) -> str:
        """Describes the tools in the language of a bridge, such as OpenAPI, for generators of typed clients.

        `protocol` is as in `asgi_app`. `scopes` are a caller's, whose tools are described; None describes all tools.

        Raises:
            ConfigError: the protocol is unknown or has no description of tools, or tool sources are not open.
            MissingExtra: the protocol's extra is not installed.
        """
        self._expect_sources()
        bridge = self._runtime.protocols.mounted(protocol)
        registry = self._views.registry()
        if scopes is None:
            every = registry.snapshot().values()
            held = frozenset[str]().union(*(tool.scopes | tool.any_scope for tool in every))
        else:
            held = self._runtime.implied.held_with(frozenset(scopes))
        described = Grant(context=ExecutionContext(), scopes=held, limits=self._runtime.limits, tools=registry)
        document = await bridge.document(described)
        if document is None:
            raise ConfigError(f"bridge {bridge.name!r} has no document of tools")
        return document.content.decode()
