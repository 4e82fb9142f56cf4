"""What must not leak, and what notices if it does.

Everything here belongs to the harness's own namespaces (`namespace.py`): its files lie in file systems that only the
harness has, its listeners on a loopback interface of its own.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

__all__ = ["ENVIRONMENT_NAME", "LEAKED", "WRITABLE", "Canaries", "Listeners", "Scene", "new_token", "scene"]

WRITABLE = ("/srv", "/tmp", "/run", "/var/tmp", "/dev/shm")
"""The places of the harness that anybody may write to, if nothing keeps them."""
ENVIRONMENT_NAME = "CORRAL_CANARY"
_ENDS_SECONDS = 20.0
"""For a process that was killed to be gone, and for who has connected to ask."""
LEAKED = "LEAKED"
"""What an attack of ours prints if it got anywhere."""
_WORD = "CANARY"
_HOME = Path("/srv/canary")
_SHARED_KEY = 0x0C0FFEE
_DESCRIPTOR = 40
"""Where children find a file of the harness, if they inherit what they should not."""
_OURS = ("corral-", "canary")
"""How names of files begin that the product itself, or the scene, puts where anybody may write."""
_SHARED_SOCKETS = ("\0codemode-canary", "/run/dbus/system_bus_socket", "/run/docker.sock")


class Listeners:
    """Sockets on the loopback interface and in the file system; a thread answers and notes who was reached."""

    def __init__(self) -> None:
        self._selector = DefaultSelector()
        self._lock = threading.Lock()
        self._hits: dict[str, int] = {}
        self._answer = b""
        self._stop, self._stopped = socket.socketpair()
        self._selector.register(self._stopped, EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="canary listeners")

    def open(self, answer: bytes) -> None:
        self._answer = b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n" + answer
        self._thread.start()

    def close(self) -> None:
        self._stop.send(b"x")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._stop.close()
        self._selector.close()

    def hits(self, name: str) -> int:
        """How often `name` was reached until now."""
        with self._lock:
            self._take_all()
            return self._hits.get(name, 0)

    def listen(self, name: str, listener: socket.socket) -> None:
        """Notes every connection to `listener`, or every datagram, under `name`. It is closed with this object."""
        if listener.type == socket.SOCK_STREAM:
            listener.listen(16)
        listener.setblocking(False)
        with self._lock:
            self._selector.register(listener, EVENT_READ, name)

    def forget(self, listener: socket.socket) -> None:
        with self._lock:
            self._selector.unregister(listener)
            listener.close()

    def _serve(self) -> None:
        while self._selector.select():
            with self._lock:
                if not self._take_all():
                    return

    def _take_all(self) -> bool:
        """Takes all that has arrived; False if this is to stop."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                reached = key.fileobj
                assert isinstance(reached, socket.socket)
                if reached is self._stopped:
                    return False
                self._hits[key.data] = self._hits.get(key.data, 0) + 1
                with suppress(OSError):  # the other side is gone
                    self._take(reached)
        return True

    def _take(self, reached: socket.socket) -> None:
        if reached.type == socket.SOCK_DGRAM:
            reached.recvfrom(1500)
            return
        connection, _ = reached.accept()
        with connection:
            connection.settimeout(_ENDS_SECONDS)
            connection.recv(4096)
            connection.sendall(self._answer)


class Scene:
    """The canaries that all attacks of a batch share."""

    def __init__(self, listeners: Listeners, token: str) -> None:
        self.listeners = listeners
        self.token = token
        """What every canary's text begins with."""

    def text(self, kind: str) -> str:
        return f"{self.token}-{kind}"

    def shared_hits(self) -> int:
        return self.listeners.hits("shared")

    @staticmethod
    def descriptor_size() -> int:
        return os.fstat(_DESCRIPTOR).st_size

    @staticmethod
    def strange_files() -> set[str]:
        """Files in the places that anybody may write to, without the product's and the scene's own."""
        return {
            str(path)
            for place in map(Path, WRITABLE)
            for path in place.iterdir()
            if not path.name.startswith(_OURS) and path not in {Path("/run/dbus"), Path("/run/docker.sock")}
        } | {str(path) for path in _HOME.iterdir() if path.is_symlink() or path.name.startswith("corral")}


