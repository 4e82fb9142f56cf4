"""The launcher: a small process that starts guests for its host, and ends them when the host ends.

It runs as `python -I -S start_launcher.py FD PID`, with one thread. It imports only modules of the standard library
that are written in C; others take as long to import as Python itself takes to start. A host with threads and an event
loop cannot safely run code between fork and exec, and PR_SET_PDEATHSIG fires when the forking *thread* ends. With a
single thread, neither is a problem. The launcher makes no decisions: a plan specifies everything to apply to a child.

Messages on the control socket (SOCK_SEQPACKET, `marshal` of the same Python, descriptors attached):
    {"plan": number, "executable": path, "arguments": [...], "environment": {...}, "limits": [[resource, value], ...],
     "user": number | null, "confine": bool, "filter": bytes | null, "ruleset": bool,
     "scratch": path | null, "directory": path | null, "enters": bool, "supervise": bool, "connection": bool}
     [landlock ruleset] [a user and a mount namespace to enter, optionally one of the network]
        stores the plan
    {"forget": [number, ...]}
        frees those plans and their descriptors
    {"start": number}  [stdin, stdout, stderr, lifeline, bubblewrap's report, its options]
        starts one child by that plan; the last descriptor only if the plan's arguments name it, or if the child is
        supervised: then there is no report, and the options are {"arguments", "environment", "directory"}. With a
        connection the first three are one socket
    {"space": [[bytes, files], ...], "place": path, "user": number | null, "executable": bool,
     "overlays": [path, ...], "kept": [path, ...]}  [socket]
        makes a user and a mount namespace in which each folder "0", "1", ... of that place is an in-memory file system
        of that size, and an overlay hides each of `overlays`, except for mounts and `kept` below it; the
        socket gets {"space": 1} with descriptors of both namespaces and of the roots, or {"error": text}
    {"network": port, "user": number | null}  [socket, a user namespace]
        makes a network namespace with only the loopback interface, and a socket that listens there; the socket gets
        {"network": 1} with descriptors of both, or {"error": text}
    {"limit": pid, "data": bytes, "user": number}  [socket]
        sets RLIMIT_DATA of a process of that user; the socket gets {"limit": 1}, or {"error": text}
    {"end": true}
        kills all children, and ends

A supervised child has no namespaces that end with it. Its parent is a supervisor, whose end is what the lifeline
reports. The supervisor ends, also on SIGTERM, once every process that the child started has ended.

A child's lifeline (SOCK_SEQPACKET, JSON, as are the answers above) carries {"pid": n} with a descriptor of the process
before the engine runs, or {"error": text} instead, and {"status": n} at its end, as Popen.returncode counts. Before
the status, a child with a connection sends "!" and the end of its standard error, if there is any. If the host closes
the lifeline, the child is killed.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from json.encoder import encode_basestring_ascii
    from types import TracebackType
    from typing import Any, NoReturn

    from corral.jail import privileges
else:
    import _signal as signal
    import _socket as socket
    from _json import encode_basestring_ascii

    if "." in __name__:
        from importlib import import_module

        privileges = import_module("corral.jail.privileges")
    else:  # the launcher's own process, which cannot import the host's packages
        privileges = __import__("privileges")

if TYPE_CHECKING or sys.platform != "win32":
    import fcntl
    import resource

FILTER_FD = 10
"""Descriptor from which bubblewrap reads its system call filter."""
INFO_FD = 11
"""Descriptor to which bubblewrap writes the guest's process number for the host."""
OPTIONS_FD = 12
"""Descriptor from which bubblewrap reads options, which keeps them off its command line."""
ERRORS_BYTES = 16_384
"""Maximum bytes that are reported of the end of a child's standard error."""
_PIPE_BYTES = 1 << 16
_MESSAGE_BYTES = 1 << 17
_MAX_DESCRIPTORS = 8
_ROUNDS = 1000

# linux/sched.h, linux/mount.h
_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWNET = 0x4000_0000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x8_0000
# linux/sockios.h, linux/if.h
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_BACKLOG = 64


class _Suppressed:
    """Suppresses errors within a block, like contextlib.suppress, which is slow to import."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> bool:
        return kind is not None and issubclass(kind, self._errors)


def start(control: int, host: int) -> None:
    """Serves the host until it ends or closes its end of the socket `control`, then kills all children."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # two descriptors per child; children have their own limit
    reserved = (FILTER_FD, INFO_FD, OPTIONS_FD)
    own = os.dup(control)  # its children do not inherit this one
    while own in reserved:
        own = os.dup(own)
    for number in (control, *reserved):
        os.dup2(nothing, number, inheritable=False)  # keeps these numbers in use
    launcher = _Launcher(socket.socket(fileno=own))
    try:
        launcher.serve_host(host)
    except (EOFError, ConnectionError):  # the host has ended
        launcher.end()
        launcher.clear()
    else:
        launcher.end()


