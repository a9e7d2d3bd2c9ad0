"""A node's settings: Kafka's names, types and defaults, and a typed view of the ones Ottla honours.

Where the values come from, the later winning: Kafka's default, our own default for a single node, ``--config FILE``,
``--set KEY=VALUE``. An unknown key is a warning that names the nearest one; a wrong value is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.broker.config import listener_config as at
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
from ottla.log.log_config import LogConfig
from ottla.wire.codec.schema import Message
from ottla.wire.record_batch.compression import CompressionType

if TYPE_CHECKING:
    from ottla.client.connection_security import ConnectionSecurity

# A node on its own: what Kafka's own sample server.properties sets for one.
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
"""The quorum's times in Kafka's words, without ``controller.quorum.`` and ``.ms``."""
DEFAULT_SEND_BUFFER_BYTES = 192 << 10
"""Large answers leave at 1.2 of Kafka's rate with it; at 0.97 with Kafka's 100 KiB, and at half with 1 MiB, of which
the processor's cache holds little when the reader comes for it."""
RETENTION_MS = "retention.ms"
_DEFAULTS: Mapping[str, str | None] = {
    **{name: key.default for name, key in BROKER_KEYS.items()},
    **{name: key.default for name, key in OWN_BROKER_KEYS.items()},
}


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to ``name``; None without a similar one."""
    # lazy: 1.9 ms, 145 kB
    import difflib

    found = difflib.get_close_matches(name, list(known), 1, 0.6)
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
    """Host name of this machine, advertised for a listener on every address."""
    has_joined_cluster: bool = False
    """True if the data directory shows that the quorum has other nodes."""
    credentials: tuple[Message, ...] = field(default=(), repr=False)
    """SCRAM credentials a new cluster has from the beginning."""
    outbound_access: dict[tuple[str, str], ConnectionSecurity] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cached credentials for other nodes: `ottla.broker.interbroker.credentials`."""
    _standalone_defaults_cache: Mapping[str, str] | None = field(default=None, init=False, repr=False, compare=False)
    _dynamic_config: DynamicBrokerConfig | None = field(default=None, init=False, repr=False, compare=False)
    _effective_values: dict[str, str | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Effective values of settings that were asked for, as long as `_effective_values_sources` holds."""
    _effective_values_sources: tuple[Mapping[str, str], ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.values = canonical_values(self.values)

    def text(self, name: str) -> str:
        """Return a setting's effective text."""
        if name in self.values:
            return self.values[name]
        own = self._standalone_defaults()
        if name in own:
            return own[name]
        default = BROKER_KEYS[name].default
        return "" if default is None else default

    def number(self, name: str) -> int:
        """Return a setting that is a number."""
        return int(self.text(name))

    @property
    def data_dirs(self) -> list[str]:
        """The data directories; the first holds the metadata log unless ``metadata.log.dir`` names another.

        Raises:
            ConfigException: one is named twice, or there is none.
        """
        out = [x.strip().rstrip("/") or "/" for x in self.data_dir.split(",") if x.strip()]
        if not out or len(set(out)) != len(out):
            raise ConfigException(f"log.dirs={self.data_dir}: " + ("duplicate directory" if out else "no directory"))
        return out

    @property
    def metadata_dir(self) -> str | None:
        """Directory of the metadata log, if not the first data directory."""
        named = self.values.get("metadata.log.dir", "").strip()
        return named.rstrip("/") or None

    @property
    def socket_buffers(self) -> SocketBuffers:
        """Socket buffer sizes of the settings; the default send buffer is larger than Kafka's, see `bench.fetch`."""
        send, receive = "socket.send.buffer.bytes", "socket.receive.buffer.bytes"
        return SocketBuffers(
            self.number(send) if send in self.values else DEFAULT_SEND_BUFFER_BYTES, self.number(receive)
        )

    @property
    def static_values(self) -> Mapping[str, str]:
        """Settings at start: of the user, and defaults of a single node."""
        return {**self._standalone_defaults(), **self.values}

    def flag(self, name: str) -> bool:
        """Return a setting that is true or false."""
        return self.text(name).strip().lower() == "true"

    # ------------------------------------------------------------------ listeners and controllers

    def mark_joined_cluster(self) -> None:
        """Record that the data directory has other nodes: defaults of a single node no longer apply."""
        (
            self.has_joined_cluster,
            self._standalone_defaults_cache,
            self._dynamic_config,
            self._effective_values_sources,
        ) = True, None, None, ()

    def _standalone_defaults(self) -> Mapping[str, str]:
        """Return the defaults of a single node that differ from Kafka's."""
        if self._standalone_defaults_cache is None:
            self._standalone_defaults_cache = STANDALONE_DEFAULTS if self.is_standalone else {}
        return self._standalone_defaults_cache

    @property
    def is_standalone(self) -> bool:
        """True if this node is a cluster of its own by its settings and data directory."""
        return not self.has_joined_cluster and not at.refers_to_other_nodes(
            self.values, self.node_id, tuple(self.controller_listeners), self.host_name
        )

    @property
    def roles(self) -> frozenset[str]:
        """``broker``, ``controller``, or both."""
        return at.parse_roles(self.values)

    @property
    def first_listener(self) -> tuple[str, int]:
        """Host and port of the first listener in the settings: for clients, or of a controller alone; else its own."""
        named = at.parse_listeners(self.values, at.LISTENERS)
        names = at.controller_listener_names(self.values)
        wanted = (x for x in named if x.name not in names or at.BROKER_ROLE not in self.roles)
        return next(((x.host, x.port) for x in wanted), (self.host, self.port))

    @property
    def client_listeners(self) -> list[ListenerAddress]:
        """Listeners for clients and brokers."""
        if at.BROKER_ROLE not in self.roles:
            return []
        names = at.controller_listener_names(self.values)
        named = [x for x in at.parse_listeners(self.values, at.LISTENERS) if x.name not in names]
        first = named[0] if named else ListenerAddress(at.DEFAULT_LISTENER, "", 0)
        return [first._replace(host=self.host, port=self.port), *named[1:]]

    @property
    def controller_listeners(self) -> list[ListenerAddress]:
        """Listeners for controllers and for brokers; the first is used for raft.

        Without a setting it has the address of the client listener, and a port that is chosen once.
        """
        if at.CONTROLLER_ROLE not in self.roles:
            return []
        names = at.controller_listener_names(self.values)
        named = [x for x in at.parse_listeners(self.values, at.LISTENERS) if x.name in names]
        return sorted(named, key=lambda x: names.index(x.name)) or [ListenerAddress(names[0], self.host, 0)]

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener where brokers reach one another."""
        named = self.values.get(at.INTER_BROKER_LISTENER, "").strip().upper()
        clients = [x.name for x in self.client_listeners]
        if named:
            return named
        protocol = self.values.get(at.INTER_BROKER_PROTOCOL, at.DEFAULT_LISTENER).strip().upper()
        return protocol if protocol in clients or not clients else clients[0]

    def security_protocol(self, listener: str) -> str:
        """Return the security protocol of a listener: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT``, ``SASL_SSL``."""
        return at.parse_protocol_map(self.values).get(listener, at.DEFAULT_LISTENER)

    def advertised_address(self, listener: str | None = None) -> tuple[str, int] | None:
        """Return the advertised address of a listener, the first by default; None: the address each client dialled."""
        if at.ADVERTISED_LISTENERS not in self.values:
            return None
        names = at.controller_listener_names(self.values)
        for found in at.parse_listeners(self.values, at.ADVERTISED_LISTENERS):
            if found.name == listener or (listener is None and found.name not in names):
                return found.host, found.port
        return None

    def registered_listeners(self, ports: Mapping[str, int]) -> list[ListenerAddress]:
        """Return the advertised listeners to register; ``ports``: bound ports by name."""
        names = at.controller_listener_names(self.values)
        told = [x for x in at.parse_listeners(self.values, at.ADVERTISED_LISTENERS) if x.name not in names]
        return [self._reachable_address(x, ports.get(x.name, x.port)) for x in told or self.client_listeners]

    def _reachable_address(self, address: ListenerAddress, bound: int) -> ListenerAddress:
        """Return the address for other nodes: without the wildcard address, and with the bound port."""
        host = self.host_name if address.host in at.ANY_HOST else address.host
        return address._replace(host=host, port=address.port or bound)

    def quorum_config(self, *ports: int, kept: Sequence[ListenerEndpoint] = ()) -> QuorumConfig:
        """Return the quorum configuration; ``ports``: bound ports of this node's controller listeners, in their order.

        ``kept``: previous endpoints from the data directory, kept unchanged if they are still valid.
        """
        values = self.values
        times = {field: self.number(f"controller.quorum.{name}.ms") for field, name in _QUORUM_TIMEOUTS.items()}
        listener = at.controller_listener_names(values)[0]
        return QuorumConfig(
            listener,
            tuple(self._controller_endpoint(x, p, kept) for x, p in zip(self.controller_listeners, ports, strict=True)),
            tuple((v.id, ListenerEndpoint(listener, v.host, v.port)) for v in at.parse_voters(values)),
            at.parse_bootstrap_servers(values),
            QuorumTimeouts(**times, fetch_bytes=self.number("controller.quorum.fetch.max.bytes")),
            self.flag(at.AUTO_JOIN),
        )

    def _controller_endpoint(
        self, bound: ListenerAddress, port: int, kept: Sequence[ListenerEndpoint]
    ) -> ListenerEndpoint:
        """As others reach it (R-241): advertised, else bound, else as the voters' setting has it."""
        if bound.port == 0:
            for before in kept:
                if (before.name, before.port) == (bound.name, port) and at.is_same_host(before.host, bound.host):
                    return before
        told = next(
            (x for x in at.parse_listeners(self.values, at.ADVERTISED_LISTENERS) if x.name == bound.name), bound
        )
        own = next((v for v in at.parse_voters(self.values) if v.id == self.node_id), None)
        if told.host in at.ANY_HOST and own is not None and bound.name == at.controller_listener_names(self.values)[0]:
            return ListenerEndpoint(bound.name, own.host, own.port)
        reachable = self._reachable_address(told, port)
        return ListenerEndpoint(reachable.name, reachable.host, reachable.port)

    # ------------------------------------------------------------------ as it stands now

    def dynamic_values(self, image: MetadataImage) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the valid dynamic settings of this broker and of all brokers."""
        if self._dynamic_config is None:
            self._dynamic_config = DynamicBrokerConfig(self.node_id, self.static_values)
        return self._dynamic_config.current_values(image)

    def effective_value(self, image: MetadataImage, name: str) -> str | None:
        """Return a broker setting as it stands now: set for this broker, for all brokers, at start, else its default.

        A time may be written in other units (``log.retention.hours``); the answer is in the unit of ``name``. Kept
        until a dynamic setting changes: every topic asks for some twenty of them.
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
        """Return a topic setting's effective text: the topic's own, the broker's, Kafka's default."""
        own = image.config(RESOURCE_TOPIC, topic).get(key.name)
        text = None if own is None else valid_canonical_value(key, own)
        if text is not None:
            return text
        if own is not None:
            log_invalid_stored_value(f"topic {topic!r}", key.name, own)
        text = key.default if key.broker_key is None else self.effective_value(image, key.broker_key)
        return "-1" if key.name == RETENTION_MS and text is not None and text.startswith("-") else text

    def log_settings(self, image: MetadataImage, topic: str) -> LogConfig:
        """Return a topic's settings, typed for its log."""

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
        )


def settings_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return settings from environment variables as Kafka's container image: ``KAFKA_NUM_PARTITIONS``.

    Three underscores stand for ``-``, two for ``_``, one for ``.``. A name that gives no setting (``KAFKA_HEAP_OPTS``,
    ``KAFKA_HOME``) is ignored. The image appends ``KEY=VALUE`` lines to ``server.properties``, so that values are read
    with their escapes and line ends, as in that file.

    Source: ``KafkaDockerWrapper.getServerConfigsFromEnv`` (apache/kafka 4.3.1).

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
