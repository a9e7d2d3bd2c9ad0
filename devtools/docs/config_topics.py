"""Topics of the configuration reference: title, introduction and settings of each page. Also rejected values."""

from __future__ import annotations

TOPICS: dict[str, tuple[str, str]] = {
    "node": (
        "Node and cluster membership",
        "This page lists the settings that identify a node and its place in the cluster, for everyone who sets up a "
        "node. `node.id`, `process.roles` and `controller.listener.names` have to be set.",
    ),
    "listeners": (
        "Listeners and connections",
        "This page lists the settings of network addresses, connections and sockets. `listeners` and "
        "`advertised.listeners` decide if clients can reach the node.",
    ),
    "requests": (
        "Requests",
        "This page lists the limits and sessions of requests. They bound memory; the defaults suit most clusters.",
    ),
    "topics": (
        "Topics",
        "This page lists the defaults for new topics, and the settings of topics. A setting of a topic takes "
        "precedence over the default of the broker.",
    ),
    "storage": (
        "Storage",
        "This page lists the settings of log directories, segments, retention, compaction and flushes. Those that have "
        "a counterpart on topics are defaults.",
    ),
    "replication": (
        "Replication",
        "This page lists the settings of followers, leaders and the ISR. `min.insync.replicas` and "
        "`unclean.leader.election.enable` decide what an acknowledged record survives.",
    ),
    "groups": (
        "Groups and offsets",
        "This page lists the settings of classic groups, consumer groups, streams groups and their committed offsets.",
    ),
    "share-groups": (
        "Share groups",
        "This page lists the settings of share groups (KIP-932) and of the share coordinator.",
    ),
    "transactions": (
        "Transactions and producers",
        "This page lists the settings of transactions, their coordinator, and the state of idempotent producers.",
    ),
    "quorum": (
        "Metadata quorum (KRaft)",
        "This page lists the settings of controllers: elections, the metadata log and its snapshots.",
    ),
    "security": (
        "Security",
        "This page lists the settings of TLS, SASL, delegation tokens and authorization. Most can be set for one "
        "listener with the prefix `listener.name.NAME.`.",
    ),
    "quotas": (
        "Quotas",
        "This page lists the settings of replication quotas and of the windows of quotas. Client quotas "
        "(`producer_byte_rate`, `consumer_byte_rate`, `request_percentage`, `controller_mutation_rate`, "
        "`connection_creation_rate`) belong to users, client ids and IP addresses: `ottla quota` changes them.",
    ),
    "metrics": (
        "Metrics",
        "This page lists the settings of metrics of the node, and of metrics that clients push (KIP-714).",
    ),
    "tiered-storage": (
        "Tiered storage",
        "This page lists the settings of tiered storage (KIP-405). The store has settings of its own, with the prefix "
        "`rsm.config.`: see [Segment objects](../segment-objects.md).",
    ),
}

TOPIC_OF_PREFIX: dict[str, str] = {
    "add.partitions.to.txn.": "transactions",
    "advertised.listeners": "listeners",
    "allow.everyone.if.no.acl.found": "security",
    "alter.config.policy.": "node",
    "alter.log.dirs.": "quotas",
    "authorizer.": "security",
    "auto.create.topics.enable": "topics",
    "auto.leader.": "replication",
    "auto.replica.recovery.": "replication",
    "background.threads": "node",
    "broker.": "node",
    "client.quota.": "quotas",
    "compression.": "storage",
    "config.providers": "node",
    "connection.failed.": "security",
    "connections.": "listeners",
    "connections.max.reauth.ms": "security",
    "controlled.": "node",
    "controller.listener.names": "listeners",
    "controller.quorum.": "quorum",
    "controller.quota.": "quotas",
    "controller.socket.": "quorum",
    "cordoned.": "storage",
    "create.topic.policy.": "topics",
    "default.replication.factor": "topics",
    "delegation.token.": "security",
    "delete.records.purgatory.": "requests",
    "delete.topic.enable": "topics",
    "early.start.": "listeners",
    "fetch.": "requests",
    "follower.fetch.last.tiered.": "tiered-storage",
    "follower.replication.": "quotas",
    "group.": "groups",
    "group.share.": "share-groups",
    "initial.broker.": "node",
    "inter.broker.": "listeners",
    "kafka.metrics.": "metrics",
    "leader.imbalance.": "replication",
    "leader.replication.": "quotas",
    "listener.": "listeners",
    "listeners": "listeners",
    "log.": "storage",
    "log.local.": "tiered-storage",
    "max.connection": "listeners",
    "max.incremental.": "requests",
    "max.request.": "requests",
    "message.max.bytes": "storage",
    "metadata.": "quorum",
    "metric": "metrics",
    "min.insync.replicas": "replication",
    "node.id": "node",
    "num.io.threads": "node",
    "num.network.threads": "node",
    "num.partitions": "topics",
    "num.recovery.": "storage",
    "num.replica.": "replication",
    "offset": "groups",
    "ottla.audit.log": "security",
    "ottla.console.": "metrics",
    "ottla.faults": "node",
    "ottla.http.": "metrics",
    "ottla.metrics.": "metrics",
    "ottla.otlp.": "metrics",
    "ottla.scrub.": "storage",
    "principal.builder.": "security",
    "process.roles": "node",
    "producer.id.": "transactions",
    "producer.purgatory.": "requests",
    "queued.": "requests",
    "quota.": "quotas",
    "remote.": "tiered-storage",
    "replica.": "replication",
    "replica.alter.log.dirs.": "quotas",
    "replication.quota.": "quotas",
    "request.timeout.ms": "requests",
    "sasl.": "security",
    "security.": "security",
    "security.inter.broker.protocol": "listeners",
    "share.": "share-groups",
    "share.fetch.purgatory.": "requests",
    "socket.": "listeners",
    "ssl.": "security",
    "super.users": "security",
    "telemetry.": "metrics",
    "transaction": "transactions",
    "unclean.": "replication",
}
"""Prefixes of broker settings with their page; the longest one that matches counts."""

REJECTED = {
    "advertised.listeners": "the host 0.0.0.0; a listener that `listeners` does not have",
    "authorizer.class.name": "any class but Kafka's StandardAuthorizer",
    "controller.quorum.voters": "entries that are not `ID@HOST:PORT`; a controller that is missing; a broker",
    "group.consumer.assignors": "any but `uniform`, `range` and the names of their classes in Kafka",
    "group.share.assignors": "any but `simple` or the name of its class in Kafka",
    "listeners": "a name or port that occurs twice; a listener without a protocol; TLS without a private key",
    "log.retention.ms": "0, also as minutes or hours, because it would delete all records",
    "metric.reporters": "any but Kafka's JmxReporter, which has no effect",
    "principal.builder.class": "any but Kafka's default; the same holds for all settings that name a class",
    "process.roles": "any but `broker`, `controller` or both",
    "remote.log.storage.system.enable": "`true` without `rsm.config.url`",
    "replica.selector.class": "any but Kafka's RackAwareReplicaSelector and LeaderSelector",
    "sasl.enabled.mechanisms": "GSSAPI (the default of Kafka) without a keytab; OAUTHBEARER without a class that "
    "verifies tokens",
}
"""Values with which a node does not start, although their type is right."""
