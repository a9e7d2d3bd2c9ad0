"""The broker settings of Kafka 4.3.1: name, type, importance, default. What Ottla honours is in `broker.config`.

One line a key: ``name type importance default``; ``-`` stands for no default, a missing word for the empty text.
Source: ``KafkaConfig`` and the config classes it joins (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple


class BrokerKey(NamedTuple):
    """One setting of a broker."""

    type: str
    importance: str
    default: str | None


_TABLE = """
remote.log.storage.system.enable BOOLEAN MEDIUM false
remote.log.storage.manager.impl.prefix STRING MEDIUM rsm.config.
remote.log.metadata.manager.impl.prefix STRING MEDIUM rlmm.config.
remote.log.storage.manager.class.name STRING MEDIUM -
remote.log.storage.manager.class.path STRING MEDIUM -
remote.log.metadata.manager.class.name STRING MEDIUM org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING MEDIUM -
remote.log.metadata.manager.listener.name STRING MEDIUM -
remote.log.metadata.custom.metadata.max.bytes INT LOW 128
remote.log.index.file.cache.total.size.bytes LONG LOW 1073741824
remote.log.manager.thread.pool.size INT MEDIUM 2
remote.log.manager.copier.thread.pool.size INT MEDIUM 10
remote.log.manager.expiration.thread.pool.size INT MEDIUM 10
remote.log.manager.follower.thread.pool.size INT MEDIUM 2
remote.log.manager.task.interval.ms LONG LOW 30000
remote.log.reader.threads INT MEDIUM 10
remote.log.reader.max.pending.tasks INT MEDIUM 100
log.local.retention.ms LONG MEDIUM -2
log.local.retention.bytes LONG MEDIUM -2
remote.log.manager.copy.max.bytes.per.second LONG MEDIUM 9223372036854775807
remote.log.manager.copy.quota.window.num INT MEDIUM 11
remote.log.manager.copy.quota.window.size.seconds INT MEDIUM 1
remote.log.manager.fetch.max.bytes.per.second LONG MEDIUM 9223372036854775807
remote.log.manager.fetch.quota.window.num INT MEDIUM 11
remote.log.manager.fetch.quota.window.size.seconds INT MEDIUM 1
remote.fetch.max.wait.ms INT MEDIUM 500
remote.list.offsets.request.timeout.ms LONG MEDIUM 30000
broker.id INT HIGH -1
message.max.bytes INT HIGH 1048588
num.io.threads INT HIGH 8
num.replica.alter.log.dirs.threads INT HIGH -
background.threads INT HIGH 10
request.timeout.ms INT HIGH 30000
socket.connection.setup.timeout.ms LONG MEDIUM 10000
socket.connection.setup.timeout.max.ms LONG MEDIUM 30000
config.providers LIST LOW
authorizer.class.name STRING LOW
early.start.listeners LIST HIGH -
broker.rack STRING MEDIUM -
controlled.shutdown.enable BOOLEAN MEDIUM true
delete.topic.enable BOOLEAN HIGH true
compression.type STRING HIGH producer
compression.gzip.level INT MEDIUM -1
compression.lz4.level INT MEDIUM 9
compression.zstd.level INT MEDIUM 3
max.incremental.fetch.session.cache.slots INT MEDIUM 1000
fetch.max.bytes INT MEDIUM 57671680
max.request.partition.size.limit INT MEDIUM 2000
process.roles LIST HIGH <required>
node.id INT HIGH <required>
initial.broker.registration.timeout.ms INT MEDIUM 60000
broker.heartbeat.interval.ms INT MEDIUM 2000
broker.session.timeout.ms INT MEDIUM 9000
controller.listener.names LIST HIGH <required>
sasl.mechanism.controller.protocol STRING HIGH GSSAPI
metadata.log.max.record.bytes.between.snapshots LONG HIGH 20971520
metadata.log.max.snapshot.interval.ms LONG HIGH 3600000
metadata.log.dir STRING HIGH -
metadata.log.segment.bytes INT HIGH 1073741824
metadata.log.segment.ms LONG HIGH 604800000
metadata.max.retention.bytes LONG HIGH 104857600
metadata.max.retention.ms LONG HIGH 604800000
metadata.max.idle.interval.ms INT LOW 500
listeners LIST HIGH PLAINTEXT://:9092
advertised.listeners LIST HIGH -
listener.security.protocol.map STRING LOW SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
socket.send.buffer.bytes INT HIGH 102400
socket.receive.buffer.bytes INT HIGH 102400
socket.request.max.bytes INT HIGH 104857600
socket.listen.backlog.size INT MEDIUM 50
max.connections.per.ip INT MEDIUM 2147483647
max.connections.per.ip.overrides STRING MEDIUM
max.connections INT MEDIUM 2147483647
max.connection.creation.rate INT MEDIUM 2147483647
connections.max.idle.ms LONG MEDIUM 600000
connection.failed.authentication.delay.ms INT LOW 100
queued.max.requests INT HIGH 500
queued.max.request.bytes LONG MEDIUM -1
num.network.threads INT HIGH 3
controller.socket.timeout.ms INT MEDIUM 30000
default.replication.factor INT MEDIUM 1
replica.lag.time.max.ms LONG HIGH 30000
replica.socket.timeout.ms INT HIGH 30000
replica.socket.receive.buffer.bytes INT HIGH 65536
replica.fetch.max.bytes INT MEDIUM 1048576
replica.fetch.wait.max.ms INT HIGH 500
replica.fetch.backoff.ms INT MEDIUM 1000
replica.fetch.min.bytes INT HIGH 1
replica.fetch.response.max.bytes INT MEDIUM 10485760
num.replica.fetchers INT HIGH 1
replica.high.watermark.checkpoint.interval.ms LONG HIGH 5000
fetch.purgatory.purge.interval.requests INT MEDIUM 1000
producer.purgatory.purge.interval.requests INT MEDIUM 1000
delete.records.purgatory.purge.interval.requests INT MEDIUM 1
auto.leader.rebalance.enable BOOLEAN HIGH true
leader.imbalance.check.interval.seconds LONG HIGH 300
unclean.leader.election.enable BOOLEAN HIGH false
security.inter.broker.protocol STRING MEDIUM PLAINTEXT
inter.broker.listener.name STRING MEDIUM -
replica.selector.class STRING MEDIUM -
follower.fetch.last.tiered.offset.enable BOOLEAN MEDIUM false
group.coordinator.rebalance.protocols LIST MEDIUM classic,consumer,streams
group.coordinator.threads INT HIGH 4
group.coordinator.background.threads INT HIGH 2
group.coordinator.append.linger.ms INT MEDIUM -1
offsets.commit.timeout.ms INT HIGH 5000
offsets.load.buffer.size INT HIGH 5242880
offsets.topic.replication.factor SHORT HIGH 3
offsets.topic.num.partitions INT HIGH 50
offsets.topic.segment.bytes INT HIGH 104857600
offsets.topic.compression.codec INT HIGH 0
group.coordinator.cached.buffer.max.bytes INT MEDIUM 1048588
offset.metadata.max.bytes INT HIGH 4096
offsets.retention.minutes INT HIGH 10080
offsets.retention.check.interval.ms LONG HIGH 600000
group.min.session.timeout.ms INT MEDIUM 6000
group.max.session.timeout.ms INT MEDIUM 1800000
group.initial.rebalance.delay.ms INT MEDIUM 3000
group.max.size INT MEDIUM 2147483647
group.consumer.session.timeout.ms INT MEDIUM 45000
group.consumer.min.session.timeout.ms INT MEDIUM 45000
group.consumer.max.session.timeout.ms INT MEDIUM 60000
group.consumer.heartbeat.interval.ms INT MEDIUM 5000
group.consumer.min.heartbeat.interval.ms INT MEDIUM 5000
group.consumer.max.heartbeat.interval.ms INT MEDIUM 15000
group.consumer.max.size INT MEDIUM 2147483647
group.consumer.assignors LIST MEDIUM uniform,range
group.consumer.migration.policy STRING MEDIUM bidirectional
group.consumer.assignment.interval.ms INT MEDIUM 1000
group.consumer.min.assignment.interval.ms INT MEDIUM 0
group.consumer.max.assignment.interval.ms INT MEDIUM 15000
group.share.session.timeout.ms INT MEDIUM 45000
group.share.min.session.timeout.ms INT MEDIUM 45000
group.share.max.session.timeout.ms INT MEDIUM 60000
group.share.heartbeat.interval.ms INT MEDIUM 5000
group.share.min.heartbeat.interval.ms INT MEDIUM 5000
group.share.max.heartbeat.interval.ms INT MEDIUM 15000
group.share.max.size INT MEDIUM 200
group.share.assignors LIST MEDIUM simple
group.share.assignment.interval.ms INT MEDIUM 1000
group.share.min.assignment.interval.ms INT MEDIUM 0
group.share.max.assignment.interval.ms INT MEDIUM 15000
group.streams.session.timeout.ms INT MEDIUM 45000
group.streams.min.session.timeout.ms INT MEDIUM 45000
group.streams.max.session.timeout.ms INT MEDIUM 60000
group.streams.heartbeat.interval.ms INT MEDIUM 5000
group.streams.min.heartbeat.interval.ms INT MEDIUM 5000
group.streams.max.heartbeat.interval.ms INT MEDIUM 15000
group.streams.max.size INT MEDIUM 2147483647
group.streams.num.standby.replicas INT MEDIUM 0
group.streams.max.standby.replicas INT MEDIUM 2
group.streams.initial.rebalance.delay.ms INT MEDIUM 3000
group.streams.assignment.interval.ms INT MEDIUM 1000
group.streams.min.assignment.interval.ms INT MEDIUM 0
group.streams.max.assignment.interval.ms INT MEDIUM 15000
log.cleaner.threads INT MEDIUM 1
log.cleaner.io.max.bytes.per.second DOUBLE MEDIUM 1.7976931348623157E308
log.cleaner.dedupe.buffer.size LONG MEDIUM 134217728
log.cleaner.io.buffer.size INT MEDIUM 524288
log.cleaner.io.buffer.load.factor DOUBLE MEDIUM 0.9
log.cleaner.backoff.ms LONG MEDIUM 15000
log.cleaner.min.cleanable.ratio DOUBLE MEDIUM 0.5
log.cleaner.enable BOOLEAN MEDIUM true
log.cleaner.delete.retention.ms LONG MEDIUM 86400000
log.cleaner.min.compaction.lag.ms LONG MEDIUM 0
log.cleaner.max.compaction.lag.ms LONG MEDIUM 9223372036854775807
num.partitions INT MEDIUM 1
log.dir LIST HIGH /tmp/kafka-logs
log.dirs LIST HIGH -
cordoned.log.dirs LIST MEDIUM
log.segment.bytes INT HIGH 1073741824
log.roll.ms LONG HIGH -
log.roll.hours INT HIGH 168
log.roll.jitter.ms LONG HIGH -
log.roll.jitter.hours INT HIGH 0
log.retention.ms LONG HIGH -
log.retention.minutes INT HIGH -
log.retention.hours INT HIGH 168
log.retention.bytes LONG HIGH -1
log.retention.check.interval.ms LONG MEDIUM 300000
log.cleanup.policy LIST MEDIUM delete
log.index.size.max.bytes INT MEDIUM 10485760
log.index.interval.bytes INT MEDIUM 4096
log.flush.interval.messages LONG HIGH 9223372036854775807
log.segment.delete.delay.ms LONG HIGH 60000
log.flush.scheduler.interval.ms LONG HIGH 9223372036854775807
log.flush.interval.ms LONG HIGH -
log.flush.offset.checkpoint.interval.ms INT HIGH 60000
log.flush.start.offset.checkpoint.interval.ms INT HIGH 60000
log.preallocate BOOLEAN MEDIUM false
num.recovery.threads.per.data.dir INT HIGH 2
auto.create.topics.enable BOOLEAN HIGH true
min.insync.replicas INT HIGH 1
log.message.timestamp.type STRING MEDIUM CreateTime
log.message.timestamp.before.max.ms LONG MEDIUM 9223372036854775807
log.message.timestamp.after.max.ms LONG MEDIUM 3600000
create.topic.policy.class.name CLASS LOW -
alter.config.policy.class.name CLASS LOW -
log.dir.failure.timeout.ms LONG LOW 30000
group.share.delivery.count.limit INT MEDIUM 5
group.share.max.delivery.count.limit INT MEDIUM 10
group.share.min.delivery.count.limit INT MEDIUM 2
group.share.record.lock.duration.ms INT MEDIUM 30000
group.share.min.record.lock.duration.ms INT MEDIUM 15000
group.share.max.record.lock.duration.ms INT MEDIUM 60000
group.share.partition.max.record.locks INT MEDIUM 2000
group.share.max.partition.max.record.locks INT MEDIUM 4000
group.share.min.partition.max.record.locks INT MEDIUM 100
share.fetch.purgatory.purge.interval.requests INT MEDIUM 1000
group.share.max.share.sessions INT MEDIUM 2000
share.coordinator.state.topic.num.partitions INT HIGH 50
share.coordinator.state.topic.replication.factor SHORT HIGH 3
share.coordinator.state.topic.min.isr SHORT HIGH 2
share.coordinator.state.topic.segment.bytes INT HIGH 104857600
share.coordinator.threads INT MEDIUM 1
share.coordinator.snapshot.update.records.per.snapshot INT MEDIUM 500
share.coordinator.load.buffer.size INT HIGH 5242880
share.coordinator.state.topic.compression.codec INT HIGH 0
share.coordinator.append.linger.ms INT MEDIUM -1
share.coordinator.write.timeout.ms INT HIGH 5000
share.coordinator.cached.buffer.max.bytes INT MEDIUM 1048588
transaction.state.log.min.isr INT HIGH 2
transaction.state.log.load.buffer.size INT HIGH 5242880
transaction.state.log.replication.factor SHORT HIGH 3
transaction.state.log.num.partitions INT HIGH 50
transaction.state.log.segment.bytes INT HIGH 104857600
transaction.partition.verification.enable BOOLEAN LOW true
producer.id.expiration.ms INT LOW 86400000
transactional.id.expiration.ms INT HIGH 604800000
transaction.max.timeout.ms INT HIGH 900000
transaction.abort.timed.out.transaction.cleanup.interval.ms INT LOW 10000
transaction.remove.expired.transaction.cleanup.interval.ms INT LOW 3600000
transaction.two.phase.commit.enable BOOLEAN LOW false
controller.quorum.voters LIST HIGH
controller.quorum.bootstrap.servers LIST HIGH
controller.quorum.election.timeout.ms INT HIGH 1000
controller.quorum.fetch.timeout.ms INT HIGH 2000
controller.quorum.election.backoff.max.ms INT HIGH 1000
controller.quorum.append.linger.ms INT MEDIUM 25
controller.quorum.request.timeout.ms INT MEDIUM 2000
controller.quorum.retry.backoff.ms INT LOW 20
controller.quorum.auto.join.enable BOOLEAN LOW false
controller.quorum.fetch.snapshot.max.bytes INT LOW 1048576
controller.quorum.fetch.max.bytes INT LOW 1048576
metrics.num.samples INT LOW 2
metrics.sample.window.ms LONG LOW 30000
metric.reporters LIST LOW org.apache.kafka.common.metrics.JmxReporter
metrics.recording.level STRING LOW INFO
kafka.metrics.reporters LIST LOW
kafka.metrics.polling.interval.secs INT LOW 10
telemetry.max.bytes INT LOW 1048576
quota.window.num INT LOW 11
replication.quota.window.num INT LOW 11
alter.log.dirs.replication.quota.window.num INT LOW 11
controller.quota.window.num INT LOW 11
quota.window.size.seconds INT LOW 1
replication.quota.window.size.seconds INT LOW 1
alter.log.dirs.replication.quota.window.size.seconds INT LOW 1
controller.quota.window.size.seconds INT LOW 1
client.quota.callback.class CLASS LOW -
connections.max.reauth.ms LONG MEDIUM 0
sasl.server.max.receive.size INT MEDIUM 524288
security.providers STRING LOW -
principal.builder.class CLASS MEDIUM org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
ssl.client.auth STRING MEDIUM none
ssl.principal.mapping.rules STRING LOW DEFAULT
ssl.allow.dn.changes BOOLEAN LOW false
ssl.allow.san.changes BOOLEAN LOW false
ssl.protocol STRING MEDIUM TLSv1.3
ssl.provider STRING MEDIUM -
ssl.enabled.protocols LIST MEDIUM TLSv1.2,TLSv1.3
ssl.keystore.type STRING MEDIUM JKS
ssl.keystore.location STRING MEDIUM -
ssl.keystore.password PASSWORD MEDIUM -
ssl.key.password PASSWORD MEDIUM -
ssl.keystore.key PASSWORD MEDIUM -
ssl.keystore.certificate.chain PASSWORD MEDIUM -
ssl.truststore.type STRING MEDIUM JKS
ssl.truststore.location STRING MEDIUM -
ssl.truststore.password PASSWORD MEDIUM -
ssl.truststore.certificates PASSWORD MEDIUM -
ssl.keymanager.algorithm STRING MEDIUM SunX509
ssl.trustmanager.algorithm STRING MEDIUM PKIX
ssl.endpoint.identification.algorithm STRING LOW https
ssl.secure.random.implementation STRING LOW -
ssl.cipher.suites LIST MEDIUM
ssl.engine.factory.class CLASS LOW -
sasl.mechanism.inter.broker.protocol STRING MEDIUM GSSAPI
sasl.enabled.mechanisms LIST MEDIUM GSSAPI
sasl.server.callback.handler.class CLASS MEDIUM -
sasl.kerberos.principal.to.local.rules LIST MEDIUM DEFAULT
sasl.jaas.config PASSWORD MEDIUM -
sasl.client.callback.handler.class CLASS MEDIUM -
sasl.login.class CLASS MEDIUM -
sasl.login.callback.handler.class CLASS MEDIUM -
sasl.kerberos.service.name STRING MEDIUM -
sasl.kerberos.kinit.cmd STRING MEDIUM /usr/bin/kinit
sasl.kerberos.ticket.renew.window.factor DOUBLE MEDIUM 0.8
sasl.kerberos.ticket.renew.jitter DOUBLE MEDIUM 0.05
sasl.kerberos.min.time.before.relogin LONG MEDIUM 60000
sasl.login.refresh.window.factor DOUBLE MEDIUM 0.8
sasl.login.refresh.window.jitter DOUBLE MEDIUM 0.05
sasl.login.refresh.min.period.seconds SHORT MEDIUM 60
sasl.login.refresh.buffer.seconds SHORT MEDIUM 300
sasl.login.connect.timeout.ms INT LOW -
sasl.login.read.timeout.ms INT LOW -
sasl.login.retry.backoff.max.ms LONG LOW 10000
sasl.login.retry.backoff.ms LONG LOW 100
sasl.oauthbearer.jwt.retriever.class CLASS MEDIUM org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class CLASS MEDIUM org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope STRING MEDIUM -
sasl.oauthbearer.client.credentials.client.id STRING MEDIUM -
sasl.oauthbearer.client.credentials.client.secret PASSWORD MEDIUM -
sasl.oauthbearer.assertion.algorithm STRING MEDIUM RS256
sasl.oauthbearer.assertion.claim.aud STRING MEDIUM -
sasl.oauthbearer.assertion.claim.exp.seconds INT LOW 300
sasl.oauthbearer.assertion.claim.iss STRING MEDIUM -
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN MEDIUM false
sasl.oauthbearer.assertion.claim.nbf.seconds INT LOW 60
sasl.oauthbearer.assertion.claim.sub STRING MEDIUM -
sasl.oauthbearer.assertion.file STRING MEDIUM -
sasl.oauthbearer.assertion.private.key.file STRING MEDIUM -
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD MEDIUM -
sasl.oauthbearer.assertion.template.file STRING MEDIUM -
sasl.oauthbearer.scope.claim.name STRING LOW scope
sasl.oauthbearer.sub.claim.name STRING LOW sub
sasl.oauthbearer.token.endpoint.url STRING MEDIUM -
sasl.oauthbearer.jwks.endpoint.url STRING MEDIUM -
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG LOW 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG LOW 100
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG LOW 10000
sasl.oauthbearer.clock.skew.seconds INT LOW 30
sasl.oauthbearer.expected.audience LIST HIGH
sasl.oauthbearer.expected.issuer STRING HIGH -
delegation.token.secret.key PASSWORD MEDIUM -
delegation.token.max.lifetime.ms LONG MEDIUM 604800000
delegation.token.expiry.time.ms LONG MEDIUM 86400000
delegation.token.expiry.check.interval.ms LONG LOW 3600000
add.partitions.to.txn.retry.backoff.max.ms INT HIGH 100
add.partitions.to.txn.retry.backoff.ms INT HIGH 20
"""


def _parse() -> dict[str, BrokerKey]:
    out = {}
    for line in _TABLE.strip().split("\n"):
        name, kind, importance, *default = line.split(" ", 3)
        text = default[0] if default else ""
        out[name] = BrokerKey(kind, importance, None if text == "-" else text)
    return out


BROKER_KEYS: dict[str, BrokerKey] = _parse()
