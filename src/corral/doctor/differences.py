"""Table of what differs between the tiers of the jail, for `corral doctor` and docs/security.md."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """A subject, and what is true of it in each of two tiers. The texts are Markdown of one line."""

    name: str
    namespaces: str
    landlock: str


DIFFERENCES = (
    Difference(
        "quotas of scratch directories",
        "held by the kernel, which counts blocks; lengths are looked at when a program has ended, and bound what is "
        "stored and exported",
        "looked at 4 to 200 times a second, by length; what is written between two looks is beyond them, and beyond "
        "twice the quota and 64 MB no program starts",
    ),
    Difference(
        "files that no list shows",
        "counted by the kernel like others",
        "deep ones are counted; unlinked ones that are open, if the host may see the guest's descriptors "
        "(`/proc/PID/fd`): as an ordinary user, or as root without CAP_SYS_PTRACE, not those of programs; "
        "of those that are mapped only, what is mapped, unless the host has CAP_CHECKPOINT_RESTORE; "
        "never those on their way through a socket pair",
    ),
    Difference(
        "locks and watches of the host's files",
        "commands have inodes of their session's own (Linux 5.11), of `/dev/null` and the like only where the host is "
        "root; futexes on pages of these files are still common to all, and so are `Directory` mounts",
        "commands have those of the host's inodes, which has to be accepted (`locks`), and no watches",
    ),
    Difference(
        "what `stat` tells of the host's files",
        "nothing: they are not there",
        "that a path exists, its size, owner and times",
    ),
    Difference(
        "numbers of processes",
        "the guest's own, from 1 on; commands have a `/proc` of these",
        "the host's: `kill -0`, and `stat` of `/proc/PID`, tell which exist; nothing in `/proc` can be read",
    ),
    Difference(
        "signals",
        "reach no process outside, as there is none",
        "reach no process outside: programs send none, and Landlock keeps those of commands within (Linux 6.12)",
    ),
    Difference(
        "memory",
        "bounded for each process by the kernel, for all commands together by looks; scratch files are memory of the "
        "host's",
        "bounded in the same way; scratch files are on disk",
    ),
    Difference(
        "network of commands",
        "none, or listed origins through a proxy that only they reach",
        "none, and none can be given; no unix sockets but pairs",
    ),
    Difference(
        "modes, owners and times of files",
        "work on the session's own files",
        "work where the session has a user of its own (as root); else changes succeed without effect",
    ),
    Difference(
        "paths",
        "those of the mounts",
        "those of the host for commands, and for programs by a table in the guest",
    ),
    Difference(
        "checks of programs",
        "the language server sees no file but its own",
        "the language server may ask by `stat` which files exist",
    ),
)
