"""Descriptions of the settings that Ottla uses; for DescribeConfigs and the configuration reference.

A broker setting without a description is accepted and returned as any other, but has no effect; `explain_no_effect`
returns the reason. The description of a topic setting without effect states that.
"""

from __future__ import annotations

from ottla.broker.config.broker_key_docs import BROKER_DOCS
from ottla.controller.config.config_keys import (
    ALLOWED_HOSTS,
    AUDIT_LOG,
    CLAIMED_TIME,
    CONSOLE_LISTENER,
    CONSOLE_SCHEMA_DIR,
    CONSOLE_SCHEMA_REGISTRY,
    FAULTS,
    FAULTS_LISTENER,
    METRICS_LISTENER,
    OTLP_ENDPOINT,
    OTLP_HEADERS,
    OTLP_INTERVAL,
    OTLP_TRACE_RATIO,
    REPLICA_RECOVERY,
    SCRUB_RATE,
    VALIDATE_RECORDS,
)

__all__ = [
    "AUTHORIZER_DOCS",
    "BROKER_DOCS",
    "CLIENT_METRICS_DOCS",
    "GROUP_DOCS",
    "OTTLA_DOCS",
    "QUOTA_DOCS",
    "TOPIC_DOCS",
    "explain_no_effect",
    "explain_topic_no_effect",
]

NO_EFFECT = "No effect in Ottla: "

TOPIC_DOCS: dict[str, str] = {
    "cleanup.policy": "Cleanup policy: `delete` by age and size, `compact` to the last record of each key, or both.",
    "compression.gzip.level": BROKER_DOCS["compression.gzip.level"],
    "compression.lz4.level": BROKER_DOCS["compression.lz4.level"],
    "compression.type": BROKER_DOCS["compression.type"],
    "compression.zstd.level": BROKER_DOCS["compression.zstd.level"],
    "delete.retention.ms": BROKER_DOCS["log.cleaner.delete.retention.ms"],
    "file.delete.delay.ms": BROKER_DOCS["log.segment.delete.delay.ms"],
    "flush.messages": BROKER_DOCS["log.flush.interval.messages"],
    "flush.ms": BROKER_DOCS["log.flush.interval.ms"],
    "follower.replication.throttled.replicas": "Followers, `PARTITION:BROKER`, that fetch at most at "
    "`follower.replication.throttled.rate` of their broker; `*` means all.",
    "index.interval.bytes": BROKER_DOCS["log.index.interval.bytes"],
    "leader.replication.throttled.replicas": "Leaders, `PARTITION:BROKER`, that send to followers outside the ISR at "
    "most at `leader.replication.throttled.rate` of their broker; `*` means all.",
    "local.retention.bytes": BROKER_DOCS["log.local.retention.bytes"],
    "local.retention.ms": BROKER_DOCS["log.local.retention.ms"],
    "max.compaction.lag.ms": BROKER_DOCS["log.cleaner.max.compaction.lag.ms"],
    "max.message.bytes": BROKER_DOCS["message.max.bytes"],
    "message.timestamp.after.max.ms": BROKER_DOCS["log.message.timestamp.after.max.ms"],
    "message.timestamp.before.max.ms": BROKER_DOCS["log.message.timestamp.before.max.ms"],
    "message.timestamp.type": BROKER_DOCS["log.message.timestamp.type"],
    "min.cleanable.dirty.ratio": BROKER_DOCS["log.cleaner.min.cleanable.ratio"],
    "min.compaction.lag.ms": BROKER_DOCS["log.cleaner.min.compaction.lag.ms"],
    "min.insync.replicas": BROKER_DOCS["min.insync.replicas"],
    "preallocate": NO_EFFECT + "segments grow with each append.",
    "remote.log.copy.disable": "True to copy no further segments of a tiered topic; copied ones stay readable.",
    "remote.log.delete.on.disable": "True to delete the remote segments when `remote.storage.enable` becomes false.",
    "remote.storage.enable": "True to copy rolled segments to the remote store (KIP-405), on brokers with "
    "`remote.log.storage.system.enable`.",
    "retention.bytes": BROKER_DOCS["log.retention.bytes"],
    "retention.ms": BROKER_DOCS["log.retention.ms"],
    "segment.bytes": BROKER_DOCS["log.segment.bytes"],
    "segment.index.bytes": BROKER_DOCS["log.index.size.max.bytes"],
    "segment.jitter.ms": BROKER_DOCS["log.roll.jitter.ms"],
    "segment.ms": BROKER_DOCS["log.roll.ms"],
    "unclean.leader.election.enable": BROKER_DOCS["unclean.leader.election.enable"],
}

AUTHORIZER_DOCS: dict[str, str] = {
    "super.users": "Principals that may do everything regardless of ACLs: `User:NAME`, separated by semicolons.",
    "allow.everyone.if.no.acl.found": "True to permit an operation on a resource that no ACL matches.",
}

OTTLA_DOCS: dict[str, str] = {
    CLAIMED_TIME: "Topic setting. True to compute the age of a segment from its largest timestamp even if that is in "
    "the future, as Kafka does.",
    VALIDATE_RECORDS: "Topic setting. True to validate each record of each batch before the append, as Kafka does.",
    REPLICA_RECOVERY: "Time after which the controller moves the replicas of an offline broker to other brokers. 0 "
    "disables it.",
    AUDIT_LOG: "Audit log of authentication and authorization: INFO logs denials, DEBUG all decisions, OFF none.",
    FAULTS: "True to let tests inject faults into the node and advance its clock. Not for data that must be kept.",
    FAULTS_LISTENER: "Address, `HOST:PORT`, of the HTTP listener for faults, on a loopback address. Port 0 is a free "
    "port; the file `ottla-faults.json` in the first data directory has the address and the token.",
    METRICS_LISTENER: "Address, `HOST:PORT`, of the HTTP listener for `/metrics`, `/livez`, `/readyz` and, for this "
    "machine only, `/connections`; none if not set.",
    CONSOLE_LISTENER: "Address, `HOST:PORT` or `https://HOST:PORT`, of the web console of a broker; none if not set. "
    "With `https` the console uses the `ssl.` settings of the node, or those behind `listener.name.console.`.",
    CONSOLE_SCHEMA_DIR: "Directory with schemas by which the web console shows keys and values: `TOPIC-value.avsc` for "
    "Avro, `TOPIC-value.desc` for a Protobuf descriptor set, and likewise `TOPIC-key`; none if not set. It needs "
    "`pip install 'ottla[schemas]'`.",
    CONSOLE_SCHEMA_REGISTRY: "URL of a schema registry, such as `http://127.0.0.1:8081`, from which the web console "
    "loads the schemas that keys and values name by their ids; none if not set. It needs "
    "`pip install 'ottla[schemas]'`.",
    OTLP_ENDPOINT: "URL of an OpenTelemetry collector, such as `http://127.0.0.1:4318`, to which metrics and traces of "
    "requests are sent by OTLP over HTTP; none if not set. It needs `pip install 'ottla[otel]'`.",
    OTLP_HEADERS: "HTTP headers of these requests: a list of `NAME=VALUE`, such as `authorization=Bearer 1234`.",
    OTLP_INTERVAL: "Time between two exports of the metrics.",
    OTLP_TRACE_RATIO: "Part of the requests of which traces are sent, from 0 for none to 1 for all.",
    ALLOWED_HOSTS: "Host names that HTTP requests may name besides IP addresses, names without a dot and names "
    "in the listeners of the node.",
    SCRUB_RATE: "Rate at which old segments are read to detect corruption, in bytes per second. 0 disables it.",
}

QUOTA_DOCS: dict[str, str] = {
    "leader.replication.throttled.rate": "Rate at which this broker sends records of throttled partitions to "
    "followers outside the ISR.",
    "follower.replication.throttled.rate": "Rate at which this broker fetches throttled partitions as a follower.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Rate at which this broker moves replicas between its log "
    "directories.",
}

CLIENT_METRICS_DOCS: dict[str, str] = {
    "metrics": "Prefixes of the names of metrics that matching clients push; empty for none, `*` for all (KIP-714).",
    "interval.ms": "Time between two pushes of a client.",
    "match": "Clients that the subscription applies to: a list of `SELECTOR=REGEX`, such as `client_id=app-.*`.",
}

GROUP_DOCS: dict[str, str] = {
    "share.assignment.interval.ms": BROKER_DOCS["group.share.assignment.interval.ms"],
    "share.auto.offset.reset": "Start of a new share group in a partition: `latest`, `earliest`, or "
    "`by_duration:DURATION` (ISO 8601) before now.",
    "share.delivery.count.limit": BROKER_DOCS["group.share.delivery.count.limit"],
    "share.heartbeat.interval.ms": BROKER_DOCS["group.share.heartbeat.interval.ms"],
    "share.isolation.level": "`read_committed` skips records of open and aborted transactions.",
    "share.partition.max.record.locks": BROKER_DOCS["group.share.partition.max.record.locks"],
    "share.record.lock.duration.ms": BROKER_DOCS["group.share.record.lock.duration.ms"],
    "share.renew.acknowledge.enable": "True to let members renew the acquisition lock of a record (KIP-1222).",
    "share.session.timeout.ms": BROKER_DOCS["group.share.session.timeout.ms"],
    "consumer.assignment.interval.ms": BROKER_DOCS["group.consumer.assignment.interval.ms"],
    "consumer.heartbeat.interval.ms": BROKER_DOCS["group.consumer.heartbeat.interval.ms"],
    "consumer.session.timeout.ms": BROKER_DOCS["group.consumer.session.timeout.ms"],
    "streams.assignment.interval.ms": BROKER_DOCS["group.streams.assignment.interval.ms"],
    "streams.heartbeat.interval.ms": BROKER_DOCS["group.streams.heartbeat.interval.ms"],
    "streams.initial.rebalance.delay.ms": BROKER_DOCS["group.streams.initial.rebalance.delay.ms"],
    "streams.num.standby.replicas": BROKER_DOCS["group.streams.num.standby.replicas"],
    "streams.session.timeout.ms": BROKER_DOCS["group.streams.session.timeout.ms"],
}

