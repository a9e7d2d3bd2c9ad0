"""Binding of listeners: a keytab that cannot be used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.network.bound_listeners import BindError, BoundListeners
from ottla.broker.security.authn import kerberos_config
from ottla.env.kerberos import InvalidKeytab, Keytab

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
LOGIN = f'{MODULE} required useKeyTab=true storeKey=true keyTab="/k" principal="k/h@R";'
SETTINGS = {
    "listeners": "IN://127.0.0.1:9092",
    "listener.security.protocol.map": "IN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    "listener.name.in.gssapi.sasl.jaas.config": LOGIN,
}


def test_keytab_that_cannot_be_used_is_bind_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(keytab: Keytab) -> Any:
        raise InvalidKeytab(f"no key of {keytab.principal} in {keytab.path}")

    monkeypatch.setattr(kerberos_config, "find_spec", lambda name: name)
    env: Any = SimpleNamespace(net=None, kerberos_acceptor=refuse)
    listeners = BoundListeners(env, NodeConfig(SETTINGS, host="127.0.0.1", port=9092))
    with pytest.raises(BindError, match=r"^listener IN: no key of k/h@R in /k$"):
        trio.run(listeners.bind, "127.0.0.1", 9092, "IN")
