"""Bridge over GraphQL: read-only tools are queries, other tools mutations. docs/graphql.md specifies it.

Needs the extra `graphql`.
"""

from corral.errors import MissingExtra

try:
    from corral.protocols.graphql.bridge.bridge import GraphqlBridge
except ModuleNotFoundError as error:
    raise MissingExtra(f"GraphqlBridge needs the module {error.name}: pip install 'corral[graphql]'") from error

__all__ = ["GraphqlBridge"]
