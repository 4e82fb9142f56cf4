"""SSRF-safe httpx client, for URLs that programs choose. Needs the extra `egress`."""

from __future__ import annotations

from corral.errors import MissingExtra

try:
    from corral.egress.client import SafeClient
    from corral.egress.lookups import Resolver
    from corral.egress.network import Header, Network
except ModuleNotFoundError as error:
    raise MissingExtra(f"corral.egress needs the module {error.name}: pip install 'corral[egress]'") from error
from corral.egress.policy import EgressPolicy

__all__ = ["EgressPolicy", "Header", "Network", "Resolver", "SafeClient"]
