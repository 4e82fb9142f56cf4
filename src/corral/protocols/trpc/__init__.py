"""tRPC: tools as procedures for `@trpc/client`, version 11. Needs the extra `http`."""

from corral.errors import MissingExtra

try:
    from corral.protocols.trpc.bridge import TrpcBridge
except ModuleNotFoundError as error:
    raise MissingExtra(f"TrpcBridge needs the module {error.name}: pip install 'corral[http]'") from error

__all__ = ["TrpcBridge"]
