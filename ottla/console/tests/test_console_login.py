"""Listeners that require a login to the console."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.console.login import PasswordLogin
from ottla.env.tls import TlsConfig

PLAINTEXT = None
TLS = SimpleNamespace(requires_sasl=False, tls=TlsConfig())
MUTUAL_TLS = SimpleNamespace(requires_sasl=False, tls=TlsConfig(client_auth="required"))
SASL = SimpleNamespace(requires_sasl=True, tls=None)


@pytest.mark.parametrize(
    ("listeners", "is_required"),
    [
        ([PLAINTEXT], False),
        ([TLS], False),
        ([SASL], True),
        ([PLAINTEXT, SASL], True),
        ([MUTUAL_TLS], True),
        ([MUTUAL_TLS, MUTUAL_TLS], True),
        ([MUTUAL_TLS, PLAINTEXT], False),
        ([MUTUAL_TLS, TLS], False),
    ],
)
def test_login_is_required_where_no_listener_serves_unknown_clients(listeners: list[Any], is_required: bool) -> None:
    unused: Any = None
    assert PasswordLogin(unused, listeners).is_required is is_required
    with_certificate = PasswordLogin(unused, listeners, requires_certificate=True)
    assert with_certificate.is_required is (is_required and SASL in listeners)
