"""Certificates configured while the node runs (S-307)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.security.authn.certificate_reload import CertificateReloader
from ottla.broker.security.authn.listener_security import listener_tls
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from ottla.env.tls import InvalidTlsConfig, TlsConfig

KEY = "ssl.keystore.location"
OWN, EVERYONE = (RESOURCE_BROKER, "1"), (RESOURCE_BROKER, "")
CONFIG = NodeConfig(
    {
        "listeners": "IN://a:1,OUT://a:2",
        "listener.security.protocol.map": "IN:SSL,OUT:SASL_SSL",
        KEY: "first.pem",
    }
)


class ReloadableListener:
    def __init__(self) -> None:
        self.shown: list[str] = []
        self.refuses: Exception | None = None

    def reload_tls(self, tls: TlsConfig) -> None:
        if self.refuses is not None:
            raise self.refuses
        assert tls.keystore is not None
        self.shown.append(tls.keystore.location)


def reloaded_keystores(
    configs: dict[tuple[int, str], dict[str, str]], changed: tuple[int, str]
) -> tuple[list[str], list[str]]:
    one, other = ReloadableListener(), ReloadableListener()
    CertificateReloader(CONFIG, {"IN": one, "OUT": other}).publish(
        MetadataImage(configs=configs), MetadataDelta(configs=frozenset({changed}))
    )
    return one.shown, other.shown


@pytest.mark.behaviour("S-307")
def test_keystore_of_listener_reloads_only_that_listener():
    configs = {OWN: {"listener.name.in.ssl.keystore.location": "second.pem"}}
    assert reloaded_keystores(configs, OWN) == (["second.pem"], ["first.pem"])


@pytest.mark.behaviour("S-307")
def test_keystore_of_all_brokers_applies_unless_overridden():
    assert reloaded_keystores({EVERYONE: {KEY: "all.pem"}}, EVERYONE) == (["all.pem"], ["all.pem"])
    assert reloaded_keystores({EVERYONE: {KEY: "all.pem"}, OWN: {KEY: "own.pem"}}, EVERYONE) == (
        ["own.pem"],
        ["own.pem"],
    )


@pytest.mark.parametrize("changed", [(RESOURCE_TOPIC, "1"), (RESOURCE_BROKER, "2")])
def test_unrelated_config_changes_reload_no_certificate(changed):
    assert reloaded_keystores({OWN: {KEY: "own.pem"}}, changed) == ([], [])


@pytest.mark.behaviour("S-307")
@pytest.mark.parametrize(
    "error", [InvalidTlsConfig("no usable key"), ValueError("no usable key"), IndexError("no usable key")]
)
def test_invalid_keystore_is_logged_and_former_certificate_kept(caplog, error):
    """An invalid store must not end the node: it is read again at the next start as well."""
    one, other = ReloadableListener(), ReloadableListener()
    one.refuses = error
    changed = MetadataDelta(configs=frozenset({OWN}))
    CertificateReloader(CONFIG, {"IN": one, "OUT": other}).publish(
        MetadataImage(configs={OWN: {KEY: "new.pem"}}), changed
    )
    assert (one.shown, other.shown) == ([], ["new.pem"])
    assert "Failed to reload certificates of listener IN, keeping the former ones: no usable key" in caplog.text


@pytest.mark.behaviour("S-307")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.client.auth", "none"),
        ("ssl.enabled.protocols", "TLSv1.2"),
        ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "listener.name.in."])
@pytest.mark.parametrize("client", [OWN, EVERYONE])
def test_client_auth_and_cipher_settings_are_not_dynamic(name, value, prefix, client):
    """Otherwise the right to alter broker configs would admit clients without a certificate."""
    config = NodeConfig(
        {**CONFIG.values, "ssl.client.auth": "required", "listener.name.out.ssl.client.auth": "required"}
    )
    shown = []
    listener = SimpleNamespace(reload_tls=shown.append)
    image = MetadataImage(
        configs={client: {prefix + name: value, "listener.name.in.ssl.keystore.location": "second.pem"}}
    )
    CertificateReloader(config, {"IN": listener}).publish(image, MetadataDelta(configs=frozenset({client})))
    at_start = listener_tls(config.values, "IN", "SSL")
    assert shown == [replace(at_start, keystore=replace(at_start.keystore, location="second.pem"))]
