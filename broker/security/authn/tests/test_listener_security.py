"""Listener security from settings, and principals from certificates."""

from __future__ import annotations

import pytest

from ottla.broker.security.authn.listener_security import (
    build_listener_security,
    build_outbound_access,
    find_listener_problems,
    listener_tls,
)
from ottla.broker.security.authn.plain_server import parse_users
from ottla.broker.security.authn.ssl_principal_mapper import InvalidMappingRule, parse_mapping_rules
from ottla.client.connection_security import NO_SECURITY

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{PLAIN} required username="admin" password="a-secret" user_admin="a-secret" user_alice="b-secret";'
SASL = {"sasl.enabled.mechanisms": "PLAIN", "listener.name.in.plain.sasl.jaas.config": JAAS}


@pytest.mark.behaviour("S-301")
def test_listener_setting_overrides_general_setting():
    values = {**SASL, "sasl.enabled.mechanisms": "GSSAPI", "listener.name.in.sasl.enabled.mechanisms": "PLAIN"}
    made = build_listener_security(values, "IN", "SASL_PLAINTEXT", lambda *_: None)
    assert made is not None
    assert made.enabled_mechanisms == ("PLAIN",)
    assert made.plain_digests == parse_users({"user_admin": "a-secret", "user_alice": "b-secret"})


@pytest.mark.behaviour("S-301")
def test_jaas_config_without_mechanism_is_not_used_for_listeners():
    values = {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": JAAS, "listener.name.in.sasl.jaas.config": JAAS}
    (found,) = find_listener_problems(values, {"IN": "SASL_PLAINTEXT"})
    assert found[0] == "listener.name.in.plain.sasl.jaas.config"


@pytest.mark.behaviour("S-316")
def test_max_reauth_ms_may_be_set_per_mechanism():
    values = {**SASL, "connections.max.reauth.ms": "9", "listener.name.in.plain.connections.max.reauth.ms": "7"}
    made = build_listener_security(values, "IN", "SASL_PLAINTEXT", lambda *_: None)
    assert made is not None
    assert made.max_reauth_ms == {"PLAIN": 7}


def test_listener_security_repr_contains_no_password():
    made = build_listener_security(SASL, "IN", "SASL_PLAINTEXT", lambda *_: None)
    assert "secret" not in repr(made)


@pytest.mark.behaviour("S-305")
@pytest.mark.parametrize(
    ("protocol", "values", "client_auth"),
    [
        ("SSL", {"ssl.client.auth": "required"}, "required"),
        ("SASL_SSL", {"ssl.client.auth": "required"}, "none"),
        ("SASL_SSL", {"listener.name.in.ssl.client.auth": "required"}, "required"),
    ],
)
def test_client_auth_of_sasl_ssl_uses_listener_setting_only(protocol, values, client_auth):
    made = listener_tls(values, "IN", protocol)
    assert made is not None
    assert made.client_auth == client_auth


@pytest.mark.parametrize(
    ("values", "protocol", "key"),
    [
        ({}, "SASL_PLAINTEXT", "listener.name.in.gssapi.sasl.jaas.config"),  # GSSAPI is Kafka's default
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "SASL_PLAINTEXT", "sasl.enabled.mechanisms"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "SASL_PLAINTEXT", "listener.name.in.plain.sasl.jaas.config"),
        (
            {**SASL, "listener.name.in.plain.sasl.jaas.config": "nonsense"},
            "SASL_PLAINTEXT",
            "listener.name.in.plain.sasl.jaas.config",
        ),
        ({"ssl.principal.mapping.rules": "RULE:x", "ssl.keystore.location": "k"}, "SSL", "ssl.principal.mapping.rules"),
        ({"ssl.keystore.key": "x"}, "SSL", "ssl.keystore.location"),
        ({}, "SSL", "ssl.keystore.location"),
    ],
)
def test_unsupported_listener_settings_are_reported(values, protocol, key):
    assert [x for x, _ in find_listener_problems(values, {"IN": protocol})] == [key]


def test_listener_problems_contain_no_secret():
    values = {**SASL, "listener.name.in.plain.sasl.jaas.config": JAAS[:-1], "ssl.keystore.password": "c-secret"}
    assert "secret" not in str(list(find_listener_problems(values, {"IN": "SASL_SSL"})))


def test_scram_listener_needs_no_jaas_config():
    assert list(find_listener_problems({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, {"IN": "SASL_PLAINTEXT"})) == []


def test_inter_broker_login_uses_jaas_config():
    access = build_outbound_access(SASL, "IN", "SASL_PLAINTEXT", "PLAIN")
    assert access.login is not None
    assert (access.login.user, access.login.password) == ("admin", "a-secret")
    assert build_outbound_access({}, "IN", "PLAINTEXT", "GSSAPI") is NO_SECURITY


SUBJECT = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.behaviour("S-310")
@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SUBJECT, SUBJECT),
        ("", SUBJECT, SUBJECT),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", SUBJECT, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", SUBJECT, "duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U, DEFAULT", SUBJECT, "DUKE@SERVICEUSERS"),
        ("RULE:^CN=(.*?)$/$1/,DEFAULT", "O=x", "O=x"),
        ("RULE:CN=Duke/x/", SUBJECT, None),  # the whole subject must fit
        (r"RULE:^CN=(.*?)\/(.*?),.*$/$2\/$1/", "CN=a/b,O=x", "b/a"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT", SUBJECT, "duke"),
        (r"RULE:^CN=(\w+)$/$1/", "CN=Müller", None),  # Java's classes contain ASCII only
        (r"RULE:^CN=(\d+)$/$1/", "CN=\u0661", None),
        (r"RULE:^CN=(\S+)$/$1/", "CN=a\u2003b", "a\u2003b"),
    ],
)
def test_first_mapping_rule_matching_whole_subject_is_used(rules, subject, name):
    assert parse_mapping_rules(rules)(subject) == name


@pytest.mark.behaviour("S-310")
@pytest.mark.parametrize(
    "rules",
    [
        "RULE:a",
        "RULE:a/b",
        "RULE:a/b/X",
        "default",
        "RULE:(/b/",
        "RULE:a/$1/",
        "DEFAULT DEFAULT",
        "RULE:[a-z&&[^b]]*/x/",
    ],
)
def test_invalid_mapping_rule_raises(rules):
    with pytest.raises(InvalidMappingRule):
        parse_mapping_rules(rules)
