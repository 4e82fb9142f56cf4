"""A real gRPC server, with reflection, for the services of shop.proto."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from grpc_reflection.v1alpha import reflection
from grpc_tools import protoc

__all__ = ["Shop", "compiled"]

_HERE = Path(__file__).parent


def compiled(folder: Path) -> bytes:
    """The descriptors of shop.proto, with comments."""
    out = folder / "shop.pb"
    compiler: Any = protoc
    include = Path(protoc.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{_HERE}", f"-I{include}", "--include_imports", "--include_source_info", f"-o{out}"]
    assert compiler.main([*arguments, "shop.proto"]) == 0
    return out.read_bytes()


class Shop:
    """The server. `seen` has the metadata of its calls."""

    def __init__(self, descriptors: bytes, *, reflects: bool = True, port: int = 0) -> None:
        pool = DescriptorPool()
        for file in FileDescriptorSet.FromString(descriptors).file:
            pool.AddSerializedFile(file.SerializeToString())
        self.seen: list[dict[str, str | bytes]] = []
        self.cancelled = threading.Event()
        self.server = grpc.server(ThreadPoolExecutor(8))
        for name in ("shop.v1.Orders", "shop.v1.Admin"):
            service: Any = pool.FindServiceByName(name)
            handlers: dict[str, Any] = {
                method.name: self._handler(f"{service.name}{method.name}", method) for method in service.methods
            }
            self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        if reflects:
            names = ("shop.v1.Orders", "shop.v1.Admin", reflection.SERVICE_NAME)
            enable: Any = reflection.enable_server_reflection
            enable(names, self.server, pool=pool)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")

    def _handler(self, name: str, method: Any) -> Any:
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        behaviour: Any = getattr(self, name)
        shape = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
        make: Any = getattr(grpc, f"{shape}_rpc_method_handler")

        def serve(given: Any, context: Any) -> Any:
            self.seen.append(dict(context.invocation_metadata()))
            return behaviour(given, context, response)

        return make(serve, request.FromString, response.SerializeToString)

    def OrdersGet(self, request: Any, context: Any, response: Any) -> Any:  # noqa: N802
        if request.number == 0:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no order for {dict(context.invocation_metadata())}")
        return response(number=request.number, state=2, lines=[{"article": "x" * min(request.number, 10**8)}])

    def OrdersEcho(self, request: Any, context: Any, response: Any) -> Any:  # noqa: N802
        return response.FromString(request.SerializeToString())

    def OrdersWatch(self, request: Any, context: Any, response: Any) -> Any:  # noqa: N802
        context.add_callback(self.cancelled.set)
        number = 0
        while number < request.number or request.number < 0:
            if not context.is_active():
                return
            number += 1
            yield response(number=number)
        if request.number == 3:
            context.abort(grpc.StatusCode.ABORTED, "three")

    def OrdersUpload(self, request: Any, context: Any, response: Any) -> Any:  # noqa: N802
        return response()

    def OrdersFail(self, request: Any, context: Any, response: Any) -> Any:  # noqa: N802
        details = BadRequest(field_violations=[{"field": "code", "description": "is wrong"}])
        status = Status(code=request.code, message=request.message)
        status.details.add().Pack(details)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        code = next(each for each in grpc.StatusCode if each.value[0] == request.code)
        context.abort(code, request.message)

    def AdminGet(self, request: Any, context: Any, response: Any) -> Any:  # noqa: N802
        made = response()
        made["admin"] = [1.5, None]
        return made

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.server.stop(None).wait()
