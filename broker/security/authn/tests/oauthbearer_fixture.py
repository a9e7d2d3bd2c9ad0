"""Fixture of token tests: an environment with a file of keys, and a validator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.security.authn.jwks import JsonWebKeySet, JwksRefresh
from ottla.broker.security.authn.jwt_validator import BrokerJwtValidator, JwtRequirements
from ottla.broker.security.authn.tests.token_issuer import RSA, build_jwks
from ottla.broker.tests.connection_fixture import ConnectionEnv
from ottla.broker.tests.memory_net import MemoryNet
from ottla.env.disk import FileStat

NOW_S = 1_000_000
VALID_CLAIMS = {"sub": "alice", "iat": NOW_S - 5, "exp": NOW_S + 60}
PATH = "/keys.json"
INVALID_TOKEN_RESPONSE = b'{"status":"invalid_token"}'


class KeyFileDisk:
    """Disk with one file, which a test replaces."""

    def __init__(self, data: bytes) -> None:
        self.data, self.mtime_ms, self.reads = data, 1, 0

    def put(self, data: bytes) -> None:
        self.data, self.mtime_ms = data, self.mtime_ms + 1

    def stat(self, path: str) -> FileStat:
        if path != PATH:
            raise FileNotFoundError(path)
        return FileStat(len(self.data), self.mtime_ms)

    def open(self, path: str, *, readonly: bool) -> Any:
        self.reads += 1
        data = self.data
        return SimpleNamespace(size=lambda: len(data), pread=lambda size, at: data[at : at + size], close=lambda: None)


def create_env(keys: bytes = b'{"keys": []}') -> Any:
    env: Any = ConnectionEnv()
    env.disk, env.net = KeyFileDisk(keys), MemoryNet()
    return env


def create_jwks(env: Any, url: str = f"file://{PATH}") -> JsonWebKeySet:
    return JsonWebKeySet(env, url, JwksRefresh(3_600_000, 100, 10_000))


def create_requirements(
    audiences: set[str] = frozenset(), issuer: str | None = None, skew_s: int = 30, **claims: str
) -> JwtRequirements:  # type: ignore[assignment]
    return JwtRequirements(frozenset(audiences), issuer, skew_s, claims.get("scope", "scope"), claims.get("sub", "sub"))


def create_validator(
    env: Any = None, wants: JwtRequirements | None = None, keys: bytes | None = None
) -> BrokerJwtValidator:
    env = env or create_env(build_jwks(("a", RSA)) if keys is None else keys)
    return BrokerJwtValidator(wants or create_requirements(), create_jwks(env), lambda: NOW_S * 1000)


def initial_message(token: str = "good", *, head: str = "n,,", scheme: str = "Bearer", more: str = "") -> bytes:
    return f"{head}\x01auth={scheme} {token}\x01{more}\x01".encode()
