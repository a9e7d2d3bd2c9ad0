"""Reload of TLS certificates at run time: changed keystores and truststores apply to new connections.

Behaviour (S-307): keystore and truststore, their types, paths, passwords, keys and certificates may change, as configs
of this broker or cluster-wide defaults. A path that is set again is read again. Invalid stores change nothing and are
logged. Client authentication, protocols and ciphers stay as at the start. Deviation: changes that Kafka's broker
rejects (other subject names, another number of entries) are accepted.

Source: ``DynamicListenerConfig`` in ``DynamicBrokerConfig.scala``, ``SslFactory.java`` (apache/kafka 4.3.1).

From KIP-226.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Protocol

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.security.authn.listener_security import listener_tls
from ottla.client.security_config import InvalidSecurityConfig
from ottla.controller.config.config_keys import canonical_values
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage
from ottla.env.tls import TlsConfig

logger = logging.getLogger("ottla.auth")
_RELOADED_KEYS = re.compile(r"(listener\.name\.[^.]+\.)?ssl\.(keystore|truststore|key)\.")
"""Pattern of the settings in ``SslConfigs.RECONFIGURABLE_CONFIGS``, with or without listener prefix."""


class TlsListener(Protocol):
    """Interface of a TLS listener, through which `CertificateReloader` replaces its certificates."""

    def reload_tls(self, tls: TlsConfig) -> None:
        """Use the keys, certificates and trusted authorities of ``tls`` for new connections; existing ones keep theirs.

        Raises:
            OSError: They cannot be loaded; the former ones stay in use.
        """


class CertificateReloader:
    """Reloader of the certificates of a node's TLS listeners."""

    def __init__(self, config: NodeConfig, listeners: Mapping[str, TlsListener]) -> None:
        self._config = config
        self._listeners = listeners
        self._own = ((RESOURCE_BROKER, str(config.node_id)), (RESOURCE_BROKER, ""))

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Reload the certificates of all TLS listeners if the configs of this broker or the defaults changed.

        A listener whose stores cannot be loaded keeps its certificates; the error is logged.
        """
        if delta.configs.isdisjoint(self._own):
            return
        own, everyone = (image.config(*place) for place in self._own)
        renewed = {k: v for k, v in {**everyone, **own}.items() if _RELOADED_KEYS.match(k)}
        values = {**self._config.values, **canonical_values(renewed)}
        for name, listener in self._listeners.items():
            try:
                tls = listener_tls(values, name, self._config.security_protocol(name))
                assert tls is not None, "only listeners with TLS are here"
                listener.reload_tls(tls)
            except AssertionError:
                raise
            except Exception as error:  # stored values may be arbitrary; raised, it would prevent the next start
                unforeseen = not isinstance(error, (InvalidSecurityConfig, OSError))
                logger.warning(
                    "Failed to reload certificates of listener %s, keeping the former ones: %s",
                    name,
                    error,
                    exc_info=unforeseen,
                )
