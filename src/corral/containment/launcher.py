"""The launcher: a small process that starts guests for its host, and ends them when the host is gone.

It is run by path (`python -I -S launcher.py FD PID`), has one thread and knows only the standard library. A host with
threads and an event loop cannot safely run code between fork and exec, and PR_SET_PDEATHSIG fires when the forking
*thread* ends; here neither matters. It decides nothing: what to apply to a child comes ready-made in a plan.

Messages on the control socket (SOCK_SEQPACKET, JSON, descriptors attached):
    {"plan": number, "executable": path, "arguments": [...], "environment": {...}, "limits": [[resource, value], ...],
     "user": number | null, "confine": bool, "filter": base64 | null, "ruleset": bool,
     "scratch": path | null, "directory": path | null, "enters": bool}
     [landlock ruleset] [a user and a mount namespace to enter, and perhaps one of the network]
        remembered
    {"forget": [number, ...]}
        those plans are not needed any more, nor are their descriptors
    {"start": number}  [stdin, stdout, stderr, lifeline, what bubblewrap writes its report to, and its options]
        one child by that plan; the last one only if the plan's arguments name it
    {"space": [[bytes, files], ...], "place": path, "user": number | null, "executable": bool}  [socket]
        a user and a mount namespace in which each folder "0", "1", ... of that place is a file system in memory, for
        so many bytes and files; the socket gets {"space": true} with descriptors of both namespaces and of the roots,
        or {"error": text}
    {"network": port, "user": number | null}  [socket, a user namespace]
        a network namespace that has the loopback and nothing else, and a socket that listens there; the socket gets
        {"network": true} with descriptors of both, or {"error": text}
    {"end": true}
        kill all children, and end

A child's lifeline (SOCK_SEQPACKET) carries {"pid": n} with a descriptor of the process before the engine runs, or
{"error": text} instead, and {"status": n} at its end, as Popen.returncode counts. The host closing it kills the child.
"""

from __future__ import annotations

import array
import base64
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING or sys.platform != "win32":
    import fcntl
    import resource

__all__ = [
    "FILTER_FD",
    "INFO_FD",
    "NOBODY",
    "OPTIONS_FD",
    "Children",
    "drop_privileges",
    "forgo_privileges",
    "hide",
    "main",
    "receive",
    "restrict",
    "seal",
    "tell",
    "tie_to_parent",
]

FILTER_FD = 10
"""Descriptor from which bubblewrap, which applies the filter itself, reads it."""
INFO_FD = 11
"""Descriptor to which bubblewrap writes the guest's process number; the host reads it."""
OPTIONS_FD = 12
"""Descriptor from which bubblewrap reads options, so that they do not show on its command line."""
_MESSAGE_BYTES = 1 << 17
_MAX_DESCRIPTORS = 8

# linux/prctl.h, linux/seccomp.h, linux/capability.h, linux/close_range.h; the system calls have the same number on
# every architecture (asm-generic/unistd.h).
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_SYS_LANDLOCK_RESTRICT_SELF = 446
_SYS_CLOSE_RANGE = 436
_CLOSE_RANGE_CLOEXEC = 4
# linux/sched.h, linux/mount.h
_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWNET = 0x4000_0000
NOBODY = 65534
"""User that owns nothing, by convention; it is mapped in every container. It is also the one in a space's namespace,
whoever it is outside: without capabilities, nobody maps root into a namespace below."""
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_REC, _MS_SLAVE = 0x4000, 0x8_0000
_ALL = 0xFFFF_FFFF
# linux/sockios.h, linux/if.h
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_BACKLOG = 64
_LAST_CAPABILITY = 63

