"""Our attacks by Python programs, which may run native code: each says `leaked(...)` if it got anywhere.

They run after `native.py.txt`. `HANGS` and `BOMBS` are those that end by a limit, if at all.
"""

from __future__ import annotations

__all__ = ["BOMBS", "CONTROL", "HANGS", "PROBES", "PYTHON_OWN", "SCIENCE"]

# A program that writes "LEAKED exec" and ends; 64-bit ELF, one loaded segment.
_ELF = r"""
import struct
code = bytes([0xb8,1,0,0,0,0xbf,1,0,0,0,0x48,0x8d,0x35,0x10,0,0,0,0xba,12,0,0,0,0x0f,5,0xb8,60,0,0,0,0x31,0xff,0x0f,5]) if x86 else bytes(
  [0x20,0,0x80,0xd2,0xe1,0,0,0x10,0x82,1,0x80,0xd2,0x08,8,0x80,0xd2,1,0,0,0xd4,0,0,0x80,0xd2,0xa8,0x0b,0x80,0xd2,1,0,0,0xd4])
said = ("LEA" + "KED exec\n").encode()
size = 120 + len(code) + len(said)
elf = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 62 if x86 else 183, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0)
elf += struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, size, size, 4096) + code + said
"""

# The frames of this execution, as the guest's own code would send them.
_FRAMES = r"""
import gc, struct
gc.unfreeze()
pipes = next(each for each in gc.get_objects() if type(each).__name__ == "Pipes")
def frame(kind, payload, length=None, flags=0, nonce=pipes._nonce):
    return struct.pack(">IBB16s", 18 + len(payload) if length is None else length, kind, flags, nonce) + payload
def send(*arguments, **more):
    data = frame(*arguments, **more)
    while data: data = data[os.write(3, data):]
"""


def _exit(payload: str, *, flags: int = 0) -> str:
    """An EXIT of the program's own; it must be taken for its result, or refused, never believed further."""
    return f"{_FRAMES}\nsend(19, {payload}, flags={flags})\nimport time; time.sleep(60)"


