"""The image of guests in WebAssembly: QuickJS with the guest's code already evaluated, as a compiled module.

`python -I -m corral.guest.wasm.image` makes one from a request on standard input. It is a separate process, so that
the host never loads the engine.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from corral.guest.wasm.engine import Engine, Instance, WasmError

MODULE_SHA256 = "647ab11ae29cc6d39a6d17d3aa1e7a6a0b5fb9c44b4864475a18bc644f926050"
"""Digest of `_guest.wasm` of quickjs-rs 0.2.6: QuickJS-ng for WASI preview 1, with an interface of handles."""
MODULE = "image.cwasm"
HANDLES = "handles.json"
"""Files of an image: the compiled module, and the numbers of the guest's functions in it."""
INTERPRETS = "interprets"
"""Member of the handles: 1 for an image that Pulley interprets."""
IDENTITY, TIMED = "identity", "timed"
"""Members of the handles: digest of the image's memory, without the pages `timed`, which contain the time of its start.
Two images of the same code, on any machine, differ only in those."""
BUFFER_BYTES = 1 << 16
_TEXT_AT = 1_175_144
"""Address of the module's variables that `qjs_last_ptr` and `qjs_last_len` return, as reading them costs less."""
_TEXT = struct.Struct("<II")
STACK_END = 1 << 20
"""End of the stack in memory, below which nothing is of use between two calls."""
_GARBAGE = "for (let n = 0; n < 100000; n++) [{ n }]"
"""Has the engine collect garbage, which also sets the size at which it will do so next. Otherwise every instance would
begin with a collection, which writes to all of its memory."""
_SMALLEST_HOLE, _LARGEST_HOLE = 8, 1 << 20
_BAKE_BYTES = 256 << 20
PAGE = 4096
_WASM_PAGE = 1 << 16
_HEADER = b"\0asm\1\0\0\0"
_MEMORY, _CODE, _DATA, _DATA_COUNT = 5, 10, 11, 12
"""Numbers of sections (https://webassembly.github.io/spec/core/binary/modules.html)."""


def _refuse(_: int, __: int, ___: int) -> None:
    raise WasmError("the guest called its server while its image was made")


def text_in(instance: Instance, handle: int) -> str:
    """Returns the text of a handle. Raises the errors of `bytes_in`."""
    return bytes_in(instance, handle).decode("utf-8", "replace")


def bytes_in(instance: Instance, handle: int) -> bytes:
    """Returns the text of a handle in the engine's UTF-8, which can contain lone surrogates. The handle stays valid.

    Raises:
        WasmError: it is not a text.
    """
    if instance.call("get_string", handle):
        raise WasmError("a value of the guest is not text")
    address, size = _TEXT.unpack(instance.read(_TEXT_AT, _TEXT.size))
    data = instance.read(address, size)
    if size > BUFFER_BYTES:  # otherwise the next call frees it
        instance.call("qjs_result_free")
    return data


