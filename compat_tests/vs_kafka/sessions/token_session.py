"""Delegation tokens: requests of anonymous clients, and a scenario of authenticated users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import trio

from ottla.client.channel import Channel, open_channel
from ottla.client.connection_security import ConnectionSecurity, SaslLogin
from ottla.client.sasl_authentication import AuthenticationFailed
from ottla.runtime.real_env import RealEnv
from ottla.tools.dump import to_json_value
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.messages import (
    create_acls,
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    metadata,
    renew_delegation_token,
)

TOKENS = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
USERS = {"alice": "alice-secret", "bob": "bob-secret", "carol": "carol-secret", "admin": "admin-secret"}
BOB, GROUP = (
    create_delegation_token.CreatableRenewers("User", "bob"),
    create_delegation_token.CreatableRenewers("Group", "g"),
)
NEVER = 2**63 - 1
_OTHERWISE = ("port", "cluster_id", "error_message")
"""Fields that differ; Kafka's message about an ACL contains Java's objects."""


def tokens(key: ApiKey, version: int) -> Iterator[Message]:
    """Return requests for unknown tokens."""
    match key:
        case ApiKey.CREATE_DELEGATION_TOKEN:
            yield create_delegation_token.CreateDelegationTokenRequest(
                None if version >= 3 else "", None if version >= 3 else ""
            )
            yield create_delegation_token.CreateDelegationTokenRequest(renewers=[GROUP], max_lifetime_ms=-1)
            if version >= 3:
                yield create_delegation_token.CreateDelegationTokenRequest("User", "alice")
                yield create_delegation_token.CreateDelegationTokenRequest(None, "alice")
        case ApiKey.RENEW_DELEGATION_TOKEN:
            yield renew_delegation_token.RenewDelegationTokenRequest(b"x", -1)
        case ApiKey.EXPIRE_DELEGATION_TOKEN:
            yield expire_delegation_token.ExpireDelegationTokenRequest(b"x", -1)
        case _:
            yield describe_delegation_token.DescribeDelegationTokenRequest(None)
            yield describe_delegation_token.DescribeDelegationTokenRequest([])


class TokenSession:
    """Users with their connections, and the responses."""

    def __init__(self, port: int) -> None:
        self._env, self._port = RealEnv(), port
        self._open: dict[str, Channel] = {}
        self.answers: list[tuple[str, Any]] = []
        self._ids: dict[str, str] = {}
        self._hmacs: dict[str, str] = {}
        self._issued_ms = 0

    async def channel_of(self, client: str) -> Channel:
        """Return the connection of a user."""
        if client not in self._open:
            self._open[client] = await self.dial(SaslLogin("SCRAM-SHA-512", client, USERS[client]))
        return self._open[client]

    async def dial(self, login: SaslLogin) -> Channel:
        """Open a connection."""
        return await open_channel(self._env, ("127.0.0.1", self._port), "talk", 20.0, ConnectionSecurity(None, login))

    async def call(self, label: str, request: Message, version: int, client: str = "alice") -> Any:
        """Send a request and record its response."""
        channel = self._open[client] if client in self._open else await self.channel_of(client)
        try:
            answer = await channel.call(request, version)
        except OSError:
            self.answers.append((label, "closed"))
            return None
        self.answers.append((label, self.normalize(to_json_value(answer))))
        return answer

    async def log_in(self, label: str, login: SaslLogin, client: str) -> None:
        """Log in."""
        try:
            self._open[client] = await self.dial(login)
            self.answers.append((label, "in"))
        except AuthenticationFailed as error:
            self.answers.append((label, str(error).replace(login.user, "a token")))

    async def sleep_past(self, time_ms: int) -> None:
        """Wait until the clock is later than this: both nodes read the same clock."""
        await trio.sleep(max(0, time_ms + 1 - self._env.now_ms()) / 1000)

    async def wait_until(
        self, request: Message, version: int, is_so: Callable[[Any], bool], client: str = "admin"
    ) -> None:
        """Repeat a request: Kafka's broker learns of a change a little after its controller has made it."""
        for _ in range(2400):
            if is_so(await (await self.channel_of(client)).call(request, version)):
                return
            await trio.sleep(0.05)
        raise TimeoutError(f"{request}")

    def normalize(self, value: Any, field: str = "") -> Any:
        """Return a response in comparable form: ids and hmacs by number, times as durations after the first."""
        if isinstance(value, dict):
            return {k: self.normalize(v, k) for k, v in value.items() if k not in _OTHERWISE}
        if isinstance(value, list):
            return sorted((self.normalize(v) for v in value), key=repr)
        if field == "token_id" and value:
            return self._ids.setdefault(value, f"token {len(self._ids) + 1}")
        if field == "hmac" and value:
            return self._hmacs.setdefault(repr(value), f"hmac {len(self._hmacs) + 1}")
        if "timestamp" in field and value > 0:
            # Each is whole hours after a request near the start.
            return "never" if value == NEVER else f"{round((value - self.started_ms) / 3_600_000)} h"
        return value

    @property
    def started_ms(self) -> int:
        """Return the start time of the scenario."""
        self._issued_ms = self._issued_ms or self._env.now_ms()
        return self._issued_ms


