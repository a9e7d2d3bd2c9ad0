"""JAAS configs and client security settings."""

from __future__ import annotations

import pytest

from ottla.client.jaas import InvalidJaasConfig, parse_jaas
from ottla.client.security_config import InvalidSecurityConfig, parse_connection_security

SASL = {"security.protocol": "SASL_PLAINTEXT"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="a" password="b";', {"username": "a", "password": "b"}),
        (f"{PLAIN} required username='a' password=b ;", {"username": "a", "password": "b"}),
        (
            f'{PLAIN}   required\n  username="a"\n  password = "p;=\\"q\\\\";\n',
            {"username": "a", "password": 'p;="q\\'},
        ),
        ("org.x.ScramLoginModule required;", {}),
        ("x.Y Sufficient user_alice='' ;", {"user_alice": ""}),
    ],
)
def test_parse_jaas_reads_options(text, options):
    assert parse_jaas(text).options == options


def test_parse_jaas_decodes_escapes_as_stream_tokenizer() -> None:
    text = r"""x.Y required a="\t\n\r\f\b\a\v\q\"\\" b='\101\60\7\477\08';"""
    assert parse_jaas(text).options == {"a": '\t\n\r\f\b\a\vq"\\', "b": "A0\x07\x277\x008"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x.Y required",
        "x.Y;",
        "x.Y maybe a=b;",
        'x.Y required a="b;',
        "x.Y required a=b; x.Z required;",
        "x.Y required a;",
    ],
)
def test_parse_jaas_malformed_raises_without_showing_it(text):
    with pytest.raises(InvalidJaasConfig) as refused:
        parse_jaas(text)
    assert "x.Y" not in str(refused.value)


def test_login_module_repr_hides_options():
    assert "secret" not in repr(parse_jaas('x.Y required password="secret";'))


def test_parse_connection_security_reads_tls_and_login():
    access = parse_connection_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": 'x.ScramLoginModule required username="alice" password="s3cret";',
            "ssl.truststore.location": "ca.pem",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert access.login is not None
    assert (access.login.mechanism, access.login.user, access.login.password) == ("SCRAM-SHA-512", "alice", "s3cret")
    assert access.tls is not None
    assert access.tls.truststore is not None
    assert access.tls.truststore.location == "ca.pem"
    assert not access.tls.verify_hostname
    assert "s3cret" not in repr(access)


def test_parse_connection_security_verifies_hostname_by_default():
    access = parse_connection_security({"security.protocol": "SSL"})
    assert access.tls is not None
    assert access.tls.verify_hostname


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"security.protocol": "TLS"}, "unknown security.protocol: TLS"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "GSSAPI"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "jaas"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x.Y required;"},
            "username",
        ),
        ({"security.protocol": "SSL", "ssl.keystore.key": "k"}, "go together"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "f", "ssl.truststore.certificates": "c"}, "be set"),
    ],
)
def test_parse_connection_security_invalid_raises_with_one_line(values, why):
    with pytest.raises(InvalidSecurityConfig, match=why):
        parse_connection_security(values)
