"""Settings of a node: Kafka's names, types and defaults, with typed access to those that Ottla uses.

A static value is the last of: Kafka's default, default of a single node, ``--config FILE``, environment, ``--set``.
Dynamic settings override it. At startup an unknown key is a warning, an invalid value an error (`startup_checks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.broker.config import listener_config as listeners
from ottla.broker.config.dynamic_config import DynamicBrokerConfig, log_invalid_stored_value
from ottla.broker.config.listener_config import ConfigException, ListenerAddress
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import (
    CLAIMED_TIME,
    INTERNAL_SEGMENT_BYTES,
    OWN_BROKER_KEYS,
    TOPIC_KEYS,
    VALIDATE_RECORDS,
    ConfigKey,
    broker_key,
    canonical_values,
    synonyms_of,
    topic_key,
    valid_canonical_value,
)
from ottla.controller.metadata.image import RESOURCE_TOPIC, MetadataImage
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine.quorum_timeouts import QuorumTimeouts
from ottla.env.env import SocketBuffers
from ottla.log.java_properties import MalformedProperties, load_settings
from ottla.log.log_config import NO_TIERING, LogConfig, topic_tiering
from ottla.wire.codec.schema import Message
from ottla.wire.record_batch.compression import CompressionType

if TYPE_CHECKING:
    from ottla.client.connection_security import ConnectionSecurity

# Values of Kafka's sample server.properties for a single node.
STANDALONE_DEFAULTS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_QUORUM_TIMEOUTS = {
    "election_ms": "election.timeout",
    "fetch_ms": "fetch.timeout",
    "backoff_max_ms": "election.backoff.max",
    "retry_ms": "retry.backoff",
    "request_ms": "request.timeout",
}
"""Names of the quorum's timeouts by field, without ``controller.quorum.`` and ``.ms``."""
DEFAULT_SEND_BUFFER_BYTES = 192 << 10
"""Default of ``socket.send.buffer.bytes``: large responses reach 1.2 times the rate of Kafka.

With Kafka's 100 KiB it is 0.97 times, with 1 MiB half, as the processor's cache no longer holds the buffer.
"""
RETENTION_MS = "retention.ms"
_DEFAULTS: Mapping[str, str | None] = {
    **{name: key.default for name, key in BROKER_KEYS.items()},
    **{name: key.default for name, key in OWN_BROKER_KEYS.items()},
}


def closest_match(name: str, candidates: Iterable[str]) -> str | None:
    """Return the element of ``candidates`` that ``name`` is probably a misspelling of; None if none is similar."""
    # lazy: 1.9 ms, 145 kB
    import difflib

    found = difflib.get_close_matches(name, list(candidates), 1, 0.6)
    return found[0] if found else None


@dataclass(slots=True)
class NodeConfig:
    """Configuration of a node. ``host`` and ``port`` are those of its first client listener, overriding the values."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    data_dir: str = "./ottla-data"
    node_id: int = 1
    host: str = "127.0.0.1"
    port: int = 9092
    cluster_id: str | None = None
    host_name: str = "localhost"
    """Host name of this machine, advertised for a listener bound to all addresses."""
    has_joined_cluster: bool = False
    """True if the metadata log has other nodes in the quorum."""
    credentials: tuple[Message, ...] = field(default=(), repr=False)
    """SCRAM credentials written when a new cluster is formatted."""
    outbound_access: dict[tuple[str, str], ConnectionSecurity] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cached security settings of connections to other nodes, see `ottla.broker.interbroker.credentials`."""
    _standalone_defaults_cache: Mapping[str, str] | None = field(default=None, init=False, repr=False, compare=False)
    _dynamic_config: DynamicBrokerConfig | None = field(default=None, init=False, repr=False, compare=False)
    _effective_values: dict[str, str | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cached results of `effective_value`, valid while `_effective_values_sources` is unchanged."""
    _effective_values_sources: tuple[Mapping[str, str], ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.values = canonical_values(self.values)

    def text(self, name: str) -> str:
        """Return a broker setting's static value: the user's, else the single-node or Kafka's default, or empty."""
        if name in self.values:
            return self.values[name]
        own = self._standalone_defaults()
        if name in own:
            return own[name]
        default = (BROKER_KEYS.get(name) or OWN_BROKER_KEYS[name]).default
        return "" if default is None else default

    def number(self, name: str) -> int:
        """Return a broker setting's static value as integer."""
        return int(self.text(name))

    @property
    def data_dirs(self) -> list[str]:
        """Log directories; the first contains the metadata log, unless ``metadata.log.dir`` is set.

        Raises:
            ConfigException: a directory is named twice, or there is none.
        """
        out = [x.strip().rstrip("/") or "/" for x in self.data_dir.split(",") if x.strip()]
        if not out or len(set(out)) != len(out):
            raise ConfigException(f"log.dirs={self.data_dir}: " + ("duplicate directory" if out else "no directory"))
        return out

    @property
    def metadata_dir(self) -> str | None:
        """Value of ``metadata.log.dir``, None if it is not set."""
        named = self.values.get("metadata.log.dir", "").strip()
        return named.rstrip("/") or None

    @property
    def socket_buffers(self) -> SocketBuffers:
        """Configured sizes of socket buffers; the default send buffer is larger than Kafka's (see `bench.fetch`)."""
        send, receive = "socket.send.buffer.bytes", "socket.receive.buffer.bytes"
        return SocketBuffers(
            self.number(send) if send in self.values else DEFAULT_SEND_BUFFER_BYTES, self.number(receive)
        )

    @property
    def static_values(self) -> Mapping[str, str]:
        """Static settings: the user's, over the defaults of a single node, if it is one; without Kafka's defaults."""
        return {**self._standalone_defaults(), **self.values}

    def flag(self, name: str) -> bool:
        """Return True if a broker setting's static value is ``true``, in any case; False for any other value."""
        return self.text(name).strip().lower() == "true"

    # ------------------------------------------------------------------ listeners and controllers

    def mark_joined_cluster(self) -> None:
        """Record that the quorum has other nodes: defaults of a single node no longer apply."""
        self.has_joined_cluster = True
        self._standalone_defaults_cache = self._dynamic_config = None
        self._effective_values_sources = ()

    def _standalone_defaults(self) -> Mapping[str, str]:
        """Return the defaults of a single node that differ from Kafka's, empty for a node of a larger cluster."""
        if self._standalone_defaults_cache is None:
            self._standalone_defaults_cache = STANDALONE_DEFAULTS if self.is_standalone else {}
        return self._standalone_defaults_cache

    @property
    def is_standalone(self) -> bool:
        """True if no settings or stored voters name other controllers: the node is a single-node cluster."""
        return not self.has_joined_cluster and not listeners.refers_to_other_nodes(
            self.values, self.node_id, tuple(self.controller_listeners), self.host_name
        )

    @property
    def roles(self) -> frozenset[str]:
        """Roles of the node: ``broker``, ``controller``, or both."""
        return listeners.parse_roles(self.values)

    @property
    def first_listener(self) -> tuple[str, int]:
        """Host and port of the first entry of ``listeners`` (on a broker: for clients); without one `host`, `port`."""
        named = listeners.parse_listeners(self.values, listeners.LISTENERS)
        names = listeners.controller_listener_names(self.values)
        wanted = (x for x in named if x.name not in names or listeners.BROKER_ROLE not in self.roles)
        return next(((x.host, x.port) for x in wanted), (self.host, self.port))

    @property
    def client_listeners(self) -> list[ListenerAddress]:
        """Listeners for clients and brokers, with `host` and `port` for the first; empty for a controller-only node."""
        if listeners.BROKER_ROLE not in self.roles:
            return []
        names = listeners.controller_listener_names(self.values)
        named = [x for x in listeners.parse_listeners(self.values, listeners.LISTENERS) if x.name not in names]
        first = named[0] if named else ListenerAddress(listeners.DEFAULT_LISTENER, "", 0)
        return [first._replace(host=self.host, port=self.port), *named[1:]]

    @property
    def controller_listeners(self) -> list[ListenerAddress]:
        """Controller listeners, in the order of ``controller.listener.names``; the first is used by other nodes.

        If ``listeners`` has none, it is one with `host` and port 0: a free port is chosen once. Empty for a broker-only
        node.
        """
        if listeners.CONTROLLER_ROLE not in self.roles:
            return []
        names = listeners.controller_listener_names(self.values)
        named = [x for x in listeners.parse_listeners(self.values, listeners.LISTENERS) if x.name in names]
        return sorted(named, key=lambda x: names.index(x.name)) or [ListenerAddress(names[0], self.host, 0)]

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener for connections between brokers."""
        named = self.values.get(listeners.INTER_BROKER_LISTENER, "").strip().upper()
        clients = [x.name for x in self.client_listeners]
        if named:
            return named
        protocol = self.values.get(listeners.INTER_BROKER_PROTOCOL, listeners.DEFAULT_LISTENER).strip().upper()
        return protocol if protocol in clients or not clients else clients[0]

    def security_protocol(self, listener: str) -> str:
        """Return the security protocol of a listener: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT``, ``SASL_SSL``."""
        return listeners.parse_protocol_map(self.values).get(listener, listeners.DEFAULT_LISTENER)

    def advertised_address(self, listener: str | None = None) -> tuple[str, int] | None:
        """Return the advertised address of a listener; without a name that of the first client listener.

        None if it is not configured, so that each client gets the address it connected to.
        """
        if listeners.ADVERTISED_LISTENERS not in self.values:
            return None
        names = listeners.controller_listener_names(self.values)
        for found in listeners.parse_listeners(self.values, listeners.ADVERTISED_LISTENERS):
            if found.name == listener or (listener is None and found.name not in names):
                return found.host, found.port
        return None

    def registered_listeners(self, ports: Mapping[str, int]) -> list[ListenerAddress]:
        """Return the listeners to register: the advertised ones; without any, all for clients with bound ``ports``."""
        names = listeners.controller_listener_names(self.values)
        advertised = [
            x for x in listeners.parse_listeners(self.values, listeners.ADVERTISED_LISTENERS) if x.name not in names
        ]
        return [self._reachable_address(x, ports.get(x.name, x.port)) for x in advertised or self.client_listeners]

    def _reachable_address(self, address: ListenerAddress, bound: int) -> ListenerAddress:
        """Return an address reachable by other nodes: host name for the wildcard address, bound port for port 0."""
        host = self.host_name if address.host in listeners.ANY_HOST else address.host
        return address._replace(host=host, port=address.port or bound)

    def quorum_config(self, *ports: int, kept: Sequence[ListenerEndpoint] = ()) -> QuorumConfig:
        """Return the quorum configuration; ``ports``: bound ports of this node's controller listeners, in their order.

        ``kept``: previous endpoints of this node; for a configured port 0 one of this name, port and host is kept.
        """
        values = self.values
        times = {field: self.number(f"controller.quorum.{name}.ms") for field, name in _QUORUM_TIMEOUTS.items()}
        listener = listeners.controller_listener_names(values)[0]
        return QuorumConfig(
            listener,
            tuple(self._controller_endpoint(x, p, kept) for x, p in zip(self.controller_listeners, ports, strict=True)),
            tuple((v.id, ListenerEndpoint(listener, v.host, v.port)) for v in listeners.parse_voters(values)),
            listeners.parse_bootstrap_servers(values),
            QuorumTimeouts(**times, fetch_bytes=self.number("controller.quorum.fetch.max.bytes")),
            self.flag(listeners.AUTO_JOIN),
        )

    def _controller_endpoint(
        self, bound: ListenerAddress, port: int, kept: Sequence[ListenerEndpoint]
    ) -> ListenerEndpoint:
        """Return a controller endpoint: in ``kept``, else advertised or bound; for a wildcard the voter's (R-241)."""
        if bound.port == 0:
            for before in kept:
                if (before.name, before.port) == (bound.name, port) and listeners.is_same_host(before.host, bound.host):
                    return before
        advertised = next(
            (x for x in listeners.parse_listeners(self.values, listeners.ADVERTISED_LISTENERS) if x.name == bound.name),
            bound,
        )
        own = next((v for v in listeners.parse_voters(self.values) if v.id == self.node_id), None)
        if (
            advertised.host in listeners.ANY_HOST
            and own is not None
            and bound.name == listeners.controller_listener_names(self.values)[0]
        ):
            return ListenerEndpoint(bound.name, own.host, own.port)
        reachable = self._reachable_address(advertised, port)
        return ListenerEndpoint(reachable.name, reachable.host, reachable.port)

    # ------------------------------------------------------------------ effective values

    def dynamic_values(self, image: MetadataImage) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return two mappings of the dynamic settings in force: this broker's own, and the cluster-wide defaults."""
        if self._dynamic_config is None:
            self._dynamic_config = DynamicBrokerConfig(self.node_id, self.static_values)
        return self._dynamic_config.current_values(image)

    def effective_value(self, image: MetadataImage, name: str) -> str | None:
        """Return a broker setting's effective value: per broker, cluster default, static, else default; None if unset.

        A synonym in another unit (``log.retention.hours``) is converted to the unit of ``name``. Values are cached
        until a dynamic setting changes, as every topic needs some twenty of them.
        """
        sources = self.dynamic_values(image)
        if sources is not self._effective_values_sources:
            self._effective_values, self._effective_values_sources = {}, sources
        if name not in self._effective_values:
            self._effective_values[name] = self._compute_effective_value(sources, name)
        return self._effective_values[name]

    def _compute_effective_value(self, dynamic: Iterable[Mapping[str, str]], name: str) -> str | None:
        names = synonyms_of(name)
        for source in (*dynamic, self.values, self._standalone_defaults(), _DEFAULTS):
            for other, unit in names:
                value = source.get(other)
                text = None if value is None else valid_canonical_value(broker_key(other), value)
                if text is not None:
                    return text if unit == 1 else str(max(int(text) * unit, -1))
        return None

    def topic_text(self, image: MetadataImage, topic: str, key: ConfigKey) -> str | None:
        """Return a topic setting's effective value: of the topic, else of the broker setting, else Kafka's default.

        None if Kafka has no default for it.
        """
        own = image.config(RESOURCE_TOPIC, topic).get(key.name)
        text = None if own is None else valid_canonical_value(key, own)
        if text is not None:
            return text
        if own is not None:
            log_invalid_stored_value(f"topic {topic!r}", key.name, own)
        text = key.default if key.broker_key is None else self.effective_value(image, key.broker_key)
        return "-1" if key.name == RETENTION_MS and text is not None and text.startswith("-") else text

    def log_settings(self, image: MetadataImage, topic: str) -> LogConfig:
        """Return a topic's effective settings as configuration of its logs."""

        def get(name: str) -> str:
            key = topic_key(name)
            assert key is not None
            return self.topic_text(image, topic, key) or ""

        codec = {"producer": None, "uncompressed": CompressionType.NONE}
        name = get("compression.type")
        chosen = codec[name] if name in codec else CompressionType[name.upper()]
        level = f"compression.{name}.level"
        return LogConfig(
            segment_bytes=int(get(INTERNAL_SEGMENT_BYTES) or get("segment.bytes")),
            segment_ms=int(get("segment.ms")),
            segment_index_bytes=int(get("segment.index.bytes")),
            index_interval_bytes=int(get("index.interval.bytes")),
            max_message_bytes=int(get("max.message.bytes")),
            log_append_time=get("message.timestamp.type") == "LogAppendTime",
            timestamp_before_max_ms=int(get("message.timestamp.before.max.ms")),
            timestamp_after_max_ms=int(get("message.timestamp.after.max.ms")),
            compact="compact" in get("cleanup.policy").split(","),
            delete="delete" in get("cleanup.policy").split(","),
            flush_messages=int(get("flush.messages")),
            flush_ms=int(get("flush.ms")),
            delete_retention_ms=int(get("delete.retention.ms")),
            min_insync_replicas=int(get("min.insync.replicas")),
            min_compaction_lag_ms=int(get("min.compaction.lag.ms")),
            max_compaction_lag_ms=int(get("max.compaction.lag.ms")),
            min_cleanable_dirty_ratio=float(get("min.cleanable.dirty.ratio")),
            retention_ms=int(get("retention.ms")),
            retention_bytes=int(get("retention.bytes")),
            retention_by_claimed_time=get(CLAIMED_TIME) == "true",
            validate_records=get(VALIDATE_RECORDS) == "true",
            segment_jitter_ms=int(get("segment.jitter.ms")),
            compression_type=chosen,
            compression_level=int(get(level)) if level in TOPIC_KEYS else None,
            file_delete_delay_ms=int(get("file.delete.delay.ms")),
            tiering=topic_tiering(topic, get) if self.flag("remote.log.storage.system.enable") else NO_TIERING,
        )


def settings_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of environment variables, named as for Kafka's container image: ``KAFKA_NUM_PARTITIONS``.

    Three underscores stand for ``-``, two for ``_``, one for ``.``. Other variables (``KAFKA_HOME``) are ignored.
    Values are parsed as in ``server.properties``, to which Kafka's image appends them. Source:
    ``KafkaDockerWrapper.getServerConfigsFromEnv`` (apache/kafka 4.3.1).

    Raises:
        ConfigException: a value has a malformed escape.
    """
    lines = []
    for name, value in environment.items():
        if name.startswith("KAFKA_"):
            key = name.removeprefix("KAFKA_").lower().replace("_", ".").replace("...", "-").replace("..", "_")
            if broker_key(key) is not None or key.startswith("listener.name."):
                lines.append(f"{key}={value}\n")
    try:
        return load_settings("".join(lines).encode(errors="surrogateescape"))
    except MalformedProperties:
        raise ConfigException("Malformed \\uxxxx encoding: the value of a KAFKA_ variable") from None