class _Maker:
    def __init__(self, engine: Engine) -> None:
        self.instance = Instance(engine)

    def put(self, data: bytes) -> int:
        address = self.instance.call("qjs_alloc", len(data))
        self.instance.write(address, data)
        return address

    def number(self, address: int) -> int:
        return int.from_bytes(self.instance.read(address, 4), "little")

    def check(self, status: int, name: str) -> None:
        if not status:
            return
        out = self.put(bytes(16))
        reason = "it says nothing"
        if not self.instance.call("last_exception", out):
            reason = text_in(self.instance, self.number(out))
        raise WasmError(f"{name} failed with {status}: {reason}")

    def evaluate(self, script: str, names: list[str], functions: list[str]) -> dict[str, int]:
        """Calls the guest, a function, with the server's `functions`, and returns the handles of `names`."""
        instance = self.instance
        instance.call("get_string", instance.call("new_string", self.put(b"text"), 4))
        text = instance.call("qjs_last_ptr"), instance.call("qjs_last_len")
        if _TEXT.unpack(instance.read(_TEXT_AT, _TEXT.size)) != text:
            raise WasmError("the engine's module keeps its last text in another place")
        out = self.put(bytes(64))
        scope = instance.call("global_object")
        for name in functions:
            encoded = name.encode()
            function = instance.call("new_function", self.put(encoded), len(encoded))
            self.check(instance.call("set_prop", scope, self.put(encoded), len(encoded), function), name)
        self.run(f"globalThis.install = {script}", out, "the guest")
        self._fill_holes()  # of the compiler, so that the guest's functions lie together, too
        self.run("install()", out, "the guest")
        while instance.call("execute_pending_jobs") not in (0, 0xFFFFFFFF):
            pass
        handles = {"out": out, "arguments": self.put(bytes(64)), "buffer": self.put(bytes(BUFFER_BYTES))}
        handles["undefined"] = instance.call("new_undefined")
        for name in names:
            encoded = name.encode()
            key = self.put(encoded)
            self.check(instance.call("get_prop", scope, key, len(encoded), out), name)
            handles[name] = self.number(out)
        cleared = json.dumps([*names, "install"])
        self.run(f"for (const name of {cleared}) delete globalThis[name];{_GARBAGE}", out, "its end")
        instance.call("run_gc")
        self._fill_holes()
        return handles

    def run(self, script: str, out: int, name: str) -> None:
        code = script.encode()
        address = self.put(code)
        self.check(self.instance.call("eval_code", address, len(code), out), name)
        self.instance.call("qjs_free", address, len(code))

    def _fill_holes(self) -> None:
        """Uses up all free memory between the guest's objects, so that new ones lie together.

        Otherwise those that a program makes or changes are spread over hundreds of pages, each of which it has to copy.
        """
        end = self.instance.size
        size = _LARGEST_HOLE
        while size >= _SMALLEST_HOLE:
            while (address := self.instance.call("qjs_alloc", size)) < end:
                pass
            self.instance.call("qjs_free", address, size)
            size -= max(size // 8 & ~7, 8)


def make_image(
    library: str,
    module: bytes,
    script: str,
    names: list[str],
    functions: list[str],
    folder: Path,
    *,
    interprets: bool,
) -> None:
    """Writes an image into a folder.

    Raises:
        WasmError: the engine or the guest fails.
    """
    engine = Engine(library, most=1, memory_bytes=_BAKE_BYTES, optimizes=False, interprets=interprets)
    raw = folder / "raw.cwasm"
    raw.write_bytes(engine.compile(module))
    engine.load(str(raw), _refuse)
    maker = _Maker(engine)
    handles = maker.evaluate(script, names, functions)
    memory = bytes(STACK_END) + maker.instance.read(STACK_END, maker.instance.size - STACK_END)
    maker.instance.close()
    timed = _timed_pages(engine)
    raw.unlink()
    content = {**handles, IDENTITY: _identity(memory, handles, timed), TIMED: timed, INTERPRETS: int(interprets)}
    (folder / HANDLES).write_text(json.dumps(content), encoding="utf-8")
    optimizing = Engine(library, most=1, memory_bytes=_BAKE_BYTES, interprets=interprets)
    (folder / MODULE).write_bytes(optimizing.compile(baked(module, memory)))


def _timed_pages(engine: Engine) -> list[int]:
    """Returns the numbers of the pages in which two new instances differ."""
    memories: list[bytes] = []
    for _ in range(2):
        instance = Instance(engine)
        instance.call("global_object")
        memories.append(bytes(STACK_END) + instance.read(STACK_END, instance.size - STACK_END))
        instance.close()
    one, other = memories
    return [at // PAGE for at in range(0, len(one), PAGE) if one[at : at + PAGE] != other[at : at + PAGE]]


def _identity(memory: bytes, handles: dict[str, int], timed: list[int]) -> str:
    digest = hashlib.sha256(json.dumps([MODULE_SHA256, handles, timed]).encode())
    for at in range(0, len(memory), PAGE):
        if at // PAGE not in timed:
            digest.update(memory[at : at + PAGE])
    return digest.hexdigest()


def baked(module: bytes, memory: bytes) -> bytes:
    """Returns a module whose memory begins as `memory`: the same code, with other data.

    The module must have one memory, and only active data. Its other state has to be as at the start, which is so
    between two calls of its functions: its only other state is the pointer to its stack.
    """
    if module[:8] != _HEADER:
        raise WasmError("the engine's module is not WebAssembly")
    parts = [_HEADER]
    at = len(_HEADER)
    while at < len(module):
        kind = module[at]
        size, at = _number(module, at + 1)
        body, at = module[at : at + size], at + size
        if kind == _MEMORY:
            if body[0] != 1 or body[1] not in (0, 1):
                raise WasmError("the engine's module has another kind of memory")
            _, end = _number(body, 2)
            body = body[:2] + _encoded(len(memory) // _WASM_PAGE) + body[end:]
        elif kind in (_DATA, _DATA_COUNT):
            continue
        parts += (bytes([kind]), _encoded(len(body)), body)
        if kind == _CODE:
            data = [
                b"\0\x41" + _signed(start) + b"\x0b" + _encoded(end - start) + memory[start:end]
                for start, end in _used(memory)
            ]
            content = _encoded(len(data)) + b"".join(data)
            parts += (bytes([_DATA]), _encoded(len(content)), content)
    return b"".join(parts)


def _used(memory: bytes) -> Iterator[tuple[int, int]]:
    """Yields the runs of pages that are not all zeros."""
    zeros = bytes(PAGE)
    start: int | None = None
    for at in range(0, len(memory), PAGE):
        if memory[at : at + PAGE] == zeros:
            if start is not None:
                yield start, at
            start = None
        elif start is None:
            start = at
    if start is not None:
        yield start, len(memory)


def _encoded(number: int) -> bytes:
    """Encodes an unsigned number as LEB128."""
    data = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        data.append(low | 0x80 if number else low)
        if not number:
            return bytes(data)


def _signed(number: int) -> bytes:
    """Encodes a signed number as LEB128."""
    data = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        if (number == 0 and not low & 0x40) or (number == -1 and low & 0x40):
            data.append(low)
            return bytes(data)
        data.append(low | 0x80)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Decodes an unsigned LEB128 number. Returns it, and the position after it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def main() -> None:
    """Makes the image that a request in JSON describes."""
    request = json.loads(sys.stdin.read())
    module = Path(request["module"]).read_bytes()
    make_image(
        request["library"],
        module,
        request["script"],
        request["names"],
        request["functions"],
        Path(request["folder"]),
        interprets=request["interprets"],
    )


if __name__ == "__main__":
    main()
