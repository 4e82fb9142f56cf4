"""wasmtime's C interface (https://docs.wasmtime.dev/c-api/), as far as guests need it, over the library of its wheel.

A call through the package's own Python classes takes 20 µs, and importing it takes as long as everything else that a
server does before it is ready.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable
from ctypes import POINTER, byref, c_bool, c_char_p, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any

_IMPORTS = {"host_interrupt": 0, "host_call": 5, "host_module_normalize": 5, "host_module_load": 3}
"""Functions that the guests' module imports, with their numbers of 32-bit arguments. Guests use only `host_call`."""
_TABLE_ELEMENTS = 8192
_NONE, _SPEED = 0, 1
"""Members of `wasmtime_opt_level_enum`."""
_MOST_ARGUMENTS = 5
_RAW_BYTES = 16
"""Size of `wasmtime_val_raw_t`, which has room for a vector."""
_PACKERS = [struct.Struct(f"={'I12x' * count}").pack_into for count in range(_MOST_ARGUMENTS + 1)]
"""Writers of arguments, by their number."""
_NUMBER = struct.Struct("=I")
_LONG = frozenset({"call_function", "execute_pending_jobs", "eval_code", "run_gc"})
"""Functions that run code of programs. The others keep the interpreter's lock: releasing it would cost more."""
_I32 = 0
"""Kind of a 32-bit integer in `wasm_valkind_t`."""
_STACK_BYTES = 4 << 20
"""Stack of WebAssembly's frames. The end of the stack in memory, which has 1 MiB, is reached first."""
THREAD_STACK_BYTES = _STACK_BYTES + (4 << 20)
"""Stack of a thread that runs guests: also for the host's frames and those of the embedder."""


class WasmError(Exception):
    """wasmtime refused an operation."""


class Trapped(Exception):
    """The guest's code was ended: by a trap, or because its process asked for that."""


class _Bytes(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("data", POINTER(c_uint8))]


class _Types(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("data", POINTER(c_void_p))]


class _Instance(ctypes.Structure):
    _fields_ = [("store", c_uint64), ("private", c_size_t)]


class _Extern(ctypes.Structure):
    """A `wasmtime_extern_t`: a kind, and a union whose largest members, a memory and a table, have 24 bytes."""

    _fields_ = [("kind", c_uint8), ("content", c_uint64 * 4)]


HostFunction = Callable[[int, int, int], None]
"""Function of the process that a guest calls: with the addresses of its caller and its arguments, and their number."""
_CALLBACK = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_void_p, c_size_t)
_ON_EPOCH = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_void_p, POINTER(c_uint64), POINTER(c_uint8))

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "wasm_config_new": (c_void_p,),
    "wasmtime_config_target_set": (c_void_p, c_void_p, c_char_p),
    "wasmtime_config_epoch_interruption_set": (None, c_void_p, c_bool),
    "wasmtime_config_async_stack_size_set": (None, c_void_p, c_size_t),
    "wasmtime_config_cranelift_opt_level_set": (None, c_void_p, c_uint8),
    "wasmtime_config_max_wasm_stack_set": (None, c_void_p, c_size_t),
    "wasmtime_pooling_allocation_config_new": (c_void_p,),
    "wasmtime_pooling_allocation_config_delete": (None, c_void_p),
    "wasmtime_pooling_allocation_strategy_set": (None, c_void_p, c_void_p),
    "wasm_engine_new_with_config": (c_void_p, c_void_p),
    "wasmtime_engine_increment_epoch": (None, c_void_p),
    "wasmtime_module_new": (c_void_p, c_void_p, c_char_p, c_size_t, POINTER(c_void_p)),
    "wasmtime_module_deserialize_file": (c_void_p, c_void_p, c_char_p, POINTER(c_void_p)),
    "wasmtime_module_serialize": (c_void_p, c_void_p, POINTER(_Bytes)),
    "wasm_byte_vec_delete": (None, POINTER(_Bytes)),
    "wasmtime_linker_new": (c_void_p, c_void_p),
    "wasmtime_linker_define_wasi": (c_void_p, c_void_p),
    "wasmtime_linker_define_func_unchecked": (
        *(c_void_p, c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, c_void_p, _CALLBACK, c_void_p, c_void_p),
    ),
    "wasmtime_linker_instantiate_pre": (c_void_p, c_void_p, c_void_p, POINTER(c_void_p)),
    "wasmtime_instance_pre_instantiate": (c_void_p, c_void_p, c_void_p, POINTER(_Instance), POINTER(c_void_p)),
    "wasmtime_instance_export_get": (c_bool, c_void_p, POINTER(_Instance), c_char_p, c_size_t, POINTER(_Extern)),
    "wasm_valtype_new": (c_void_p, c_uint8),
    "wasm_valtype_vec_new": (None, POINTER(_Types), c_size_t, POINTER(c_void_p)),
    "wasm_functype_new": (c_void_p, POINTER(_Types), POINTER(_Types)),
    "wasmtime_store_new": (c_void_p, c_void_p, c_void_p, c_void_p),
    "wasmtime_store_context": (c_void_p, c_void_p),
    "wasmtime_store_delete": (None, c_void_p),
    "wasmtime_store_limiter": (None, c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64),
    "wasmtime_store_epoch_deadline_callback": (None, c_void_p, _ON_EPOCH, c_void_p, c_void_p),
    "wasmtime_context_set_epoch_deadline": (None, c_void_p, c_uint64),
    "wasmtime_context_set_wasi": (c_void_p, c_void_p, c_void_p),
    "wasi_config_new": (c_void_p,),
    "wasmtime_func_call_unchecked": (c_void_p,),  # its arguments have their types already, which is faster
    "wasmtime_memory_data": (c_void_p, c_void_p, c_void_p),
    "wasmtime_memory_data_size": (c_size_t, c_void_p, c_void_p),
    "wasmtime_memory_grow": (c_void_p, c_void_p, c_void_p, c_uint64, POINTER(c_uint64)),
    "wasmtime_error_message": (None, c_void_p, POINTER(_Bytes)),
    "wasmtime_error_delete": (None, c_void_p),
    "wasmtime_error_new": (c_void_p, c_char_p),
    "wasm_trap_message": (None, c_void_p, POINTER(_Bytes)),
    "wasm_trap_delete": (None, c_void_p),
    "wasmtime_trap_new": (c_void_p, c_char_p, c_size_t),
}
_SMALL = ("total_", "max_unused_")
"""Beginnings of settings with 32 bits."""
_POOL = ("total_core_instances", "total_memories", "total_tables", "max_unused_warm_slots")