_libc = ctypes.CDLL(None, use_errno=True)


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog (linux/filter.h)."""

    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def main(control: socket.socket, host: int) -> None:
    """Serves the host until its end of `control` closes or the process itself ends, then kills what still runs."""
    launcher = _Launcher(control)
    try:
        launcher.serve_host(host)
    except (EOFError, ConnectionError):  # the host has ended
        launcher.end()
        launcher.clear()
    else:
        launcher.end()


class Children:
    """Processes that are made, watched and ended for whoever holds the other end of `control`."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._poll = select.poll()
        self._lifelines: dict[int, tuple[socket.socket, int]] = {}
        """By the lifeline's descriptor: itself, and the child's process descriptor."""
        self._children: dict[int, tuple[int, int]] = {}
        """By process descriptor: pid, and the lifeline's descriptor."""

    def take(self, message: bytes, descriptors: list[int]) -> bool:
        """Does what a message asks for; its descriptors are ours now. False if it was the last."""
        raise NotImplementedError

    def serve(self, watched: int | None = None) -> None:
        """Goes on until the last message.

        Raises:
            EOFError, ConnectionError: the other end of `control`, or the process that `watched` describes, is gone.
        """
        self._poll.register(self._control.fileno(), select.POLLIN)
        if watched is not None:
            self._poll.register(watched, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._control.fileno():
                    data, descriptors = receive(self._control, _MESSAGE_BYTES, _MAX_DESCRIPTORS)
                    if not data:
                        raise EOFError
                    if not self.take(data, descriptors):
                        return
                elif descriptor == watched:
                    raise EOFError
                elif descriptor in self._children:
                    self._reap(descriptor)
                elif descriptor in self._lifelines:
                    self._poll.unregister(descriptor)
                    _kill(self._lifelines[descriptor][1])

    def end(self) -> None:
        """Kills and reaps every child."""
        for child in self._children:
            _kill(child)
        for child in list(self._children):
            self._reap(child)

    def ended(self, pid: int) -> None:
        """A child has ended; until this returns, nobody else can have its number."""

    def start(self, lifeline: socket.socket, become: Callable[[], NoReturn]) -> int | None:
        """A child that becomes what it is to be, or an error on its lifeline. Returns its process's descriptor."""
        try:
            pid = os.fork()
        except OSError as error:
            tell(lifeline, {"error": f"fork: {error.strerror}"})
            lifeline.close()
            return None
        if pid == 0:
            become()
        child = os.pidfd_open(pid)
        self._lifelines[lifeline.fileno()] = lifeline, child
        self._children[child] = pid, lifeline.fileno()
        self._poll.register(child, select.POLLIN)
        self._poll.register(lifeline, 0)  # POLLHUP, which is always reported, says that the host has closed it
        return child

    def _reap(self, child: int) -> None:
        pid, descriptor = self._children.pop(child)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # in `end` it may not have ended yet
        self.ended(pid)
        _, status = os.waitpid(pid, 0)
        lifeline, _ = self._lifelines.pop(descriptor)
        for watched in (child, descriptor):
            with contextlib.suppress(KeyError):
                self._poll.unregister(watched)
        tell(lifeline, {"status": os.waitstatus_to_exitcode(status)})
        lifeline.close()
        os.close(child)


class _Launcher(Children):
    def __init__(self, control: socket.socket) -> None:
        super().__init__(control)
        self._plans: dict[int, Mapping[str, Any]] = {}
        self._rulesets: dict[int, int] = {}
        self._namespaces: dict[int, list[int]] = {}

    def serve_host(self, host: int) -> None:
        """Until the host says that it wants no more.

        Raises:
            EOFError, ConnectionError: it has ended without.
        """
        ended = os.pidfd_open(host)
        if os.getppid() != host:
            raise EOFError  # before it could be watched
        self.serve(ended)  # a process that it forked off may have its end of the socket, so that is not enough

    def take(self, message: bytes, descriptors: list[int]) -> bool:
        content = json.loads(message)
        if "end" in content:
            return False
        if "plan" in content:
            number = content["plan"]
            self._plans[number] = content
            if content["ruleset"] and descriptors:
                self._rulesets[number] = descriptors.pop(0)
            if content["enters"]:
                self._namespaces[number] = descriptors
            return True
        if "forget" in content:
            for number in content["forget"]:
                self._forget(number)
            return True
        if "space" in content:
            if descriptors:  # else the host sees that the socket is closed
                self._make(_become_space, content, descriptors[0])
            return True
        if "network" in content:
            if len(descriptors) == 2:
                self._make(lambda asked, reply: _become_network(asked, descriptors[1], reply), content, descriptors[0])
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            return True
        try:
            if descriptors:  # else the host sees that the lifeline is closed
                plan = content["start"]
                lifeline = socket.socket(fileno=descriptors[3])
                namespaces = self._namespaces.get(plan, [])
                self.start(
                    lifeline,
                    lambda: _become(self._plans[plan], self._rulesets.get(plan), namespaces, descriptors, lifeline),
                )
        finally:
            for descriptor in descriptors[:3] + descriptors[4:]:
                os.close(descriptor)
        return True

    def _forget(self, plan: int) -> None:
        self._plans.pop(plan, None)
        for descriptor in [self._rulesets.pop(plan, None), *self._namespaces.pop(plan, [])]:
            if descriptor is not None:
                os.close(descriptor)

    def _make(
        self, make: Callable[[Mapping[str, Any], socket.socket], NoReturn], content: Mapping[str, Any], answer: int
    ) -> None:
        reply = socket.socket(fileno=answer)
        pid = os.fork()
        if pid == 0:
            make(content, reply)
        reply.close()
        os.waitpid(pid, 0)  # a few milliseconds: it makes namespaces and ends

    def ended(self, pid: int) -> None:
        # A child of bubblewrap's that was not told yet to end with it would wait for it for ever.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    def clear(self) -> None:
        """Removes what the host did not live to remove."""
        for scratch in {plan["scratch"] for plan in self._plans.values()} - {None}:
            _remove(scratch)


def _remove(directory: str) -> None:
    """Removes a directory and all that is in it, as shutil.rmtree does, which takes a while to import.

    The host's other launchers may be at it too. A tree that is too deep stays until the next process clears it.
    """
    with contextlib.suppress(OSError, RecursionError):
        for entry in list(os.scandir(directory)):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink()
        Path(directory).rmdir()


def receive(connection: socket.socket, size: int, count: int) -> tuple[bytes, list[int]]:
    """One message and the descriptors that came with it, which no child inherits; none if there was no room for all.

    socket.recv_fds would leave them inheritable: until Python 3.12 at least, it ignores its flags.

    Raises:
        OSError: as recvmsg(2).
    """
    descriptors = array.array("i")
    data, parts, flags, _ = connection.recvmsg(
        size, socket.CMSG_LEN(count * descriptors.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, content in parts:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if flags & socket.MSG_CTRUNC:  # some were lost, and which is not known
        for descriptor in descriptors:
            os.close(descriptor)
        return data, []
    return data, list(descriptors)


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(child, signal.SIGKILL)


def tell(lifeline: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    with contextlib.suppress(OSError):  # the host may be gone, or may not care any more
        if descriptors:
            socket.send_fds(lifeline, [data], descriptors, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        else:
            lifeline.setblocking(False)
            os.write(lifeline.fileno(), data)  # which the system call filter allows, if it is in force already


# --- in the child, between fork and exec --------------------------------------------------------------------------


def _become(
    plan: Mapping[str, Any],
    ruleset: int | None,
    namespaces: Sequence[int],
    descriptors: Sequence[int],
    lifeline: socket.socket,
) -> NoReturn:
    """Turns this process into the guest, or says on the lifeline what failed and ends."""
    step = "descriptors"
    try:
        parent = os.getppid()
        os.setsid()
        executable = os.open(plan["executable"], os.O_PATH | os.O_CLOEXEC)
        if plan["directory"] is not None:
            os.chdir(plan["directory"])
        _libc.syscall(_SYS_CLOSE_RANGE, 3, _ALL, _CLOSE_RANGE_CLOEXEC)  # all of ours do so anyway
        for place, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, place)
        if not plan["confine"] and plan["filter"]:
            os.dup2(_readable(base64.b64decode(plan["filter"])), FILTER_FD)
            os.dup2(descriptors[4], INFO_FD)
            for options in descriptors[5:6]:
                os.dup2(options, OPTIONS_FD)
        me = os.pidfd_open(os.getpid())  # while there is a descriptor for it: those of other children are open here too
        step = "limits"
        for number, value in plan["limits"]:
            resource.setrlimit(number, (value, value))
        step = "privileges"
        if plan["confine"] or plan["user"] is not None or (plan["filter"] and os.geteuid() != 0):
            drop_privileges(plan["user"])  # without root, bubblewrap refuses whoever has a capability
        if plan["enters"]:
            step = "namespaces"
            _enter(namespaces)
        tie_to_parent(parent)  # after the change of user, which would undo it
        tell(lifeline, {"pid": os.getpid()}, [me])
        step = "no_new_privs"
        if plan["confine"]:
            forgo_privileges()
        step = "landlock"
        if plan["ruleset"]:
            if ruleset is None:
                raise OSError("the rules are not there")
            restrict(ruleset)
        step = "seccomp"
        if plan["confine"] and plan["filter"]:
            seal(base64.b64decode(plan["filter"]))
        step = "exec"
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores, and exec keeps ignored
        with contextlib.suppress(PermissionError):
            os.execve(plan["executable"], plan["arguments"], plan["environment"])  # noqa: S606
        # Its path leads through directories that the guest's user may not enter; its descriptor does not.
        os.execve(f"/proc/self/fd/{executable}", plan["arguments"], plan["environment"])  # noqa: S606
    except BaseException as error:
        tell(lifeline, {"error": f"{step}: {error}"})
    os._exit(125)


def _enter(namespaces: Sequence[int]) -> None:
    """Goes into a space's namespaces, whose owner this user is, and keeps none of the capabilities that this brings.

    Raises:
        OSError: they are not there, or of another user.
    """
    if len(namespaces) not in (2, 3):
        raise OSError("the session's namespaces are not there")
    for descriptor, kind in zip(namespaces, (_CLONE_NEWUSER, _CLONE_NEWNS, _CLONE_NEWNET), strict=False):
        _check(_libc.setns(descriptor, kind))
    drop_privileges(None)


def _become_space(content: Mapping[str, Any], reply: socket.socket) -> NoReturn:
    """Makes namespaces with file systems in memory, sends their descriptors, which keep them, and ends.

    The mounts of the host stay visible in it, and what is unmounted there goes here too.
    """
    step = "place"
    try:
        user = content["user"]
        os.chdir(content["place"])
        step = "privileges"
        if user is not None:
            drop_privileges(user)
            _prctl(_PR_SET_DUMPABLE, 1)  # so that its files in /proc are its own
        step = "namespaces"
        user_map, group_map = (f"{NOBODY} {each} 1" for each in (os.geteuid(), os.getegid()))
        _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
        for name, value in (("setgroups", "deny"), ("uid_map", user_map), ("gid_map", group_map)):
            Path(f"/proc/self/{name}").write_bytes(value.encode())
        _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None))
        step = "file systems"
        roots: list[int] = []
        for number, (size, files) in enumerate(content["space"]):
            options = f"size={size},nr_inodes={files + 1},mode=0777".encode()
            flags = _MS_NOSUID | _MS_NODEV | (0 if content["executable"] else _MS_NOEXEC)
            _check(_libc.mount(b"tmpfs", str(number).encode(), b"tmpfs", flags, options))
            roots.append(os.open(str(number), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        kept = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "mnt")]
        socket.send_fds(reply, [b'{"space": true}'], [*kept, *roots])
    except BaseException as error:
        tell(reply, {"error": f"{step}: {error}"})
    os._exit(0)


def _become_network(content: Mapping[str, Any], owner: int, reply: socket.socket) -> NoReturn:
    """Makes a network namespace that the user namespace `owner` owns, listens in it, sends both, and ends."""
    step = "privileges"
    try:
        if content["user"] is not None:
            drop_privileges(content["user"])
        step = "namespaces"
        _check(_libc.setns(owner, _CLONE_NEWUSER))
        _check(_libc.unshare(_CLONE_NEWNET))
        step = "loopback"
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        fcntl.ioctl(listener, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
        listener.bind(("127.0.0.1", content["network"]))
        listener.listen(_BACKLOG)
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        socket.send_fds(reply, [b'{"network": true}'], [namespace, listener.fileno()])
    except BaseException as error:
        tell(reply, {"error": f"{step}: {error}"})
    os._exit(0)


def _readable(data: bytes) -> int:
    """A pipe that holds `data`."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


def drop_privileges(user: int | None) -> None:
    """No capability is left in any set; root becomes `user`, without groups."""
    if os.geteuid() == 0:
        for capability in range(_LAST_CAPABILITY + 1):
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # those that the kernel does not know fail
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()))


def forgo_privileges() -> None:
    """Keeps this process from gaining privileges by what it executes, which the layers below ask for."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def restrict(ruleset: int) -> None:
    """Puts this process under Landlock rules, for ever."""
    _check(_libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0))


def tie_to_parent(parent: int) -> None:
    """Has the kernel end this process with its parent, which `parent` names."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def hide() -> None:
    """Keeps all but root out of this process's descriptors and memory, and of those that it forks.

    Without it, /proc/PID/fd gives a pipe of one to another of the same user, where there is a /proc.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def seal(program: bytes) -> None:
    """Puts this process under a system call filter, for ever."""
    description = _FilterProgram(len(program) // 8, program)
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(description), 0, 0))


def _prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, value, 0, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    _nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    _, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))  # two for each child; children have a limit of their own
    _reserved = (FILTER_FD, INFO_FD, OPTIONS_FD)
    _control = os.dup(int(sys.argv[1]))  # which its children do not inherit
    while _control in _reserved:
        _control = os.dup(_control)
    for _number in (int(sys.argv[1]), *_reserved):
        os.dup2(_nothing, _number, inheritable=False)  # so that no descriptor of another use gets these numbers
    main(socket.socket(fileno=_control), int(sys.argv[2]))
