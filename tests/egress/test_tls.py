"""TLS knows nothing of the guard: SNI, certificate and Host are those of the name, the address is the checked one."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets

from corral.egress import EgressPolicy, Network, SafeClient
from corral.errors import EgressBlocked
from tests.egress.conftest import Run, both_loops
from tests.egress.wire import Attempts, serve

pytestmark = pytest.mark.anyio


@dataclass
class Authority:
    """A certificate authority of our own, and a server's side of TLS that notes the names it is asked for."""

    client: ssl.SSLContext
    server: ssl.SSLContext
    asked: list[str | None] = field(default_factory=list[str | None])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A key with its certificate for api.example.com, and that of the authority."""
    now = datetime.datetime.now(datetime.UTC)

    def sign(
        name: str, key: ec.EllipticCurvePrivateKey, issuer: str, by: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        )
        return builder.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    root, leaf = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    key = leaf.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    file.write_bytes(key + sign("api.example.com", leaf, "root", root, ca=False))
    return file, sign("root", root, "root", root, ca=True).decode()


@pytest.fixture
def authority(certificate: tuple[Path, str]) -> Authority:
    file, root = certificate
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    authority = Authority(ssl.create_default_context(cadata=root), server)

    def note(socket: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        authority.asked.append(name)

    server.sni_callback = note
    return authority


async def resolver(host: str) -> list[str]:
    return ["127.0.0.2"]


@both_loops
async def test_host_and_sni_are_the_name_and_the_address_is_the_checked_one(
    authority: Authority, attempts: Attempts
) -> None:
    async with serve("127.0.0.2", tls=authority.server) as server:
        policy = EgressPolicy(ports=[server.port], exempt_networks=["127.0.0.2/32"])
        async with SafeClient(policy, resolver=resolver, verify=authority.client) as client:
            response = await client.get(f"https://api.example.com:{server.port}/path")
    assert response.json()["host"] == f"api.example.com:{server.port}"
    assert (authority.asked, attempts.dialled) == (["api.example.com"], ["127.0.0.2"])


async def test_a_certificate_of_another_name_is_refused(authority: Authority) -> None:
    async with serve("127.0.0.2", tls=authority.server) as server:
        policy = EgressPolicy(ports=[server.port], exempt_networks=["127.0.0.2/32"])
        async with SafeClient(policy, resolver=resolver, verify=authority.client) as client:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(f"https://other.example.com:{server.port}/")
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(f"https://127.0.0.2:{server.port}/")
    assert server.requests == []


@both_loops
async def test_bounds_hold_within_tls(authority: Authority) -> None:
    async with serve("127.0.0.2", tls=authority.server) as server:
        policy = EgressPolicy(ports=[server.port], exempt_networks=["127.0.0.2/32"], max_header_bytes=10_000)
        async with SafeClient(policy, resolver=resolver, verify=authority.client) as client:
            with pytest.raises(EgressBlocked, match="head is larger"):
                await client.get(f"https://api.example.com:{server.port}/endless-header")
        await server.left.wait()


async def test_web_sockets_have_the_name_of_their_url_and_no_other(
    authority: Authority, attempts: Attempts, run: Run
) -> None:
    async def echo(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(f"{message} {socket.request and socket.request.headers['host']}")

    async with serve_sockets(echo, "127.0.0.2", 0, ssl=authority.server) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        program = f"""
          const tell = (host) => new Promise((done) => {{
            const socket = new WebSocket(`wss://${{host}}:{port}/`);
            socket.onopen = () => socket.send("hello");
            socket.onmessage = ({{ data }}) => done(data);
            socket.onerror = ({{ message }}) => done(message);
          }});
          return [await tell("api.example.com"), await tell("other.example.com")];
        """
        network = Network(
            allow=[f"https://{name}.example.com:{port}" for name in ("api", "other")],
            exempt_networks=["127.0.0.2/32"],
            resolver=resolver,
            verify=authority.client,
        )
        result = await run(network, program)
    told, refused = result.value
    assert told == f"hello api.example.com:{port}"
    assert "CERTIFICATE_VERIFY_FAILED" in refused
    assert authority.asked == ["api.example.com", "other.example.com"]
    assert attempts.dialled == ["127.0.0.2", "127.0.0.2"]
