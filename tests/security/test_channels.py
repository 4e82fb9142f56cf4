"""Programs of two organizations at the same time: what one does with what both may read, the other does not notice."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionContext, ExecutionResult, define_tool
from corral.containment import Tier
from corral.sandboxes import CPythonSandbox
from tests.security.modes import TIERS

pytestmark = pytest.mark.anyio

SECONDS = 20
SENDER, RECEIVER = ExecutionContext(organization_id="acme"), ExecutionContext(organization_id="evil")

# Both map the same page of the standard library: which futex a process waits for, or wakes, the kernel tells by the page.
COMMON = """
import ctypes, fcntl, os, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = libc.mmap.restype = ctypes.c_long
FUTEX, CLOCK = (202, 228) if os.uname().machine == "x86_64" else (98, 113)
file = os.open(os.__file__, os.O_RDONLY)
page = ctypes.c_void_p(libc.mmap(None, ctypes.c_long(4096), 1, 2, file, ctypes.c_long(0)))
word = ctypes.c_uint.from_address(page.value).value
LOCK = "hhqqi4x"
def attempt(act):
    try: return act()
    except OSError: return None
"""
SEND = """
attempt(lambda: fcntl.fcntl(file, fcntl.F_SETLK, struct.pack(LOCK, fcntl.F_RDLCK, 0, 1000, 1, 0)))
attempt(lambda: fcntl.fcntl(file, 37, struct.pack(LOCK, fcntl.F_RDLCK, 0, 2000, 1, 0)))
attempt(lambda: fcntl.flock(os.open(os.__file__, os.O_RDONLY), fcntl.LOCK_EX))
waits = struct.pack("ll", SECONDS, 0)
threading.Thread(target=lambda: libc.syscall(FUTEX, page, 0, word, waits, None, 0), daemon=True).start()
await tools.meet(say=os.getpid())
"""
RECEIVE = """
def sees_lock(command, start):
    found = attempt(lambda: fcntl.fcntl(file, command, struct.pack(LOCK, fcntl.F_WRLCK, 0, start, 1, 0)))
    return found is not None and struct.unpack_from("h", found)[0] != fcntl.F_UNLCK
def sees_waiting():  # who waits comes to it a moment after it has said that it is here
    while (woken := libc.syscall(FUTEX, page, 1, 1, None, None, 0)) == 0: time.sleep(0.005)
    return woken > 0
def sees_flock():
    try: fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError: return True
    except OSError: return False
    return False
[name for name, seen in {
    "a lock": sees_lock(fcntl.F_GETLK, 1000),
    "a lock of a descriptor": sees_lock(36, 2000),
    "a lock of the whole file": sees_flock(),
    "who waits": sees_waiting(),
    "processor time": libc.syscall(CLOCK, ~OTHER << 3 | 2, ctypes.create_string_buffer(16)) == 0,
    "processes of the machine": libc.sysinfo(ctypes.create_string_buffer(256)) == 0,
    "room for pipes": attempt(os.pipe) is not None,
}.items() if seen]
"""


async def seen(tier: Tier) -> list[str]:
    """What the receiver sees of the sender."""
    come: list[Any] = []
    results: list[ExecutionResult] = []
    here, go = anyio.Event(), anyio.Event()

    async def meet(input: Any) -> None:
        come.append(input["say"])
        here.set()
        await go.wait()

    async def send() -> None:
        result = await corral.execute(COMMON + SEND.replace("SECONDS", str(SECONDS)), context=SENDER, language="python")
        assert result.error is None

    tool = define_tool(name="meet", execute=meet)
    sandbox = CPythonSandbox(tier=tier, pool_size=0)
    with anyio.fail_after(SECONDS):
        async with (
            Corral([tool], sandbox=sandbox, containment="none", check=False) as corral,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(send)
            await here.wait()
            program = COMMON + RECEIVE.replace("OTHER", str(come[0]))
            results.append(await corral.execute(program, context=RECEIVER, language="python"))
            go.set()
    assert results[0].error is None
    return results[0].value


@pytest.mark.parametrize("tier", TIERS)
async def test_a_program_sees_nothing_of_another_organizations(tier: Tier) -> None:
    assert await seen(tier) == []


async def test_without_a_jail_it_does() -> None:
    assert await seen("none") == [
        "a lock",
        "a lock of a descriptor",
        "a lock of the whole file",
        "who waits",
        "processor time",
        "processes of the machine",
        "room for pipes",
    ]
