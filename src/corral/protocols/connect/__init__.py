"""Bridge over the Connect protocol, for programs that run elsewhere. docs/connect.md specifies it.

Needs the extra `grpc`.
"""

from corral.errors import MissingExtra

try:
    from corral.protocols.connect.bridge import ConnectBridge
except ModuleNotFoundError as error:
    raise MissingExtra(f"ConnectBridge needs the module {error.name}: pip install 'corral[grpc]'") from error

__all__ = ["ConnectBridge"]