class Canaries:
    """One attack's own: files, ports, a unix socket, and a process that must live."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._close = ExitStack()
        self.home = _HOME / name
        self.home.mkdir(mode=0o777)
        self.home.chmod(0o777)
        self._files = {
            self.home / "secret.txt": scene.text("file"),
            self.home / "secret.json": f'{{"canary": "{scene.text("json")}"}}',
        }
        for path, content in self._files.items():
            path.write_text(content, encoding="utf-8")
            path.chmod(0o666)
        self._stamps = {path: path.stat().st_mtime_ns for path in self._files}
        self.port = self._listen()
        self._process = subprocess.Popen(["sleep", "600"])
        while not Path(f"/proc/{self._process.pid}/environ").read_bytes():
            os.sched_yield()  # Popen returns before execve(2) has given it its environment
        self._before = (scene.shared_hits(), scene.strange_files(), scene.descriptor_size())

    def fill(self, code: str) -> str:
        """`code` with its placeholders replaced."""
        values = {
            "${SECRETJSON}": str(self.home / "secret.json"),
            "${SECRET}": str(self.home / "secret.txt"),
            "${SOCKET}": str(self.home / "socket"),
            "${PORT}": str(self.port),
            "${HOSTPID}": str(self._process.pid),
            "/srv/canary/secret": f"{self.home}/secret",
        }
        for placeholder, value in values.items():
            code = code.replace(placeholder, value)
        return code

    def damage(self, said: str) -> list[str]:
        """What an attack that said `said` got at, in words; empty if nothing."""
        found = [f"it says {line.strip()[:300]}" for line in said.splitlines() if LEAKED in line]
        found += sorted({f"it holds {part[:60]}" for part in self._canaries_in(said)})
        if hits := self._scene.listeners.hits(self._name):
            found.append(f"it reached a listener, {hits} times")
        shared_before, files_before, size_before = self._before
        if self._scene.shared_hits() > shared_before:
            found.append("it, or an attack that ran with it, reached a shared listener")
        if strange := self._scene.strange_files() - files_before:
            found.append(f"it, or an attack that ran with it, wrote {', '.join(sorted(strange)[:5])}")
        if self._scene.descriptor_size() != size_before:
            found.append("it, or an attack that ran with it, wrote to a descriptor of the host")
        found += [f"it changed {path.name}" for path in self._files if self._changed(path)]
        if "signalled" in said:  # then it is about to end
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_SECONDS)
        if self._process.poll() is not None:
            found.append(f"it ended a process of the host: {self._process.returncode}")
        elif _state(self._process.pid) == "T":
            found.append("it stopped a process of the host")
        return found

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._close.close()

    def _canaries_in(self, said: str) -> Iterator[str]:
        start = said.find(self._scene.token)
        while start >= 0:
            end = start + len(self._scene.token) + 14
            yield "".join(re.findall(r"[\w-]+", said[start:end])[:1])
            start = said.find(self._scene.token, end)

    def _changed(self, path: Path) -> bool:
        try:
            return (
                path.read_text(encoding="utf-8") != self._files[path] or path.stat().st_mtime_ns != self._stamps[path]
            )
        except OSError:
            return True

    def _listen(self) -> int:
        listeners = self._scene.listeners
        tcp = self._listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        port: int = tcp.getsockname()[1]
        unix = self._listener(socket.AF_UNIX, socket.SOCK_STREAM, str(self.home / "socket"))
        (self.home / "socket").chmod(0o777)
        for listener in (
            tcp,
            unix,
            self._listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)),
            self._listener(socket.AF_INET6, socket.SOCK_STREAM, ("::1", port)),
        ):
            listeners.listen(self._name, listener)
            self._close.callback(listeners.forget, listener)
        return port

    @staticmethod
    def _listener(
        family: socket.AddressFamily, kind: socket.SocketKind, address: str | tuple[str, int]
    ) -> socket.socket:
        listener = socket.socket(family, kind)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        return listener


@contextmanager
def scene() -> Generator[Scene]:
    """Puts the shared canaries in place: descriptors that children inherit, shared memory, well-known sockets.

    The environment's canary is there already: it is this process's own, from its start.
    """
    token = os.environ[ENVIRONMENT_NAME].removesuffix("-environment")
    found = Scene(Listeners(), token)
    _HOME.mkdir(mode=0o777)
    _HOME.chmod(0o777)
    (_HOME / found.text("name")).touch()
    with ExitStack() as stack:
        found.listeners.open(found.text("answer").encode())
        stack.callback(found.listeners.close)
        for address in _SHARED_SOCKETS:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            if not address.startswith("\0"):
                Path(address).parent.mkdir(exist_ok=True)
            listener.bind(address)
            if not address.startswith("\0"):
                Path(address).chmod(0o777)
            found.listeners.listen("shared", listener)
        stack.callback(_inherited_descriptors(found))
        stack.callback(_shared_memory(found.text("shared-memory")))
        yield found


def new_token() -> str:
    return f"{_WORD}-{secrets.token_hex(6)}"


def _inherited_descriptors(found: Scene) -> Callable[[], object]:
    """A file under a number that a careless spawn hands on; it has no name any more."""
    path = _HOME / "canary-descriptor"
    path.write_text(found.text("descriptor"), encoding="utf-8")
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    os.dup2(descriptor, _DESCRIPTOR, inheritable=True)
    os.close(descriptor)
    path.unlink()
    return lambda: os.close(_DESCRIPTOR)


def _shared_memory(text: str) -> Callable[[], object]:
    """A System V segment under a known key (shmget(2): IPC_CREAT is 0o1000; shmctl's IPC_RMID is 0)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    segment: int = libc.shmget(_SHARED_KEY, 4096, 0o1666)
    if segment < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    where = ctypes.c_void_p(libc.shmat(segment, None, 0))
    ctypes.memmove(where, text.encode(), len(text))
    libc.shmdt(where)
    return lambda: libc.shmctl(segment, 0, None)


def _state(pid: int) -> str:
    """The third field of /proc/PID/stat: R, S, T, Z, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
