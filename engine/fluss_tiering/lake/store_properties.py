"""What becomes of the properties of Iceberg's FileIOs, which are Java, where executors write, which is in Python.

Executors take some of them (`store_arguments`). A property is refused by name if executors would otherwise write with
other credentials, to another place or without encryption. The rest only tunes a Java client, or tags files, and has no
effect on executors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from fluss_tiering.model.error_text import mask_secrets
from fluss_tiering.model.errors import ErrorCode, FlussTieringError
from fluss_tiering.model.location import Location

_SDK_PROVIDERS: Final = "software.amazon.awssdk.auth.credentials."
_STATIC_S3: Final = ("s3.access-key-id", "client.access-key-id", "client.assume-role.arn", "s3.role-arn")
_STATIC_AZURE: Final = ("adls.sas-token", "adls.auth.shared-key.account.key", "adls.account-key", "adls.client-secret")
_GIVE_KEYS: Final = "give the catalog s3.access-key-id and s3.secret-access-key, or client.assume-role.arn"
_GIVE_AZURE: Final = "give the catalog adls.auth.shared-key.account.name and .key, or adls.sas-token.ACCOUNT"


class Refusal(NamedTuple):
    """A property that Java follows and executors cannot.

    Attributes:
        why: What executors cannot do.
        instead: What to do.
        harmless: The values, or their beginnings, in lower case, with which executors write as Java does.
        given: Properties, or their beginnings, that executors take in its place.
    """

    why: str
    instead: str
    harmless: tuple[str, ...] = ("false",)
    given: tuple[str, ...] = ()


REFUSED: Final[Mapping[str, Refusal]] = {
    "s3.sse.type": Refusal(
        "which executors cannot ask the store for",
        "make it the default encryption of the bucket, and remove the property",
        ("none", "s3"),
    ),
    "s3.remote-signing-enabled": Refusal(
        "and executors cannot ask the catalog to sign their requests",
        "let the catalog vend credentials, by its property header.X-Iceberg-Access-Delegation=vended-credentials",
    ),
    "s3.access-grants.enabled": Refusal("and executors cannot ask S3 Access Grants", _GIVE_KEYS),
    "s3.access-points.": Refusal(
        "and executors write to the bucket itself", "remove the property, and allow executors to use the bucket", ()
    ),
    "s3.client-factory-impl": Refusal(
        "and executors cannot run Java classes",
        _GIVE_KEYS,
        ("org.apache.iceberg.aws.s3.defaults3fileioawsclientfactory",),
        _STATIC_S3,
    ),
    "client.factory": Refusal(
        "and executors cannot run Java classes",
        _GIVE_KEYS,
        ("org.apache.iceberg.aws.assumeroleawsclientfactory", "org.apache.iceberg.aws.awsclientfactories"),
        _STATIC_S3,
    ),
    "client.credentials-provider": Refusal(
        "and executors cannot run Java classes", _GIVE_KEYS, (_SDK_PROVIDERS,), _STATIC_S3
    ),
    "client.assume-role.tags.": Refusal(
        "and executors assume a role without tags", "use a role that needs no tags of its session", ()
    ),
    "gcs.encryption-key": Refusal(
        "and executors cannot send an encryption key", "use the encryption of the bucket, and remove the property", ()
    ),
    "gcs.decryption-key": Refusal(
        "and executors cannot send an encryption key", "use the encryption of the bucket, and remove the property", ()
    ),
    "gcs.user-project": Refusal(
        "and executors cannot name a project that pays", "use a bucket whose owner pays, and remove the property", ()
    ),
    "gcs.impersonate.delegates": Refusal(
        "and executors can only impersonate a service account directly",
        "allow it for the account of the executors, and remove the property",
        (),
    ),
    "adls.token": Refusal("and executors cannot send a token of Entra ID", _GIVE_AZURE, (), _STATIC_AZURE),
    "adls.token-credential-provider": Refusal("and executors cannot run Java classes", _GIVE_AZURE, (), _STATIC_AZURE),
}
"""The refused properties. A name with a dot at its end is the beginning of names."""


def require_known(location: str, properties: Mapping[str, str]) -> None:
    """Check that executors can write to a location as the properties demand it.

    Raises:
        FlussTieringError: STORAGE if they cannot. The text names the property and says what to do.
    """
    prefixes = _prefixes(Location.parse(location))
    for key, value in properties.items():
        if not key.startswith(prefixes):
            continue
        refusal = REFUSED.get(key) or next((REFUSED[each] for each in REFUSED if _begins(key, each)), None)
        if refusal is None or not value or (refusal.harmless and value.lower().startswith(refusal.harmless)):
            continue
        if not any(each.startswith(refusal.given) for each in properties if refusal.given):
            raise FlussTieringError(
                ErrorCode.STORAGE,
                f"the lake catalog has {mask_secrets(f'{key}={value}')}, {refusal.why}: {refusal.instead}",
            )


def _prefixes(location: Location) -> tuple[str, ...]:
    if location.is_s3:
        return ("s3.", "client.")
    if location.is_gcs:
        return ("gcs.",)
    return ("adls.",) if location.is_azure else ()


def _begins(key: str, name: str) -> bool:
    return name.endswith(".") and key.startswith(name)
