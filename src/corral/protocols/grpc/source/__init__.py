"""Methods of a gRPC server as tools. Needs the extra `grpc`."""

from __future__ import annotations

from corral.errors import MissingExtra

try:
    from corral.protocols.grpc.source.source import GrpcApi
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"corral.protocols.grpc.source needs the module {error.name}: pip install 'corral[grpc]'"
    ) from error
from corral.protocols.grpc.source.methods import Skipped

__all__ = ["GrpcApi", "Skipped"]
