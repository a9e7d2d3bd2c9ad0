"""What tests of tokens share: a world with a file of keys, and who reads tokens there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.auth.jwks import Keys, Refresh
from ottla.broker.auth.web_tokens import Signed, Wanted
from ottla.broker.tests.line import World
from ottla.broker.tests.memory_net import MemoryNet
from ottla.broker.tests.token_maker import RSA, published
from ottla.world.disk import FileStat

NOW_S = 1_000_000
GOOD = {"sub": "alice", "iat": NOW_S - 5, "exp": NOW_S + 60}
PATH = "/keys.json"
REFUSED = b'{"status":"invalid_token"}'


class Folder:
    """A disk with one file, which changes when the test says so."""

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


def world(keys: bytes = b'{"keys": []}') -> Any:
    env: Any = World()
    env.disk, env.net = Folder(keys), MemoryNet()
    return env


def keys_of(env: Any, url: str = f"file://{PATH}") -> Keys:
    return Keys(env, url, Refresh(3_600_000, 100, 10_000))


def wanted(audiences: set[str] = frozenset(), issuer: str | None = None, skew_s: int = 30, **claims: str) -> Wanted:  # type: ignore[assignment]
    return Wanted(frozenset(audiences), issuer, skew_s, claims.get("scope", "scope"), claims.get("sub", "sub"))


def reader(env: Any = None, wants: Wanted | None = None, keys: bytes | None = None) -> Signed:
    env = env or world(published(("a", RSA)) if keys is None else keys)
    return Signed(wants or wanted(), keys_of(env), lambda: NOW_S * 1000)


def message(token: str = "good", *, head: str = "n,,", scheme: str = "Bearer", more: str = "") -> bytes:
    return f"{head}\x01auth={scheme} {token}\x01{more}\x01".encode()
