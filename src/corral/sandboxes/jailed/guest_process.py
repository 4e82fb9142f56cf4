"""A contained process that runs a guest."""

from __future__ import annotations

import secrets

from corral.containment import Child
from corral.containment.process import ContainedProcess
from corral.guest.frames import NONCE_BYTES

__all__ = ["GuestProcess"]


class GuestProcess(ContainedProcess):
    """A process whose frames carry the number and the nonce of the one execution that it serves."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self.run = 0
        self.nonce = secrets.token_bytes(NONCE_BYTES)
