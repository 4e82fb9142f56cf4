"""Reflection shows what a token allows, and nothing without one."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2

from tests.bridges.http.serving import PATIENCE_SECONDS
from tests.protocols.grpc.serving import Client, GrpcServed


def ask(client: Client, version: str, **question: Any) -> Any:
    reflect: Any = client.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    [answer] = reflect(iter([reflection_pb2.ServerReflectionRequest(**question)]), timeout=PATIENCE_SECONDS)
    return answer


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_what_a_token_may_see(client: Client, version: str) -> None:
    listed = ask(client, version, list_services="").list_services_response.service
    assert [each.name for each in listed] == [
        "corral.tools.Tools",
        "corral.tools.treesTools",
        "corral.v1.Bridge",
        f"grpc.reflection.{version}.ServerReflection",
    ]
    found = ask(client, version, file_containing_symbol="corral.tools.Tools").file_descriptor_response
    file = FileDescriptorProto.FromString(found.file_descriptor_proto[0])
    methods = [each.name for each in file.service[0].method]
    assert "inbox" in methods
    assert "send" not in methods
    assert " The tree.\n" in [each.leading_comments for each in file.source_code_info.location]
    for symbol in (f"grpc.reflection.{version}.ServerReflection", "corral.v1.Bridge.Call", "google.protobuf.Value"):
        assert ask(client, version, file_containing_symbol=symbol).HasField("file_descriptor_response")
    for question in ({"file_containing_symbol": "corral.tools.sendRequest"}, {"file_by_filename": "secret.proto"}):
        assert ask(client, version, **question).error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


@pytest.mark.parametrize("token", [None, "not.a.token"])
def test_nothing_without_a_token(served: GrpcServed, token: str | None) -> None:
    with Client(served.bridge.address, token) as client:
        for version in ("v1", "v1alpha"):
            with pytest.raises(grpc.RpcError) as raised:
                ask(client, version, list_services="")
            refused: Any = raised.value
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
        for path in ("/corral.tools.Tools/add", "/corral.v1.Bridge/Call", "/x.y/z"):
            with pytest.raises(grpc.RpcError) as raised:
                client.raw(path)
            refused = raised.value
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
