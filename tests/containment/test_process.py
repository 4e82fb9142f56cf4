"""The host's side of a contained process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess

from corral.containment import child_pipes
from corral.containment.launcher import tell
from corral.containment.process import ContainedProcess


def test_a_process_that_nobody_reaps_any_more_does_not_count_as_alive() -> None:
    """Its launcher was killed, and it was not: else a server would go on without one, and so would all that it forks."""
    sleeper = subprocess.Popen(["sleep", "60"])
    process = os.pidfd_open(sleeper.pid)
    try:
        with child_pipes() as (child, theirs):
            contained = ContainedProcess(child)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=os.dup(theirs[3])) as launcher:
                tell(launcher, "pid", 0, [process])
                assert not contained.ended
                assert contained.alive
        assert contained.pid == sleeper.pid
        assert not contained.alive
        contained.close()
        assert sleeper.wait(30) == -signal.SIGKILL
    finally:
        os.close(process)
        sleeper.kill()
        sleeper.wait()
