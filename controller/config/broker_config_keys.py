"""Definitions of the broker settings of Kafka 4.3.1: name, type, importance, validator, default.

Settings that have an effect here are in `broker.config`.

One line per setting: ``name type importance mode check default``. Mode is Kafka's update mode: ``static`` is read-only,
``dynamic`` cluster-wide, ``own`` per broker. Check: the notation of `config_keys.ConfigKey.check`. Default: ``-`` and
``<required>`` mean no default, a missing one the empty string. Source: ``KafkaConfig`` and the config classes it joins
(apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
from typing import NamedTuple


class BrokerConfigKey(NamedTuple):
    """Definition of a broker setting: type, importance, update mode, validator and default (None: no default).

    A default of ``<required>`` is none either. The fields are the columns of the tables in this package, in their notation.
    """

    type: str
    importance: str
    update_mode: str
    check: str
    default: str | None

    @property
    def is_dynamic(self) -> bool:
        """True if the setting can be changed while the broker runs."""
        return self.update_mode != "static"


_TABLE = """
remote.log.storage.system.enable BOOLEAN MEDIUM static - false
remote.log.storage.manager.impl.prefix STRING MEDIUM static something rsm.config.
remote.log.metadata.manager.impl.prefix STRING MEDIUM static something rlmm.config.
remote.log.storage.manager.class.name STRING MEDIUM static something -
remote.log.storage.manager.class.path STRING MEDIUM static - -
remote.log.metadata.manager.class.name STRING MEDIUM static something org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING MEDIUM static - -
remote.log.metadata.manager.listener.name STRING MEDIUM static something -
remote.log.metadata.custom.metadata.max.bytes INT LOW static 0.. 128
remote.log.index.file.cache.total.size.bytes LONG LOW dynamic 1.. 1073741824
remote.log.manager.thread.pool.size INT MEDIUM static 1.. 2
remote.log.manager.copier.thread.pool.size INT MEDIUM dynamic 1.. 10
remote.log.manager.expiration.thread.pool.size INT MEDIUM dynamic 1.. 10
remote.log.manager.follower.thread.pool.size INT MEDIUM dynamic 1.. 2
remote.log.manager.task.interval.ms LONG LOW static 1.. 30000
remote.log.reader.threads INT MEDIUM dynamic 1.. 10
remote.log.reader.max.pending.tasks INT MEDIUM static 1.. 100
log.local.retention.ms LONG MEDIUM dynamic -2.. -2
log.local.retention.bytes LONG MEDIUM dynamic -2.. -2
remote.log.manager.copy.max.bytes.per.second LONG MEDIUM dynamic 1.. 9223372036854775807
remote.log.manager.copy.quota.window.num INT MEDIUM static 1.. 11
remote.log.manager.copy.quota.window.size.seconds INT MEDIUM static 1.. 1
remote.log.manager.fetch.max.bytes.per.second LONG MEDIUM dynamic 1.. 9223372036854775807
remote.log.manager.fetch.quota.window.num INT MEDIUM static 1.. 11
remote.log.manager.fetch.quota.window.size.seconds INT MEDIUM static 1.. 1
remote.fetch.max.wait.ms INT MEDIUM dynamic 1.. 500
remote.list.offsets.request.timeout.ms LONG MEDIUM dynamic 1.. 30000
broker.id INT HIGH static - -1
message.max.bytes INT HIGH dynamic 0.. 1048588
num.io.threads INT HIGH dynamic 1.. 8
num.replica.alter.log.dirs.threads INT HIGH static - -
background.threads INT HIGH dynamic 1.. 10
request.timeout.ms INT HIGH static - 30000
socket.connection.setup.timeout.ms LONG MEDIUM static - 10000
socket.connection.setup.timeout.max.ms LONG MEDIUM static - 30000
config.providers LIST LOW dynamic list
authorizer.class.name STRING LOW static -
early.start.listeners LIST HIGH static list -
broker.rack STRING MEDIUM static - -
controlled.shutdown.enable BOOLEAN MEDIUM static - true
delete.topic.enable BOOLEAN HIGH static - true
compression.type STRING HIGH dynamic uncompressed|zstd|lz4|snappy|gzip|producer producer
compression.gzip.level INT MEDIUM dynamic 1..9,-1 -1
compression.lz4.level INT MEDIUM dynamic 1..17 9
compression.zstd.level INT MEDIUM dynamic -131072..22 3
max.incremental.fetch.session.cache.slots INT MEDIUM static 0.. 1000
fetch.max.bytes INT MEDIUM static 1024.. 57671680
max.request.partition.size.limit INT MEDIUM static 1.. 2000
process.roles LIST HIGH static some:broker|controller <required>
node.id INT HIGH static 0.. <required>
initial.broker.registration.timeout.ms INT MEDIUM static - 60000
broker.heartbeat.interval.ms INT MEDIUM static - 2000
broker.session.timeout.ms INT MEDIUM static - 9000
controller.listener.names LIST HIGH static some <required>
sasl.mechanism.controller.protocol STRING HIGH static - GSSAPI
metadata.log.max.record.bytes.between.snapshots LONG HIGH static 1.. 20971520
metadata.log.max.snapshot.interval.ms LONG HIGH static 0.. 3600000
metadata.log.dir STRING HIGH static - -
metadata.log.segment.bytes INT HIGH static 8388608.. 1073741824
metadata.log.segment.ms LONG HIGH static - 604800000
metadata.max.retention.bytes LONG HIGH static - 104857600
metadata.max.retention.ms LONG HIGH static - 604800000
metadata.max.idle.interval.ms INT LOW static 0.. 500
listeners LIST HIGH own some PLAINTEXT://:9092
advertised.listeners LIST HIGH static some -
listener.security.protocol.map STRING LOW own - SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
socket.send.buffer.bytes INT HIGH static - 102400
socket.receive.buffer.bytes INT HIGH static - 102400
socket.request.max.bytes INT HIGH static 1.. 104857600
socket.listen.backlog.size INT MEDIUM static 1.. 50
max.connections.per.ip INT MEDIUM dynamic 0.. 2147483647
max.connections.per.ip.overrides STRING MEDIUM dynamic -
max.connections INT MEDIUM dynamic 0.. 2147483647
max.connection.creation.rate INT MEDIUM dynamic 0.. 2147483647
connections.max.idle.ms LONG MEDIUM static - 600000
connection.failed.authentication.delay.ms INT LOW static 0.. 100
queued.max.requests INT HIGH static 1.. 500
queued.max.request.bytes LONG MEDIUM static - -1
num.network.threads INT HIGH dynamic 1.. 3
controller.socket.timeout.ms INT MEDIUM static - 30000
default.replication.factor INT MEDIUM static - 1
replica.lag.time.max.ms LONG HIGH static - 30000
replica.socket.timeout.ms INT HIGH static - 30000
replica.socket.receive.buffer.bytes INT HIGH static - 65536
replica.fetch.max.bytes INT MEDIUM static 0.. 1048576
replica.fetch.wait.max.ms INT HIGH static - 500
replica.fetch.backoff.ms INT MEDIUM static 0.. 1000
replica.fetch.min.bytes INT HIGH static - 1
replica.fetch.response.max.bytes INT MEDIUM static 0.. 10485760
num.replica.fetchers INT HIGH dynamic 1.. 1
replica.high.watermark.checkpoint.interval.ms LONG HIGH static - 5000
fetch.purgatory.purge.interval.requests INT MEDIUM static - 1000
producer.purgatory.purge.interval.requests INT MEDIUM static - 1000
delete.records.purgatory.purge.interval.requests INT MEDIUM static - 1
auto.leader.rebalance.enable BOOLEAN HIGH static - true
leader.imbalance.check.interval.seconds LONG HIGH static 1.. 300
unclean.leader.election.enable BOOLEAN HIGH dynamic - false
security.inter.broker.protocol STRING MEDIUM static PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL PLAINTEXT
inter.broker.listener.name STRING MEDIUM static - -
replica.selector.class STRING MEDIUM static - -
follower.fetch.last.tiered.offset.enable BOOLEAN MEDIUM dynamic - false
group.coordinator.rebalance.protocols LIST MEDIUM static some:consumer|classic|share|streams classic,consumer,streams
group.coordinator.threads INT HIGH static 1.. 4
group.coordinator.background.threads INT HIGH static 1.. 2
group.coordinator.append.linger.ms INT MEDIUM static -1.. -1
offsets.commit.timeout.ms INT HIGH static 1.. 5000
offsets.load.buffer.size INT HIGH static 1.. 5242880
offsets.topic.replication.factor SHORT HIGH static 1.. 3
offsets.topic.num.partitions INT HIGH static 1.. 50
offsets.topic.segment.bytes INT HIGH static 1.. 104857600
offsets.topic.compression.codec INT HIGH static - 0
group.coordinator.cached.buffer.max.bytes INT MEDIUM dynamic 524288.. 1048588
offset.metadata.max.bytes INT HIGH static - 4096
offsets.retention.minutes INT HIGH static 1.. 10080
offsets.retention.check.interval.ms LONG HIGH static 1.. 600000
group.min.session.timeout.ms INT MEDIUM static - 6000
group.max.session.timeout.ms INT MEDIUM static - 1800000
group.initial.rebalance.delay.ms INT MEDIUM static - 3000
group.max.size INT MEDIUM static 1.. 2147483647
group.consumer.session.timeout.ms INT MEDIUM static 1.. 45000
group.consumer.min.session.timeout.ms INT MEDIUM static 1.. 45000
group.consumer.max.session.timeout.ms INT MEDIUM static 1.. 60000
group.consumer.heartbeat.interval.ms INT MEDIUM static 1.. 5000
group.consumer.min.heartbeat.interval.ms INT MEDIUM static 1.. 5000
group.consumer.max.heartbeat.interval.ms INT MEDIUM static 1.. 15000
group.consumer.max.size INT MEDIUM static 1.. 2147483647
group.consumer.assignors LIST MEDIUM static some uniform,range
group.consumer.migration.policy STRING MEDIUM static anycase:DISABLED|DOWNGRADE|UPGRADE|BIDIRECTIONAL bidirectional
group.consumer.assignment.interval.ms INT MEDIUM dynamic 0.. 1000
group.consumer.min.assignment.interval.ms INT MEDIUM static 0.. 0
group.consumer.max.assignment.interval.ms INT MEDIUM static 0.. 15000
group.share.session.timeout.ms INT MEDIUM static 1.. 45000
group.share.min.session.timeout.ms INT MEDIUM static 1.. 45000
group.share.max.session.timeout.ms INT MEDIUM static 1.. 60000
group.share.heartbeat.interval.ms INT MEDIUM static 1.. 5000
group.share.min.heartbeat.interval.ms INT MEDIUM static 1.. 5000
group.share.max.heartbeat.interval.ms INT MEDIUM static 1.. 15000
group.share.max.size INT MEDIUM static 1..1000 200
group.share.assignors LIST MEDIUM static some simple
group.share.assignment.interval.ms INT MEDIUM dynamic 0.. 1000
group.share.min.assignment.interval.ms INT MEDIUM static 0.. 0
group.share.max.assignment.interval.ms INT MEDIUM static 0.. 15000
group.streams.session.timeout.ms INT MEDIUM static 1.. 45000
group.streams.min.session.timeout.ms INT MEDIUM static 1.. 45000
group.streams.max.session.timeout.ms INT MEDIUM static 1.. 60000
group.streams.heartbeat.interval.ms INT MEDIUM static 1.. 5000
group.streams.min.heartbeat.interval.ms INT MEDIUM static 1.. 5000
group.streams.max.heartbeat.interval.ms INT MEDIUM static 1.. 15000
group.streams.max.size INT MEDIUM static 1.. 2147483647
group.streams.num.standby.replicas INT MEDIUM static 0.. 0
group.streams.max.standby.replicas INT MEDIUM static 0.. 2
group.streams.initial.rebalance.delay.ms INT MEDIUM static 0.. 3000
group.streams.assignment.interval.ms INT MEDIUM dynamic 0.. 1000
group.streams.min.assignment.interval.ms INT MEDIUM static 0.. 0
group.streams.max.assignment.interval.ms INT MEDIUM static 0.. 15000
log.cleaner.threads INT MEDIUM dynamic 0.. 1
log.cleaner.io.max.bytes.per.second DOUBLE MEDIUM dynamic - 1.7976931348623157E308
log.cleaner.dedupe.buffer.size LONG MEDIUM dynamic - 134217728
log.cleaner.io.buffer.size INT MEDIUM dynamic 0.. 524288
log.cleaner.io.buffer.load.factor DOUBLE MEDIUM dynamic - 0.9
log.cleaner.backoff.ms LONG MEDIUM dynamic 0.. 15000
log.cleaner.min.cleanable.ratio DOUBLE MEDIUM dynamic 0..1 0.5
log.cleaner.enable BOOLEAN MEDIUM static - true
log.cleaner.delete.retention.ms LONG MEDIUM dynamic 0.. 86400000
log.cleaner.min.compaction.lag.ms LONG MEDIUM dynamic 0.. 0
log.cleaner.max.compaction.lag.ms LONG MEDIUM dynamic 1.. 9223372036854775807
num.partitions INT MEDIUM static 1.. 1
log.dir LIST HIGH static some /tmp/kafka-logs
log.dirs LIST HIGH static some -
cordoned.log.dirs LIST MEDIUM own list
log.segment.bytes INT HIGH dynamic 1048576.. 1073741824
log.roll.ms LONG HIGH dynamic - -
log.roll.hours INT HIGH static 1.. 168
log.roll.jitter.ms LONG HIGH dynamic - -
log.roll.jitter.hours INT HIGH static 0.. 0
log.retention.ms LONG HIGH dynamic - -
log.retention.minutes INT HIGH static - -
log.retention.hours INT HIGH static - 168
log.retention.bytes LONG HIGH dynamic - -1
log.retention.check.interval.ms LONG MEDIUM static 1.. 300000
log.cleanup.policy LIST MEDIUM dynamic compact|delete delete
log.index.size.max.bytes INT MEDIUM dynamic 4.. 10485760
log.index.interval.bytes INT MEDIUM dynamic 0.. 4096
log.flush.interval.messages LONG HIGH dynamic 1.. 9223372036854775807
log.segment.delete.delay.ms LONG HIGH dynamic 0.. 60000
log.flush.scheduler.interval.ms LONG HIGH static - 9223372036854775807
log.flush.interval.ms LONG HIGH dynamic - -
log.flush.offset.checkpoint.interval.ms INT HIGH static 0.. 60000
log.flush.start.offset.checkpoint.interval.ms INT HIGH static 0.. 60000
log.preallocate BOOLEAN MEDIUM dynamic - false
num.recovery.threads.per.data.dir INT HIGH dynamic 1.. 2
auto.create.topics.enable BOOLEAN HIGH static - true
min.insync.replicas INT HIGH dynamic 1.. 1
log.message.timestamp.type STRING MEDIUM dynamic CreateTime|LogAppendTime CreateTime
log.message.timestamp.before.max.ms LONG MEDIUM dynamic 0.. 9223372036854775807
log.message.timestamp.after.max.ms LONG MEDIUM dynamic 0.. 3600000
create.topic.policy.class.name CLASS LOW static - -
alter.config.policy.class.name CLASS LOW static - -
log.dir.failure.timeout.ms LONG LOW static 1.. 30000
group.share.delivery.count.limit INT MEDIUM static 2..10 5
group.share.max.delivery.count.limit INT MEDIUM static 5..25 10
group.share.min.delivery.count.limit INT MEDIUM static 2..5 2
group.share.record.lock.duration.ms INT MEDIUM static 1000..3600000 30000
group.share.min.record.lock.duration.ms INT MEDIUM static 1000..30000 15000
group.share.max.record.lock.duration.ms INT MEDIUM static 30000..3600000 60000
group.share.partition.max.record.locks INT MEDIUM static 100..10000 2000
group.share.max.partition.max.record.locks INT MEDIUM static 2000..10000 4000
group.share.min.partition.max.record.locks INT MEDIUM static 100..2000 100
share.fetch.purgatory.purge.interval.requests INT MEDIUM static - 1000
group.share.max.share.sessions INT MEDIUM static 1.. 2000
share.coordinator.state.topic.num.partitions INT HIGH static 1.. 50
share.coordinator.state.topic.replication.factor SHORT HIGH static 1.. 3
share.coordinator.state.topic.min.isr SHORT HIGH static 1.. 2
share.coordinator.state.topic.segment.bytes INT HIGH static 1.. 104857600
share.coordinator.threads INT MEDIUM static 1.. 1
share.coordinator.snapshot.update.records.per.snapshot INT MEDIUM static 0..500 500
share.coordinator.load.buffer.size INT HIGH static 1.. 5242880
share.coordinator.state.topic.compression.codec INT HIGH static - 0
share.coordinator.append.linger.ms INT MEDIUM static -1.. -1
share.coordinator.write.timeout.ms INT HIGH static 1.. 5000
share.coordinator.cached.buffer.max.bytes INT MEDIUM dynamic 524288.. 1048588
transaction.state.log.min.isr INT HIGH static 1.. 2
transaction.state.log.load.buffer.size INT HIGH static 1.. 5242880
transaction.state.log.replication.factor SHORT HIGH static 1.. 3
transaction.state.log.num.partitions INT HIGH static 1.. 50
transaction.state.log.segment.bytes INT HIGH static 1.. 104857600
transaction.partition.verification.enable BOOLEAN LOW dynamic - true
producer.id.expiration.ms INT LOW dynamic 1.. 86400000
transactional.id.expiration.ms INT HIGH static 1.. 604800000
transaction.max.timeout.ms INT HIGH static 1.. 900000
transaction.abort.timed.out.transaction.cleanup.interval.ms INT LOW static 1.. 10000
transaction.remove.expired.transaction.cleanup.interval.ms INT LOW static 1.. 3600000
transaction.two.phase.commit.enable BOOLEAN LOW static - false
controller.quorum.voters LIST HIGH static voters
controller.quorum.bootstrap.servers LIST HIGH static servers
controller.quorum.election.timeout.ms INT HIGH static 0.. 1000
controller.quorum.fetch.timeout.ms INT HIGH static 0.. 2000
controller.quorum.election.backoff.max.ms INT HIGH static 0.. 1000
controller.quorum.append.linger.ms INT MEDIUM static 0.. 25
controller.quorum.request.timeout.ms INT MEDIUM static 0.. 2000
controller.quorum.retry.backoff.ms INT LOW static 0.. 20
controller.quorum.auto.join.enable BOOLEAN LOW static - false
controller.quorum.fetch.snapshot.max.bytes INT LOW static 1.. 1048576
controller.quorum.fetch.max.bytes INT LOW static 1.. 1048576
metrics.num.samples INT LOW static 1.. 2
metrics.sample.window.ms LONG LOW static 1.. 30000
metric.reporters LIST LOW dynamic list org.apache.kafka.common.metrics.JmxReporter
metrics.recording.level STRING LOW static - INFO
kafka.metrics.reporters LIST LOW static list
kafka.metrics.polling.interval.secs INT LOW static 1.. 10
telemetry.max.bytes INT LOW static 1.. 1048576
quota.window.num INT LOW static 1.. 11
replication.quota.window.num INT LOW static 1.. 11
alter.log.dirs.replication.quota.window.num INT LOW static 1.. 11
controller.quota.window.num INT LOW static 1.. 11
quota.window.size.seconds INT LOW static 1.. 1
replication.quota.window.size.seconds INT LOW static 1.. 1
alter.log.dirs.replication.quota.window.size.seconds INT LOW static 1.. 1
controller.quota.window.size.seconds INT LOW static 1.. 1
client.quota.callback.class CLASS LOW static - -
connections.max.reauth.ms LONG MEDIUM static - 0
sasl.server.max.receive.size INT MEDIUM static - 524288
security.providers STRING LOW static - -
principal.builder.class CLASS MEDIUM own - org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
ssl.client.auth STRING MEDIUM own required|requested|none none
ssl.principal.mapping.rules STRING LOW static - DEFAULT
ssl.allow.dn.changes BOOLEAN LOW static - false
ssl.allow.san.changes BOOLEAN LOW static - false
ssl.protocol STRING MEDIUM own - TLSv1.3
ssl.provider STRING MEDIUM own - -
ssl.enabled.protocols LIST MEDIUM own list TLSv1.2,TLSv1.3
ssl.keystore.type STRING MEDIUM own - JKS
ssl.keystore.location STRING MEDIUM own - -
ssl.keystore.password PASSWORD MEDIUM own - -
ssl.key.password PASSWORD MEDIUM own - -
ssl.keystore.key PASSWORD MEDIUM own - -
ssl.keystore.certificate.chain PASSWORD MEDIUM own - -
ssl.truststore.type STRING MEDIUM own - JKS
ssl.truststore.location STRING MEDIUM own - -
ssl.truststore.password PASSWORD MEDIUM own - -
ssl.truststore.certificates PASSWORD MEDIUM own - -
ssl.keymanager.algorithm STRING MEDIUM own - SunX509
ssl.trustmanager.algorithm STRING MEDIUM own - PKIX
ssl.endpoint.identification.algorithm STRING LOW own - https
ssl.secure.random.implementation STRING LOW own - -
ssl.cipher.suites LIST MEDIUM own list
ssl.engine.factory.class CLASS LOW own - -
sasl.mechanism.inter.broker.protocol STRING MEDIUM own - GSSAPI
sasl.enabled.mechanisms LIST MEDIUM own list GSSAPI
sasl.server.callback.handler.class CLASS MEDIUM static - -
sasl.kerberos.principal.to.local.rules LIST MEDIUM own list DEFAULT
sasl.jaas.config PASSWORD MEDIUM own - -
sasl.client.callback.handler.class CLASS MEDIUM static - -
sasl.login.class CLASS MEDIUM static - -
sasl.login.callback.handler.class CLASS MEDIUM static - -
sasl.kerberos.service.name STRING MEDIUM own - -
sasl.kerberos.kinit.cmd STRING MEDIUM own - /usr/bin/kinit
sasl.kerberos.ticket.renew.window.factor DOUBLE MEDIUM own - 0.8
sasl.kerberos.ticket.renew.jitter DOUBLE MEDIUM own - 0.05
sasl.kerberos.min.time.before.relogin LONG MEDIUM own - 60000
sasl.login.refresh.window.factor DOUBLE MEDIUM own - 0.8
sasl.login.refresh.window.jitter DOUBLE MEDIUM own - 0.05
sasl.login.refresh.min.period.seconds SHORT MEDIUM own - 60
sasl.login.refresh.buffer.seconds SHORT MEDIUM own - 300
sasl.login.connect.timeout.ms INT LOW static - -
sasl.login.read.timeout.ms INT LOW static - -
sasl.login.retry.backoff.max.ms LONG LOW static - 10000
sasl.login.retry.backoff.ms LONG LOW static - 100
sasl.oauthbearer.jwt.retriever.class CLASS MEDIUM static - org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class CLASS MEDIUM static - org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope STRING MEDIUM static - -
sasl.oauthbearer.client.credentials.client.id STRING MEDIUM static - -
sasl.oauthbearer.client.credentials.client.secret PASSWORD MEDIUM static - -
sasl.oauthbearer.assertion.algorithm STRING MEDIUM static anycase:ES256|RS256 RS256
sasl.oauthbearer.assertion.claim.aud STRING MEDIUM static - -
sasl.oauthbearer.assertion.claim.exp.seconds INT LOW static 0..86400 300
sasl.oauthbearer.assertion.claim.iss STRING MEDIUM static - -
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN MEDIUM static - false
sasl.oauthbearer.assertion.claim.nbf.seconds INT LOW static 0..3600 60
sasl.oauthbearer.assertion.claim.sub STRING MEDIUM static - -
sasl.oauthbearer.assertion.file STRING MEDIUM static - -
sasl.oauthbearer.assertion.private.key.file STRING MEDIUM static - -
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD MEDIUM static - -
sasl.oauthbearer.assertion.template.file STRING MEDIUM static - -
sasl.oauthbearer.scope.claim.name STRING LOW static - scope
sasl.oauthbearer.sub.claim.name STRING LOW static - sub
sasl.oauthbearer.token.endpoint.url STRING MEDIUM static - -
sasl.oauthbearer.jwks.endpoint.url STRING MEDIUM static - -
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG LOW static - 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG LOW static - 100
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG LOW static - 10000
sasl.oauthbearer.clock.skew.seconds INT LOW static - 30
sasl.oauthbearer.expected.audience LIST HIGH static list
sasl.oauthbearer.expected.issuer STRING HIGH static - -
delegation.token.secret.key PASSWORD MEDIUM static - -
delegation.token.max.lifetime.ms LONG MEDIUM static 1.. 604800000
delegation.token.expiry.time.ms LONG MEDIUM static 1.. 86400000
delegation.token.expiry.check.interval.ms LONG LOW static 1.. 3600000
add.partitions.to.txn.retry.backoff.max.ms INT HIGH static 0.. 100
add.partitions.to.txn.retry.backoff.ms INT HIGH static 1.. 20
"""


def parse_table(table: str) -> dict[str, BrokerConfigKey]:
    """Return the definitions in a table by setting name; the module's docstring describes the form of its lines."""
    out = {}
    for line in table.strip().split("\n"):
        name, kind, importance, when, check, *default = line.split(" ", 5)
        text = default[0] if default else ""
        out[name] = BrokerConfigKey(kind, importance, when, check, None if text == "-" else text)
    return out


BROKER_KEYS: dict[str, BrokerConfigKey] = parse_table(_TABLE)
KEYSTORE_KEY_PATTERN = re.compile(r"ssl\.(keystore|truststore|key)\.")
"""Names of ``SslConfigs.RECONFIGURABLE_CONFIGS``, which can be changed for single listeners only."""
PER_BROKER_KEYS = frozenset(name for name, key in BROKER_KEYS.items() if key.update_mode == "own")
"""``DynamicBrokerConfig.PER_BROKER_CONFIGS``: not allowed as cluster-wide default of all brokers."""
