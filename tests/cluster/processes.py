"""Starts `corral worker` as processes, which end with the test even if it is killed."""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from corral.cli.options import mutual_tls

__all__ = ["SECRET", "WorkerProcess", "make_certificates"]

_MAIN = "import sys; from corral.cli import main; sys.exit(main())"
SECRET = "a secret of the tests' workers"


class WorkerProcess:
    """A worker. Asking for its `address` waits until it accepts hosts, so that several can start at the same time."""

    def __init__(self, *options: str, capacity: int = 64, python: Sequence[str] = ("-c", _MAIN)) -> None:
        ours, self._lifeline = os.pipe()
        self.process = subprocess.Popen(
            [
                *(sys.executable, *python, "worker", "--port", "0", "--capacity", str(capacity)),
                *("--lifeline", str(ours), *options),
            ],
            pass_fds=[ours],
            stdout=subprocess.PIPE,
            env={**os.environ, "CORRAL_WORKER_SECRET": SECRET},
            text=True,
        )
        os.close(ours)

    @cached_property
    def address(self) -> str:
        return self._line().removeprefix("corral worker at ")

    @cached_property
    def probes(self) -> str:
        """URL of its probes, if it has a --probe-port."""
        assert self.address
        return self._line().removeprefix("probes at ")

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "the worker did not start"
        return line

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        """Kills it, with its guests, unless it has ended."""
        os.close(self._lifeline)
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def make_certificates(folder: Path) -> tuple[list[str], ssl.SSLContext]:
    """Makes a CA and a certificate for each side. Returns the worker's options and the host's context."""
    now = datetime.datetime.now(datetime.UTC)
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])

    def made(name: str, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType) -> bytes:
        builder = x509.CertificateBuilder(
            issuer,
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            key.public_key(),
            x509.random_serial_number(),
            now - datetime.timedelta(days=1),
            now + datetime.timedelta(days=2),
        )
        for each in extensions:
            builder = builder.add_extension(each, critical=isinstance(each, x509.BasicConstraints))
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    (folder / "ca.pem").write_bytes(made("ca", authority, x509.BasicConstraints(ca=True, path_length=None), identifier))
    for name in ("worker", "host"):
        key = ec.generate_private_key(ec.SECP256R1())
        alternative = x509.SubjectAlternativeName([x509.DNSName(name)])
        by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
        comment = "Ausgestellt für Hosts und Worker\n".encode()  # tools write such lines, in any encoding
        (folder / f"{name}.pem").write_bytes(comment + made(name, key, alternative, by))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    options = [
        "--cert",
        str(folder / "worker.pem"),
        "--key",
        str(folder / "worker.key"),
        "--ca",
        str(folder / "ca.pem"),
    ]
    files = argparse.Namespace(cert=folder / "host.pem", key=folder / "host.key", ca=folder / "ca.pem")
    tls = mutual_tls(files, is_server=False)
    assert tls is not None
    return options, tls
