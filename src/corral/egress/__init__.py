"""SSRF-safe httpx client, for URLs that programs choose. Requires the extra `egress`."""

from __future__ import annotations

from corral.errors import requires_extra

with requires_extra("corral.egress", "egress"):
    from corral.egress.client import SafeClient
    from corral.egress.connections import Resolver
    from corral.egress.network import Header, Network
from corral.egress.policy import EgressPolicy

__all__ = ["EgressPolicy", "Header", "Network", "Resolver", "SafeClient"]
