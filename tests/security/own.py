"""Our attacks: what native code in the guest's process would try. Each says `leaked(...)` if it got anywhere.

They run after `native.js`, with Deno's every permission. What they print is searched for canaries as well.
"""

from __future__ import annotations

__all__ = ["OWN"]

# A program that writes "LEAKED exec" and ends; 64-bit ELF, one loaded segment.
_ELF = """
const code = x86
  ? [0xb8,1,0,0,0,0xbf,1,0,0,0,0x48,0x8d,0x35,0x10,0,0,0,0xba,12,0,0,0,0x0f,5,0xb8,60,0,0,0,0x31,0xff,0x0f,5]
  : [0x20,0,0x80,0xd2,0xe1,0,0,0x10,0x82,1,0x80,0xd2,0x08,8,0x80,0xd2,1,0,0,0xd4,0,0,0x80,0xd2,0xa8,0x0b,0x80,0xd2,1,0,0,0xd4];
const said = new TextEncoder().encode("LEA" + "KED exec\\n");
const size = 120 + code.length + said.length;
const elf = new DataView(new ArrayBuffer(size));
[0x7f,0x45,0x4c,0x46,2,1,1].forEach((byte, index) => elf.setUint8(index, byte));
elf.setUint16(16, 2, true); elf.setUint16(18, x86 ? 62 : 183, true); elf.setUint32(20, 1, true);
elf.setBigUint64(24, 0x400078n, true); elf.setBigUint64(32, 64n, true);
elf.setUint16(52, 64, true); elf.setUint16(54, 56, true); elf.setUint16(56, 1, true);
elf.setUint32(64, 1, true); elf.setUint32(68, 5, true); elf.setBigUint64(80, 0x400000n, true);
elf.setBigUint64(88, 0x400000n, true); elf.setBigUint64(96, BigInt(size), true);
elf.setBigUint64(104, BigInt(size), true); elf.setBigUint64(112, 4096n, true);
const bytes = new Uint8Array(elf.buffer);
bytes.set(code, 120); bytes.set(said, 120 + code.length);
"""

