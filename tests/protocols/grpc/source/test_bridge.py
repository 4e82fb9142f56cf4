"""A Corral whose tools are those of another Corral, over TLS."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from corral import Corral, ExecutionContext
from corral.errors import ConfigError
from corral.protocols.grpc.bridge import GrpcBridge
from corral.protocols.grpc.source import GrpcApi
from corral.sandboxes import DenoSandbox
from tests.protocols.grpc.serving import more_tools

CONTEXT = ExecutionContext(user_id="ada")


def certificate(name: str) -> tuple[bytes, bytes]:
    """A self-signed certificate and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM), private


@pytest.mark.anyio
async def test_one_corral_calls_another_over_tls() -> None:
    public, private = certificate("localhost")
    bridge = GrpcBridge(certificate=public, private_key=private)
    async with Corral(
        more_tools(), sandbox=DenoSandbox(isolation="process", pool_size=0), bridge=["pipe", bridge], check=False
    ) as serving:
        port = int(bridge.address.rpartition(":")[2])
        with serving.remote.grant(CONTEXT) as execution:
            metadata = {"authorization": f"Bearer {execution.token()}"}
            options: dict[str, Any] = {
                "root_certificates": public,
                "exempt_networks": ["127.0.0.0/8", "::1/128"],
                "credentials": metadata,
                "reflection_metadata": metadata,
                "exclude": ["corral.v1.*"],
            }
            source = GrpcApi("far", f"localhost:{port}", **options)
            async with Corral([source], sandbox=DenoSandbox(isolation="process", pool_size=0), check=False) as corral:
                result = await corral.execute(
                    "const tree = await tools.far.grow({ node: { name: 'root', children: [] } });\n"
                    "const seen = [];\n"
                    "for await (const { result } of tools.far.numbers({ n: 2 })) seen.push(result);\n"
                    "return [tree.children[0].name, (await tools.far.add({ a: 1, b: 2 })).result, seen];"
                )
                assert result.error is None
                assert result.value == ["leaf", 3, [0, 1]]
                described = corral.tools.get("far.grow")
                assert described is not None
                assert described.read_only
                assert described.description == "Adds a leaf."
                assert corral.tools.get("far.send") is None
            stranger, _ = certificate("localhost")
            options["root_certificates"] = stranger
            async with Corral([GrpcApi("far", f"localhost:{port}", **options)]).connected() as corral:
                assert "UNAVAILABLE" in corral.tools.problems["far"]


@pytest.mark.anyio
async def test_servers_that_are_refused() -> None:
    with pytest.raises(ConfigError, match="plaintext"):
        GrpcBridge(host="192.0.2.1")
    with pytest.raises(ConfigError, match="both"):
        GrpcBridge(certificate=b"x")
    with pytest.raises(ConfigError, match="not open"):
        _ = GrpcBridge().address
    bridge = GrpcBridge()
    async with Corral([], sandbox=DenoSandbox(isolation="process", pool_size=0), bridge=["pipe", bridge], check=False):
        port = int(bridge.address.rpartition(":")[2])
        with pytest.raises(ConfigError, match="cannot listen"):
            async with Corral(
                [],
                sandbox=DenoSandbox(isolation="process", pool_size=0),
                bridge=["pipe", GrpcBridge(port=port)],
                check=False,
            ):
                pass
        with pytest.raises(ConfigError, match="one Corral"):
            async with Corral(
                [], sandbox=DenoSandbox(isolation="process", pool_size=0), bridge=["pipe", bridge], check=False
            ):
                pass
        assert bridge.address.endswith(f":{port}")
