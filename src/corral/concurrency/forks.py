"""Fork safety. A fork inherits Python objects, but the processes, threads and connections behind them belong to its
parent."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

from typing_extensions import TypeVarTuple, Unpack

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class ProcessOwner:
    """Identity of the process that owns something: at first, the one that creates this object."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_current(self) -> bool:
        """False in a fork of the owner."""
        return self._pid == os.getpid()

    def take_over(self) -> bool:
        """Makes the current process the owner. Returns True if it was not."""
        if self.is_current:
            return False
        self._pid = os.getpid()
        return True


def finalize_in_owner(
    target: T, function: Callable[[Unpack[Arguments]], object], *arguments: *Arguments
) -> weakref.finalize[..., T]:
    """`weakref.finalize` that does nothing in a fork of this process."""

    def call(owner: ProcessOwner, *arguments: *Arguments) -> None:
        if owner.is_current:
            function(*arguments)

    return weakref.finalize(target, call, ProcessOwner(), *arguments)


def after_fork(function: Callable[[], object]) -> None:
    """Registers a function to be called in each fork of this process, on systems that fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