OWN: dict[str, str] = {
    "native-code-runs": "sys('write', 1, at('Native code runs.\\n'), 18)",
    # --- files
    "read-secret": "console.log(read('${SECRET}'), read('${SECRETJSON}'))",
    "read-by-syscall": """
        const fd = sys("openat", -100, at("${SECRET}"), 0);
        const into = new Uint8Array(200);
        sys("pread64", fd, at(into), 200, 0);
        console.log(new TextDecoder().decode(into));""",
    "list-directories": """
        for (const path of ["/", "/srv", "/srv/canary", "/tmp", "/run", "/home", "/root", "/etc"])
          try { console.log(fs.readdirSync(path).join(" ")) } catch (error) { console.log(error.code) }""",
    "read-etc": "for (const path of ['/etc/passwd', '/etc/shadow', '/etc/hosts', '/etc/resolv.conf', '/etc/ssl/openssl.cnf']) { const found = read(path); if (/root:|localhost|nameserver/.test(found)) leaked(path) }",
    "write-anywhere": """
        for (const directory of ["/tmp", "/var/tmp", "/dev/shm", "/run", "/srv/canary", "/", "/etc", "/proc/self/cwd", "/home", "/dev"])
          try { fs.writeFileSync(directory + "/corral-was-here", "x"); leaked(directory) } catch (error) { console.log(directory, error.code) }
        try { fs.writeFileSync("${SECRET}", "overwritten"); leaked("overwritten") } catch (error) { console.log(error.code) }""",
    "remove-and-rename": """
        for (const act of [() => fs.renameSync("${SECRET}", "${SECRET}.moved"), () => fs.unlinkSync("${SECRET}"), () => fs.chmodSync("${SECRET}", 0), () => fs.truncateSync("${SECRET}"), () => fs.rmSync("/srv/canary", { recursive: true })])
          try { act(); leaked(String(act)) } catch (error) { console.log(error.code) }""",
    "symlinks": """
        for (const place of ["/tmp", "/dev/shm", "/run", "/var/tmp", "."])
          try { fs.symlinkSync("${SECRET}", place + "/corral-link"); leaked("a link in " + place); console.log(read(place + "/corral-link")) } catch (error) { console.log(error.code) }""",
    "hard-links": """
        for (const place of ["/srv", "/tmp", "."])
          if (sys("linkat", -100, at("${SECRET}"), -100, at(place + "/corral-hard-link"), 0) === 0n) leaked(place);""",
    "channels-to-other-programs": """
        const file = sys("openat", -100, at(Deno.execPath()), 0), into = new Uint8Array(4096);
        const refused = (name, ...values) => { if (sys(name, ...values) >= 0n) leaked(name + " " + values.slice(0, 3)) };
        for (const command of [5, 6, 7, 36, 37, 38, 1032]) refused("fcntl", file, command, at(into));
        for (const command of [1024, 1026, 1031, 1033]) refused("fcntl", file, command, 1);
        for (const operation of [1, 2, 5, 6]) refused("flock", file, operation);
        const page = sys("mmap", 0, 4096, 1, 2, file, 0);
        if (page > 0n) refused("futex", page, 1, 1);
        refused("madvise", sys("mmap", 0, 4096, 3, 0x22, -1, 0), 4096, 12); refused("mincore", page, 4096, at(into));
        refused("utimensat", file, 0, 0, 0); refused("sysinfo", at(into)); refused("pipe2", at(into), 0);
        for (const pid of [Deno.pid, Deno.ppid, ${HOSTPID}]) refused("clock_gettime", ~pid << 3 | 2, at(into));""",
    "stat-host-files": """
        const exists = (path) => sys("statx", -100, at(path), 0, 0x7ff, at(new Uint8Array(256))) === 0n;
        if (exists("${SECRET}") && !exists("${SECRET}.not-there")) leaked("which files exist")""",
    "file-handles": """
        const handle = new Uint8Array(136); handle[0] = 128;
        if (sys("name_to_handle_at", -100, at("${SECRET}"), at(handle), at(new Uint8Array(8)), 0) === 0n) leaked("a file handle")""",
    "inotify": """
        try { const watcher = Deno.watchFs("/srv/canary"); leaked("watches"); watcher.close() } catch (error) { console.log(String(error)) }""",
    "devices": """
        for (const name of ["mem", "kmem", "port", "kmsg", "kvm", "fuse", "sda", "vda", "nvme0n1", "net/tun", "ptmx", "tty", "console", "vhost-net", "loop-control", "mapper/control", "uinput", "snapshot"])
          for (const flags of [0, 2]) { if (sys("openat", -100, at("/dev/" + name), flags | 0x100) >= 0n) leaked("/dev/" + name) }""",
    "make-a-device": """
        for (const place of ["/tmp", "/dev", "/dev/shm", "/run"]) if (sys("mknodat", -100, at(place + "/corral-mem"), 0o20666, 0x101) === 0n) leaked(place)""",
    "named-pipes": """
        for (const place of ["/tmp", "/dev/shm", "/run", "/srv/canary", "/"]) if (sys("mknodat", -100, at(place + "/corral-fifo"), 0o10666, 0) === 0n) leaked(place)""",
    # --- /proc
    "environ-of-everybody": """
        for (let pid = 1; pid < 400; pid++) { const found = read(`/proc/${pid}/environ`); if (found.length > 12) console.log(found) }
        console.log(read("/proc/self/environ"), read("/proc/thread-self/environ"));""",
    "root-of-everybody": """
        for (const pid of ["self", "thread-self", 1, ...Array.from({ length: 400 }, (_, pid) => pid + 2)])
          for (const way of ["root", "cwd"]) { const found = read(`/proc/${pid}/${way}/${SECRET}`); if (found.length > 12) console.log(found) }""",
    "command-lines": """
        for (let pid = 1; pid < 400; pid++) { const found = read(`/proc/${pid}/cmdline`); if (/python|sleep|unshare/.test(found)) leaked(found) }""",
    "listeners-of-the-host": """
        const port = (${PORT}).toString(16).toUpperCase().padStart(4, "0");
        for (const name of ["tcp", "tcp6", "udp", "unix"]) { const found = read("/proc/net/" + name); if (found.includes(":" + port) || found.includes("canary")) leaked("/proc/net/" + name) }""",
    "mounts-of-the-host": """
        for (const name of ["mountinfo", "mounts"]) { const found = read("/proc/self/" + name); if (/srv|ext4|overlay|xfs/.test(found)) leaked(name) }""",
    "kernel-settings": """
        for (const path of ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/proc/1/oom_score_adj", "/sys/fs/cgroup/cgroup.procs"])
          if (sys("openat", -100, at(path), 1) >= 0n) leaked(path)""",
    "memory-of-others": """
        for (const pid of [${HOSTPID}, 1, 2]) for (const flags of [0, 2])
          if (pid !== Deno.pid && sys("openat", -100, at(`/proc/${pid}/mem`), flags) >= 0n) leaked(`memory of ${pid}`)""",
    "descriptors-of-others": """
        for (let pid = 1; pid < 60; pid++) if (pid !== Deno.pid) for (let fd = 0; fd < 64; fd++) { const found = read(`/proc/${pid}/fdinfo/${fd}`); if (found.length > 12) { leaked(`descriptors of ${pid}`); break } }""",
    # --- descriptors
    "inherited-descriptors": """
        const into = new Uint8Array(4096);
        for (let fd = 3; fd < 65; fd++) { const got = sys("pread64", fd, at(into), 4096, 0); if (got > 0n) console.log(fd, new TextDecoder().decode(into.subarray(0, Number(got)))) }""",
    "write-inherited-descriptors": "for (let fd = 3; fd < 65; fd++) sys('write', fd, at('garbage!'), 8)",
    # --- network
    "tcp-by-syscall": """
        const fd = sys("socket", 2, 1, 0);
        if (sys("connect", fd, at(sockaddr(${PORT})), 16) === 0n) leaked("connected")""",
    "udp-by-syscall": """
        const fd = sys("socket", 2, 2, 0);
        if (sys("sendto", fd, at("hit"), 3, 0, at(sockaddr(${PORT})), 16) >= 0n) leaked("sent")""",
    "tcp-ipv6": "await (await Deno.connect({ hostname: '::1', port: ${PORT} })).write(new TextEncoder().encode('hit')); leaked('connected')",
    "tcp-fetch": "console.log(await (await fetch('http://127.0.0.1:${PORT}/')).text())",
    "tcp-listen": "const server = Deno.listen({ hostname: '127.0.0.1', port: 0 }); leaked('listens on ' + server.addr.port)",
    "dns": "console.log(await Deno.resolveDns('canary.test', 'A', { nameServer: { ipAddr: '127.0.0.1', port: ${PORT} }, signal: AbortSignal.timeout(500) }))",
    "raw-sockets": """
        for (const [family, type, protocol] of [[2, 3, 1], [2, 3, 255], [17, 3, 768], [16, 3, 0], [16, 3, 15], [38, 5, 0], [40, 1, 0], [31, 3, 1], [2, 1, 132]])
          if (sys("socket", family, type, protocol) >= 0n) leaked(`socket ${family} ${type} ${protocol}`)""",
    "unix-socket": "await Deno.connect({ transport: 'unix', path: '${SOCKET}' }); leaked('connected')",
    "unix-socket-by-syscall": """
        const address = unixaddr("${SOCKET}");
        if (sys("connect", sys("socket", 1, 1, 0), at(address), address.length) === 0n) leaked("connected")""",
    "abstract-socket": """
        const address = unixaddr("\\0codemode-canary").slice(0, -1);
        if (sys("connect", sys("socket", 1, 1, 0), at(address), address.length) === 0n) leaked("connected")""",
    "message-bus": """
        for (const path of ["/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/docker.sock"]) {
          const address = unixaddr(path);
          if (sys("connect", sys("socket", 1, 1, 0), at(address), address.length) === 0n) leaked(path) }""",
    # --- processes and signals
    "signal-the-host": """
        for (const act of [() => Deno.kill(${HOSTPID}, "SIGKILL"), () => process.kill(${HOSTPID}, 0), () => process.kill(1, 0), () => process.kill(2, 0)])
          try { act(); if (!/\\(1, 0|\\(2, 0/.test(String(act))) leaked(String(act)) } catch (error) { console.log(String(error)) }""",
    "signal-by-syscall": """
        for (const signal of [0, 19, 15, 9]) if (sys("kill", ${HOSTPID}, signal) === 0n || sys("tkill", ${HOSTPID}, signal) === 0n) leaked("signalled with " + signal)""",
    "signal-by-descriptor": """
        const fd = sys("pidfd_open", ${HOSTPID}, 0);
        if (fd >= 0n && sys("pidfd_send_signal", fd, 9, 0, 0) === 0n) leaked("signalled");
        if (fd >= 0n && sys("pidfd_getfd", fd, 1, 0) >= 0n) leaked("took a descriptor")""",
    "signal-the-group": "sys('kill', 0, 15); sys('kill', 0, 9)",
    "signal-everybody": "sys('kill', -1, 15); sys('kill', -1, 9)",
    "signal-the-parent": "const parent = Deno.ppid; if (parent > 1 && sys('kill', parent, 9) === 0n) leaked('killed its parent')",
    "ptrace": """
        for (const request of [16, 0x4206]) if (sys("ptrace", request, ${HOSTPID}, 0, 0) === 0n) leaked("traces a process of the host")""",
    "memory-by-syscall": """
        const into = new Uint8Array(64);
        for (const pid of [${HOSTPID}, 1, 2, Deno.ppid]) if (pid > 0 && pid !== Deno.pid && sys("process_vm_readv", pid, at(words(at(into), 64)), 1, at(words(0x400000, 64)), 1, 0) > 0n) leaked(`memory of ${pid}`)""",
    "limits-of-others": """
        if (sys("prlimit64", ${HOSTPID}, 7, at(words(1, 1)), 0) === 0n) leaked("set limits of another process");
        if (sys("setpriority", 0, ${HOSTPID}, 19) === 0n) leaked("set the priority of another process")""",
    "raise-own-limits": """
        for (const [name, resource] of [["core", 4], ["file size", 1], ["processes", 6], ["memory", 2]]) {
          const now = new BigUint64Array(2);
          if (sys("prlimit64", 0, resource, 0, at(new Uint8Array(now.buffer))) !== 0n) continue;
          if (name === "core" && now[1] > 0n) leaked("core dumps are possible");
          if (sys("prlimit64", 0, resource, at(words(-1, -1)), 0) === 0n && now[1] !== 0xffffffffffffffffn) leaked("raised " + name) }""",
    "command": "const out = await new Deno.Command('/bin/cat', { args: ['${SECRET}'] }).output(); leaked('ran'); console.log(new TextDecoder().decode(out.stdout))",
    "shell": "libc({ system: { parameters: ['buffer'], result: 'i32' } }).system(text(`cat ${SECRET}; echo LEA''KED shell`))",
    "spawn-the-engine": """
        for (const path of new Set(["/deno", "/engine", "/proc/self/exe", Deno.execPath()])) {
          const pid = new Int32Array(2);
          const got = libc({ posix_spawn: { parameters: ["buffer", "buffer", "pointer", "pointer", "buffer", "buffer"], result: "i32" } }).posix_spawn(pid, text(path), null, null, words(at(path), at("--version"), 0), words(0));
          console.log(path, got, pid[0]);
          if (got === 0) leaked("spawned " + path) }""",
    "child-process": "const { execFileSync } = await import('node:child_process'); console.log(execFileSync('/usr/bin/env').toString()); leaked('ran')",
    "fork": "const pid = libc({ fork: { parameters: [], result: 'i32' }, _exit: { parameters: ['i32'], result: 'void' } }); const got = pid.fork(); if (got === 0) pid._exit(0); if (got > 0) leaked('forked')",
    "fork-by-syscall": "if (x86) { const got = sys('fork'); if (got === 0n) libc({ _exit: { parameters: ['i32'], result: 'void' } })._exit(0); if (got > 0n) leaked('forked') } else { const got = sys('clone', 17); if (got === 0n) libc({ _exit: { parameters: ['i32'], result: 'void' } })._exit(0); if (got > 0n) leaked('forked') }",
    "clone3": """
        const asked = new BigUint64Array(11); asked[4] = 17n;
        const got = sys("clone3", at(new Uint8Array(asked.buffer)), 88);
        if (got === 0n) libc({ _exit: { parameters: ["i32"], result: "void" } })._exit(0);
        if (got > 0n) leaked("cloned")""",
    "daemon": "const got = libc({ daemon: { parameters: ['i32', 'i32'], result: 'i32' } }).daemon(1, 1); if (got === 0) { leaked('went to the background'); for (;;); }",
    "execute-a-host-program": """
        for (const path of ["/bin/sh", "/usr/bin/env", "/bin/echo", "/usr/bin/python3"])
          sys("execve", at(path), at(words(at(path), at("-c"), at("echo LEA''KED exec"), 0)), at(words(0)))""",
    "execute-from-memory": _ELF
    + """
        const fd = sys("memfd_create", at("x"), 1);
        if (fd >= 0n) { sys("write", fd, at(bytes), bytes.length); sys("execveat", fd, at(""), at(words(at("x"), 0)), at(words(0)), 0x1000) }""",
    "execute-from-a-file": _ELF
    + """
        for (const place of ["/tmp", "/dev/shm", "/run", "/var/tmp", "."])
          try { fs.writeFileSync(place + "/corral-elf", bytes, { mode: 0o755 }); sys("execve", at(place + "/corral-elf"), at(words(at("x"), 0)), at(words(0))) } catch (error) { console.log(error.code) }""",
    "workers": "const worker = new Worker(URL.createObjectURL(new Blob([`try { postMessage(Deno.readTextFileSync('${SECRET}')) } catch (error) { postMessage(String(error)) }`], { type: 'application/javascript' })), { type: 'module' }); console.log(await new Promise((done) => { worker.onmessage = (event) => done(event.data); worker.onerror = (event) => done(event.message) }))",
    # --- the kernel
    "namespaces": """
        for (const [name, flag] of [["user", 0x10000000], ["mount", 0x20000], ["pid", 0x20000000], ["network", 0x40000000], ["ipc", 0x8000000]])
          if (sys("unshare", flag) === 0n) leaked(name)""",
    "enter-namespaces": """
        for (const pid of [1, 2, "${HOSTPID}"]) for (const name of ["mnt", "net", "pid", "user"]) {
          const fd = sys("openat", -100, at(`/proc/${pid}/ns/${name}`), 0);
          if (fd >= 0n && sys("setns", fd, 0) === 0n) leaked(`${name} of ${pid}`) }""",
    "mounts": """
        if (sys("mount", at("none"), at("/tmp"), at("tmpfs"), 0, 0) === 0n) leaked("mount");
        if (sys("fsopen", at("tmpfs"), 0) >= 0n) leaked("fsopen");
        if (sys("open_tree", -100, at("/"), 1) >= 0n) leaked("open_tree");
        if (sys("chroot", at("/tmp")) === 0n) leaked("chroot")""",
    "io-uring": "if (sys('io_uring_setup', 4, at(new Uint8Array(240))) >= 0n) leaked('io_uring')",
    "tracing-calls": """
        const attributes = new Uint8Array(128); attributes[0] = 1; attributes[4] = 128;
        if (sys("perf_event_open", at(attributes), 0, -1, -1, 0) >= 0n) leaked("perf");
        if (sys("bpf", 0, at(new Uint8Array(128)), 128) >= 0n) leaked("bpf");
        if (sys("userfaultfd", 1) >= 0n) leaked("userfaultfd");
        if (sys("fanotify_init", 0, 0) >= 0n) leaked("fanotify");
        if (sys("syslog", 10, 0, 0) >= 0n) leaked("the kernel's log")""",
    "keyrings": """
        if (sys("keyctl", 0, -3, 1) >= 0n) leaked("the session's keyring");
        if (sys("add_key", at("user"), at("corral"), at("x"), 1, -4) >= 0n) leaked("added a key")""",
    "shared-memory": """
        const id = sys("shmget", 0x0c0ffee, 0, 0);
        if (id >= 0n) { const where = sys("shmat", id, 0, 0); if (where !== -1n) console.log(Deno.UnsafePointerView.getCString(Deno.UnsafePointer.create(where))) }
        if (sys("shmget", 0x0c0fff0, 4096, 0o1666) >= 0n) leaked("made a segment");
        if (sys("msgget", 0x0c0fff1, 0o1666) >= 0n) leaked("made a queue");
        if (sys("mq_open", at("corral-queue"), 0o102, 0o666, 0) >= 0n) leaked("made a POSIX queue")""",
    "host-name": "if (sys('sethostname', at('taken'), 5) === 0n) leaked('renamed the host')",
    "loosen-the-filter": """
        const allow = new Uint8Array(8); allow[0] = 6; new DataView(allow.buffer).setUint32(4, 0x7fff0000, true);
        const program = new DataView(new ArrayBuffer(16)); program.setUint16(0, 1, true); program.setBigUint64(8, at(allow), true);
        sys("seccomp", 1, 0, at(new Uint8Array(program.buffer)));
        if (sys("io_uring_setup", 4, at(new Uint8Array(240))) >= 0n) leaked("a later filter loosened an earlier one")""",
}
"""Name → code."""
