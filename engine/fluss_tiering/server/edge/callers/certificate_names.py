"""What a client's certificate says: how long it is valid, and the names in it, as the access file writes them.

The names of each kind begin in a way of their own.

An authority that lets its clients choose an alternative name must not let them choose another one's subject with it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from cryptography import x509
from cryptography.x509.oid import NameOID

SUBJECT: Final = "certificate/"
_ALTERNATIVE: Final[Mapping[str, type[x509.GeneralName]]] = {
    "certificate-uri/": x509.UniformResourceIdentifier,
    "certificate-dns/": x509.DNSName,
    "certificate-email/": x509.RFC822Name,
}
KINDS: Final = (SUBJECT, *_ALTERNATIVE)
"""How the names of the owners of certificates begin: the subject, and alternative names by their kind."""

PEM_KEY: Final = "x509_pem_cert"
"""Where the authentication context of a gRPC call has the certificate of the other side."""

# OpenSSL shows these attributes by name, which the RFC leaves to each program.
_ATTRIBUTES: Final = {NameOID.EMAIL_ADDRESS: "emailAddress", NameOID.SERIAL_NUMBER: "serialNumber"}
_MAX_KEPT: Final = 1024


def names_in(context: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """Return the names of the owner of a certificate, the subject first.

    A subject is written in the order of RFC 4514, such as `certificate/CN=airflow,O=shop`. IP addresses and other kinds
    of alternative names are left out.

    Args:
        context: The authentication context of a gRPC call; or the one that `context_of_peer` returns.
    """
    pem = next(iter(context.get(PEM_KEY, ())), None)
    return () if pem is None else _names(pem)


def expiry_in(context: Mapping[str, Iterable[bytes]]) -> datetime | None:
    """Return from when on a certificate is not valid any more; None if there is none that can be read.

    TLS looks at it when a connection begins. A connection may last longer, and a client may resume the session of an
    earlier connection, for which TLS does not look again.

    Args:
        context: As for `names_in`.
    """
    pem = next(iter(context.get(PEM_KEY, ())), None)
    return None if pem is None else _expiry(pem)


def context_of_peer(connection: ssl.SSLSocket) -> Mapping[str, list[bytes]]:
    """Return the certificate of the other side, in the way of gRPC; an empty mapping if it has none."""
    der = connection.getpeercert(binary_form=True)
    return {PEM_KEY: [ssl.DER_cert_to_PEM_cert(der).encode()]} if der else {}


@lru_cache(_MAX_KEPT)
def _expiry(pem: bytes) -> datetime | None:
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except ValueError:
        return None


@lru_cache(_MAX_KEPT)
def _names(pem: bytes) -> tuple[str, ...]:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        subject = certificate.subject.rfc4514_string(_ATTRIBUTES)
        found = [f"{SUBJECT}{subject}"] if subject else []
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return tuple(found)
    except ValueError:
        # A library that reads it in another way must not decide who this is.
        return ()
    values: Callable[[Any], list[str]] = alternatives.get_values_for_type
    found += [f"{prefix}{name}" for prefix, kind in _ALTERNATIVE.items() for name in values(kind)]
    return tuple(found)
