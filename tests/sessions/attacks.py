"""Ways out of a session's directories that programs in Python try: each must be refused."""

ATTACKS = {
    "symlink": "os.symlink('/etc/passwd', 'l')",
    "hard link": "os.link('f', 'hard')",
    "fifo": "os.mkfifo('fifo')",
    "device": "os.mknod('dev', 0o20666, os.makedev(1, 3))",
    "unnamed file": "os.open('.', os.O_TMPFILE | os.O_RDWR)",
    "socket with a path": "__import__('socket').socket(1).bind('s')",
    "extended attribute": "os.setxattr('f', 'user.a', b'x')",
    "owner": "os.chown('f', 0, 0)",
    "set-id bit": "os.chmod('f', 0o4755)",
    "set-id bit by a descriptor": "os.fchmod(os.open('f', os.O_RDONLY), 0o2755)",
    "set-id bit of a new file": "os.open('new', os.O_CREAT | os.O_WRONLY, 0o4755)",
    "execution": "os.execv('f', ['f'])",
    "the jail's root": "open('/evil', 'w')",
    "the guest's code": "open('/guest/guest.py', 'a')",
    "above the root": "open('../../../../../../etc/shadow')",
    "the host's folder": "os.listdir('/tmp')",
    "mapping to run": "__import__('mmap').mmap(-1, 4096, prot=7)",
    "shared mapping": "__import__('mmap').mmap(os.open('f', os.O_RDWR), 1)",
    "mount": "__import__('ctypes').CDLL(None).mount(b'/', b'/root', b'none', 4096, None) and 1 / 0",
    "another namespace": "__import__('ctypes').CDLL(None).unshare(0x10000000) and 1 / 0",
}
