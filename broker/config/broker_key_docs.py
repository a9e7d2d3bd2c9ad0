"""Descriptions of the broker settings that Ottla uses; for DescribeConfigs and the configuration reference."""

from __future__ import annotations

BROKER_DOCS: dict[str, str] = {
    "add.partitions.to.txn.retry.backoff.max.ms": "Longest total time for which a leader retries to verify a "
    "partition while the previous transaction is completing.",
    "add.partitions.to.txn.retry.backoff.ms": "Pause between these retries.",
    "advertised.listeners": "Addresses that clients and brokers receive in metadata, `NAME://HOST:PORT`. If not "
    "set, each client receives the address that it connected to.",
    "authorizer.class.name": "Authorizer: empty for none, or Kafka's StandardAuthorizer, which reads ACLs from the "
    "metadata.",
    "auto.create.topics.enable": "True to create a missing topic when a Metadata request with "
    "`allow_auto_topic_creation` names it.",
    "auto.leader.rebalance.enable": "True to let the controller elect preferred leaders again when they are in the "
    "ISR.",
    "broker.heartbeat.interval.ms": "Time between heartbeats of a broker to the active controller.",
    "broker.id": "Older name of `node.id`.",
    "broker.rack": "Rack of this broker. Returned to clients and used for rack-aware replica placement and for "
    "fetching from the closest replica.",
    "broker.session.timeout.ms": "Time without a heartbeat after which the controller fences a broker and elects "
    "other leaders.",
    "compression.gzip.level": "Level of gzip when the broker compresses a batch again; -1 is the default of zlib.",
    "compression.lz4.level": "Level of lz4 when the broker compresses a batch again.",
    "compression.type": "Compression type of stored batches; `producer` keeps the type that the producer chose.",
    "compression.zstd.level": "Level of zstd when the broker compresses a batch again.",
    "connection.failed.authentication.delay.ms": "Delay of the response to a failed authentication, which slows "
    "down guessing of passwords.",
    "connections.max.idle.ms": "Time without a request after which a connection is closed.",
    "connections.max.reauth.ms": "Session lifetime after SASL authentication; the client has to authenticate again "
    "before it ends (KIP-368). 0 disables it.",
    "controller.listener.names": "Names of the controller listeners. Nodes connect to controllers with the first one.",
    "controller.quorum.auto.join.enable": "True to let a controller that is not a voter add itself to the voters "
    "(KIP-853).",
    "controller.quorum.bootstrap.servers": "Controllers, `HOST:PORT`, from which a node finds the leader of the "
    "metadata quorum if the voters are in the metadata log.",
    "controller.quorum.election.backoff.max.ms": "Longest random delay before a candidate starts the next election "
    "after a tie.",
    "controller.quorum.election.timeout.ms": "Shortest time that a candidate waits for votes; the actual time is "
    "random, up to twice this value.",
    "controller.quorum.fetch.max.bytes": "Size of a Fetch response of the metadata log; at most 1 MiB is returned.",
    "controller.quorum.fetch.timeout.ms": "Time without a successful fetch from the leader after which a voter "
    "starts an election, and the leader resigns without a majority.",
    "controller.quorum.request.timeout.ms": "Time that a node waits for the response to a request of the metadata "
    "quorum.",
    "controller.quorum.retry.backoff.ms": "Delay before a failed request of the metadata quorum is sent again.",
    "controller.quorum.voters": "Static voters of the metadata quorum, `ID@HOST:PORT`. Not used when the voters are "
    "in the metadata log (KIP-853).",
    "cordoned.log.dirs": "Log directories that receive no new partitions, `*` for all (KIP-1066).",
    "default.replication.factor": "Replication factor of topics that are created without one.",
    "delegation.token.expiry.check.interval.ms": "Time between scans that remove expired delegation tokens.",
    "delegation.token.expiry.time.ms": "Time until a delegation token expires, unless it is renewed.",
    "delegation.token.max.lifetime.ms": "Maximum lifetime of a delegation token; renewal cannot extend it.",
    "delegation.token.secret.key": "Secret from which the HMAC of delegation tokens is computed; the same on all "
    "nodes. Delegation tokens are disabled if it is not set.",
    "delete.topic.enable": "True to permit the deletion of topics.",
    "fetch.max.bytes": "Maximum size of a Fetch response, if `fetch.max.bytes` of the consumer is higher.",
    "follower.fetch.last.tiered.offset.enable": "True to start an empty follower after the last copied segment "
    "(KIP-1023).",
    "group.consumer.assignment.interval.ms": "Shortest time between two target assignments of a consumer group.",
    "group.consumer.assignors": "Server-side assignors, `uniform` or `range`. The first is used if no member names "
    "one.",
    "group.consumer.heartbeat.interval.ms": "Heartbeat interval of members of consumer groups (KIP-848).",
    "group.consumer.max.assignment.interval.ms": "Upper limit of `consumer.assignment.interval.ms` of a group.",
    "group.consumer.max.heartbeat.interval.ms": "Upper limit of `consumer.heartbeat.interval.ms` of a group.",
    "group.consumer.max.session.timeout.ms": "Upper limit of `consumer.session.timeout.ms` of a group.",
    "group.consumer.max.size": "Maximum number of members of a consumer group.",
    "group.consumer.migration.policy": "Conversion of groups in use: `upgrade` to the consumer protocol, "
    "`downgrade` to the classic one, `bidirectional` or `disabled`.",
    "group.consumer.min.assignment.interval.ms": "Lower limit of `consumer.assignment.interval.ms` of a group.",
    "group.consumer.min.heartbeat.interval.ms": "Lower limit of `consumer.heartbeat.interval.ms` of a group.",
    "group.consumer.min.session.timeout.ms": "Lower limit of `consumer.session.timeout.ms` of a group.",
    "group.consumer.session.timeout.ms": "Time without a heartbeat after which a member is removed from a consumer "
    "group.",
    "group.coordinator.rebalance.protocols": "Group protocols that clients may use. `consumer` is that of KIP-848.",
    "group.initial.rebalance.delay.ms": "Time that the coordinator waits for more members before the first "
    "rebalance of an empty classic group.",
    "group.max.session.timeout.ms": "Upper limit of `session.timeout.ms` of members of classic groups.",
    "group.max.size": "Maximum number of members of a classic group.",
    "group.min.session.timeout.ms": "Lower limit of `session.timeout.ms` of members of classic groups.",
    "group.share.assignment.interval.ms": "Shortest time between two target assignments of a share group.",
    "group.share.delivery.count.limit": "Maximum number of deliveries of a record in a share group; afterwards the "
    "record is archived.",
    "group.share.heartbeat.interval.ms": "Heartbeat interval of members of share groups (KIP-932).",
    "group.share.max.assignment.interval.ms": "Upper limit of `share.assignment.interval.ms` of a group.",
    "group.share.max.delivery.count.limit": "Upper limit of `share.delivery.count.limit` of a group.",
    "group.share.max.heartbeat.interval.ms": "Upper limit of `share.heartbeat.interval.ms` of a group.",
    "group.share.max.partition.max.record.locks": "Upper limit of `share.partition.max.record.locks` of a group.",
    "group.share.max.record.lock.duration.ms": "Upper limit of `share.record.lock.duration.ms` of a group.",
    "group.share.max.session.timeout.ms": "Upper limit of `share.session.timeout.ms` of a group.",
    "group.share.max.share.sessions": "Maximum number of share sessions on this broker.",
    "group.share.max.size": "Maximum number of members of a share group.",
    "group.share.min.assignment.interval.ms": "Lower limit of `share.assignment.interval.ms` of a group.",
    "group.share.min.delivery.count.limit": "Lower limit of `share.delivery.count.limit` of a group.",
    "group.share.min.heartbeat.interval.ms": "Lower limit of `share.heartbeat.interval.ms` of a group.",
    "group.share.min.partition.max.record.locks": "Lower limit of `share.partition.max.record.locks` of a group.",
    "group.share.min.record.lock.duration.ms": "Lower limit of `share.record.lock.duration.ms` of a group.",
    "group.share.min.session.timeout.ms": "Lower limit of `share.session.timeout.ms` of a group.",
    "group.share.partition.max.record.locks": "Maximum number of acquired records of a share-partition.",
    "group.share.record.lock.duration.ms": "Time until the acquisition lock of a record expires, and another member "
    "may acquire it.",
    "group.share.session.timeout.ms": "Time without a heartbeat after which a member is removed from a share group.",
    "group.streams.assignment.interval.ms": "Shortest time between two target assignments of a streams group.",
    "group.streams.heartbeat.interval.ms": "Heartbeat interval of members of streams groups (KIP-1071).",
    "group.streams.initial.rebalance.delay.ms": "Time that the coordinator waits for more members after the first "
    "one of a streams group.",
    "group.streams.max.assignment.interval.ms": "Upper limit of `streams.assignment.interval.ms` of a group.",
    "group.streams.max.heartbeat.interval.ms": "Upper limit of `streams.heartbeat.interval.ms` of a group.",
    "group.streams.max.session.timeout.ms": "Upper limit of `streams.session.timeout.ms` of a group.",
    "group.streams.max.size": "Maximum number of members of a streams group.",
    "group.streams.max.standby.replicas": "Upper limit of `streams.num.standby.replicas` of a group.",
    "group.streams.min.assignment.interval.ms": "Lower limit of `streams.assignment.interval.ms` of a group.",
    "group.streams.min.heartbeat.interval.ms": "Lower limit of `streams.heartbeat.interval.ms` of a group.",
    "group.streams.min.session.timeout.ms": "Lower limit of `streams.session.timeout.ms` of a group.",
    "group.streams.num.standby.replicas": "Number of standby tasks of each stateful task.",
    "group.streams.session.timeout.ms": "Time without a heartbeat after which a member is removed from a streams "
    "group.",
    "initial.broker.registration.timeout.ms": "Time within which a broker has to be registered at its start; "
    "otherwise it ends.",
    "inter.broker.listener.name": "Listener that brokers use to reach each other; the first one for clients if not "
    "set.",
    "leader.imbalance.check.interval.seconds": "Time between checks for partitions that are not led by their "
    "preferred leader.",
    "listener.security.protocol.map": "Security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or "
    "SASL_SSL.",
    "listeners": "Addresses that the node listens on, `NAME://HOST:PORT`. An empty host means all addresses.",
    "log.cleaner.backoff.ms": "Pause of the log cleaner when no log needs to be compacted.",
    "log.cleaner.dedupe.buffer.size": "Memory for the keys of one pass of the log cleaner. More keys need more passes.",
    "log.cleaner.delete.retention.ms": "Time for which tombstones and transaction markers stay in a compacted topic.",
    "log.cleaner.enable": "True to run the log cleaner, which compacts topics with `cleanup.policy=compact`.",
    "log.cleaner.io.max.bytes.per.second": "Limit for the bytes that the log cleaner reads and writes in a second.",
    "log.cleaner.max.compaction.lag.ms": "Longest time for which a record stays uncompacted.",
    "log.cleaner.min.cleanable.ratio": "Fraction of a log that has to be dirty (not compacted yet) before it is "
    "compacted again.",
    "log.cleaner.min.compaction.lag.ms": "Shortest time for which a record stays uncompacted.",
    "log.cleanup.policy": "Cleanup policy of topics without one of their own: `delete` by age and size, `compact` "
    "by key, or both.",
    "log.dir": "Log directory, used if `log.dirs` is not set.",
    "log.dirs": "Log directories, separated by commas. If one fails, only its partitions go offline.",
    "log.flush.interval.messages": "Number of records after which a log is flushed before the append is "
    "acknowledged. Concurrent flushes are combined.",
    "log.flush.interval.ms": "Time after which records that are not flushed yet are flushed to disk.",
    "log.index.interval.bytes": "Bytes of records between two entries of the offset index.",
    "log.index.size.max.bytes": "Maximum size of an index; a full index rolls the segment.",
    "log.local.retention.bytes": "Size of the local segments of a tiered partition above which copied ones are "
    "deleted; -2 means `log.retention.bytes`.",
    "log.local.retention.ms": "Time after which copied local segments of a tiered partition are deleted; -2 means "
    "`log.retention.ms`.",
    "log.message.timestamp.after.max.ms": "Longest time by which the timestamp of a record may be ahead of the "
    "clock of the broker.",
    "log.message.timestamp.before.max.ms": "Longest time by which the timestamp of a record may be behind the clock "
    "of the broker.",
    "log.message.timestamp.type": "Timestamp of records: CreateTime from the producer, or LogAppendTime from the "
    "broker.",
    "log.retention.bytes": "Maximum size of a partition; the oldest segments are deleted above it. -1 means no limit.",
    "log.retention.check.interval.ms": "Time between checks for segments to delete.",
    "log.retention.hours": "Retention time of records in hours. `log.retention.minutes` and `log.retention.ms` take "
    "precedence.",
    "log.retention.minutes": "Retention time of records in minutes. `log.retention.ms` takes precedence.",
    "log.retention.ms": "Retention time of records; older segments are deleted. -1 means no limit.",
    "log.roll.hours": "Time span of a segment in hours, after which it is rolled. `log.roll.ms` takes precedence.",
    "log.roll.jitter.hours": "Maximum jitter of the roll time in hours. `log.roll.jitter.ms` takes precedence.",
    "log.roll.jitter.ms": "Maximum jitter that is subtracted from the roll time, so that segments are not all "
    "rolled at once.",
    "log.roll.ms": "Time span of a segment after which it is rolled, even if it is not full.",
    "log.segment.bytes": "Maximum size of a segment; a full segment is rolled.",
    "log.segment.delete.delay.ms": "Time between the deletion of a segment or topic and the removal of its files, "
    "for readers that still use them.",
    "max.connection.creation.rate": "Maximum number of new connections in a second; further ones are delayed. May "
    "also be set for one listener.",
    "max.connections": "Maximum number of connections, of the broker and of each listener; further ones wait until "
    "another is closed.",
    "max.connections.per.ip": "Maximum number of connections from one IP address; further ones are closed.",
    "max.connections.per.ip.overrides": "Limits for single IP addresses, `ADDRESS:NUMBER,...`. Host names are not "
    "resolved.",
    "max.incremental.fetch.session.cache.slots": "Maximum number of fetch sessions (KIP-227).",
    "message.max.bytes": "Maximum size of a batch.",
    "metadata.log.dir": "Directory of the metadata log; the first of `log.dirs` if not set.",
    "metadata.log.max.record.bytes.between.snapshots": "Bytes of metadata records after which a snapshot is written.",
    "metadata.log.max.snapshot.interval.ms": "Longest time between two snapshots, if records were committed. 0 "
    "disables it.",
    "metadata.log.segment.bytes": "Maximum size of a segment of the metadata log.",
    "metadata.log.segment.ms": "Time after which a segment of the metadata log is rolled.",
    "metadata.max.idle.interval.ms": "Time after which an idle controller of a quorum of several nodes appends a "
    "NoOpRecord. 0 disables it.",
    "metadata.max.retention.bytes": "Maximum size of metadata log and snapshots; above it, older snapshots are "
    "deleted.",
    "metadata.max.retention.ms": "Age after which older snapshots are deleted.",
    "min.insync.replicas": "Number of in-sync replicas that `acks=all` requires. A smaller ISR is answered with "
    "NOT_ENOUGH_REPLICAS.",
    "node.id": "Id of this node, unique in the cluster.",
    "num.partitions": "Number of partitions of topics that are created without one.",
    "num.replica.fetchers": "Number of connections from this broker to each leader that its followers fetch from.",
    "offset.metadata.max.bytes": "Maximum length of the metadata that a consumer may store with an offset.",
    "offsets.commit.timeout.ms": "Time that the group coordinator waits until its records are replicated.",
    "offsets.retention.check.interval.ms": "Time between checks for expired offsets.",
    "offsets.retention.minutes": "Time for which committed offsets are kept after their group has become empty.",
    "offsets.topic.num.partitions": "Number of partitions of `__consumer_offsets` when it is created.",
    "offsets.topic.replication.factor": "Replication factor of `__consumer_offsets` when it is created.",
    "offsets.topic.segment.bytes": "Segment size of `__consumer_offsets` when it is created.",
    "process.roles": "Roles of this node: `broker`, `controller` or both.",
    "producer.id.expiration.ms": "Time without a batch after which the state of a producer is removed from a "
    "partition.",
    "remote.fetch.max.wait.ms": "Maximum time that a Fetch waits for a read of the remote store.",
    "remote.list.offsets.request.timeout.ms": "Maximum time that ListOffsets waits for a read of the remote store.",
    "remote.log.index.file.cache.total.size.bytes": (
        "Size of the indexes of remote segments that are cached in memory, at most 16 MiB."
    ),
    "remote.log.manager.copier.thread.pool.size": "Maximum number of partitions that are copied at a time.",
    "remote.log.manager.copy.max.bytes.per.second": "Bytes that this broker copies to the remote store in a second.",
    "remote.log.manager.copy.quota.window.num": "Number of samples over which the rate of copies is measured.",
    "remote.log.manager.copy.quota.window.size.seconds": "Length of a sample of the rate of copies.",
    "remote.log.manager.expiration.thread.pool.size": "Maximum number of partitions that expire segments at a time.",
    "remote.log.manager.fetch.max.bytes.per.second": "Bytes that this broker reads from the remote store in a second.",
    "remote.log.manager.fetch.quota.window.num": "Number of samples over which the rate of reads is measured.",
    "remote.log.manager.fetch.quota.window.size.seconds": "Length of a sample of the rate of reads.",
    "remote.log.manager.task.interval.ms": "Time between two runs of the copies and of the expiration of a partition.",
    "remote.log.metadata.custom.metadata.max.bytes": "Maximum size of what a store adds to the metadata of a segment; "
    "Ottla's stores add 17 bytes.",
    "remote.log.metadata.manager.impl.prefix": "Prefix of the settings of `__remote_log_metadata`: with the default, "
    "`rlmm.config.remote.log.metadata.topic.num.partitions` and `.replication.factor`, `.min.isr`, `.retention.ms`.",
    "remote.log.metadata.manager.listener.name": "Listener of the brokers at which `__remote_log_metadata` is read and "
    "written; the inter-broker listener if it is not set.",
    "remote.log.reader.max.pending.tasks": "Maximum number of reads that wait for a thread; further ones fail.",
    "remote.log.reader.threads": "Maximum number of reads of the remote store at a time.",
    "remote.log.storage.manager.impl.prefix": "Prefix of the settings of the remote store: with the default, "
    "`rsm.config.url` names a directory or a bucket.",
    "remote.log.storage.system.enable": "True to enable tiered storage on the broker, for topics with "
    "`remote.storage.enable`. `rsm.config.url` must name a store.",
    "replica.fetch.backoff.ms": "Time that a follower waits after a failed fetch.",
    "replica.fetch.max.bytes": "Size of the records of one partition that a follower fetches at a time.",
    "replica.fetch.min.bytes": "Bytes that a Fetch response to a follower waits for.",
    "replica.fetch.response.max.bytes": "Maximum size of a Fetch response to a follower.",
    "replica.fetch.wait.max.ms": "Longest time that a leader holds back the fetch of a follower.",
    "replica.lag.time.max.ms": "Time after which a follower that has not caught up with the end of the leader's log "
    "is removed from the ISR.",
    "replica.selector.class": "`org.apache.kafka.common.replica.RackAwareReplicaSelector` lets consumers fetch from "
    "a replica in their rack (KIP-392).",
    "replica.socket.timeout.ms": "Time that a follower waits for a connection to its leader, and for a response.",
    "request.timeout.ms": "Time that this broker waits for another broker when it verifies a transaction or writes "
    "transaction markers, and for internal topics of streams groups.",
    "sasl.enabled.mechanisms": "SASL mechanisms of a listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, "
    "GSSAPI. Usually set with a listener prefix.",
    "sasl.jaas.config": "Login module with its options, set as `listener.name.NAME.MECHANISM.sasl.jaas.config`.",
    "sasl.kerberos.principal.to.local.rules": "Rules that map Kerberos principals to user names: `DEFAULT`, "
    "`RULE:[n:format](regexp)s/pattern/replacement/`.",
    "sasl.kerberos.service.name": "Service name of the Kerberos principals of brokers. It may also be set in the "
    "JAAS configuration.",
    "sasl.login.callback.handler.class": "Class that obtains the OAUTHBEARER tokens of this node: "
    "OAuthBearerLoginCallbackHandler.",
    "sasl.mechanism.controller.protocol": "SASL mechanism for connections to controllers.",
    "sasl.mechanism.inter.broker.protocol": "SASL mechanism for connections to other brokers.",
    "sasl.oauthbearer.client.credentials.client.id": "Client id with which this node requests its tokens.",
    "sasl.oauthbearer.client.credentials.client.secret": "Client secret with which this node requests its tokens.",
    "sasl.oauthbearer.clock.skew.seconds": "Permitted difference between the clocks of token issuer and broker.",
    "sasl.oauthbearer.expected.audience": "Accepted audiences of tokens. If not set, a token must not name an "
    "audience.",
    "sasl.oauthbearer.expected.issuer": "Accepted issuer of tokens. If not set, any token with a trusted signature "
    "is accepted.",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "Time between downloads of the JWKS (keys that verify tokens).",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "Longest delay between failed downloads of the JWKS.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "Delay after the first failed download of the JWKS; it "
    "doubles with each further one.",
    "sasl.oauthbearer.jwks.endpoint.url": "URL of the JWKS (keys that verify tokens): https, http or file.",
    "sasl.oauthbearer.scope": "Scope that this node requests for its tokens.",
    "sasl.oauthbearer.scope.claim.name": "Claim of a token with its scopes.",
    "sasl.oauthbearer.sub.claim.name": "Claim of a token with the name of the principal.",
    "sasl.oauthbearer.token.endpoint.url": "URL from which this node obtains its tokens: https, http or file.",
    "sasl.server.callback.handler.class": "Class that verifies OAUTHBEARER tokens: "
    "OAuthBearerValidatorCallbackHandler, or OAuthBearerUnsecuredValidatorCallbackHandler for development.",
    "sasl.server.max.receive.size": "Maximum size of a request before authentication is complete.",
    "security.inter.broker.protocol": "Security protocol between brokers, if `inter.broker.listener.name` is not set.",
    "share.coordinator.snapshot.update.records.per.snapshot": "Number of ShareUpdate records between two "
    "ShareSnapshot records of a share-partition.",
    "share.coordinator.state.topic.min.isr": "`min.insync.replicas` of `__share_group_state` when it is created.",
    "share.coordinator.state.topic.num.partitions": "Number of partitions of `__share_group_state` when it is created.",
    "share.coordinator.state.topic.replication.factor": "Replication factor of `__share_group_state` when it is "
    "created.",
    "share.coordinator.state.topic.segment.bytes": "Segment size of `__share_group_state` when it is created.",
    "share.coordinator.write.timeout.ms": "Time that the share coordinator waits until its records are replicated.",
    "socket.receive.buffer.bytes": "Size of SO_RCVBUF of connections; -1 uses the default of the operating system.",
    "socket.request.max.bytes": "Maximum size of a request; a larger one closes the connection.",
    "socket.send.buffer.bytes": "Size of SO_SNDBUF of connections; -1 uses the default of the operating system. A "
    "small buffer is fast, because its data stays in the cache of the processor.",
    "ssl.cipher.suites": "Cipher suites for TLS 1.2; all of the library if empty.",
    "ssl.client.auth": "Client certificates: `none`, `requested` or `required`.",
    "ssl.enabled.protocols": "Permitted versions of TLS.",
    "ssl.endpoint.identification.algorithm": "`https` verifies the host name in certificates of other nodes; empty "
    "disables it.",
    "ssl.key.password": "Password of the private key.",
    "ssl.keystore.certificate.chain": "Certificate chain in PEM format.",
    "ssl.keystore.key": "Private key in PEM format.",
    "ssl.keystore.location": "File with private key and certificate chain: PEM, PKCS12 or JKS. Ottla detects the "
    "format from its content.",
    "ssl.keystore.password": "Password of the keystore file.",
    "ssl.keystore.type": "Format of the keystore file. Ottla detects the format from its content.",
    "ssl.principal.mapping.rules": "Rules that map the subject of a client certificate to a principal: `DEFAULT`, "
    "`RULE:pattern/replacement/`.",
    "ssl.truststore.certificates": "Trusted certificates in PEM format.",
    "ssl.truststore.location": "File with trusted certificates. If not set, those of the operating system are trusted.",
    "ssl.truststore.password": "Password of the truststore file.",
    "ssl.truststore.type": "Format of the truststore file. Ottla detects the format from its content.",
    "telemetry.max.bytes": "Maximum size of the metrics in one PushTelemetry request, compressed or not (KIP-714).",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "Time between checks for transactions to abort "
    "because their timeout has passed.",
    "transaction.max.timeout.ms": "Upper limit of `transaction.timeout.ms` of producers.",
    "transaction.partition.verification.enable": "True to verify with the transaction coordinator that a partition "
    "is part of the transaction before its first batch (KIP-890). Producers of transaction version 2 are always "
    "verified.",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "Time between checks for expired transactional ids.",
    "transaction.state.log.min.isr": "`min.insync.replicas` of `__transaction_state` when it is created.",
    "transaction.state.log.num.partitions": "Number of partitions of `__transaction_state` when it is created.",
    "transaction.state.log.replication.factor": "Replication factor of `__transaction_state` when it is created.",
    "transaction.state.log.segment.bytes": "Segment size of `__transaction_state` when it is created.",
    "transactional.id.expiration.ms": "Time without a transaction after which a transactional id is removed.",
    "unclean.leader.election.enable": "True to permit the election of a replica outside the ISR when no other is "
    "online. Acknowledged records may be lost.",
}