_REMOTE_TASKS = "the other settings of threads limit the calls of the remote store"
_NO_PLUGINS = "classes are not loaded by name"
_NO_JVM_METRICS = "Ottla has no metrics reporters; Prometheus reads `ottla.metrics.listener`"
_ONE_THREAD = "one event loop serves all connections; slow work runs in worker threads as needed"
_QUOTA_WINDOW = "rates are measured over 11 windows of one second"
_COORDINATOR_WRITES = "coordinators append records at once and load them in batches as they are stored"
_PURGATORY = "a delayed operation is removed when it completes"
_KERBEROS_TICKETS = "tickets are obtained from the keytab and renewed before they expire"
_LOGIN_REFRESH = "a token is fetched within 20 s and used for 80 % of its lifetime; retries follow after 100 ms to 10 s"

WITHOUT_EFFECT: tuple[tuple[str, str], ...] = (
    ("alter.config.policy.class.name", _NO_PLUGINS),
    ("alter.log.dirs.", _QUOTA_WINDOW),
    ("background.threads", _ONE_THREAD),
    ("client.quota.callback.class", _NO_PLUGINS),
    ("config.providers", _NO_PLUGINS),
    ("controlled.shutdown.enable", "a clean shutdown always hands over the leaderships of the broker"),
    ("controller.quorum.append.linger.ms", "records that are queued are appended together at once"),
    ("controller.quorum.fetch.snapshot.max.bytes", "a snapshot is sent in parts of 1 MiB"),
    ("controller.quota.", "a client may use the mutations of 11 seconds at once"),
    ("controller.socket.timeout.ms", "requests to the controller use the timeouts of the metadata quorum"),
    ("create.topic.policy.class.name", _NO_PLUGINS),
    ("delete.records.purgatory", _PURGATORY),
    ("early.start.listeners", "controller listeners start first; only super users are authorized until then"),
    ("fetch.purgatory", _PURGATORY),
    ("group.coordinator.", _COORDINATOR_WRITES),
    ("group.share.assignors", "`simple` is the only assignor"),
    ("kafka.metrics.", _NO_JVM_METRICS),
    ("log.cleaner.", "the log cleaner has one thread, with buffers as large as needed"),
    ("log.dir.failure.timeout.ms", "a failed log directory is reported to the controller at once"),
    ("log.flush.", "offsets are checkpointed, and flushes checked, every 5 seconds"),
    ("log.preallocate", "segments grow with each append"),
    ("max.request.partition.size.limit", "DescribeTopicPartitions returns at most 2,000 partitions"),
    ("metric", _NO_JVM_METRICS),
    ("num.", _ONE_THREAD),
    ("offsets.load.buffer.size", _COORDINATOR_WRITES),
    ("offsets.topic.compression.codec", "records of groups are stored uncompressed"),
    ("principal.builder.class", _NO_PLUGINS),
    ("producer.purgatory", _PURGATORY),
    ("queued.max.", "requests of a connection are read only as fast as they are answered"),
    ("quota.", _QUOTA_WINDOW),
    ("remote.log.manager.", _REMOTE_TASKS),
    ("remote.log.metadata.manager.class.", _NO_PLUGINS),
    ("remote.log.storage.manager.class.", _NO_PLUGINS),
    ("replica.high.watermark.checkpoint", "high watermarks are checkpointed every 5 seconds"),
    ("replica.socket.receive.buffer.bytes", "the operating system chooses the size"),
    ("replication.quota.", _QUOTA_WINDOW),
    ("sasl.client.callback", _NO_PLUGINS),
    ("sasl.kerberos.", _KERBEROS_TICKETS),
    ("sasl.login.", _LOGIN_REFRESH),
    ("sasl.oauthbearer.", "it is a setting of clients"),
    ("security.providers", _NO_PLUGINS),
    ("share.coordinator.", _COORDINATOR_WRITES),
    ("share.fetch.purgatory", _PURGATORY),
    ("socket.connection.setup", "a connection to another node is opened within the timeout of its request"),
    ("socket.listen.backlog.size", "the backlog has 1,024 connections"),
    ("ssl.allow.", "a new certificate is accepted with any subject"),
    ("ssl.engine.", _NO_PLUGINS),
    ("ssl.", "the TLS library chooses it"),
    ("transaction.state.log.load.buffer.size", _COORDINATOR_WRITES),
    ("transaction.two.phase", "two-phase commit of transactions (KIP-939) is not complete in Kafka 4.3.1 either"),
)
"""Prefixes of broker settings without effect, with the reason; the first matching prefix applies."""


def explain_no_effect(name: str) -> str:
    """Return the reason why a broker setting has no effect; the caller knows that it has none.

    Raises:
        StopIteration: `WITHOUT_EFFECT` has no reason.
    """
    return next(reason for prefix, reason in WITHOUT_EFFECT if name.startswith(prefix))


def explain_topic_no_effect(name: str) -> str | None:
    """Return the reason why a topic setting has no effect, or None if it has one."""
    text = TOPIC_DOCS[name]
    return text.removeprefix(NO_EFFECT).rstrip(".") if text.startswith(NO_EFFECT) else None
