"""A contained process that runs a guest."""

from __future__ import annotations

import secrets

from corral.guest.python.frames import NONCE_BYTES
from corral.jail.launcher_client import Child
from corral.jail.process import ContainedProcess
from corral.sandboxes.channel import PostMortem

_GRACE_SECONDS = 0.2
"""Time for a process to exit by itself after its pipe has closed, so that its status shows the reason."""


class GuestProcess(ContainedProcess):
    """A process whose frames carry the nonce of the one execution that it serves."""

    def __init__(self, child: Child) -> None:
        super().__init__(child)
        self.nonce = secrets.token_bytes(NONCE_BYTES)

    async def post_mortem(self) -> PostMortem:
        """Returns its exit status, and the end of its standard error; ends it if it still runs."""
        status = await self.wait(_GRACE_SECONDS)
        return PostMortem(status=status, stderr=self.error_tail() or self.failure or "")