class Children:
    """Makes, watches and ends processes for the holder of the other end of `control`."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._poll = select.poll()
        self._lifelines: dict[int, tuple[socket.socket, int]] = {}
        """Lifeline and the child's process descriptor, by the lifeline's descriptor."""
        self._children: dict[int, tuple[int, int]] = {}
        """Process number and the lifeline's descriptor, by process descriptor."""
        self._supervisors: set[int] = set()
        """Process descriptors of supervisors, which have to end their children before they end themselves."""
        self._errors: dict[int, int] = {}
        """Pipe of the standard error, by process descriptor."""

    def take(self, message: bytes, descriptors: list[int]) -> bool:
        """Handles a message, and takes over its descriptors. Returns False after the last message."""
        raise NotImplementedError

    def serve(self, watched: int | None = None) -> None:
        """Serves until the last message.

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
                    self._kill(self._lifelines[descriptor][1])

    def end(self) -> None:
        """Kills and reaps every child."""
        for child in self._children:
            self._kill(child)
        for child in list(self._children):
            self._reap(child)

    def ended(self, pid: int) -> None:
        """Handles the end of a child. Its process number is not reused before this returns."""

    def _kill(self, child: int) -> None:
        with _Suppressed(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGTERM if child in self._supervisors else signal.SIGKILL)

    def start(
        self,
        lifeline: socket.socket,
        become: Callable[[int], NoReturn],
        *,
        supervises: bool = False,
        tells_errors: bool = False,
    ) -> int | None:
        """Starts a child that runs `become`, or reports an error on its lifeline. Returns the child's process
        descriptor.

        With `tells_errors`, `become` gets the descriptor for the child's standard error.
        """
        pipe: tuple[int, ...] = ()
        try:
            pipe = os.pipe() if tells_errors else ()
            pid = os.fork()
        except OSError as error:
            for descriptor in pipe:
                os.close(descriptor)
            remedy = ": raise the limit of processes (ulimit -u, --pids-limit)" if error.errno == errno.EAGAIN else ""
            tell(lifeline, "error", f"fork: {error.strerror}{remedy}")
            lifeline.close()
            return None
        if pid == 0:
            become(pipe[1] if pipe else -1)
        child = os.pidfd_open(pid)
        if pipe:
            self._errors[child] = pipe[0]
            os.set_blocking(pipe[0], False)
            os.close(pipe[1])
        self._lifelines[lifeline.fileno()] = lifeline, child
        self._children[child] = pid, lifeline.fileno()
        if supervises:
            self._supervisors.add(child)
        self._poll.register(child, select.POLLIN)
        self._poll.register(lifeline, 0)  # POLLHUP is always reported: the host has closed it
        return child

    def _reap(self, child: int) -> None:
        pid, descriptor = self._children.pop(child)
        self._supervisors.discard(child)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # when called from `end`, it may still be running
        self.ended(pid)
        _, status = os.waitpid(pid, 0)
        lifeline, _ = self._lifelines.pop(descriptor)
        for watched in (child, descriptor):
            with _Suppressed(KeyError):
                self._poll.unregister(watched)
        errors = self._errors.pop(child, None)
        if errors is not None:
            with _Suppressed(OSError):
                if tail := os.read(errors, _PIPE_BYTES)[-ERRORS_BYTES:]:
                    lifeline.setblocking(False)
                    os.write(lifeline.fileno(), b"!" + tail)
            os.close(errors)
        tell(lifeline, "status", os.waitstatus_to_exitcode(status))
        lifeline.close()
        os.close(child)


class _Launcher(Children):
    def __init__(self, control: socket.socket) -> None:
        super().__init__(control)
        self._plans: dict[int, Mapping[str, Any]] = {}
        self._rulesets: dict[int, int] = {}
        self._namespaces: dict[int, list[int]] = {}

    def serve_host(self, host: int) -> None:
        """Serves until the host sends "end".

        Raises:
            EOFError, ConnectionError: the host ended without sending it.
        """
        ended = os.pidfd_open(host)
        privileges.adopt_orphans()
        if os.getppid() != host:
            raise EOFError  # the host ended before this process could watch it
        self.serve(ended)  # watching its socket is not enough: a fork of it may hold the same end

    def take(self, message: bytes, descriptors: list[int]) -> bool:
        content = marshal.loads(message)  # noqa: S302 from our host, who starts whatever it likes
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
        if "limit" in content:
            if descriptors:
                self._make(_become_limiter, content, descriptors[0])
            return True
        if "network" in content:
            if len(descriptors) == 2:
                self._make(lambda asked, reply: _become_network(asked, descriptors[1], reply), content, descriptors[0])
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            return True
        if descriptors:  # else the host sees that the lifeline is closed
            self._start(content["start"], descriptors)
        return True

    def _start(self, number: int, descriptors: list[int]) -> None:
        plan = self._plans[number]
        streams, rest = (descriptors[:1], descriptors[1:]) if plan["connection"] else (descriptors[:3], descriptors[3:])
        lifeline = socket.socket(fileno=rest.pop(0))
        namespaces = self._namespaces.get(number, [])

        def become(errors: int) -> NoReturn:
            three = [*streams, *streams, errors] if plan["connection"] else streams
            _become(plan, self._rulesets.get(number), namespaces, three, rest, lifeline)

        try:
            self.start(lifeline, become, supervises=plan["supervise"], tells_errors=plan["connection"])
        finally:
            for descriptor in streams + rest:
                os.close(descriptor)

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
        os.waitpid(pid, 0)  # takes milliseconds: the child makes namespaces and ends

    def ended(self, pid: int) -> None:
        # If bubblewrap's child is not yet set to end with it, that child would wait for it forever.
        with _Suppressed(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        self._end_orphans(pid)

    def _end_orphans(self, ended: int) -> None:
        """Ends what a child leaves behind: the forks of a server, or the processes of a killed supervisor.

        Otherwise they would become zombies of process 1, which is the host itself in a container without an init.
        Repeats because they can fork meanwhile.
        """
        known = {ended, *(pid for pid, _ in self._children.values())}
        children = f"/proc/self/task/{os.getpid()}/children"
        for _ in range(_ROUNDS):
            with _Suppressed(OSError):  # some kernels lack these files
                with open(children, "rb") as file:
                    orphans = {int(each) for each in file.read().split()} - known
                for orphan in orphans:
                    os.kill(orphan, signal.SIGKILL)
                for orphan in orphans:
                    os.waitpid(orphan, 0)
                if orphans:
                    continue
            return

    def clear(self) -> None:
        """Cleans up after a host that crashed."""
        for scratch in {plan["scratch"] for plan in self._plans.values()} - {None}:
            _remove(scratch)


def _remove(directory: str) -> None:
    """Removes a directory, like shutil.rmtree, which is slow to import.

    The host's other launchers may remove it too. A tree that is too deep stays until the next process clears it.
    """
    with _Suppressed(OSError, RecursionError):
        for entry in list(os.scandir(directory)):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                with _Suppressed(OSError):
                    os.unlink(entry.path)
        os.rmdir(directory)


def receive(connection: socket.socket, size: int, count: int) -> tuple[bytes, list[int]]:
    """Receives one message and its descriptors, which no child inherits. If some did not fit, returns none.

    socket.recv_fds would leave them inheritable: up to Python 3.12 at least, it ignores its flags.

    Raises:
        OSError: see recvmsg(2).
    """
    descriptors: list[int] = []
    close_on_exec = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # absent on macOS
    data, parts, flags, _ = connection.recvmsg(size, socket.CMSG_LEN(4 * count), close_on_exec)
    for level, kind, content in parts:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors += memoryview(content[: len(content) // 4 * 4]).cast("i")
    if flags & socket.MSG_CTRUNC:  # some were lost, but which ones is unknown
        for descriptor in descriptors:
            os.close(descriptor)
        return data, []
    return data, descriptors


def tell(lifeline: socket.socket, key: str, value: int | str, descriptors: Sequence[int] = ()) -> None:
    """Sends a message with one entry, and descriptors.

    Raises:
        OSError: the descriptors cannot be sent. Without descriptors, a closed lifeline raises nothing.
    """
    data = f'{{"{key}": {value if isinstance(value, int) else encode_basestring_ascii(value)}}}'.encode()
    if descriptors:
        rights = socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors)
        lifeline.sendmsg([data], [rights], socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
        return
    with _Suppressed(OSError):
        lifeline.setblocking(False)
        os.write(lifeline.fileno(), data)  # the system call filter, which may be in force, allows write


# --- in the child, between fork and exec --------------------------------------------------------------------------


def _become(
    plan: Mapping[str, Any],
    ruleset: int | None,
    namespaces: Sequence[int],
    streams: Sequence[int],
    others: Sequence[int],
    lifeline: socket.socket,
) -> NoReturn:
    """Turns this process into the guest, or reports the failure on the lifeline and ends."""
    step = "descriptors"
    try:
        parent = os.getppid()
        os.setsid()
        executable = os.open(plan["executable"], os.O_PATH | os.O_CLOEXEC)
        if plan["directory"] is not None:
            os.chdir(plan["directory"])
        privileges.close_on_exec()  # Python's own descriptors already are
        for place, descriptor in enumerate(streams):
            os.dup2(descriptor, place)
        if not plan["confine"] and plan["filter"]:
            os.dup2(_readable(plan["filter"]), FILTER_FD)
            os.dup2(others[0], INFO_FD)
            for options in others[1:]:
                os.dup2(options, OPTIONS_FD)
        # before the limit is set, because descriptors of other children are open here too
        me = os.pidfd_open(os.getpid())
        step = "limits"
        limits = dict(plan["limits"])
        files = limits.pop(resource.RLIMIT_NOFILE, None)
        for number, value in limits.items():
            resource.setrlimit(number, (value, value))
        step = "privileges"
        if plan["confine"] or plan["user"] is not None or (plan["filter"] and os.geteuid() != 0):
            privileges.drop_privileges(plan["user"])  # bubblewrap refuses to run with capabilities unless it is root
        if plan["enters"]:
            step = "namespaces"
            _enter(namespaces)
        # after the change of user, which would reset it
        privileges.tie_to_parent(parent, signal.SIGTERM if plan["supervise"] else signal.SIGKILL)
        arguments, environment = plan["arguments"], plan["environment"]
        if plan["supervise"]:
            step = "supervision"
            options = marshal.loads(_content(others[0]))  # noqa: S302
            arguments, environment = options["arguments"], options["environment"]
            _supervise(lifeline, me)
            os.chdir(options["directory"])
        else:
            tell(lifeline, "pid", os.getpid(), [me])
        step = "limits"
        # as late as this, because it also limits this user's descriptors in flight (unix(7), ETOOMANYREFS)
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        step = "no_new_privs"
        if plan["confine"]:
            privileges.forgo_privileges()
        step = "landlock"
        if plan["ruleset"]:
            if ruleset is None:
                raise OSError("the Landlock rules were not sent")
            privileges.restrict(ruleset)
        step = "seccomp"
        if plan["confine"] and plan["filter"]:
            privileges.seal(plan["filter"])
        step = "exec"
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, which exec would preserve
        with _Suppressed(PermissionError):
            os.execve(plan["executable"], arguments, environment)  # noqa: S606
        # The guest's user may lack access to directories of the path; the descriptor needs none.
        os.execve(f"/proc/self/fd/{executable}", arguments, environment)  # noqa: S606
    except BaseException as error:
        tell(lifeline, "error", f"{step}: {error}")
        if plan["supervise"]:
            os.write(2, f"{step}: {error}\n".encode())  # the lifeline belongs to the supervisor
    os._exit(125)


def _supervise(lifeline: socket.socket, me: int) -> None:
    """Forks; returns in the child. This process ends with the child's status, or on SIGTERM, once all descendants have
    ended.

    A process in a Landlock domain that scopes signals can signal only that domain and those nested in it. This process
    can therefore signal the child's nested domain and everything in it, whoever the parent is, but not the reverse.
    kill(2) with -1 gives none of them time to fork.
    """
    privileges.forgo_privileges()
    privileges.scope_signals()
    privileges.adopt_orphans()
    heard = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    tell(lifeline, "pid", os.getpid(), [me])
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
        return
    privileges.close_from(0)  # descriptors of the command and of other children
    code = None
    while code is None and signal.sigwait(heard) == signal.SIGCHLD:
        with _Suppressed(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if ended[0] == child:
                    code = os.waitstatus_to_exitcode(ended[1])
    with _Suppressed(ChildProcessError):
        while True:
            with _Suppressed(OSError):  # no descendants are left
                os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)
    code = -signal.SIGKILL if code is None else code
    os._exit(code if code >= 0 else 128 - code)


def _content(descriptor: int) -> bytes:
    """Reads an in-memory file."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _enter(namespaces: Sequence[int]) -> None:
    """Enters a space's namespaces, which this user owns, and drops the capabilities that entering grants.

    Raises:
        OSError: the namespaces are missing, or belong to another user.
    """
    if len(namespaces) not in (2, 3):
        raise OSError("the session's namespaces were not sent")
    for descriptor, kind in zip(namespaces, (_CLONE_NEWUSER, _CLONE_NEWNS, _CLONE_NEWNET), strict=False):
        privileges.call(privileges.libc.setns(descriptor, kind))
    privileges.drop_privileges(None)


