"""The kinds of credentials that the settings ask for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fluss_tiering.server.edge.callers.access_file import AccessFile
from fluss_tiering.server.edge.callers.authentication import Authenticator
from fluss_tiering.server.edge.callers.certificates import Certificates
from fluss_tiering.server.edge.callers.issuer_keys import IssuerKeys
from fluss_tiering.server.edge.callers.oidc_tokens import OidcTokens
from fluss_tiering.server.edge.callers.roles import Grant
from fluss_tiering.server.edge.callers.static_tokens import StaticTokens
from fluss_tiering.server.edge.callers.tokens import TokenFile
from fluss_tiering.server.edge.watched_files import WatchedFiles
from fluss_tiering.server.settings.server_settings import ServerSettings


@dataclass(slots=True)
class Authenticators:
    """What knows the credentials of callers.

    Attributes:
        kinds: One for each kind of credentials.
        tokens: The static tokens; None if there are none.
        access: The file that gives roles to others; None if there is none.
        watched: The files that say who may call.
    """

    kinds: list[Authenticator] = field(default_factory=list)
    tokens: StaticTokens | None = None
    access: AccessFile | None = None
    watched: list[WatchedFiles[object]] = field(default_factory=list)

    def grants_of(self, names: Iterable[str]) -> tuple[Grant, ...]:
        """Return the roles that an identity has now which is known by these names."""
        known = tuple(names)
        return tuple(
            grant for source in (self.tokens, self.access) if source is not None for grant in source.grants_of(known)
        )


def authenticators_of(settings: ServerSettings, issuer_keys: IssuerKeys | None) -> Authenticators:
    """Return what knows the credentials of callers.

    Args:
        issuer_keys: The keys of the issuer that the settings name; None if they name none.

    Raises:
        FlussTieringError: INVALID_REQUEST, CORRUPT_DATA or STORAGE if a file that the settings name cannot be read.
    """
    found = Authenticators()
    if settings.tokens_file is not None:
        found.tokens = StaticTokens(TokenFile(settings.tokens_file), lambda: datetime.now(UTC))
        found.kinds.append(found.tokens)
        found.watched.append(found.tokens.watched)
    if settings.access_file is not None:
        access = found.access = AccessFile(settings.access_file)
        found.watched.append(access.watched)
        if settings.tls_client_ca_file is not None:
            found.kinds.append(Certificates(access))
        if settings.oidc is not None and issuer_keys is not None:
            found.kinds.append(OidcTokens(settings.oidc, issuer_keys, access))
    return found
