"""An authority that makes certificates for tests."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair(NamedTuple):
    """A certificate and its key, as files in PEM."""

    cert: Path
    key: Path


class Authority:
    """An authority, with its own certificate in a file."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key, timedelta(days=30))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.cert = folder / "ca.pem"
        self.cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def pair(
        self,
        file: str,
        common_name: str | x509.Name,
        *,
        uri: str | None = None,
        others: Sequence[x509.GeneralName] = (),
        valid: timedelta = timedelta(days=9),
        host: str | None = None,
    ) -> Pair:
        """Write a certificate for this machine, or for a client, in the place of an older one of the same file.

        Args:
            file: The name of the files, without suffix.
            common_name: The common name of the subject, or the whole subject.
            uri: A further alternative name.
            others: Further alternative names.
            valid: How long it is valid from now on. If it is negative, the certificate has expired.
            host: The one host that the certificate is for, if it is not this machine.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            *others,
        ]
        if host is not None:
            names = [x509.DNSName(host), *others]
        if uri is not None:
            names.append(x509.UniformResourceIdentifier(uri))
        builder = _builder(_name(common_name) if isinstance(common_name, str) else common_name, self._name, key, valid)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = Pair(self._folder / f"{file}.pem", self._folder / f"{file}.key")
        made.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        made.cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return made

    def encrypt_key(self, key: Path, to: Path, password: bytes) -> None:
        """Write a key with a password."""
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        encryption = serialization.BestAvailableEncryption(password)
        to.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + valid)
    )
