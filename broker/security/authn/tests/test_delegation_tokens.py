"""Delegation tokens at brokers and controllers: permissions and descriptions (S-331 to S-334)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch.api_registry import BROKER_APIS, CONTROLLER_APIS, FORWARDED_WITH_REQUESTER
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.handlers.controller.tests.test_envelope import ADDRESS, enveloped
from ottla.broker.handlers.security.describe_delegation_token import _describe_all
from ottla.broker.requests.peer import ANONYMOUS, Peer
from ottla.broker.services import QuotaHolder
from ottla.broker.tests.controller_channel_fixture import ControllerChannelFixture
from ottla.broker.tests.handler_fixture import VirtualEnv, resolve, run_virtual
from ottla.controller.control.delegation_tokens import SECRET, TokenRequestContext, token_hmac
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey, response_class
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.framing import encode_request, parse_request
from ottla.wire.messages import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from ottla.wire.messages.consumer_protocol import DefaultPrincipalData
from ottla.wire.messages.metadata_records import DelegationTokenRecord

O, R = AclOperation, ResourceType  # noqa: E741 - rows are short
ALICE, BOB, CAROL, ADMIN = "User:alice", "User:bob", "User:carol", "User:admin"
NOW = 1_700_000_000_000
PROTOCOLS = "OPEN:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT,BOTH:SASL_SSL"
LISTENERS = "OPEN://h:1,TLS://h:2,LOGIN://h:3,BOTH://h:4"
SETTINGS = {SECRET: "a-secret", "listeners": LISTENERS, "listener.security.protocol.map": PROTOCOLS}


def a_token(token_id: str, owner: str, requester: str, *renewers: str) -> DelegationTokenRecord:
    return DelegationTokenRecord(owner, requester, list(renewers), NOW, NOW + 2, NOW + 1, token_id)


def image_of(*records: Any) -> MetadataImage:
    draft = ImageBuilder(MetadataImage())
    for record in records:
        draft.replay(record)
    return run_to_end(draft.image(1, 1))


class DelegationTokenNode:
    """Listener of a node with a scripted controller."""

    def __init__(self, image: MetadataImage | None = None, routes: Any = BROKER_APIS, **settings: str) -> None:
        self.env: Any = VirtualEnv()
        self.requested: list[Any] = []
        self.rights: set[tuple[AclOperation, ResourceType, str]] | None = None
        self.refusal: ProtocolError | None = None
        config = NodeConfig({**SETTINGS, **{k.replace("_", "."): v for k, v in settings.items()}})
        services: Any = SimpleNamespace(
            env=self.env,
            config=config,
            metadata=SimpleNamespace(image=image or MetadataImage(), kraft_version=1),
            controller_forwarder=SimpleNamespace(forward=lambda context, request: self._decide(request)),
            controller=SimpleNamespace(submit=lambda event, version: self._decide(event), leader_id=2),
            log_creator=(),
            authorizer=None,
            audit=None,
            quota_holder=QuotaHolder(),
        )
        self.services, self.routes = services, routes

    async def _decide(self, event: Any) -> Any:
        self.requested.append(event)
        if self.refusal is not None:
            raise self.refusal
        request = getattr(event, "request", event)
        return response_class(ApiKey(request.SPEC.key))()

    def ask(self, request: Any, version: int, listener: str = "LOGIN", user: str = ALICE, token: bool = False) -> Any:
        """Return the response as the client decodes it."""
        if self.rights is not None:
            may = lambda peer, *requested: requested in self.rights  # noqa: E731
            self.services.authorizer = SimpleNamespace(decisions={}, may=may)
        key = ApiKey(request.SPEC.key)
        frame = memoryview(encode_request(key, version, 5, "c", request)[4:])
        dispatcher = Dispatcher(self.services, self.routes, listener)

        async def scenario() -> Any:
            peer = Peer("10.0.0.2", ("here", 9092), listener)
            peer.principal, peer.token_authenticated = user, token
            return await resolve(dispatcher.handle_request(peer, parse_request(frame)))

        answer = run_virtual(scenario)
        return compiler.decode_exact(response_class(key), version, compiler.encode(answer, version))


REQUESTS: list[tuple[Any, int]] = [
    *((create_delegation_token.CreateDelegationTokenRequest(), v) for v in (1, 2, 3)),
    *((renew_delegation_token.RenewDelegationTokenRequest(b"x", 1), v) for v in (1, 2)),
    *((expire_delegation_token.ExpireDelegationTokenRequest(b"x", 1), v) for v in (1, 2)),
    *((describe_delegation_token.DescribeDelegationTokenRequest(None), v) for v in (1, 2, 3)),
]

# ------------------------------------------------------------------ 333: listener and principal


@pytest.mark.behaviour("S-333")
@pytest.mark.parametrize(
    ("listener", "client", "token", "may"),
    [
        ("OPEN", ANONYMOUS, False, False),
        ("OPEN", ALICE, False, False),
        ("TLS", ANONYMOUS, False, False),
        ("TLS", ALICE, False, True),
        ("LOGIN", ALICE, False, True),
        ("BOTH", ALICE, False, True),
        ("LOGIN", ALICE, True, False),
        ("BOTH", ALICE, True, False),
    ],
)
@pytest.mark.parametrize("routes", [BROKER_APIS, CONTROLLER_APIS], ids=["broker", "controller"])
@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=str)
def test_token_requests_are_allowed_by_listener_and_principal(
    request_: Any, version: int, routes: Any, listener: str, client: str, token: bool, may: bool
) -> None:
    if ApiKey(request_.SPEC.key) not in routes:
        pytest.skip("no controller describes tokens")
    node = DelegationTokenNode(routes=routes)
    answer = node.ask(request_, version, listener, client, token)
    assert answer.error_code == (0 if may else ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if not may:
        assert node.requested == []
        assert getattr(answer, "expiry_timestamp_ms", -1) == -1
        assert getattr(answer, "issue_timestamp_ms", -1) == -1


def test_forwarded_token_apis_have_a_controller_endpoint() -> None:
    forwarded = [spec for spec in BROKER_APIS.values() if spec.forwarding == FORWARDED_WITH_REQUESTER]
    modules = {spec.endpoint(at_controller=False).handler_module for spec in forwarded}
    assert modules == {"security.delegation_tokens"}
    assert len(forwarded) == 3
    assert {spec.key for spec in forwarded} <= set(CONTROLLER_APIS)


@pytest.mark.behaviour("S-333")
def test_controller_receives_principal_of_request() -> None:
    node = DelegationTokenNode(routes=CONTROLLER_APIS)
    renew = renew_delegation_token.RenewDelegationTokenRequest(b"x", 1)
    node.ask(renew, 2)
    (requested,) = node.requested
    assert requested == TokenRequestContext(renew, ALICE, requested.now_ms)
    assert requested.now_ms > 0


@pytest.mark.behaviour("S-333")
@pytest.mark.parametrize(("token", "code"), [(False, 0), (True, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)])
def test_envelope_on_plaintext_listener_is_allowed_unless_token_authenticated(token: bool, code: int) -> None:
    node = DelegationTokenNode(routes=CONTROLLER_APIS)
    request = create_delegation_token.CreateDelegationTokenRequest()
    principal = bytes(2) + compiler.encode(DefaultPrincipalData("User", "bob", token), 0)
    envelope = enveloped(request, 3, request_principal=principal, client_host_address=ADDRESS)
    answer = node.ask(envelope, 0, "OPEN", ANONYMOUS)
    assert answer.error_code == 0
    inner = compiler.decode_exact(create_delegation_token.CreateDelegationTokenResponse, 3, answer.response_data[5:])
    assert inner.error_code == code
    assert [x.principal for x in node.requested] == ([] if token else [BOB])


def test_local_controller_receives_principal_of_request(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = ControllerChannelFixture(monkeypatch)
    fixture.local_controller.is_active = True
    fixture.local_controller.responses = [create_delegation_token.CreateDelegationTokenResponse()]
    request = create_delegation_token.CreateDelegationTokenRequest()
    asking = fixture.forwardable_request(request, 3)
    asking.peer.principal = BOB

    async def scenario() -> None:
        await fixture.channel.forward(asking, request)

    fixture.run(scenario)
    ((requested, version),) = fixture.local_controller.requests
    assert (requested.request, requested.principal, version) == (request, BOB, 3)


# ------------------------------------------------------------------ 334: create


@pytest.mark.behaviour("S-334")
@pytest.mark.parametrize("routes", [BROKER_APIS, CONTROLLER_APIS], ids=["broker", "controller"])
@pytest.mark.parametrize(
    ("rights", "owner", "code"),
    [
        ([], None, 0),
        ([], ALICE, 0),
        ([], CAROL, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        ([(O.CREATE_TOKENS, R.USER, CAROL)], CAROL, 0),
        ([(O.DESCRIBE_TOKENS, R.USER, CAROL)], CAROL, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        ([(O.CREATE_TOKENS, R.USER, "carol")], CAROL, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
    ],
)
def test_create_token_for_other_owner_requires_permission(
    rights: Any, owner: str | None, code: int, routes: Any
) -> None:
    node = DelegationTokenNode(routes=routes)
    node.rights = set(rights)
    named = [None, None] if owner is None else owner.split(":")
    answer = node.ask(create_delegation_token.CreateDelegationTokenRequest(*named), 3)
    assert (answer.error_code, len(node.requested)) == (code, int(not code))
    if code:
        assert (answer.principal_name, answer.token_requester_principal_name) == ("carol", "alice")
        assert answer.max_timestamp_ms == -1


@pytest.mark.behaviour("S-334")
def test_create_token_for_other_owner_without_authorizer_is_allowed() -> None:
    assert (
        DelegationTokenNode().ask(create_delegation_token.CreateDelegationTokenRequest("User", "carol"), 3).error_code
        == 0
    )


@pytest.mark.behaviour("S-334")
def test_create_token_with_non_user_renewer_returns_invalid_principal_type() -> None:
    node = DelegationTokenNode()
    answer = node.ask(
        create_delegation_token.CreateDelegationTokenRequest(
            None, None, [create_delegation_token.CreatableRenewers("Group", "g")]
        ),
        3,
    )
    assert (answer.error_code, answer.issue_timestamp_ms) == (ErrorCode.INVALID_PRINCIPAL_TYPE, -1)
    assert node.requested == []


@pytest.mark.parametrize("routes", [BROKER_APIS, CONTROLLER_APIS], ids=["broker", "controller"])
@pytest.mark.parametrize(
    ("count", "chars", "code"),
    [(1_000, 1, 0), (1_001, 1, ErrorCode.RECORD_LIST_TOO_LARGE), (40, 30_000, ErrorCode.RECORD_LIST_TOO_LARGE)],
)
def test_create_token_limits_number_and_size_of_renewers(count: int, chars: int, code: int, routes: Any) -> None:
    node = DelegationTokenNode(routes=routes)
    renewers = [create_delegation_token.CreatableRenewers("User", "x" * chars)] * count
    answer = node.ask(create_delegation_token.CreateDelegationTokenRequest(None, None, renewers), 3)
    assert (answer.error_code, len(node.requested)) == (code, int(not code))
    assert answer.max_timestamp_ms == (-1 if code else 0)


@pytest.mark.parametrize("routes", [BROKER_APIS, CONTROLLER_APIS], ids=["broker", "controller"])
def test_create_token_owner_without_type_returns_unknown_server_error(routes: Any) -> None:
    answer = DelegationTokenNode(routes=routes).ask(
        create_delegation_token.CreateDelegationTokenRequest(None, "carol"), 3
    )
    assert (answer.error_code, answer.principal_name) == (ErrorCode.UNKNOWN_SERVER_ERROR, "ANONYMOUS")
    assert answer.expiry_timestamp_ms == -1


@pytest.mark.parametrize("version", [1, 2, 3])
def test_inactive_controller_returns_not_controller(version: int) -> None:
    node = DelegationTokenNode(routes=CONTROLLER_APIS)
    node.refusal = ProtocolError(ErrorCode.NOT_CONTROLLER)
    answer = node.ask(create_delegation_token.CreateDelegationTokenRequest(), version)
    assert (answer.error_code, answer.principal_name) == (ErrorCode.NOT_CONTROLLER, "ANONYMOUS")
    for request in (
        renew_delegation_token.RenewDelegationTokenRequest(),
        expire_delegation_token.ExpireDelegationTokenRequest(),
    ):
        answer = node.ask(request, min(version, 2))
        assert (answer.error_code, answer.expiry_timestamp_ms) == (ErrorCode.NOT_CONTROLLER, 0)


# ------------------------------------------------------------------ 334: describe

TOKENS = image_of(
    a_token("own", ALICE, ALICE), a_token("asked", CAROL, ALICE), a_token("renews", CAROL, ADMIN, BOB, ALICE),
    a_token("other", CAROL, ADMIN, BOB),
)  # fmt: skip
MINE = {"own", "asked", "renews"}


@pytest.mark.behaviour("S-334")
@pytest.mark.parametrize(
    ("owners", "rights", "seen"),
    [
        (None, [], MINE),
        ([], [], set()),
        ([ALICE], [], MINE),
        ([BOB], [], {"renews"}),
        ([CAROL], [], {"asked", "renews"}),
        ([ADMIN, "Group:alice"], [], {"renews"}),
        (["User:nobody"], [], set()),
        (None, [(O.DESCRIBE, R.DELEGATION_TOKEN, "other")], {*MINE, "other"}),
        (None, [(O.DESCRIBE, R.DELEGATION_TOKEN, "own")], MINE),
        (None, [(O.DESCRIBE_TOKENS, R.USER, CAROL)], {*MINE, "other"}),
        (None, [(O.DESCRIBE_TOKENS, R.USER, ADMIN)], MINE),
        (None, [(O.CREATE_TOKENS, R.USER, CAROL)], MINE),
        ([ALICE], [(O.DESCRIBE_TOKENS, R.USER, CAROL)], MINE),
        ([BOB], [(O.DESCRIBE_TOKENS, R.USER, CAROL)], {"renews", "other"}),
    ],
)
def test_describe_tokens_returns_own_renewable_and_permitted_tokens(
    owners: list[str] | None, rights: Any, seen: set[str]
) -> None:
    node = DelegationTokenNode(TOKENS)
    node.rights = set(rights)
    named = (
        None
        if owners is None
        else [describe_delegation_token.DescribeDelegationTokenOwner(*x.split(":")) for x in owners]
    )
    assert {
        x.token_id for x in node.ask(describe_delegation_token.DescribeDelegationTokenRequest(named), 3).tokens
    } == seen


@pytest.mark.behaviour("S-334")
@pytest.mark.parametrize(("version", "requester"), [(1, ("", "")), (2, ("", "")), (3, ("User", "admin"))])
def test_describe_token_returns_all_fields_by_version(version: int, requester: tuple[str, str]) -> None:
    answer = DelegationTokenNode(TOKENS).ask(describe_delegation_token.DescribeDelegationTokenRequest(None), version)
    row = next(x for x in answer.tokens if x.token_id == "renews")
    assert (row.principal_type, row.principal_name) == ("User", "carol")
    assert (row.token_requester_principal_type, row.token_requester_principal_name) == requester
    assert (row.issue_timestamp, row.expiry_timestamp, row.max_timestamp) == (NOW, NOW + 1, NOW + 2)
    assert row.hmac == token_hmac("a-secret", "renews")
    assert [(x.principal_type, x.principal_name) for x in row.renewers] == [("User", "bob"), ("User", "alice")]


def test_describe_tokens_with_many_owners_runs_in_slices() -> None:
    context: Any = SimpleNamespace(image=MetadataImage())
    owners = [describe_delegation_token.DescribeDelegationTokenOwner("User", str(n)) for n in range(1_000)]
    assert (
        sum(
            1
            for _ in _describe_all(
                context, describe_delegation_token.DescribeDelegationTokenRequest(owners), "a-secret"
            )
        )
        == 10
    )


@pytest.mark.behaviour("S-331")
def test_describe_tokens_without_secret_key_returns_auth_disabled() -> None:
    node = DelegationTokenNode(TOKENS, delegation_token_secret_key="")
    answer = node.ask(describe_delegation_token.DescribeDelegationTokenRequest(None), 3)
    assert (answer.error_code, answer.tokens) == (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, [])
