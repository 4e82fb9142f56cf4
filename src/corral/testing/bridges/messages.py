"""Tests of messages that a bridge must refuse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol

import anyio

from corral.bridges import BridgeHost, BridgeProtocol
from corral.testing.bridges.suite import BridgeSuite
from corral.types import Endpoint, HttpEndpoint, Limits


class SendMessage(Protocol):
    """Sends bytes instead of a message with calls; returns the error code, or None after success."""

    async def __call__(self, message: bytes, pause: Callable[[], Awaitable[object]] | None = None, /) -> str | None:
        """With `pause`, sends the message byte by byte, and awaits `pause()` after each.

        Returns as soon as there is a reply, even if bytes are still missing.
        """
        ...


_DEEP = 100_000
_LONG = 20_000_000
_SLOW_SENDERS = 12
_BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "a byte": b"\x00",
    "no UTF-8": b'{"calls":"\xff\xfe"}',
    "half a message": b'{"calls":[{"sequence":1,"tool":"dou',
    "another shape": b'{"calls":{"tool":"double"}}',
    "a list": b"[]",
    "a number": b"7",
    "no JSON": b"double(1)",
    "numbers that are none": b'{"calls":[{"sequence":NaN,"tool":"double","input":{"number":Infinity}}]}',
    "depth": b"[" * _DEEP + b"]" * _DEEP,
    "depth without an end": b'{"a":' * _DEEP,
    "a long number": b"9" * 100_000,
    "tags of protobuf without an end": b"\xff" * 1_000,
    "a length of protobuf beyond its end": b"\x0a\xff\xff\xff\xff\x0f",
    "a group of protobuf within itself": b"\x0b" * 10_000,
}


class BridgeMessageSuite(BridgeSuite):
    """`BridgeSuite` for a protocol with untrusted clients: also implement `raw` and `message`."""

    def raw(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint
    ) -> AbstractAsyncContextManager[SendMessage]:
        """Opens an endpoint for arbitrary bytes, for the duration of the block."""
        raise NotImplementedError

    def message(self, tool: str, input: object) -> bytes:
        """Encodes a message with one call, for `raw`."""
        raise NotImplementedError

    async def test_what_is_no_message_is_refused_and_harms_nobody(self) -> None:
        async with (
            self._world() as world,
            self._guest(world) as call,
            world.protocol.serve(world.host, world.grant()) as endpoint,
            self.raw(world.protocol, world.host, endpoint) as send,
        ):
            for name, message in _BROKEN.items():
                assert await send(message) is not None, name
                assert (await call("double", {"number": 1})).value == 2
            assert world.ran == ["double"] * len(_BROKEN)

    async def test_a_message_over_its_bound_is_refused(self) -> None:
        async with (
            self._world() as world,
            world.protocol.serve(world.host, world.grant(limits=Limits(tool_input_bytes=1_000))) as endpoint,
            self.raw(world.protocol, world.host, endpoint) as send,
        ):
            assert await send(b"1" * _LONG) is not None

    async def test_a_message_of_nobody_is_refused_as_such(self) -> None:
        async with (
            self._world() as world,
            self._world() as other,
            world.protocol.serve(world.host, world.grant()) as endpoint,
        ):
            assert isinstance(endpoint, HttpEndpoint)
            for token in other.grants.issue(other.grant()), "x":
                async with self.raw(world.protocol, world.host, replace(endpoint, token=token)) as send:
                    for message in b"", b"{", b"[" * _DEEP:
                        assert await send(message) == "invalid_token"

    async def test_a_message_that_comes_drop_by_drop_is_served_and_keeps_nobody_waiting(self) -> None:
        async with (
            self._world() as world,
            self._guest(world) as call,
            world.protocol.serve(world.host, world.grant()) as endpoint,
            self.raw(world.protocol, world.host, endpoint) as send,
        ):
            message = self.message("nothing", {})
            sent = 0

            async def pause() -> None:
                nonlocal sent
                sent += 1
                if sent % 16 == 0:
                    assert (await call("double", {"number": sent})).value == 2 * sent

            assert await send(message, pause) is None
            assert (world.ran[0], world.ran.count("nothing")) == ("double", 1)

    async def test_messages_that_stop_halfway_keep_nobody_waiting_and_end_with_their_execution(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            grant, codes = world.grant(), list[str | None]()
            message = self.message("double", {"number": 1})
            started_count = 0
            all_started = anyio.Event()

            async def send_half(send: SendMessage) -> None:
                sent = 0

                async def pause() -> None:
                    nonlocal started_count, sent
                    sent += 1
                    if sent == len(message) // 2:
                        started_count += 1
                        if started_count == _SLOW_SENDERS:
                            all_started.set()
                        await anyio.sleep_forever()

                codes.append(await send(message, pause))

            async with (
                world.protocol.serve(world.host, grant) as endpoint,
                self.raw(world.protocol, world.host, endpoint) as send,
                anyio.create_task_group() as tasks,
            ):
                for _ in range(_SLOW_SENDERS):
                    tasks.start_soon(send_half, send)
                await all_started.wait()
                for number in range(10):
                    assert (await call("double", {"number": number})).value == 2 * number
                assert codes == []
                world.grants.close(grant)
            assert len(codes) == _SLOW_SENDERS
            assert None not in codes
            assert world.ran == ["double"] * 10
