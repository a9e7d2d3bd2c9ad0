"""Token issuer for tests, which signs tokens and publishes keys."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def build_jwks(*keys: tuple[str | None, Any], **more: Any) -> bytes:
    """Return a key set of public keys by id; ``more``: further fields of each key."""
    rows = []
    for name, key in keys:
        kind: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        row = json.loads(kind.to_jwk(key.public_key()))
        row.pop("key_ops", None)
        rows.append({**row, **({"kid": name} if name is not None else {}), **more})
    return json.dumps({"keys": rows}).encode()


def sign_token(claims: dict[str, Any], key: Any = RSA, algorithm: str = "RS256", kid: str | None = "a") -> str:
    """Return a signed token."""
    return jwt.encode(claims, key, algorithm, {"kid": kid} if kid is not None else {})


def build_unsigned_token(claims: Any, alg: str = "none", signature: str = "") -> str:
    """Return a token without a signature."""
    parts = ({"alg": alg}, claims)
    head = ".".join(urlsafe_b64encode(json.dumps(x).encode()).decode().rstrip("=") for x in parts)
    return f"{head}.{signature}"
