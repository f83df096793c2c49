"""The public keys with which an issuer's tokens are verified, read from its JSON Web Key Set (RFC 7517)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | ed448.Ed448PublicKey

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_OF_CURVE: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
ALGORITHMS: Final = _RSA | frozenset(_OF_CURVE.values()) | {"EdDSA"}
"""The algorithms that are accepted. With those of a shared secret (HS256) whoever verifies tokens could make them."""

_FAMILIES: Final = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}
"""An algorithm by which PyJWT reads the keys of each type."""
_MIN_RSA_BITS: Final = 2048
"""RFC 7518, sections 3.3 and 3.5."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key of an issuer. Two are equal if the issuer published them in the same words.

    Attributes:
        kid: The name of the key in the headers of tokens; None if it has none.
        algorithms: The algorithms that the key is for.
        text: The key as the issuer published it.
        public: The key.
    """

    kid: str | None
    algorithms: frozenset[str]
    text: str
    public: PublicKey = field(compare=False, repr=False)


def read_key_set(content: dict[str, Any]) -> tuple[SigningKey, ...]:
    """Return the keys of a set that can verify tokens. As RFC 7517 wants it, the others are left out."""
    entries = content.get("keys")
    read = map(_read, entries) if isinstance(entries, list) else ()
    return tuple(dict.fromkeys(key for key in read if key is not None))


def fitting(keys: Sequence[SigningKey], kid: str | None) -> tuple[SigningKey, ...]:
    """Return the keys that a token may be signed with. A token that names none may be signed with any."""
    return tuple(key for key in keys if kid in (None, key.kid))


def _read(entry: object) -> SigningKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or not _may_verify(entry):
        return None
    public = _public_key(entry)
    if public is None:
        return None
    algorithms, kid = _algorithms_of(public), entry.get("kid")
    if "alg" in entry:
        algorithms = frozenset(each for each in algorithms if each == entry["alg"])
    if not algorithms or not isinstance(kid, str | None):
        return None
    return SigningKey(kid, algorithms, json.dumps(entry, sort_keys=True), public)


def _may_verify(entry: dict[str, Any]) -> bool:
    operations = entry.get("key_ops")
    return operations is None or (isinstance(operations, list) and "verify" in operations)


def _public_key(entry: dict[str, Any]) -> PublicKey | None:
    # Without the algorithm that the entry names, for which PyJWT may have no name.
    public_part = {name: value for name, value in entry.items() if name in {"kty", "crv", "x", "y", "n", "e"}}
    try:
        found = jwt.PyJWK.from_dict(public_part, _FAMILIES[entry["kty"]]).key
    except Exception:  # noqa: BLE001 - whatever the issuer sent
        return None
    return found if isinstance(found, PublicKey) else None


def _algorithms_of(public: PublicKey) -> frozenset[str]:
    if isinstance(public, rsa.RSAPublicKey):
        return _RSA if public.key_size >= _MIN_RSA_BITS else frozenset()
    if isinstance(public, ec.EllipticCurvePublicKey):
        name = _OF_CURVE.get(public.curve.name)
        return frozenset() if name is None else frozenset({name})
    return frozenset({"EdDSA"})
