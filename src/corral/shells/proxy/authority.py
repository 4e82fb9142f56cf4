"""Certificate authority of one session, which only its commands trust."""

from __future__ import annotations

import os
import ssl
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import anyio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAYS = 365
_KEPT = 64
"""Hosts whose certificates are kept."""


class Authority:
    """Signs certificates for hosts. Its keys are in this process's memory only, and end with it."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._host_key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Session of corral")])
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, SHA256())
        )
        self.certificate = certificate.public_bytes(Encoding.PEM)
        """The authority's own certificate, as PEM."""
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    async def context(self, host: str) -> ssl.SSLContext:
        """TLS of a server that is this host: a name, or an address."""
        if host not in self._contexts:
            self._contexts[host] = await anyio.to_thread.run_sync(self._made, host)
            while len(self._contexts) > _KEPT:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(host)
        return self._contexts[host]

    def _made(self, host: str) -> ssl.SSLContext:
        try:
            name: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        certificate = (
            self._builder(x509.Name([]), self._host_key)
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, SHA256())
        )
        key = self._host_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        # The ssl module reads files only; this one is in memory, and has no name.
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            file.write(key + certificate.public_bytes(Encoding.PEM))
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder(issuer_name=self._name, subject_name=subject, public_key=key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=_DAYS))
            .add_extension(identifier, critical=False)
            .add_extension(issuer, critical=False)
        )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
