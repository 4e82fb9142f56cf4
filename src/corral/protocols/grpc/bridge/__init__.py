"""Bridge over gRPC, for programs that run elsewhere. docs/grpc.md specifies the protocol.

Needs the extra `grpc`.
"""

from corral.errors import MissingExtra

try:
    from corral.protocols.grpc.bridge.bridge import GrpcBridge
except ModuleNotFoundError as error:
    raise MissingExtra(f"GrpcBridge needs the module {error.name}: pip install 'corral[grpc]'") from error

__all__ = ["GrpcBridge"]