class Engine:
    """wasmtime with the settings of guests, and the module that its instances share.

    `library` is the path of wasmtime's shared library. `most` is the maximum number of instances, and `memory_bytes`
    the maximum size of the memory of each. If it `optimizes`, compiling takes longer. If it `interprets`, it compiles
    to the code of wasmtime's interpreter, Pulley, for systems that deny processes executable memory.

    Raises:
        WasmError: the library lacks a function, or refuses a setting.
    """

    def __init__(
        self, library: str, *, most: int, memory_bytes: int, optimizes: bool = True, interprets: bool = False
    ) -> None:
        self.c: Any = ctypes.CDLL(library)
        self.short: Any = ctypes.PyDLL(library)
        """The same library, for calls that keep the interpreter's lock."""
        try:
            for name, (result, *arguments) in _SIGNATURES.items():
                for each in (self.c, self.short):
                    function = getattr(each, name)
                    function.restype, function.argtypes = result, arguments
        except AttributeError as error:
            text = f"this version of wasmtime is not supported: {error}; pip install 'corral[wasm]'"
            raise WasmError(text) from None
        config = self.c.wasm_config_new()
        if interprets:
            self.check(self.c.wasmtime_config_target_set(config, b"pulley64"))
        self.c.wasmtime_config_epoch_interruption_set(config, True)
        self.c.wasmtime_config_cranelift_opt_level_set(config, _SPEED if optimizes else _NONE)
        self.c.wasmtime_config_async_stack_size_set(config, 2 * _STACK_BYTES)  # unused, but it has to be larger
        self.c.wasmtime_config_max_wasm_stack_set(config, _STACK_BYTES)
        pool = self.c.wasmtime_pooling_allocation_config_new()
        sizes = dict.fromkeys(_POOL, most)
        sizes |= {"max_memory_size": memory_bytes, "table_elements": _TABLE_ELEMENTS, "total_stacks": 1}
        for name, size in sizes.items():
            setter = getattr(self.c, f"wasmtime_pooling_allocation_config_{name}_set")
            setter.restype, setter.argtypes = None, [c_void_p, c_uint32 if name.startswith(_SMALL) else c_size_t]
            setter(pool, size)
        self.c.wasmtime_pooling_allocation_strategy_set(config, pool)
        self.c.wasmtime_pooling_allocation_config_delete(pool)
        self.pointer = self.c.wasm_engine_new_with_config(config)
        self.memory_bytes = memory_bytes
        self._callbacks: list[object] = []
        self._prepared = c_void_p()

    def compile(self, module: bytes) -> bytes:
        """Compiles a module for this machine, and returns the result for `load`."""
        compiled, serialized = c_void_p(), _Bytes()
        self.check(self.c.wasmtime_module_new(self.pointer, module, len(module), byref(compiled)))
        self.check(self.c.wasmtime_module_serialize(compiled, byref(serialized)))
        try:
            return ctypes.string_at(serialized.data, serialized.size)
        finally:
            self.c.wasm_byte_vec_delete(byref(serialized))

    def load(self, path: str, host_call: HostFunction) -> None:
        """Loads a compiled module, of which `Instance` makes instances. Guests call `host_call`.

        Raises:
            WasmError: the file was compiled by another version, or for another processor.
        """
        module = c_void_p()
        self.check(self.c.wasmtime_module_deserialize_file(self.pointer, path.encode(), byref(module)))
        linker = self.c.wasmtime_linker_new(self.pointer)
        self.check(self.c.wasmtime_linker_define_wasi(linker))
        for name, arguments in _IMPORTS.items():
            callback = _CALLBACK(self._guarded(host_call if name == "host_call" else _do_nothing))
            self._callbacks.append(callback)
            kind = self._function_type(arguments)
            encoded = name.encode()
            self.check(
                self.c.wasmtime_linker_define_func_unchecked(
                    linker, b"env", 3, encoded, len(encoded), kind, callback, None, None
                )
            )
        self.check(self.c.wasmtime_linker_instantiate_pre(linker, module, byref(self._prepared)))

    def _function_type(self, arguments: int) -> int:
        vectors = [_Types(), _Types()]
        for vector, count in zip(vectors, (arguments, 1), strict=True):
            types = (c_void_p * count)(*(self.c.wasm_valtype_new(_I32) for _ in range(count)))
            self.c.wasm_valtype_vec_new(byref(vector), count, types)
        return self.c.wasm_functype_new(byref(vectors[0]), byref(vectors[1]))

    def _guarded(self, function: HostFunction) -> Callable[[int, int, int, int], int | None]:
        """Returns a callback in which an exception of `function` ends the guest's code."""
        trap = self.c.wasmtime_trap_new

        def call(_: int, caller: int, arguments: int, count: int) -> int | None:
            try:
                function(caller, arguments, count)
            except BaseException as error:  # nothing may pass through the engine's frames
                text = f"{type(error).__name__}: {error}".encode()[:500]
                return trap(text, len(text))
            return None

        return call

    def instantiate(self, context: int) -> _Instance:
        instance, trap = _Instance(), c_void_p()
        self.check(
            self.c.wasmtime_instance_pre_instantiate(self._prepared, context, byref(instance), byref(trap)), trap
        )
        return instance

    def tick(self) -> None:
        """Advances the clock of `Instance.on_tick`."""
        self.c.wasmtime_engine_increment_epoch(self.pointer)

    def check(self, error: int | None, trap: c_void_p | None = None) -> None:
        """Raises `WasmError` for an error, and `Trapped` for a trap, with its text."""
        text = _Bytes()
        if error:
            self.c.wasmtime_error_message(error, byref(text))
            self.c.wasmtime_error_delete(error)
        elif trap is not None and trap.value:
            self.c.wasm_trap_message(trap, byref(text))
            self.c.wasm_trap_delete(trap)
        else:
            return
        message = ctypes.string_at(text.data, text.size).rstrip(b"\0").decode("utf-8", "replace")
        self.c.wasm_byte_vec_delete(byref(text))
        raise (WasmError if error else Trapped)(message)


