"""GSSAPI logins with a fake library. `compat_tests` use tickets of a real KDC."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.network.secure_connection import SecureConnection
from ottla.broker.network.tests.test_connection import BEAT, beat
from ottla.broker.security.authn import kerberos_config
from ottla.broker.security.authn.gssapi_server import GssapiSaslServer
from ottla.broker.security.authn.kerberos_name_rules import parse_name_rules
from ottla.broker.security.authn.listener_security import build_listener_security, check_keytab, find_listener_problems
from ottla.broker.security.authn.sasl_authenticator import SaslAuthenticator, SaslPolicy, SaslState
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time
from ottla.env.env import ThreadPool
from ottla.env.kerberos import InvalidKeytab, InvalidTicket, Keytab
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

OFFER = b"sealed \x01\x01\0\0"
NONE = b"sealed \x01\0\0\0"
NO_RESPONSE = b"a ticket, and nothing is told"


class FakeSecurityContext:
    """Accepts any ticket that is not marked as bad."""

    is_established = False
    client = ""

    def accept(self, token: bytes) -> bytes:
        if token.startswith(b"bad"):
            raise InvalidTicket("not good")
        if token == b"more":
            return b"go on"
        self.is_established, self.client = True, "alice@HERE.ORG"
        return b"" if token == NO_RESPONSE else b"told"

    def wrap(self, data: bytes) -> bytes:
        return b"sealed " + data

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(b"sealed "):
            raise InvalidTicket("no seal")
        return token.removeprefix(b"sealed ")


def exchange(rules: str = "DEFAULT") -> GssapiSaslServer:
    return GssapiSaslServer(
        SimpleNamespace(default_realm="HERE.ORG", new_context=FakeSecurityContext), parse_name_rules(rules, "HERE.ORG")
    )


def create_authenticator(rules: str = "DEFAULT", *, reauth_ms: int = 0) -> SaslAuthenticator:
    policy = SaslPolicy(
        {"GSSAPI": lambda: exchange(rules)}, {"GSSAPI": reauth_ms}, lambda _: ApiVersionsResponse(), lambda: 1
    )
    return SaslAuthenticator(policy)


def exchange_tokens(made: SaslAuthenticator, *tokens: bytes, now_ms: float = 0.0) -> list[Any]:
    """Return the results of a handshake and tokens, one for each token."""
    made.handle(memoryview(frame(ApiKey.SASL_HANDSHAKE, 1, 1, SaslHandshakeRequest("GSSAPI"))[4:]), now_ms)
    out = []
    for token in tokens:
        raw = frame(ApiKey.SASL_AUTHENTICATE, 2, 2, SaslAuthenticateRequest(token))[4:]
        outcome = made.handle(memoryview(raw), now_ms)
        assert outcome.token == token, "nothing is decided on the loop"
        out.append(made.complete(outcome.request, made.evaluate(outcome.token), now_ms))
    return out


def result_of(outcome: Any) -> Any:
    return None if outcome.response is None else (outcome.response.error_code, bytes(outcome.response.auth_bytes))


@pytest.mark.behaviour("S-320")
def test_gssapi_ticket_empty_token_and_no_protection_completes():
    made = create_authenticator()
    assert [result_of(x) for x in exchange_tokens(made, b"a ticket", b"", NONE)] == [(0, b"told"), (0, OFFER), (0, b"")]
    assert (made.state, made.principal_name) == (SaslState.COMPLETE, "alice")


@pytest.mark.behaviour("S-320")
def test_gssapi_without_server_token_sends_offer_with_ticket():
    made = create_authenticator()
    assert [result_of(x) for x in exchange_tokens(made, NO_RESPONSE, NONE)] == [(0, OFFER), (0, b"")]
    assert made.state is SaslState.COMPLETE


@pytest.mark.behaviour("S-320")
def test_gssapi_ticket_may_take_several_tokens():
    assert result_of(exchange_tokens(create_authenticator(), b"more", b"a ticket")[0]) == (0, b"go on")


@pytest.mark.behaviour("S-320")
@pytest.mark.parametrize("chosen", [NONE, b"sealed \x01\0\0\0bob", b"sealed \x07\0\xff\xff"])
def test_gssapi_authorization_id_is_ignored_for_ticket_principal(chosen):
    made = create_authenticator()
    exchange_tokens(made, b"a ticket", b"", chosen)
    assert made.principal_name == "alice"


@pytest.mark.behaviour("S-314")
@pytest.mark.parametrize(
    "tokens",
    [
        (b"bad",),
        (b"a ticket", b"words"),
        (b"a ticket", b"", b"no seal"),
        (b"a ticket", b"", b"sealed \x02\0\xff\xff"),
        (b"a ticket", b"", b"sealed \x04\0\xff\xff"),
        (b"a ticket", b"", b"sealed \x00\0\xff\xff"),
    ],
)
def test_gssapi_failure_is_delayed_and_has_generic_message(tokens):
    *_, outcome = exchange_tokens(create_authenticator(), *tokens)
    assert outcome.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert outcome.response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
    )
    assert outcome.is_delayed


@pytest.mark.behaviour("S-320")
@pytest.mark.parametrize("tokens", [(b"a ticket", b"", b"sealed "), (b"a ticket", b"", b"sealed \x01")])
def test_gssapi_too_short_choice_closes_without_response(tokens):
    *_, outcome = exchange_tokens(create_authenticator(), *tokens)
    assert (outcome.response, outcome.is_delayed, bool(outcome.failure)) == (None, False, True)


@pytest.mark.behaviour("S-309")
def test_gssapi_principal_without_name_mapping_succeeds_then_closes():
    made = create_authenticator("RULE:[2:$1]")
    *_, outcome = exchange_tokens(made, b"a ticket", b"", NONE)
    assert result_of(outcome) == (0, b"")
    assert outcome.failure
    assert made.state is not SaslState.COMPLETE


@pytest.mark.behaviour("S-312")
def test_gssapi_after_handshake_v0_sends_no_last_token():
    made = create_authenticator()
    made.handle(memoryview(frame(ApiKey.SASL_HANDSHAKE, 0, 1, SaslHandshakeRequest("GSSAPI"))[4:]), 0)
    answers = []
    for token in (b"a ticket", b"", NONE):
        outcome = made.handle(memoryview(token), 0)
        answers.append(made.complete(outcome.request, made.evaluate(outcome.token), 0).response)
    assert answers == [b"told", OFFER, None]
    assert made.state is SaslState.COMPLETE


@pytest.mark.behaviour("S-318")
def test_gssapi_reauthentication_with_same_name_succeeds():
    made = create_authenticator(reauth_ms=5000)
    exchange_tokens(made, b"a ticket", b"", NONE)
    *_, outcome = exchange_tokens(made, b"a ticket", b"", NONE, now_ms=2000)
    assert result_of(outcome) == (0, b"")


# ------------------------------------------------------------------ settings

KEYS = "listener.name.in.gssapi.sasl.jaas.config"
SERVICE, RULES = kerberos_config.SERVICE_NAME, kerberos_config.PRINCIPAL_RULES
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
LINE = f'{MODULE} useKeyTab=true storeKey=true keyTab="/k" principal="kafka/h@HERE.ORG";'
GOOD = {"sasl.enabled.mechanisms": "GSSAPI", KEYS: LINE, SERVICE: "kafka"}


@pytest.fixture
def library(monkeypatch):
    """Pretend that the gssapi library is installed."""
    monkeypatch.setattr(kerberos_config, "find_spec", lambda name: name)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ({}, []),
        ({KEYS: "nonsense"}, [KEYS]),
        ({KEYS: f'{MODULE} useKeyTab=true keyTab="/k" principal="a";'}, [KEYS]),
        ({KEYS: f'{MODULE} storeKey=true keyTab="/k" principal="a";'}, [KEYS]),
        ({KEYS: f'{MODULE} useKeyTab=true storeKey=true keyTab="/k";'}, [KEYS]),
        ({SERVICE: ""}, [SERVICE]),
        ({SERVICE: "", KEYS: LINE.replace(";", " serviceName=kafka;")}, []),
        ({KEYS: LINE.replace(";", " serviceName=http;")}, [SERVICE]),
        ({RULES: "RULE:[1:$1]s/(//"}, [RULES]),
        ({"listener.name.in." + RULES: "RULES"}, [RULES]),
    ],
)
def test_gssapi_listener_problems_name_the_setting(more, keys):
    assert [key for key, _ in find_listener_problems({**GOOD, **more}, {"IN": "SASL_PLAINTEXT"})] == keys


def test_gssapi_without_library_reports_installation_command(monkeypatch):
    monkeypatch.setattr(kerberos_config, "find_spec", lambda name: None)
    assert [text for _, text in find_listener_problems(GOOD, {"IN": "SASL_PLAINTEXT"})] == [
        "needs the library gssapi: pip install 'ottla[kerberos]'"
    ]


@pytest.mark.parametrize("path", ["/k", "FILE:/k", "file:/k"])
def test_parse_keytab_accepts_path_with_and_without_file_prefix(path):
    assert kerberos_config.parse_keytab(LINE.replace("/k", path)) == Keytab("/k", "kafka/h@HERE.ORG")


def no_keys(_: Keytab) -> Any:
    raise InvalidKeytab("no such key")


def test_check_keytab_reads_keys_only_for_gssapi_listeners():
    env: Any = SimpleNamespace(kerberos_acceptor=no_keys)
    with pytest.raises(InvalidKeytab):
        check_keytab(GOOD, "IN", "SASL_SSL", env)
    check_keytab(GOOD, "IN", "SSL", env)
    check_keytab({**GOOD, "sasl.enabled.mechanisms": "PLAIN"}, "IN", "SASL_SSL", env)


# ------------------------------------------------------------------ a connection


def test_gssapi_tokens_are_evaluated_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = DispatcherFixture(monkeypatch)
    fixture.serve(BEAT, lambda context, request: HeartbeatResponse(error_code=len(context.peer.principal)))
    lanes: list[ThreadPool] = []
    env: Any = fixture.env

    async def in_thread(work: Any, lane: ThreadPool) -> Any:
        lanes.append(lane)
        return work()

    env.in_thread = in_thread
    env.kerberos_acceptor = lambda keytab: SimpleNamespace(default_realm="HERE.ORG", new_context=FakeSecurityContext)
    made = build_listener_security(GOOD, "IN", "SASL_PLAINTEXT", lambda *_: None, env)
    assert made is not None
    stream = ClientStream()

    async def run() -> None:
        stream.send_bytes(frame(ApiKey.SASL_HANDSHAKE, 1, 1, SaslHandshakeRequest("GSSAPI")))
        for token in (b"a ticket", b"", NONE):
            stream.send_bytes(frame(ApiKey.SASL_AUTHENTICATE, 2, 2, SaslAuthenticateRequest(token)))
        stream.send_bytes(beat(3))
        stream.disconnect()
        await SecureConnection(fixture.dispatcher, stream, made).serve()

    in_virtual_time(run)
    assert lanes == [ThreadPool.AUTHENTICATION] * 3
    assert len("User:alice").to_bytes(2, "big") in stream.received[-8:]