def describe_by_owner(*names: str) -> describe_delegation_token.DescribeDelegationTokenRequest:
    """Return a request for the tokens of owners."""
    return describe_delegation_token.DescribeDelegationTokenRequest(
        [describe_delegation_token.DescribeDelegationTokenOwner("User", x) for x in names]
    )


def acl_creation(client: str, operation: int, kind: int, name: str) -> create_acls.AclCreation:
    """Return an ACL that allows a user an operation on a resource."""
    return create_acls.AclCreation(kind, name, 3, f"User:{client}", "*", operation, 3)


async def run_session(port: int) -> list[tuple[str, Any]]:
    """Run all requests of users of a node with an authorizer; return the response to each."""
    talk = TokenSession(port)
    assert talk.started_ms
    made = await _create(talk)
    await _describe(talk)
    await _renew_and_expire(talk, made)
    await _log_in(talk, made)
    return talk.answers


async def _create(talk: TokenSession) -> create_delegation_token.CreateDelegationTokenResponse:
    for version in (1, 2, 3):
        await talk.call(
            f"create v{version}", create_delegation_token.CreateDelegationTokenRequest(max_lifetime_ms=-1), version
        )
    await talk.call("too long", create_delegation_token.CreateDelegationTokenRequest(max_lifetime_ms=NEVER), 3)
    await talk.call("for an hour", create_delegation_token.CreateDelegationTokenRequest(None, None, [], 3_600_000), 3)
    await talk.call("a group renews", create_delegation_token.CreateDelegationTokenRequest(None, None, [BOB, GROUP]), 3)
    await talk.call("for carol", create_delegation_token.CreateDelegationTokenRequest("User", "carol"), 3)
    await talk.call(
        "for carol, by a super user",
        create_delegation_token.CreateDelegationTokenRequest("User", "carol", [BOB]),
        3,
        "admin",
    )
    rules = [acl_creation("alice", 13, 7, "User:carol"), acl_creation("alice", 14, 7, "User:admin")]
    await talk.call("rules", create_acls.CreateAclsRequest(rules), 3, "admin")
    for_carol = create_delegation_token.CreateDelegationTokenRequest("User", "carol")
    await talk.wait_until(for_carol, 3, lambda answer: not answer.error_code, "alice")
    made = await talk.call(
        "for carol, who may", create_delegation_token.CreateDelegationTokenRequest("User", "carol", [BOB]), 3
    )
    await talk.call("for no type", create_delegation_token.CreateDelegationTokenRequest(None, "carol"), 3)
    await talk.call("another type", create_delegation_token.CreateDelegationTokenRequest("Role", "carol"), 3, "admin")
    assert isinstance(made, create_delegation_token.CreateDelegationTokenResponse)
    return made


async def _describe(talk: TokenSession) -> None:
    everything = describe_delegation_token.DescribeDelegationTokenRequest(None)
    await talk.wait_until(everything, 3, lambda answer: len(answer.tokens) == 9)
    for identity in ("alice", "bob", "carol", "admin"):
        await talk.call(f"all, as {identity}", everything, 3, identity)
        await talk.call(f"nobody's, as {identity}", describe_by_owner(), 3, identity)
        await talk.call(f"carol's, as {identity}", describe_by_owner("carol"), 2, identity)
        await talk.call(f"bob's and alice's, as {identity}", describe_by_owner("bob", "alice"), 1, identity)