def _become_space(content: Mapping[str, Any], reply: socket.socket) -> NoReturn:
    """Makes namespaces with in-memory file systems, sends descriptors that keep them alive, and ends.

    The host's mounts stay visible in them, and unmounting on the host takes effect there too.
    """
    step = "place"
    try:
        user = content["user"]
        os.chdir(content["place"])
        step = "privileges"
        if user is not None:
            privileges.drop_privileges(user)
            privileges.show()  # so that this process owns its files in /proc
        step = "namespaces"
        user_map, group_map = (f"{privileges.NOBODY} {each} 1" for each in (os.geteuid(), os.getegid()))
        privileges.call(privileges.libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
        for name, value in (("setgroups", "deny"), ("uid_map", user_map), ("gid_map", group_map)):
            with open(f"/proc/self/{name}", "wb", buffering=0) as file:
                file.write(value.encode())
        privileges.call(privileges.libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None))
        step = "file systems"
        roots: list[int] = []
        for number, (size, files) in enumerate(content["space"]):
            options = f"size={size},nr_inodes={files + 1},mode=0777".encode()
            flags = _MS_NOSUID | _MS_NODEV | (0 if content["executable"] else _MS_NOEXEC)
            privileges.call(privileges.libc.mount(b"tmpfs", str(number).encode(), b"tmpfs", flags, options))
            roots.append(os.open(str(number), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        step = "overlays"
        _overlay(content["overlays"], content["kept"])
        kept = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "mnt")]
        tell(reply, "space", 1, [*kept, *roots])
    except BaseException as error:
        tell(reply, "error", f"{step}: {error}")
    os._exit(0)


