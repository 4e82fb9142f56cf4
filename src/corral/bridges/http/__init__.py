"""Bridge over HTTP, for programs elsewhere. docs/http.md specifies the protocol.

Requires the extra `http`.
"""

from corral.errors import MissingExtra

try:
    from corral.bridges.http.bridge import HttpBridge
except ModuleNotFoundError as error:
    raise MissingExtra(f"HttpBridge needs the module {error.name}: pip install 'corral[http]'") from error

__all__ = ["HttpBridge"]