PYTHON_OWN: dict[str, str] = {
    "native-code-runs": "system('write', 2, b'Native code runs.', 17); print('Native code runs.')",
    # --- files
    "read-secret": """
        import fileinput, io, linecache, mmap, pathlib, sqlite3, tarfile, zipfile
        for path in ("${SECRET}", "${SECRETJSON}"):
            for way in (lambda: open(path).read(), lambda: io.FileIO(path).readall(), lambda: pathlib.Path(path).read_text(),
                        lambda: linecache.getlines(path), lambda: list(fileinput.input(path)), lambda: os.pread(os.open(path, 0), 99, 0),
                        lambda: mmap.mmap(os.open(path, 0), 0, prot=mmap.PROT_READ)[:], lambda: sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute("select 1 from sqlite_master"),
                        lambda: zipfile.ZipFile(path), lambda: tarfile.open(path)):
                attempt(way, print)""",
    "read-by-syscall": """
        into = ctypes.create_string_buffer(200)
        for descriptor in (system("openat", -100, b"${SECRET}", 0), system("openat", -100, b"${SECRET}", 0o10000000),
                           system("openat2", -100, b"${SECRET}", struct("QQQ", 0, 0, 0), 24)):
            system("pread64", descriptor, into, 200, 0); print(into.value)""",
    "list-directories": """
        for path in ("/", "/srv", "/srv/canary", "/tmp", "/run", "/home", "/root", "/etc", "/proc", "/dev/shm"):
            attempt(lambda: os.listdir(path), print); attempt(lambda: [each.name for each in os.scandir(path)], print)""",
    "read-etc": """
        for path in ("/etc/passwd", "/etc/shadow", "/etc/hosts", "/etc/resolv.conf", "/etc/ssl/openssl.cnf", "/etc/ld.so.cache"):
            attempt(lambda: open(path, "rb").read(1), lambda got: leaked(path))""",
    "write-anywhere": """
        for place in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/srv/canary", "/", "/etc", ".", "/home", "/guest", "/python", "/packages", *sys.path):
            attempt(lambda: open(place + "/corral-was-here", "w"), lambda got: leaked(place))
            attempt(lambda: os.mkdir(place + "/corral-folder"), lambda got: leaked(place))
        for mode in ("w", "a", "r+"):
            attempt(lambda: open("${SECRET}", mode).write("overwritten"), lambda got: leaked("overwritten"))""",
    "change-files": """
        import shutil
        for act in (lambda: os.rename("${SECRET}", "${SECRET}.moved"), lambda: os.unlink("${SECRET}"), lambda: os.chmod("${SECRET}", 0), lambda: os.truncate("${SECRET}", 0),
                    lambda: os.utime("${SECRET}", (0, 0)), lambda: os.chown("${SECRET}", 1, 1), lambda: os.setxattr("${SECRET}", "user.x", b"x"), lambda: shutil.rmtree("/srv/canary")):
            attempt(act, lambda got: leaked("changed"))""",
    "links": """
        for place in ("/tmp", "/dev/shm", "/run", "/var/tmp", "."):
            attempt(lambda: os.symlink("${SECRET}", place + "/corral-link"), lambda got: leaked("a link in " + place))
            attempt(lambda: os.link("${SECRET}", place + "/corral-hard-link"), lambda got: leaked("a hard link in " + place))
            attempt(lambda: os.mkfifo(place + "/corral-fifo"), lambda got: leaked("a pipe in " + place))""",
    "stat-host-files": """
        if os.access("${SECRET}", os.F_OK) and os.stat("${SECRET}").st_size and not os.path.exists("${SECRET}.not-there"): leaked("which files exist")""",
    "watch-files": """
        refused("inotify_init1", 0); refused("fanotify_init", 0, 0)
        refused("name_to_handle_at", -100, b"${SECRET}", struct("Ii", 128, 0) + bytes(128), bytes(8), 0)""",
    "dbm-and-temporary-files": """
        import dbm.dumb, shelve, tempfile
        for act in (lambda: dbm.dumb.open("/tmp/corral-dbm", "n"), lambda: shelve.open("/dev/shm/corral-shelf"), tempfile.mkdtemp, tempfile.TemporaryFile, tempfile.NamedTemporaryFile):
            attempt(act, lambda got: leaked("a file"))""",
    # --- what every process has
    "proc-of-everybody": """
        for pid in (*range(1, 400), os.getppid(), ${HOSTPID}, "self", "thread-self"):
            for name in ("environ", "cmdline", "mem", "maps", "status", "stat", "mounts", "fdinfo/4", "root/srv/canary/secret.txt", "cwd/srv/canary/secret.txt", "net/tcp", "syscall"):
                attempt(lambda: open(f"/proc/{pid}/{name}", "rb").read(1), lambda got: leaked(f"/proc/{pid}/{name}"))
            for name in ("exe", "cwd", "root", "ns/pid", "ns/net"):
                if pid not in ("self", "thread-self", os.getpid()): attempt(lambda: os.readlink(f"/proc/{pid}/{name}"), lambda got: leaked(f"{name} of {pid}"))""",
    "pipes-of-others-by-proc": """
        for pid in (*range(1, 50), os.getppid(), *range(os.getpid() - 50, os.getpid() + 50), ${HOSTPID}):
            if pid != os.getpid():
                for number in range(24):
                    attempt(lambda: os.readlink(f"/proc/{pid}/fd/{number}"), lambda got: leaked(f"it sees {got} of {pid}"))
                    attempt(lambda: os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_NONBLOCK), lambda got: leaked(f"it has {number} of {pid}"))""",
    "inherited-descriptors": """
        import stat
        kinds = {}
        for number in range(4096):
            attempt(lambda: os.fstat(number).st_mode, lambda got: kinds.update({number: got}))
        if [*kinds] != [0, 1, 2, 3, 4] + [5][:len(kinds) - 5]: leaked(f"descriptors {[*kinds]}")  # 5 wakes its event loop
        if not all(stat.S_ISFIFO(mode) for number, mode in kinds.items() if number < 5): leaked(f"no pipes: {kinds}")
        for number in (*kinds, 40):
            for act in (lambda: os.pread(number, 200, 0), lambda: number > 5 and os.read(number, 200)): attempt(act, print)
            if system("getsockname", number, bytearray(128), struct("I", 128)) >= 0: leaked(f"socket {number}")""",
    "write-inherited-descriptors": """
        for number in range(5, 200):
            attempt(lambda: os.write(number, b"x"), lambda got: leaked(f"it writes to {number}"))""",
    "control-socket-of-the-server": """
        request = b'{"filter": null}'
        for number in range(64):
            for name, rest in (("sendto", (request, len(request), 0, 0, 0)), ("recvfrom", (bytearray(99), 99, 64, 0, 0))):
                if number != 3 and system(name, number, *rest) >= 0: leaked(f"{name} {number}")
            refused("sendmsg", number, bytes(56), 0); refused("recvmsg", number, bytes(56), 64)""",
    "objects-of-the-server": """
        import gc, socket, stat
        gc.unfreeze()
        for each in gc.get_objects():
            if isinstance(each, socket.socket) and each.fileno() >= 0:
                attempt(lambda: stat.S_ISSOCK(os.fstat(each.fileno()).st_mode), lambda got: got and leaked(f"a live socket {each!r}"))""",
    # --- other processes
    "trace-others": """
        for pid in (os.getppid(), 1, ${HOSTPID}, os.getpid() - 1, os.getpid() + 1):
            refused("ptrace", 16, pid, 0, 0); refused("ptrace", 0x4206, pid, 0, 0)
        refused("ptrace", 0, 0, 0, 0)""",
    "memory-and-descriptors-of-others": """
        local, remote = struct("QQ", 0, 8), struct("QQ", 0x400000, 8)
        for pid in (os.getppid(), 1, ${HOSTPID}, os.getpid() - 1, os.getpid() + 1):
            refused("process_vm_readv", pid, local, 1, remote, 1, 0); refused("process_vm_writev", pid, local, 1, remote, 1, 0)
            refused("kcmp", pid, os.getpid(), 0, 0, 0); refused("pidfd_open", pid, 0); refused("process_madvise", pid, local, 1, 4, 0)
        for number in range(64): refused("pidfd_getfd", number, 0, 0)""",
    "signal-others": """
        import signal
        for pid in (os.getppid(), ${HOSTPID}, os.getpid() - 1, os.getpid() + 1, 1, 0, -os.getppid()):
            for number in (0, signal.SIGSTOP, signal.SIGKILL):
                attempt(lambda: os.kill(pid, number), lambda got: leaked(f"it signals {pid}"))
                refused("tkill", pid, number); refused("tgkill", pid, pid, number); refused("rt_sigqueueinfo", pid, number, bytes(128))
        for number in range(64): refused("pidfd_send_signal", number, 9, 0, 0)
        refused("fcntl", 3, 8, os.getppid())""",
    "channels-to-other-programs": """
        import fcntl
        file, lock, into, room = os.open(os.__file__, os.O_RDONLY), struct("hhqqi4x", 0, 0, 0, 1, 0), bytearray(4096), ctypes.create_string_buffer(8)
        for command in (5, 6, 7, 36, 37, 38, 1032, 1034): refused("fcntl", file, command, lock)
        for command in (1024, 1026, 1031, 1033): refused("fcntl", file, command, 1)
        for operation in (1, 2, 5, 6): refused("flock", file, operation)
        page = system("mmap", 0, 4096, 1, 2, file, 0)
        for operation in (1, 10): refused("futex", page, operation, 1, 0, 0, -1)
        for advice in (12, 20, 21): refused("madvise", system("mmap", 0, 4096, 3, 0x22, -1, 0), 4096, advice)
        refused("mmap", 0, 1 << 21, 3, 0x40022, -1, 0); refused("mincore", page, 4096, into); refused("fadvise64", file, 0, 0, 4)
        refused("preadv2", file, struct("QQ", ctypes.addressof(room), 8), 1, 0, 0, 8); refused("utimensat", file, 0, 0, 0)
        for pid in (os.getppid(), os.getpid(), ${HOSTPID}):
            refused("clock_gettime", ~pid << 3 | 2, into); refused("getpriority", 0, pid); refused("ioprio_get", 1, pid)
        refused("sysinfo", into); refused("times", into); refused("pipe2", into, 0)""",
    "kill-everybody": "attempt(lambda: os.kill(-1, 9), lambda got: leaked('all'))",
    "limits-of-others": """
        import resource
        for pid in (os.getppid(), ${HOSTPID}, 1):
            for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_DATA, resource.RLIMIT_CPU):
                attempt(lambda: resource.prlimit(pid, number), lambda got: leaked("it knows the limits of another"))
                attempt(lambda: resource.prlimit(pid, number, (1, 1)), lambda got: leaked("it sets the limits of another"))
            refused("setpriority", 0, pid, 19); refused("sched_setaffinity", pid, 8, b"\\1" + bytes(7)); refused("ioprio_set", 1, pid, 0x6000)
            refused("sched_setscheduler", pid, 5, bytes(4)); refused("migrate_pages", pid, 0, 0, 0)""",
    "limits-of-its-own": """
        import resource
        for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_STACK):
            attempt(lambda: resource.setrlimit(number, (resource.RLIM_INFINITY,) * 2), lambda got: leaked("no limit"))
            refused("prlimit64", 0, number, struct("QQ", 1 << 40, 1 << 40), 0); refused("setrlimit", number, struct("QQ", 1 << 40, 1 << 40))
        if resource.getrlimit(resource.RLIMIT_NOFILE) != (64, 64): leaked("descriptors")
        if not all(0 < each <= 8 << 20 for each in resource.getrlimit(resource.RLIMIT_STACK)): leaked("a large stack, which is not counted as memory")
        if resource.getrlimit(resource.RLIMIT_FSIZE)[1] or resource.getrlimit(resource.RLIMIT_CORE)[1]: leaked("files")
        held = []
        def hold():
            while True: held.append(os.dup(0))
        attempt(hold)
        if len(held) > 64: leaked(f"{len(held)} descriptors")
        for each in held: os.close(each)""",
    # --- new processes
    "fork": """
        import pty
        for act in (os.fork, lambda: pty.fork()[0]):
            attempt(act, lambda got: leaked("forked") if got else os._exit(0))
        forked = system("fork")
        if forked == 0: os._exit(0)
        if forked > 0: leaked("forked by number")
        else:
            refused("vfork")
            for flags in (17, 0x01200011, 0x4111, 0x10000011, 0x80000011, 0x8011): refused("clone", flags, 0, 0, 0, 0)
            refused("clone", 0x3D0F00 | 17 << 32, 0, 0, 0, 0); refused("clone3", struct("QQQQQQQQ", 0, 0, 0, 0, 17, 0, 0, 0), 64)""",
    "spawn": """
        import subprocess
        for act in (lambda: os.posix_spawn("/bin/true", ["true"], {}), lambda: subprocess.run([sys.executable, "-c", ""]), lambda: os.popen("echo LEA''KED").read() or 1 / 0,
                    lambda: os.system("true") and 1 / 0, lambda: os.spawnv(os.P_NOWAIT, sys.executable, ["python"])):
            attempt(act, lambda got: leaked("spawned"))
        import multiprocessing
        for kind in ("fork", "spawn", "forkserver"):
            attempt(lambda: multiprocessing.get_context(kind).Process(target=print).start(), lambda got: leaked(kind))
        import concurrent.futures
        attempt(lambda: concurrent.futures.ProcessPoolExecutor(1).submit(len, "x").result(1), lambda got: leaked("a pool"))""",
    "execute-another-program": """
        for path in (sys.executable, "/bin/true", "/bin/sh", "/proc/self/exe", "/usr/bin/env", "/lib64/ld-linux-x86-64.so.2"):
            attempt(lambda: os.execve(path, [path, "-c", "print('LEA' + 'KED')"], {}), lambda got: leaked(path))
            refused("execve", path.encode(), 0, 0); refused("execveat", -100, path.encode(), 0, 0, 0)
        attempt(lambda: os.execve(os.open(sys.executable, os.O_RDONLY), ["python"], {}))""",
    "execute-from-memory": _ELF
    + """
memory = system("memfd_create", b"x", 0)
if memory >= 0: leaked("a file in memory")
for number in (memory, 2, 3):
    attempt(lambda: os.write(number, elf) if number == memory else None)
    refused("execveat", number, b"", 0, 0, 0x1000)
    refused("execve", f"/proc/self/fd/{number}".encode(), 0, 0)""",
    # --- sockets
    "socket-families": """
        for family in range(46):
            for kind in range(1, 7): refused("socket", family, kind, 0)
        for kind in (2, 3, 5): refused("socketpair", 1, kind, 0, bytearray(8))
        refused("socketpair", 2, 1, 0, bytearray(8))""",
    "connect": """
        import asyncio, http.client, socket, urllib.request
        for address in (("127.0.0.1", ${PORT}), ("::1", ${PORT})):
            attempt(lambda: socket.create_connection(address, 1).recv(200), print)
            attempt(lambda: http.client.HTTPConnection(*address, timeout=1).request("GET", "/"), lambda got: leaked("http"))
        attempt(lambda: urllib.request.urlopen("http://127.0.0.1:${PORT}/", timeout=1).read(), print)
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", ${PORT})), lambda got: leaked("udp"))
        attempt(lambda: socket.create_server(("127.0.0.1", 0)), lambda got: leaked("it listens"))
        attempt(lambda: socket.getaddrinfo("localhost", 80, family=socket.AF_INET), lambda got: leaked("/etc/hosts"))
        try: await asyncio.open_connection("127.0.0.1", ${PORT}); leaked("asyncio")
        except Exception as error: print(error)""",
    "unix-sockets": """
        import socket
        for address in ("${SOCKET}", "\\0codemode-canary", "/run/dbus/system_bus_socket", "/run/docker.sock", "/dev/log", "/run/systemd/notify"):
            attempt(lambda: socket.socket(socket.AF_UNIX).connect(address), lambda got: leaked(repr(address)))
            attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", address), lambda got: leaked(repr(address)))
            pair = bytearray(8)
            if system("socketpair", 1, 1, 0, pair) == 0: refused("sendto", pair[0], b"x", 1, 0, b"\\1\\0" + address.encode(), len(address) + 2)
        refused("connect", pair[0], b"\\1\\0${SOCKET}", 2 + len("${SOCKET}"))""",
    "inherit-by-socketpair": """
        import array, socket
        left, right = socket.socketpair()
        attempt(lambda: left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))]), lambda got: leaked("descriptors can be sent"))
        attempt(lambda: right.recvmsg(9, 99), lambda got: leaked("messages"))""",
    # --- the kernel
    "kernel-surface": """
        refused("io_uring_setup", 4, bytearray(120)); refused("bpf", 5, bytearray(128), 128); refused("perf_event_open", bytearray(128), 0, -1, -1, 0)
        refused("userfaultfd", 0); refused("userfaultfd", 1); refused("keyctl", 0, -3, 1); refused("add_key", b"user", b"x", b"x", 1, -3); refused("request_key", b"user", b"x", 0, -3)
        refused("mount", b"none", b"/", b"tmpfs", 0, 0); refused("unshare", 0x10000000); refused("unshare", 0x20000); refused("setns", 0, 0); refused("chroot", b"/"); refused("chdir", b"/")
        refused("setuid", 0); refused("setresuid", 0, 0, 0); refused("setgid", 0); refused("setgroups", 0, 0); refused("capset", struct("II", 0x20080522, 0), bytes(24)); refused("personality", 0x0040000)
        refused("syslog", 3, bytearray(100), 100); refused("sethostname", b"x", 1); refused("open_tree", -100, b"/", 1); refused("fsopen", b"tmpfs", 0); refused("pivot_root", b"/", b"/")
        refused("landlock_create_ruleset", 0, 0, 1); refused("seccomp", 2, 0, 0); refused("setsid"); refused("setpgid", 0, 0); refused("umask", 0); refused("mlockall", 2)
        refused("timerfd_create", 0, 0); refused("signalfd4", -1, bytes(8), 8, 0); refused("membarrier", 0, 0, 0); refused("acct", 0); refused("ioperm", 0, 1, 1) if x86 else None""",
    "process-settings": """
        for option, value in ((1, 0), (4, 1), (22, 2), (36, 1), (0x59616d61, -1), (35, 8), (47, 2), (23, 0), (24, 0), (28, 0), (8, 1), (10, 1), (26, 1), (38, 1), (41, 1), (53, 0)):
            refused("prctl", option, value, 0, 0, 0)
        if x86: refused("arch_prctl", 0x1001, 0); refused("arch_prctl", 0x1012, 0)""",
    "shared-memory": """
        import mmap
        from multiprocessing import shared_memory
        attempt(lambda: shared_memory.SharedMemory("corral-shared", create=True, size=4096), lambda got: leaked("shared memory"))
        attempt(lambda: mmap.mmap(-1, 4096), lambda got: leaked("a shared mapping"))
        refused("mmap", 0, 4096, 3, 0x21, -1, 0); refused("mmap", 0, 4096, 3, 0x23, -1, 0); refused("mmap", 0, 4096, 3, 0x122, -1, 0)
        where = system("shmget", 0x0C0FFEE, 0, 0)
        if where >= 0: print(ctypes.string_at(system("shmat", where, 0, 0o10000), 100))
        refused("shmget", 0, 4096, 0o1600); refused("semget", 0, 1, 0o1600); refused("msgget", 0, 0o1600); refused("mq_open", b"corral", 0o102, 0o600, 0)
        import multiprocessing
        attempt(lambda: multiprocessing.Lock(), lambda got: leaked("a semaphore"))""",
    "terminals": """
        for number in range(7):
            for request in (0x5412, 0x541C, 0x540E, 0x5422, 0x8901): refused("ioctl", number, request, b"x")
        refused("fcntl", 4, 1031, 1 << 22); refused("fcntl", 4, 8, 1); refused("fcntl", 4, 1026, 1)""",
    "another-architecture": r"""
        if x86:
            import mmap
            code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # getpid of 32 bits
            page = system("mmap", 0, 4096, 7, 0x22, -1, 0)
            ctypes.memmove(page, code, len(code))
            ctypes.CFUNCTYPE(ctypes.c_int)(page)()
            leaked("a call of another architecture")""",
    # --- what the next execution would find
    "poison-the-interpreter": """
        import builtins, gc, json, asyncio, io, random
        gc.unfreeze()
        for name in ("print", "open", "len", "isinstance", "__import__", "compile", "eval"): setattr(builtins, name, None)
        for name in [*sys.modules]:
            if name not in ("__main__",): sys.modules[name] = None
        json.dumps = json.loads = os.write = os.read = os._exit = None
        sys.path[:] = ["/tmp"]; sys.argv[:] = ["poisoned"]; os.environ["POISONED"] = "yes"
        class Poison: pass
        for each in gc.get_objects():
            if type(each) is dict and "run_program" in each: each["run_program"] = each["serve"] = None""",
    "poison-memory": """
        for value in (0, 1, 7, 42, 255): ctypes.c_int.from_address(id(value) + 24).value = 13
        ctypes.memset(id("print") + 48, 65, 5)
        ctypes.memset(id(object) + 16, 255, 64)""",
    "poison-code": """
        import gc, types
        gc.unfreeze()
        for each in gc.get_objects():
            if isinstance(each, types.FunctionType) and each.__module__ == "__main__":
                try: each.__code__ = (lambda *a, **k: None).__code__
                except ValueError: pass""",
    "poison-signals-and-threads": """
        import atexit, faulthandler, signal, threading, time
        for number in range(1, 65): attempt(lambda: signal.signal(number, signal.SIG_IGN))
        atexit.register(lambda: leaked("at exit")); attempt(faulthandler.enable)
        sys.setswitchinterval(1000); sys.setrecursionlimit(50000); sys.setprofile(lambda *a: None); threading.setprofile(lambda *a: None)
        threading.Thread(target=lambda: time.sleep(600), daemon=False).start()
        os.register_at_fork(before=lambda: leaked("a fork"), after_in_child=lambda: leaked("a child"))""",
    # --- its own end
    "goes-on-after-its-end": """
        import threading
        def burn():
            while True: pass
        for _ in range(4): threading.Thread(target=burn).start()
        sys.setswitchinterval(1e-6)""",
    "forks-at-its-end": """
        import atexit, weakref
        class Last:
            def __del__(self): os.fork()
        kept = Last(); kept.itself = kept
        atexit.register(os.fork); weakref.finalize(kept, os.fork)
        sys.exitfunc = os.fork""",
    "ends-while-it-is-encoded": """
        from collections.abc import Mapping
        class Late(Mapping):
            def __len__(self): return 1
            def __iter__(self): os._exit(0)
            def __getitem__(self, name): os._exit(0)
        Late()""",
    "ends-in-a-destructor": "class Late:\n    def __del__(self): os._exit(17)\nLate()",
    "stops-itself": """
        import signal, time
        for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN): attempt(lambda: os.kill(os.getpid(), number), lambda got: leaked("a stop")); attempt(lambda: signal.raise_signal(number))
        attempt(lambda: signal.setitimer(0, 1), lambda got: leaked("a timer"))
        refused("timer_create", 0, 0, bytearray(8))""",
    "an-object-that-will-not-be-read": """
        class Strange(Exception):
            def __str__(self): raise SystemExit(3)
            __repr__ = __str__
            def __getattribute__(self, name): raise KeyboardInterrupt
        raise Strange""",
    "a-class-that-lies": """
        class Lie(str):
            def encode(self, *a): return b"LEA" + b"KED"
            def __class__(self): raise MemoryError
        class Number(int):
            def __repr__(self): return "],[" * 99
            __str__ = __int__ = __index__ = __repr__
        [Lie("x"), Number(3), {Lie("k"): Number(4)}, float.__new__(type("F", (float,), {"__repr__": lambda self: "LEA" + "KED"}), 1)]""",
    # --- frames
    "closes-its-pipes": "os.close(3); 'closed'",
    "closes-its-pipes-and-stays": "import time; os.closerange(0, 99); time.sleep(60)",
    "duplicates-its-pipes": "\nfor number in range(7, 60): os.dup2(3, number)\nos.dup2(0, 3); await tools.echo(a=1)",
    "pipes-that-do-not-block": "import fcntl\nfcntl.fcntl(3, fcntl.F_SETFL, os.O_NONBLOCK)\n'x' * 900_000",
    "writes-garbage": "\nwhile True: os.write(3, os.urandom(4096))",
    "writes-nothing-but-zeros": "os.write(3, bytes(1 << 16)); 'real'",
    "a-huge-frame": f"{_FRAMES}\nsend(19, b'[]', length=0xFFFFFFFF)\nwhile True: os.write(3, bytes(1 << 16))",
    "a-slow-frame": f"{_FRAMES}\nimport time\nfor byte in frame(19, b'[\"value\",' + b' ' * 10**6): os.write(3, bytes([byte])); time.sleep(0.02)",
    "every-kind-of-frame": f"{_FRAMES}\nfor kind in (0, 1, 2, 3, 16, 21, 255): send(kind, b'[1]')",
    "a-wrong-nonce": f"{_FRAMES}\nsend(19, b'[\"value\",\"FORGED\",[],0,[]]', nonce=bytes(16)); 'real'",
    "two-exits": f"{_FRAMES}\nsend(19, b'[\"value\",1,[],0,[]]'); send(19, b'[\"value\",2,[],0,[]]'); send(17, b'[1,\"echo\",{{}}]')",
    "two-outcomes": f"{_FRAMES}\nsend(20, b'[\"value\",1]'); send(20, b'[\"value\",2]')",
    "an-exit-that-is-deep": _exit('b\'["value",\' + b"[" * 900_000'),
    "an-exit-with-a-huge-number": _exit('b\'["value",\' + b"9" * 900_000 + b",[],0,[]]"'),
    "an-exit-with-huge-numbers-of-other-things": _exit(
        'b\'["value",1,[[%b,"t",null,"",false]],-%b,[]]\' % (b"9" * 4300, b"9" * 4300)'
    ),
    "an-exit-with-places": _exit(
        'b\'["error",["x","N","m",%b,null],[],0,[]]\' % json_text(\'\\n\'.join([\'File "corral:program.py", line 9999999:9999999\'] * 20000))'
    ),
    "an-exit-with-a-place-of-nothing": _exit(
        'b\'["error",["x","N","m",%b,null],[],0,[]]\' % json_text(\'File "corral:program.py", line 0:0\')'
    ),
    "an-exit-that-is-rejected": _exit('b\'["rejected",["program_rejected","","","",null],[],0,[]]\''),
    "an-error-that-is-rejected": _exit('b\'["error",["program_rejected","","","",null],[],0,[]]\''),
    "an-exit-of-the-host": _exit('b\'["error",["program_timeout","ProgramTimeout","x","",null],[],0,[]]\''),
    "an-exit-with-bad-tags": _exit('b\'["value",{"$bytes":"@"},[],0,[]]\'', flags=1),
    "an-exit-that-is-not-text": _exit('b\'["value","\\xff\\xfe\\xed\\xa0\\x80",[],0,[]]\''),
    "an-exit-of-names": _exit('b\'["error",["\\u0000","\\ud800","\\ud800","\\ud800","\\ud800"],[],0,["\\ud800"]]\''),
    "an-exit-of-many-remarks": _exit('b\'["value",1,[],0,[%b]]\' % b",".join([b\'"%b"\' % (b"r" * 40000)] * 20)'),
    "a-log-of-another-level": f'{_FRAMES}\nsend(18, b\'["fatal","x"]\')',
    "calls-of-other-tools": f"""{_FRAMES}
for number, name in enumerate((b'"__class__"', b'"echo.__globals__"', b'"../echo"', b'"\\\\u0000"', b'"' + b"e" * 150 + b'"')): send(17, b"[%d,%b,{{}}]" % (number, name))
import time; time.sleep(0.2); "sent" """,
    "calls-with-odd-numbers": f"{_FRAMES}\nfor number in (b'0', b'-1', b'1', b'1', b'9' * 500, b'true', b'1.5'): send(17, b'[%b,\"echo\",{{}}]' % number)",
    "more-calls-than-allowed": f"{_FRAMES}\nfor number in range(1000): send(17, b'[%d,\"echo\",{{}}]' % number)",
    "replies-that-nobody-reads": f"{_FRAMES}\nimport time\nfor number in range(40): send(17, b'[%d,\"big\",{{}}]' % number); time.sleep(0.01)\n'done'",
    "a-flood-of-output": "\nwhile True: print('x' * 100_000)",
    "a-flood-of-the-engine's-output": "\nwhile True: os.write(2, bytes(1 << 16))",
    "a-flood-of-empty-lines": "\nfor _ in range(100_000): print()",
    # --- limits
    "stack-of-c": """
        sys.setrecursionlimit(10**9)
        value = []
        for _ in range(10**6): value = [value]
        repr(value)""",
    "stack-of-python": "sys.setrecursionlimit(10**9)\ndef f(n): return sorted([n], key=f)\nf(0)",
    "stack-of-threads": """
        import threading, time
        threading.stack_size(1 << 15)
        for _ in range(1000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        time.sleep(15); leaked("a thousand threads")""",
    "huge-integers": "\nvalue = 7\nwhile True: value *= value",
    "regular-expressions": "import re\nre.match('(?:a|a|b)*?c', 'a' * 40)",
    "zip-bomb": """
        import bz2, lzma, zlib
        kept = []
        for each in (zlib, bz2, lzma):
            bomb = each.compress(bytes(1 << 24))
            for _ in range(8): kept.append(each.decompress(bomb))
        leaked("384 MB")""",
    "processor-time-of-many-threads": """
        import hashlib, threading
        data = bytes(1 << 22)
        def burn():
            while True: hashlib.sha256(data)
        for _ in range(8): threading.Thread(target=burn).start()
        burn()""",
    "memory-of-c": "libc.malloc.restype = ctypes.c_void_p\nwhile True: taken(libc.malloc(1 << 20))\n",
    "memory-of-mappings": "\nwhile True: taken(system('mmap', 0, 1 << 20, 3, 0x22, -1, 0))",
    "memory-of-reservations": """
        place = system("mmap", 0, 1 << 33, 0, 0x4022, -1, 0)
        for number in range(1 << 13):
            if system("mprotect", place + (number << 20), 1 << 20, 3) < 0: break
            taken(place + (number << 20))""",
    "memory-of-the-heap": """
        end = system("brk", 0)
        while system("brk", end + (1 << 20)) == end + (1 << 20): taken(end); end += 1 << 20""",
    "memory-of-a-larger-mapping": """
        place, size = system("mmap", 0, 1 << 20, 3, 0x22, -1, 0), 1 << 20
        while (place := system("mremap", place, size, size + (1 << 20), 1)) > 0: taken(place + size); size += 1 << 20""",
    "memory-of-files": """
        library = os.open(os.__file__, 0)
        while (place := system("mmap", 0, 1 << 20, 1, 2, library, 0)) > 0:
            if system("mprotect", place, 1 << 15, 3) < 0: break
            ctypes.memset(place, 1, 1 << 15); taken(0)""",
    "memory-of-generators": "\nkept = []\nwhile True: kept.append((each for each in range(3))); len(kept) % 10000 or taken(0)",
    "memory-of-text": "\ntext = 'x'\nwhile True: text += text; taken(0)",
}
"""Bodies of programs, by name."""