def _overlay(folders: Sequence[str], kept: Sequence[str]) -> None:
    """Mounts overlays of folders over themselves, read-only, so that their files get inodes of these namespaces.

    Locks and watches belong to an inode. Mounts below are bound again, because an overlay does not show them.
    """
    with open("/proc/self/mountinfo", "rb") as file:
        mounted = [line.split()[4].replace(rb"\040", b" ").decode() for line in file]
    below: list[tuple[int, str]] = []
    for path in (*mounted, *kept):
        if any(path.startswith(f"{folder}/") for folder in folders):
            with _Suppressed(OSError):  # inaccessible to this user, and therefore to everyone in here
                below.append((os.open(path, os.O_PATH), path))
    for folder in folders:
        flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV
        options = f"lowerdir=/proc/self/fd/{os.open(folder, os.O_PATH)}:empty,userxattr".encode()
        privileges.call(privileges.libc.mount(b"overlay", folder.encode(), b"overlay", flags, options))
    for descriptor, path in below:
        source = f"/proc/self/fd/{descriptor}".encode()
        privileges.call(privileges.libc.mount(source, path.encode(), None, _MS_BIND | _MS_REC, None))


def _become_network(content: Mapping[str, Any], owner: int, reply: socket.socket) -> NoReturn:
    """Makes a network namespace owned by the user namespace `owner`, listens in it, sends both, and ends."""
    step = "privileges"
    try:
        if content["user"] is not None:
            privileges.drop_privileges(content["user"])
        step = "namespaces"
        privileges.call(privileges.libc.setns(owner, _CLONE_NEWUSER))
        privileges.call(privileges.libc.unshare(_CLONE_NEWNET))
        step = "loopback"
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        fcntl.ioctl(listener, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
        listener.bind(("127.0.0.1", content["network"]))
        listener.listen(_BACKLOG)
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        tell(reply, "network", 1, [namespace, listener.fileno()])
    except BaseException as error:
        tell(reply, "error", f"{step}: {error}")
    os._exit(0)


def _become_limiter(content: Mapping[str, Any], reply: socket.socket) -> NoReturn:
    """Limits a process's memory as that process's user, because root would need CAP_SYS_RESOURCE, and ends."""
    try:
        privileges.drop_privileges(content["user"])
        resource.prlimit(content["limit"], resource.RLIMIT_DATA, (content["data"], content["data"]))
        tell(reply, "limit", 1)
    except BaseException as error:
        tell(reply, "error", str(error))
    os._exit(0)


def _readable(data: bytes) -> int:
    """Returns a pipe that contains `data`."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading
