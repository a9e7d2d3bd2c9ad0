"""Metadata cache for request handlers: a metadata image, and the advertised endpoints of the brokers.

On broker listeners it is the last applied image, on controller listeners the last committed one.

Source: ``KRaftMetadataCache.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.requests.peer import Peer
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage

NodeEndpoint = tuple[int, str, int, str | None]
"""Broker id, host, port and rack (None if not configured)."""


class MetadataCache:
    """Cache of the metadata image for request handlers of one kind of listeners.

    The publisher sets the image of brokers' listeners, `set_image` that of controller listeners.
    """

    def __init__(self, config: NodeConfig, cluster_id: str, kraft_version: Callable[[], int]) -> None:
        self._config = config
        self.cluster_id = cluster_id
        self._kraft_version = kraft_version
        self.image = MetadataImage()
        self._bound_hosts: dict[str, str] | None = None

    @property
    def kraft_version(self) -> int:
        """Feature level kraft.version, which is not in the image, as its records are those of the quorum."""
        return self._kraft_version()

    def set_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Set the committed image, for request handlers on controller listeners; ``delta`` is not used."""
        self.image = image

    def endpoints(self, peer: Peer, *, fenced: bool = False) -> list[NodeEndpoint]:
        """Return the brokers' endpoints on a client's listener, in the order of broker ids.

        Without an advertised address, this node's is the one that the client connected to. Other brokers without that
        listener are left out; fenced brokers and those in controlled shutdown, too, unless ``fenced``.
        """
        out: list[NodeEndpoint] = []
        for broker_id, broker in sorted(self.image.brokers.items()):
            if (broker.fenced or broker.in_controlled_shutdown) and not fenced:
                continue
            if broker_id == self._config.node_id:
                host, port = self._config.advertised_address(peer.listener) or self._connected_address(peer)
            else:
                end = next((e for e in broker.end_points if e.name == peer.listener), None)
                if end is None:
                    continue  # the client could not connect to it by this listener
                host, port = end.host, end.port
            out.append((broker_id, host, port, broker.rack))
        return out

    def _connected_address(self, peer: Peer) -> tuple[str, int]:
        """Return the address that a client connected to; the host is the listener's configured name, if it has one.

        Other nodes return the same name: clients would treat different names as different brokers.
        """
        if self._bound_hosts is None:
            listeners = self._config.client_listeners
            self._bound_hosts = {x.name: x.host for x in listeners if ":" not in x.host and not x.host[-1:].isdigit()}
        host, port = peer.local
        return self._bound_hosts.get(peer.listener) or host, port
