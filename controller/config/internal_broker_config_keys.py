"""Definitions of Kafka 4.3.1's internal broker settings, and of its dynamic replication quota settings.

Internal settings are validated but not in DescribeConfigs. The tables have the form of `broker_config_keys`.
Source: ``ConfigDef.defineInternal`` in the classes that ``KafkaConfig`` joins, ``QuotaConfig.brokerQuotaConfigs``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller.config.broker_config_keys import BrokerConfigKey, parse_table

_INTERNAL = """
remote.log.index.file.cache.ttl.ms LONG LOW static -1.. 900000
remote.log.manager.task.retry.backoff.ms LONG LOW static 1.. 500
remote.log.manager.task.retry.backoff.max.ms LONG LOW static 1.. 30000
remote.log.manager.task.retry.jitter DOUBLE LOW static 0..0.5 0.2
unstable.api.versions.enable BOOLEAN HIGH static - false
unstable.feature.versions.enable BOOLEAN HIGH static - false
controller.performance.sample.period.ms LONG MEDIUM static 100.. 60000
controller.performance.always.log.threshold.ms LONG MEDIUM static 0.. 2000
server.max.startup.time.ms LONG MEDIUM static 0.. 9223372036854775807
internal.metadata.log.segment.bytes INT HIGH static - -
internal.metadata.max.batch.size.in.bytes INT HIGH static - 8388608
internal.metadata.delete.delay.millis LONG HIGH static - 60000
unclean.leader.election.interval.ms LONG MEDIUM static 1.. 300000
group.consumer.regex.refresh.interval.ms INT MEDIUM static 10000.. 600000
group.share.initialize.retry.interval.ms INT LOW static 1.. 30000
log.initial.task.delay.ms LONG LOW static 0.. 30000
group.share.persister.class.name STRING MEDIUM static - org.apache.kafka.server.share.persister.DefaultStatePersister
share.coordinator.state.topic.prune.interval.ms INT LOW static 1.. 300000
share.coordinator.cold.partition.snapshot.interval.ms INT LOW static 1.. 300000
producer.id.expiration.check.interval.ms INT LOW static 1.. 600000
"""
_QUOTAS = """
leader.replication.throttled.rate LONG MEDIUM dynamic 0.. 9223372036854775807
follower.replication.throttled.rate LONG MEDIUM dynamic 0.. 9223372036854775807
replica.alter.log.dirs.io.max.bytes.per.second LONG MEDIUM dynamic 0.. 9223372036854775807
"""

INTERNAL_BROKER_KEYS: dict[str, BrokerConfigKey] = parse_table(_INTERNAL)
QUOTA_KEYS: dict[str, BrokerConfigKey] = parse_table(_QUOTAS)
