"""Restricts a worker's own process, once it has read all files that it needs."""

from __future__ import annotations

import os

from corral.jail import landlock, seccomp
from corral.jail.privileges import NOBODY, drop_privileges, forgo_privileges, hide, restrict, seal


def lock_down(profile: seccomp.SyscallProfile = "program") -> None:
    """Leaves this process only its open descriptors, memory and time, by Landlock and a system call filter if
    available.

    Raises:
        OSError: the kernel supports one of these, but refuses it.
    """
    try:
        drop_privileges(NOBODY if os.geteuid() == 0 else None)
    except OSError:  # in a namespace that maps no other user
        drop_privileges(None)
    hide()
    forgo_privileges()
    if landlock.abi():
        rules = landlock.ruleset(executable=(), readable=())
        restrict(rules)
        os.close(rules)
    if seccomp.supported():
        seal(seccomp.filter_program(profile=profile))