class Instance:
    """Instance of an engine's module: its own memory and functions. Only one thread at a time may use it.

    `on_tick` is called after each `ticks` of the engine's clock while code runs. If it returns False, the code ends.

    Raises:
        WasmError, Trapped: there is no room for another instance.
    """

    def __init__(self, engine: Engine, on_tick: Callable[[], bool] | None = None, ticks: int = 1) -> None:
        self._engine = engine
        self._c = c = engine.c
        self._call_long = c.wasmtime_func_call_unchecked
        self._call_short = engine.short.wasmtime_func_call_unchecked
        self._store = c.wasmtime_store_new(engine.pointer, None, None)
        self._context = c.wasmtime_store_context(self._store)
        self._store_context = c_void_p(self._context)
        try:
            engine.check(c.wasmtime_context_set_wasi(self._context, c.wasi_config_new()))
            c.wasmtime_store_limiter(self._store, engine.memory_bytes, -1, -1, -1, -1)
            self._on_epoch: object = None
            if on_tick is not None:
                self._on_epoch = _ON_EPOCH(self._epoch_callback(on_tick, ticks))
                c.wasmtime_store_epoch_deadline_callback(self._store, self._on_epoch, None, None)
            c.wasmtime_context_set_epoch_deadline(self._context, ticks if on_tick is not None else 1 << 60)
            self._instance = engine.instantiate(self._context)
        except BaseException:
            self.close()
            raise
        self._exports: dict[str, c_void_p] = {}
        self._kept: list[_Extern] = []
        self._raw = (c_uint64 * (_MOST_ARGUMENTS * _RAW_BYTES // 8))()
        self._trap = c_void_p()
        self._rest = c_void_p(ctypes.addressof(self._raw)), c_size_t(_MOST_ARGUMENTS), byref(self._trap)
        self._base = c.wasmtime_memory_data(self._context, self._export("memory"))
        self._size = self.size

    def _epoch_callback(self, on_tick: Callable[[], bool], ticks: int) -> Callable[..., int | None]:
        new_error = self._c.wasmtime_error_new

        def call(_: int, __: int, delta: Any, update: Any) -> int | None:
            goes_on = False
            try:
                goes_on = on_tick()
            finally:
                delta[0], update[0] = ticks, 0  # WASMTIME_UPDATE_DEADLINE_CONTINUE
                if not goes_on:
                    return new_error(b"ended")  # noqa: B012
            return None

        return call

    def _export(self, name: str) -> c_void_p:
        address = self._exports.get(name)
        if address is None:
            extern, encoded = _Extern(), name.encode()
            if not self._engine.short.wasmtime_instance_export_get(
                self._context, byref(self._instance), encoded, len(encoded), byref(extern)
            ):
                raise WasmError(
                    f"the WebAssembly module has no export {name!r}; use the engine of this version of corral"
                )
            self._kept.append(extern)
            address = self._exports[name] = c_void_p(ctypes.addressof(extern) + _Extern.content.offset)
        return address

    def call(self, name: str, *arguments: int) -> int:
        """Calls an exported function of 32-bit numbers.

        Raises:
            Trapped: its code was ended.
        """
        raw, trap = self._raw, self._trap
        if arguments:
            _PACKERS[len(arguments)](raw, 0, *arguments)
        function = self._exports.get(name) or self._export(name)
        enter = self._call_long if name in _LONG else self._call_short
        error = enter(self._store_context, function, *self._rest)
        if error or trap.value:
            try:
                self._engine.check(error, trap)
            except WasmError as failure:
                raise Trapped(str(failure)) from None
            finally:
                trap.value = None
        return _NUMBER.unpack_from(raw)[0]

    @property
    def size(self) -> int:
        """Size of its memory in bytes."""
        return self._engine.short.wasmtime_memory_data_size(self._store_context, self._export("memory"))

    def grow(self, size: int) -> None:
        """Enlarges its memory to `size` bytes, a multiple of 64 KiB. Raises `WasmError` if there is no room."""
        if (pages := (size - self.size) >> 16) > 0:
            memory = self._export("memory")
            self._engine.check(self._c.wasmtime_memory_grow(self._context, memory, pages, byref(c_uint64())))

    def _place(self, address: int, size: int) -> int:
        """Returns the address in this process. Memory only grows, and stays where it is.

        Raises:
            Trapped: the memory is not that large.
        """
        if address + size > self._size:
            self._size = self.size
            if address + size > self._size:
                raise Trapped("the guest named memory that it does not have")
        return self._base + address

    def read(self, address: int, size: int) -> bytes:
        """Returns bytes of its memory. Raises as `_place`."""
        return ctypes.string_at(self._place(address, size), size)

    def write(self, address: int, data: bytes) -> None:
        """Writes bytes into its memory. Raises as `_place`."""
        ctypes.memmove(self._place(address, len(data)), data, len(data))

    def close(self) -> None:
        """Frees it. Idempotent."""
        store, self._store = self._store, None
        if store is not None:
            self._c.wasmtime_store_delete(store)
            self._on_epoch = None  # which refers to this object's owner


def numbers(address: int, count: int) -> list[int]:
    """Returns the arguments of a `HostFunction`, as unsigned numbers."""
    return memoryview(ctypes.string_at(address, count * _RAW_BYTES)).cast("I").tolist()[:: _RAW_BYTES // 4]


def _do_nothing(_: int, arguments: int, __: int) -> None:
    answer(arguments, 0)


def answer(address: int, number: int) -> None:
    """Sets the result of a `HostFunction`."""
    c_uint64.from_address(address).value = number & 0xFFFFFFFF


def library_name() -> str:
    """Returns the file name of wasmtime's library on this system."""
    return {"win32": "_wasmtime.dll", "darwin": "_libwasmtime.dylib"}.get(sys.platform, "_libwasmtime.so")