async def _renew_and_expire(talk: TokenSession, made: create_delegation_token.CreateDelegationTokenResponse) -> None:
    for identity in ("bob", "carol", "alice", "admin"):
        await talk.call(
            f"renew as {identity}",
            renew_delegation_token.RenewDelegationTokenRequest(made.hmac, 7_200_000),
            2,
            identity,
        )
        await talk.call(
            f"expire as {identity}",
            expire_delegation_token.ExpireDelegationTokenRequest(made.hmac, 10_800_000),
            2,
            identity,
        )
    await talk.call("renew for ever", renew_delegation_token.RenewDelegationTokenRequest(made.hmac, NEVER), 1, "bob")
    await talk.call("expire never", expire_delegation_token.ExpireDelegationTokenRequest(made.hmac, NEVER), 1, "bob")
    await talk.call("renew nothing", renew_delegation_token.RenewDelegationTokenRequest(b"nothing", 1), 2)
    await talk.call("expire nothing", expire_delegation_token.ExpireDelegationTokenRequest(b"", 1), 2)
    short = await talk.call("for a moment", create_delegation_token.CreateDelegationTokenRequest(None, None, [], 1), 3)
    await talk.wait_until(
        describe_by_owner("alice"), 3, lambda answer: any(x.hmac == short.hmac for x in answer.tokens)
    )
    await talk.sleep_past(short.max_timestamp_ms)
    await talk.call("renew what is over", renew_delegation_token.RenewDelegationTokenRequest(short.hmac, -1), 2)
    await talk.call(
        "renew what is over as bob", renew_delegation_token.RenewDelegationTokenRequest(short.hmac, -1), 2, "bob"
    )
    await talk.call("expire what is over", expire_delegation_token.ExpireDelegationTokenRequest(short.hmac, 5), 2)
    await talk.call(
        "expire what is over as bob", expire_delegation_token.ExpireDelegationTokenRequest(short.hmac, 5), 2, "bob"
    )
    await talk.log_in("log in with what is over", token_login(short), "late")
    await talk.call("too late", metadata.MetadataRequest([]), 12, "late")
    await talk.call("remove what is over", expire_delegation_token.ExpireDelegationTokenRequest(short.hmac, -1), 2)
    await talk.wait_until(
        describe_by_owner("alice"), 3, lambda answer: all(x.hmac != short.hmac for x in answer.tokens)
    )
    await talk.call("renew what is gone", renew_delegation_token.RenewDelegationTokenRequest(short.hmac, -1), 2)


def token_login(made: Any, mechanism: str = "SCRAM-SHA-256", **other: str) -> SaslLogin:
    """Return the login with a delegation token."""
    from base64 import b64encode

    password = other.get("password", b64encode(made.hmac).decode())
    return SaslLogin(mechanism, other.get("user", made.token_id), password, is_delegation_token=True)


async def _log_in(talk: TokenSession, made: create_delegation_token.CreateDelegationTokenResponse) -> None:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        await talk.log_in(f"log in by {mechanism}", token_login(made, mechanism), "token")
        await talk.log_in(f"wrong hmac by {mechanism}", token_login(made, mechanism, password="x"), "nobody")
    await talk.log_in("no such token", token_login(made, user="nothing"), "nobody")
    await talk.log_in("a user's name", token_login(made, user="alice", password=USERS["alice"]), "nobody")
    await talk.log_in("not as a token", SaslLogin("SCRAM-SHA-256", made.token_id, token_login(made).password), "nobody")
    await talk.call("metadata of a token", metadata.MetadataRequest([]), 12, "token")
    for body, request, version in (
        ("create", create_delegation_token.CreateDelegationTokenRequest(), 3),
        ("renew", renew_delegation_token.RenewDelegationTokenRequest(made.hmac, 1), 2),
        ("expire", expire_delegation_token.ExpireDelegationTokenRequest(made.hmac, 1), 2),
        ("describe", describe_delegation_token.DescribeDelegationTokenRequest(None), 3),
    ):
        await talk.call(f"{body} by a token", request, version, "token")
    await talk.call(
        "rules by a token", create_acls.CreateAclsRequest([acl_creation("carol", 8, 2, "walk")]), 3, "token"
    )
    await talk.call("remove", expire_delegation_token.ExpireDelegationTokenRequest(made.hmac, -1), 2, "carol")
    await talk.wait_until(describe_by_owner("carol"), 3, lambda answer: all(x.hmac != made.hmac for x in answer.tokens))
    await talk.log_in("log in with what is gone", token_login(made), "nobody")
    await talk.call("who is in stays in", metadata.MetadataRequest([]), 12, "token")
