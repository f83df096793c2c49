"""Authenticates callers by the certificate of their TLS connection, which gRPC has checked against the clients' CA."""

from __future__ import annotations

from datetime import UTC, datetime

from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.server.edge.callers.access_file import AccessFile
from fluss_tiering.server.edge.callers.authentication import Authenticated, CallCredentials
from fluss_tiering.server.edge.callers.certificate_names import expiry_in, names_in
from fluss_tiering.server.edge.callers.identity import Identity


class Certificates:
    """Knows certificates by their subject, such as `CN=airflow,O=shop`, and by their alternative names.

    Args:
        access: The roles of certificates.
    """

    def __init__(self, access: AccessFile) -> None:
        self._access = access

    def authenticate(self, credentials: CallCredentials) -> Authenticated | None:
        """Return the owner of the certificate, who has no role if the access file does not name it.

        Raises:
            FlussTieringError: AUTHENTICATION if the certificate has expired since the connection began.
        """
        if credentials.bearer is not None:
            # Who brings a token wants to be known by it.
            return None
        names, expires = names_in(credentials.certificate), expiry_in(credentials.certificate)
        if expires is not None and datetime.now(UTC) >= expires:
            raise FlussTieringError(
                ErrorCode.AUTHENTICATION,
                f"the client certificate has expired at {expires.isoformat()}: renew it, and connect again",
            )
        if not names:
            return None
        known = [name for name in names if self._access.grants_of([name])]
        name = known[0] if known else names[0]
        identity = Identity(name, self._access.grants_of(known), known_by=tuple(known))

        def is_valid() -> bool:
            is_present = expires is None or datetime.now(UTC) < expires
            return is_present and self._access.grants_of(known) == identity.grants

        return Authenticated(identity, is_valid)
