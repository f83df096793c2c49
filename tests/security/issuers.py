"""An issuer of OpenID Connect for tests: a real HTTP server, keys, and tokens that are signed without PyJWT."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from certificates import Pair

AUDIENCE = "fluss-tiering"
_HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def encoded(content: bytes) -> str:
    """Return base64url without padding (RFC 7515, section 2)."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _number(value: int, size: int | None = None) -> str:
    return encoded(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


class Key:
    """A key of an algorithm."""

    def __init__(self, kid: str | None, algorithm: str = "ES256", bits: int = 2048) -> None:
        self.kid = kid
        self.algorithm = algorithm
        self._bits = bits

    @cached_property
    def private(self) -> Any:
        if self.algorithm in _CURVES:
            return ec.generate_private_key(_CURVES[self.algorithm])
        if self.algorithm == "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        return rsa.generate_private_key(65537, self._bits)

    @property
    def pem(self) -> bytes:
        """The public key in PEM, as people publish it."""
        return self.private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def jwk(self, **others: object) -> dict[str, object]:
        """The public key as RFC 7517 and RFC 7518 write it."""
        public = self.private.public_key()
        entry: dict[str, object] = {"use": "sig", "alg": self.algorithm}
        if self.kid is not None:
            entry["kid"] = self.kid
        if isinstance(public, rsa.RSAPublicKey):
            numbers = public.public_numbers()
            entry |= {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        elif isinstance(public, ec.EllipticCurvePublicKey):
            point, size = public.public_numbers(), (public.curve.key_size + 7) // 8
            curve = {256: "P-256", 384: "P-384", 521: "P-521"}[public.curve.key_size]
            entry |= {"kty": "EC", "crv": curve, "x": _number(point.x, size), "y": _number(point.y, size)}
        else:
            raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
            entry |= {"kty": "OKP", "crv": "Ed25519", "x": encoded(raw)}
        return entry | others

    def sign(self, text: bytes) -> bytes:
        """Sign as RFC 7518 says it."""
        if self.algorithm == "EdDSA":
            return self.private.sign(text)
        digest = _HASHES[self.algorithm[2:]]
        if self.algorithm.startswith("ES"):
            r, s = decode_dss_signature(self.private.sign(text, ec.ECDSA(digest)))
            size = (self.private.curve.key_size + 7) // 8
            return r.to_bytes(size, "big") + s.to_bytes(size, "big")
        if self.algorithm.startswith("PS"):
            scheme: Any = padding.PSS(padding.MGF1(digest), digest.digest_size)
        else:
            scheme = padding.PKCS1v15()
        return self.private.sign(text, scheme, digest)


def joined(header: object, claims: object) -> bytes:
    """Return what is signed of a token."""
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in (header, claims))
    return ".".join(map(encoded, parts)).encode()


def signed_with_secret(header: dict[str, object], claims: dict[str, object], secret: bytes) -> str:
    """Return a token of HS256."""
    text = joined(header | {"alg": "HS256"}, claims)
    return f"{text.decode()}.{encoded(hmac.digest(secret, text, hashlib.sha256))}"


class Issuer:
    """An issuer that answers over HTTP, or over HTTPS with a certificate, or as `answer` says.

    Attributes:
        keys: The keys that it publishes.
        requested: The paths that it was asked for.
        answer: Answers a request in place of the issuer; None for the issuer itself.
    """

    def __init__(self, *keys: Key, tls: Pair | None = None) -> None:
        self.keys = list(keys) or [Key("first")]
        self.requested: list[str] = []
        self.answer: Callable[[BaseHTTPRequestHandler], None] | None = None
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self._tls = tls

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}/realms/shop"

    def documents(self) -> dict[str, object]:
        """What it answers by the path."""
        return {
            "/realms/shop/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            "/realms/shop/keys": {"keys": [key.jwk() for key in self.keys]},
        }

    def __enter__(self) -> Self:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requested.append(self.path)
                if issuer.answer is not None:
                    issuer.answer(self)
                else:
                    answer_json(self, issuer.documents().get(self.path))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        if self._tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def claims(self, **others: object) -> dict[str, object]:
        """Return the claims of a token that is valid; those that are None are left out."""
        now = int(time.time())
        made: dict[str, object] = {"iss": self.url, "aud": AUDIENCE, "sub": "anna", "iat": now, "exp": now + 3600}
        return {name: value for name, value in (made | others).items() if value is not None}

    def token(self, key: Key | None = None, header: dict[str, object] | None = None, **claims: object) -> str:
        """Return a token, by default of the newest key."""
        key = key or self.keys[-1]
        named = {} if key.kid is None else {"kid": key.kid}
        text = joined({"alg": key.algorithm, "typ": "JWT", **named, **(header or {})}, self.claims(**claims))
        return f"{text.decode()}.{encoded(key.sign(text))}"


def answer_json(handler: BaseHTTPRequestHandler, content: object) -> None:
    """Answer with JSON, or that nothing was found."""
    body = json.dumps(content).encode()
    handler.send_response(404 if content is None else 200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