_names = [*PYTHON_OWN]
PROBES = frozenset(_names[: _names.index("another-architecture")])
"""Those that come to their own end; one that does not has got somewhere."""
HANGS = frozenset(
    {"closes-its-pipes-and-stays", "a-huge-frame", "a-slow-frame", "a-flood-of-the-engine's-output", "regular-expressions",
     "processor-time-of-many-threads", "duplicates-its-pipes", "goes-on-after-its-end",
     *(name for name in PYTHON_OWN if name.startswith("an-exit"))}
)  # fmt: skip
BOMBS = frozenset(name for name in PYTHON_OWN if name.startswith(("memory-of", "huge-int", "zip-bomb", "stack-of")))

SCIENCE: dict[str, str] = {
    "load-a-pickle": """
        import io, numpy, pickle
        class Bomb:
            def __reduce__(self): return os.system, ("echo LEA''KED > /tmp/pickled",)
        stream = io.BytesIO(); numpy.save(stream, numpy.array([Bomb()], dtype=object), allow_pickle=True); stream.seek(0)
        attempt(lambda: numpy.load(stream, allow_pickle=True))
        attempt(lambda: __import__("pandas").read_pickle(io.BytesIO(pickle.dumps(Bomb()))))""",
    "read-files": """
        import numpy, pandas
        for path in ("${SECRET}", "${SECRETJSON}", "file://${SECRET}", "/etc/passwd"):
            for way in (numpy.fromfile, numpy.loadtxt, numpy.genfromtxt, numpy.load, lambda path: numpy.memmap(path, mode="r")[:], pandas.read_csv, pandas.read_json,
                        pandas.read_table, pandas.read_fwf, pandas.read_pickle, lambda path: numpy.lib.npyio.DataSource().open(path).read()):
                attempt(lambda: way(path), lambda got: leaked(repr(got)[:99]))""",
    "write-files": """
        import numpy, pandas
        for place in ("/tmp", "/dev/shm", "/packages", "/guest", numpy.__path__[0]):
            for act in (lambda: numpy.save(place + "/corral-numbers", [1]), lambda: numpy.arange(3).tofile(place + "/corral-numbers"), lambda: numpy.memmap(place + "/corral-map", mode="w+", shape=3),
                        lambda: pandas.DataFrame({"a": [1]}).to_csv(place + "/corral-frame"), lambda: pandas.DataFrame({"a": [1]}).to_pickle(place + "/corral-frame")):
                attempt(act, lambda got: leaked(place))""",
    "read-addresses": """
        import pandas
        for address in ("http://127.0.0.1:${PORT}/", "ftp://127.0.0.1:${PORT}/", "s3://bucket/key"):
            for way in (pandas.read_csv, pandas.read_json, pandas.read_html, pandas.read_xml): attempt(lambda: way(address), lambda got: leaked(address))""",
    "native-pointers": """
        import numpy
        for path in ("/lib/x86_64-linux-gnu/libc.so.6", "${SECRET}", "corral-not-there"): attempt(lambda: numpy.ctypeslib.load_library(path, "."), lambda got: "SECRET" in path and leaked(path))
        window = numpy.ctypeslib.as_array((ctypes.c_char * 64).from_address(id(window_of := b"x" * 64)))
        attempt(lambda: numpy.lib.stride_tricks.as_strided(numpy.zeros(1), (1 << 20,), (4096,)).sum())""",
    "other-packages": """
        import importlib, pkgutil
        for name in ("corral", "pydantic", "anyio", "pytest", "deno", "pip", "cryptography", "setuptools", "_pytest", "site_packages"):
            attempt(lambda: importlib.import_module(name), lambda got: leaked(f"import {name}"))
        seen = {each.name for each in pkgutil.iter_modules()}
        if seen & {"corral", "pydantic", "anyio", "deno"}: leaked(str(seen))
        folders = {os.path.dirname(os.path.realpath(path + "/numpy")) for path in sys.path} | {os.path.dirname(os.path.dirname(os.__file__)) + f"/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"}
        for folder in folders:
            attempt(lambda: [each for each in os.listdir(folder) if "pydantic" in each][0], lambda got: "site-packages" in folder or leaked(f"{got} in {folder}"))
            for name in ("corral/__init__.py", "pydantic/__init__.py", "pip/__init__.py", "_editable_impl_corral.pth", "setuptools/__init__.py"):
                attempt(lambda: open(f"{folder}/{name}").read(1), lambda got: leaked(f"{folder}/{name}"))""",
    "memory-of-arrays": "import numpy\nkept = []\nwhile True: kept.append(numpy.ones(1 << 17)); taken(0)",
    "memory-of-frames": "import pandas\nframe = pandas.DataFrame({'a': range(1000)})\nwhile True: frame = pandas.concat([frame, frame]); taken(0)",
    "poison-packages": """
        import numpy, pandas
        numpy.array = pandas.DataFrame = None
        ctypes.memset(id(numpy.ndarray) + 24, 0, 64)""",
}
"""Of programs that have numpy and pandas."""

