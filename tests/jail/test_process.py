"""The host's side of a contained process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess

import anyio
import pytest
from typing_extensions import override

from corral.jail.launcher import tell
from corral.jail.launcher_client import child_streams
from corral.jail.process import ContainedProcess


def test_a_process_that_nobody_reaps_any_more_does_not_count_as_alive() -> None:
    """Its launcher was killed, and it was not: otherwise a server and its forks would go on without one."""
    sleeper = subprocess.Popen(["sleep", "60"])
    process = os.pidfd_open(sleeper.pid)
    try:
        with child_streams() as (child, theirs):
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


@pytest.mark.anyio
async def test_a_wrapper_that_takes_longer_than_the_grace_still_says_how_its_guest_ended() -> None:
    guest = subprocess.Popen(["true"])
    wrapper = subprocess.Popen(["sh", "-c", "read line; exit 134"], stdin=subprocess.PIPE)
    process = os.pidfd_open(wrapper.pid)
    statuses: list[int] = []
    killed = anyio.Event()

    class Watched(ContainedProcess):
        @override
        def kill(self) -> None:
            super().kill()
            killed.set()

    try:
        with child_streams(report=True) as (child, theirs):
            contained = Watched(child)
            launcher = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=os.dup(theirs[3]))
            os.write(theirs[1], b"ready")
            os.write(theirs[4], b'{"child-pid": %d}' % guest.pid)
            tell(launcher, "pid", 0, [process])
            assert contained.await_output(30) == b"ready"

        async def wait() -> None:
            statuses.append(await contained.wait(0))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await killed.wait()
            wrapper.communicate(b"\n")
            tell(launcher, "status", wrapper.returncode)
        assert statuses == [-signal.SIGABRT]
        contained.close()
        launcher.close()
    finally:
        os.close(process)
        wrapper.kill()
        wrapper.wait()
        guest.wait()
