"""Methods of a gRPC server as tools. Needs the extra `grpc`."""

from __future__ import annotations

from corral.errors import MissingExtra

try:
    from corral.sources.grpc.source import GrpcSource
except ModuleNotFoundError as error:
    raise MissingExtra(f"corral.sources.grpc needs the module {error.name}: pip install 'corral[grpc]'") from error
from corral.sources.grpc.methods import Skipped

__all__ = ["GrpcSource", "Skipped"]
