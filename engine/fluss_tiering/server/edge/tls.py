"""The server's side of TLS: certificates from files, which are read again when they change."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import grpc
import structlog
from cryptography import x509

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.watched_files import WatchedFiles
from fluss_tiering.server.settings.values import TlsFiles

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Content:
    cert: bytes
    key: bytes
    client_ca: bytes | None
    expires: datetime
    context: ssl.SSLContext

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key, self.cert)], root_certificates=self.client_ca)


class ServerTls:
    """The certificates of a server.

    Connections that are open keep the certificate that they began with. New ones get the one that the files hold.

    Raises:
        FlussTieringError: INVALID_REQUEST if a file cannot be read, or if the key is not that of the certificate.
    """

    def __init__(self, files: TlsFiles) -> None:
        paths = [files.cert, files.key, *([files.client_ca] if files.client_ca else [])]
        self._files = files
        self.watched = WatchedFiles("the certificates", paths, lambda: _read(files))
        self._given = self.watched.content

    @property
    def expires(self) -> datetime:
        """When the server's certificate expires."""
        return self.watched.content.expires

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of a port, which follow the files."""
        return grpc.dynamic_ssl_server_credentials(
            self._given.configuration(),
            # gRPC keeps the present configuration if it gets None, which its stubs do not say.
            cast("Callable[[], grpc.ServerCertificateConfiguration]", self._newer),
            require_client_authentication=self._files.client_ca is not None,
        )

    def context(self) -> ssl.SSLContext:
        """Return what an HTTP port needs. Its certificate is the one that the files held when they were read last."""
        return self.watched.content.context

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificates if they have changed. gRPC asks for each new connection."""
        present = self.watched.content
        if present is self._given:
            return None
        self._given = present
        return present.configuration()


def _read(files: TlsFiles) -> _Content:
    context = _context(files)
    cert = files.cert.read_bytes()
    client_ca = None if files.client_ca is None else files.client_ca.read_bytes()
    own = x509.load_pem_x509_certificate(cert)
    expires = own.not_valid_after_utc
    now = datetime.now(UTC)
    if not own.not_valid_before_utc <= now < expires:
        logger.warning(
            "the server's certificate is not valid now: clients refuse it; renew it, or set the machine's clock right",
            file=str(files.cert),
            valid_from=own.not_valid_before_utc.isoformat(),
            valid_until=expires.isoformat(),
            now=now.isoformat(timespec="seconds"),
        )
    return _Content(cert, files.key.read_bytes(), client_ca, expires, context)


def _context(files: TlsFiles) -> ssl.SSLContext:
    """Return a context with the files, which proves that they belong together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path, expected in ((files.cert, "CERTIFICATE"), (files.key, "PRIVATE KEY"), (files.client_ca, "CERTIFICATE")):
        if path is not None:
            _check_pem(path, expected)
    try:
        # Without a password there is nobody to ask for one.
        context.load_cert_chain(files.cert, files.key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise _invalid(
            f"{files.key} is not the key of the certificate in {files.cert}, or it has a password ({_reason(error)})"
        ) from error
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise _invalid(f"{files.client_ca} holds no certificates of authorities: {_reason(error)}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_pem(path: Path, expected: str) -> None:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _invalid(f"{path} cannot be read: {error.strerror or error}") from error
    if f"{expected}-----".encode() not in content:
        raise _invalid(
            f"{path} holds no {expected} in PEM: expected a text file with a line -----BEGIN {expected}-----"
        )


def _reason(error: OSError | ssl.SSLError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)


def _invalid(message: str) -> FlussTieringError:
    return FlussTieringError(ErrorCode.INVALID_REQUEST, f"TLS: {message}")