CONTROL: dict[str, str] = {
    "own-read-secret": "-file",
    "own-read-by-syscall": "-file",
    "own-list-directories": "-name",
    "own-read-etc": "/etc/passwd",
    "own-write-anywhere": "overwritten",
    "own-links": "a link in /tmp",
    "own-stat-host-files": "which files exist",
    "own-watch-files": "inotify_init1",
    "own-dbm-and-temporary-files": "a file",
    "own-proc-of-everybody": "/environ",
    "own-pipes-of-others-by-proc": "it has",
    "own-memory-and-descriptors-of-others": "pidfd_open",
    "own-channels-to-other-programs": "futex",
    "own-fork": "forked",
    "own-spawn": "spawned",
    "own-socket-families": "socket",
    "own-connect": "reached a listener",
    "own-unix-sockets": "reached a listener",
    "own-inherit-by-socketpair": "descriptors can be sent",
    "own-kernel-surface": "timerfd_create",
    "own-process-settings": "prctl",
    "own-shared-memory": "-shared-memory",
    "own-execute-from-memory": "a file in memory",
    "py-escape-21": "-file",
    "py-escape-25": "-file",
    "py-escape-27": "-environment",
    "py-escape-53": "reached a listener",
    "py-escape-55": "reached a shared listener",
    "py-escape-59": "-file",
}
"""Attacks that get out where there is no jail, and what shows it. Only such as do the harness itself no harm: one that
traces or signals its parent would stop what all the others are forked from."""
