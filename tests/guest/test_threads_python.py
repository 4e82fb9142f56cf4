"""Threads of Python programs: callbacks to the event loop, and console output."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from contextlib import closing

import pytest

from corral.guest.python import loop as loop_module
from corral.guest.python.client import Reading
from corral.guest.python.console import Console, Stream
from corral.guest.python.loop import GuestLoop


class Source:
    """Has no replies. When asked to flush, it lets a thread wake the program and end."""

    def __init__(self, loop: GuestLoop, descriptor: int, *, expects: bool) -> None:
        self.descriptor = descriptor
        self.expects = expects
        self.woken = loop.create_future()
        self._thread = threading.Thread(target=loop.call_soon_threadsafe, args=(self.woken.set_result, True))

    def flush(self) -> None:
        if self._thread.ident is None:
            self._thread.start()
            self._thread.join()

    def receive(self) -> None:
        raise AssertionError("the loop waits for a reply, though it has something to do")


@pytest.mark.parametrize("expects", [False, True])
def test_a_thread_that_wakes_the_program_and_ends_is_heard(monkeypatch: pytest.MonkeyPatch, expects: bool) -> None:
    monkeypatch.setattr(loop_module, "count_threads", lambda: 0)  # those of the tests would count
    silent, other = socket.socketpair()
    with closing(GuestLoop()) as loop, silent, other:
        loop.source = source = Source(loop, silent.fileno(), expects=expects)
        assert loop.run_until_complete(source.woken)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_that_print_at_once_lose_and_repeat_nothing() -> None:
    sent: list[bytes] = []
    stream = Stream(Console(sent.append, left=1_000_000), "log", "<stdout>")

    def work(name: str) -> None:
        for number in range(2_000):
            stream.write(f"{name} {number}\n")

    threads = [threading.Thread(target=work, args=[name]) for name in "abcd"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert Counter(json.loads(entry)[1] for entry in sent) == Counter(
        f"{name} {n}" for name in "abcd" for n in range(2_000)
    )


def test_a_stream_is_closed_as_its_reply_ends_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:

    def set_stop(_: Reading, __: object) -> None: ...

    stops = iter([lambda: None, None])  # it is taken away once it has been looked at
    monkeypatch.setattr(Reading, "stop", property(lambda _: next(stops), set_stop), raising=False)
    reading = Reading()
    reading.tell("cancel")
    assert reading.read.is_set()
