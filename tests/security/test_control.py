"""Without a jail the same attacks do leak: so the harness sees a leak, and it is the jail that holds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.security.attacks import corpus, own, python_corpus, python_own
from tests.security.batches import run_batch
from tests.security.modes import Mode, Verdict
from tests.security.python_own import CONTROL

# What the harness must notice, found by experiment: one or more attacks of each kind of harm.
RAW: dict[str, str] = {
    "ts-escape-05": "-file",
    "ts-escape-15": "changed secret.txt",
    "ts-escape-25": "-file",
    "ts-escape-43": "reached a listener",
    "ts-escape-45": "-answer",
    "ts-escape-65": "wrote /tmp/cm.db",
    "ts-module-01": "-json",
    "own-read-by-syscall": "-file",
    "own-list-directories": "-name",
    "own-write-anywhere": "overwritten",
    "own-symlinks": "a link in /tmp",
    "own-stat-host-files": "which files exist",
    "own-channels-to-other-programs": "futex",
    "own-inotify": "watches",
    "own-named-pipes": "/tmp",
    "own-environ-of-everybody": "-environment",
    "own-root-of-everybody": "-file",
    "own-command-lines": "python",
    "own-listeners-of-the-host": "/proc/net/tcp",
    "own-inherited-descriptors": "-descriptor",
    "own-write-inherited-descriptors": "wrote to a descriptor",
    "own-tcp-by-syscall": "reached a listener",
    "own-udp-by-syscall": "reached a listener",
    "own-tcp-listen": "listens on",
    "own-dns": "reached a listener",
    "own-unix-socket": "reached a listener",
    "own-abstract-socket": "reached a shared listener",
    "own-message-bus": "reached a shared listener",
    "own-signal-by-syscall": "ended a process of the host",
    "own-signal-by-descriptor": "ended a process of the host",
    "own-limits-of-others": "limits of another process",
    "own-shell": "LEAKED shell",
    "own-fork": "forked",
    "own-clone3": "cloned",
    "own-spawn-the-engine": "spawned",
    "own-execute-a-host-program": "LEAKED exec",
    "own-execute-from-memory": "LEAKED exec",
    "own-execute-from-a-file": "LEAKED exec",
    "own-workers": "-file",
    "own-shared-memory": "-shared-memory",
}
GRANTED: dict[str, str] = {
    "ts-escape-25": "-file",
    "ts-escape-65": "wrote /tmp/cm.db",
}


@pytest.mark.matrix("the gate attacks the jails, and this says that the same attacks do harm without one")
@pytest.mark.parametrize(
    ("mode", "signs"),
    [
        pytest.param("raw", RAW, id="raw"),
        pytest.param("python", CONTROL, id="python"),
        pytest.param("granted", GRANTED, id="granted"),
    ],
)
def test_without_a_jail_they_leak(mode: Mode, signs: Mapping[str, str]) -> None:
    attacks = (*python_corpus(), *python_own()) if mode == "python" else (*corpus(), *own())
    batch = run_batch(mode, "none", [each for each in attacks if each.id in signs])
    wrong = batch.wrong(lambda attack, verdict: unseen(verdict, signs[attack.id]))
    assert not wrong, wrong
    assert len(batch.attacks) == len(signs)


def unseen(verdict: Verdict, sign: str) -> list[str]:
    return [] if any(sign in each for each in verdict.damage) else [f"{sign} is not among {verdict.damage}"]
