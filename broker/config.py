"""A node's settings: Kafka's names, types and defaults, and a typed view of the ones Ottla honours.

Where the values come from, the later winning: Kafka's default, our own default for a single node, ``--config FILE``,
``--set KEY=VALUE``. An unknown key is a warning that names the nearest one; a wrong value is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.controller.broker_keys import BROKER_KEYS
from ottla.controller.config_keys import (
    CLAIMED_TIME,
    OWN_BROKER_KEYS,
    TOPIC_KEYS,
    VALIDATE_RECORDS,
    ConfigKey,
    broker_key,
    check_value,
    synonyms_of,
    topic_key,
)
from ottla.controller.image import RESOURCE_BROKER, RESOURCE_TOPIC, Image
from ottla.log.settings import LogSettings
from ottla.wire.compression import Codec
from ottla.world.env import SocketBuffers


class BadConfig(Exception):
    """A setting that cannot be; the message is one line for the user."""


# A node on its own: what Kafka's own sample server.properties sets for one.
SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_DEFAULTS: Mapping[str, str | None] = {
    **{name: key.default for name, key in BROKER_KEYS.items()},
    **{name: key.default for name, key in OWN_BROKER_KEYS.items()},
}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like ``name``."""
    import difflib

    found = difflib.get_close_matches(name, list(known), 1, 0.6)
    return found[0] if found else None


def parse_listener(text: str) -> tuple[str, str, int]:
    """``NAME://HOST:PORT`` -> (name, host, port).

    Raises:
        BadConfig: not such an address.
    """
    name, separator, address = text.strip().partition("://")
    if not separator:
        name, address = "PLAINTEXT", text.strip()
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise BadConfig(f"{text!r} is no address: write HOST:PORT, or NAME://HOST:PORT")
    return name.upper(), host.strip("[]"), int(port)


@dataclass(slots=True)
class NodeConfig:
    """What a node is started with."""

    values: Mapping[str, str] = field(default_factory=dict)
    data_dir: str = "./ottla-data"
    node_id: int = 1
    host: str = "127.0.0.1"
    port: int = 9092
    cluster_id: str | None = None

    def text(self, name: str) -> str:
        """A setting's effective text."""
        if name in self.values:
            return self.values[name]
        if name in SINGLE_NODE:
            return SINGLE_NODE[name]
        default = BROKER_KEYS[name].default
        return "" if default is None else default

    def number(self, name: str) -> int:
        """A setting that is a number."""
        return int(self.text(name))

    @property
    def data_dirs(self) -> list[str]:
        """The data directories; the first holds the metadata log unless ``metadata.log.dir`` names another.

        Raises:
            BadConfig: one is named twice, or there is none.
        """
        out = [x.strip().rstrip("/") or "/" for x in self.data_dir.split(",") if x.strip()]
        if not out or len(set(out)) != len(out):
            raise BadConfig(f"log.dirs={self.data_dir}: " + ("a directory is named twice" if out else "name one"))
        return out

    @property
    def metadata_dir(self) -> str | None:
        """Where the metadata log lies, if not in the first data directory."""
        named = self.values.get("metadata.log.dir", "").strip()
        return named.rstrip("/") or None

    @property
    def socket_buffers(self) -> SocketBuffers:
        """What Kafka's settings say of them, its default of 100 KiB included: `bench.fetch` says why."""
        return SocketBuffers(self.number("socket.send.buffer.bytes"), self.number("socket.receive.buffer.bytes"))

    @property
    def static(self) -> Mapping[str, str]:
        """What was set at start, by the user or because this is one node."""
        return {**SINGLE_NODE, **self.values}

    def flag(self, name: str) -> bool:
        """A setting that is true or false."""
        return self.text(name).strip().lower() == "true"

    def advertised(self) -> tuple[str, int] | None:
        """The address clients are told; None means: the one each of them dialled."""
        text = self.values.get("advertised.listeners", "")
        for part in text.split(","):
            if part.strip():
                name, host, port = parse_listener(part)
                if name != "CONTROLLER":
                    return host, port
        return None

    def current(self, image: Image, name: str) -> str | None:
        """A broker setting as it stands now: set for this broker, for all brokers, at start, else its default.

        A time may be written in other units (``log.retention.hours``); the answer is in the unit of ``name``.
        """
        names = synonyms_of(name)
        own, everyone = image.config(RESOURCE_BROKER, str(self.node_id)), image.config(RESOURCE_BROKER, "")
        for source in (own, everyone, self.values, SINGLE_NODE, _DEFAULTS):
            for other, unit in names:
                value = source.get(other)
                if value is not None:
                    return value if unit == 1 else str(max(int(value) * unit, -1))
        return None

    def topic_text(self, image: Image, topic: str, key: ConfigKey) -> str | None:
        """A topic setting's effective text: the topic's own, the broker's, Kafka's default."""
        own = image.config(RESOURCE_TOPIC, topic).get(key.name)
        if own is not None:
            return own
        return key.default if key.broker_key is None else self.current(image, key.broker_key)

    def log_settings(self, image: Image, topic: str) -> LogSettings:
        """A topic's settings, typed for its log."""

        def get(name: str) -> str:
            key = topic_key(name)
            assert key is not None
            return self.topic_text(image, topic, key) or ""

        codec = {"producer": None, "uncompressed": Codec.NONE}
        name = get("compression.type")
        chosen = codec[name] if name in codec else Codec[name.upper()]
        level = f"compression.{name}.level"
        return LogSettings(
            segment_bytes=int(get("segment.bytes")),
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
            retention_by_claimed_time=get(CLAIMED_TIME).strip().lower() == "true",
            validate_records=get(VALIDATE_RECORDS).strip().lower() == "true",
            segment_jitter_ms=int(get("segment.jitter.ms")),
            codec=chosen,
            codec_level=int(get(level)) if level in TOPIC_KEYS else None,
            file_delete_delay_ms=int(get("file.delete.delay.ms")),
        )


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings as Kafka's container image takes them: ``KAFKA_NUM_PARTITIONS`` is ``num.partitions``.

    Three underscores stand for ``-``, two for ``_``, one for ``.``. A name that gives no setting is somebody else's
    (``KAFKA_HEAP_OPTS``, ``KAFKA_HOME``) and is left alone.
    """
    out = {}
    for name, value in environment.items():
        if name.startswith("KAFKA_"):
            text = name[len("KAFKA_") :].lower()
            key = text.replace("___", "\x00").replace("__", "\x01").replace("_", ".")
            key = key.replace("\x00", "-").replace("\x01", "_")
            if key in BROKER_KEYS:
                out[key] = value
    return out


def check_values(values: Mapping[str, str]) -> list[str]:
    """Check settings; gives warnings for keys nobody knows.

    Raises:
        BadConfig: a value that cannot be.
    """
    warnings = []
    for name, value in values.items():
        if name.startswith(("listener.name.", "controller.quorum.")):
            continue
        key = broker_key(name)
        if key is None:
            near = nearest(name, BROKER_KEYS)
            warnings.append(f"unknown setting {name!r}" + (f"; did you mean {near!r}?" if near else ""))
            continue
        wrong = check_value(key, value)
        if wrong is not None:
            raise BadConfig(wrong)
    return warnings
