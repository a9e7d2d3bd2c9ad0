"""Calls of the tools, in order; each line is run with ours and with Kafka's.

``{0}`` is the first word of names, ``{at}`` the address of the node.
"""

from __future__ import annotations

CONSUMER_GROUPS = """
kafka-consumer-groups {at} --list
kafka-consumer-groups {at} --list --state
kafka-consumer-groups {at} --list --state stable,Empty --type
kafka-consumer-groups {at} --list --type classic
kafka-consumer-groups {at} --list --state nonsense
kafka-consumer-groups {at} --list --type share
kafka-consumer-groups {at} --list --describe --group {0}-g
kafka-consumer-groups {at}
kafka-consumer-groups --list
kafka-consumer-groups {at} --list --members
kafka-consumer-groups {at} --list --nonsense
kafka-consumer-groups {at} --describe --group
kafka-consumer-groups {at} --describe
kafka-consumer-groups {at} --describe --group {0}-g --members --state
kafka-consumer-groups {at} --describe --group {0}-g --state stable
kafka-consumer-groups {at} --describe --group {0}-g
kafka-consumer-groups {at} --describe --group {0}-g --offsets --verbose
kafka-consumer-groups {at} --describe --group {0}-g --members
kafka-consumer-groups {at} --describe --group {0}-g --members --verbose
kafka-consumer-groups {at} --describe --group {0}-g --state
kafka-consumer-groups {at} --describe --group {0}-live
kafka-consumer-groups {at} --describe --group {0}-live --verbose
kafka-consumer-groups {at} --describe --group {0}-live --members
kafka-consumer-groups {at} --describe --group {0}-live --members --verbose
kafka-consumer-groups {at} --describe --group {0}-live --state
kafka-consumer-groups {at} --describe --group {0}-live --state --verbose
kafka-consumer-groups {at} --describe --group {0}-new --members --verbose
kafka-consumer-groups {at} --describe --group {0}-new --state --verbose
kafka-consumer-groups {at} --describe --group {0}-new
kafka-consumer-groups {at} --describe --group {0}-live --group {0}-g
kafka-consumer-groups {at} --describe --group {0}-missing
kafka-consumer-groups {at} --describe --group {0}-g --all-groups
kafka-consumer-groups {at} --reset-offsets --group {0}-g --all-topics --to-earliest
kafka-consumer-groups {at} --reset-offsets --group {0}-g --all-topics --to-earliest --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-g --topic {0}.t:1 --to-offset 1 --execute
kafka-consumer-groups {at} --reset-offsets --group {0}-g --topic {0}.t --to-offset 99 --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-g --all-topics --shift-by -1 --dry-run --export
kafka-consumer-groups {at} --reset-offsets --group {0}-g --all-topics --to-current --execute
kafka-consumer-groups {at} --reset-offsets --group {0}-g --all-topics --to-latest --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-g --topic {0}.t --to-datetime 2020-01-01T00:00:00.000 --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-g --topic {0}.t --to-datetime 2090-01-01T00:00:00.000 --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-g --topic {0}.t --by-duration PT1H --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-g --from-file {folder}/{0}.csv --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-g --from-file {folder}/none.csv --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-g --group {0}-none --topic {0}.t:0 --to-latest --dry-run --export
kafka-consumer-groups {at} --reset-offsets --group {0}-none --topic {0}.t --shift-by 1 --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-none --topic {0}.t:x --to-latest --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-none --topic {0}.t:7 --to-latest --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-none --topic {0}.none:0 --to-latest --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-none --topic {0}.none --to-latest --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-g --all-topics --dry-run --execute
kafka-consumer-groups {at} --reset-offsets --group {0}-g --to-latest --dry-run
kafka-consumer-groups {at} --reset-offsets --group {0}-live --all-topics --to-latest --dry-run
kafka-consumer-groups {at} --delete-offsets --group {0}-g --topic {0}.t:0
kafka-consumer-groups {at} --delete-offsets --group {0}-g --topic {0}.t --topic {0}.none
kafka-consumer-groups {at} --delete-offsets --group {0}-missing --topic {0}.t
kafka-consumer-groups {at} --delete-offsets --group {0}-live --topic {0}.t:0
kafka-consumer-groups {at} --delete-offsets --group {0}-g
kafka-consumer-groups {at} --delete --group {0}-g --topic {0}.t
kafka-consumer-groups {at} --delete --group {0}-live
kafka-consumer-groups {at} --delete --group {0}-h
kafka-consumer-groups {at} --delete --group {0}-missing --group {0}-i
kafka-consumer-groups --validate-regex a.*b
kafka-consumer-groups --version
"""
TOPICS = """
kafka-topics {at} --create --topic {0}.ta --partitions 2 --replication-factor 1 --config retention.ms=5000 --config segment.bytes=2000000
kafka-topics {at} --create --topic {0}.ta
kafka-topics {at} --create --topic {0}.ta --if-not-exists
kafka-topics {at} --create --topic {0}.tb --replica-assignment 1,1
kafka-topics {at} --create --topic {0}.tc --partitions 0
kafka-topics {at} --describe --topic {0}.t.+
kafka-topics {at} --describe --topic {0}.t.+ --topics-with-overrides
kafka-topics {at} --alter --topic {0}.tb --partitions 1
kafka-topics {at} --alter --topic {0}.tb --partitions 3
kafka-topics {at} --list --topic {0}.t.+
kafka-topics {at} --describe --topic {0}.tmissing
kafka-topics {at} --list --topic {0}.tb --config a=b
kafka-topics {at} --delete --topic {0}.t.+
kafka-topics {at} --list --topic {0}.t.+
"""
CONFIGS = """
kafka-configs {at} --describe --topic {0}.u
kafka-configs {at} --alter --topic {0}.u --add-config retention.ms=1000,cleanup.policy=[compact,delete]
kafka-configs {at} --describe --entity-type topics --entity-name {0}.u
kafka-configs {at} --describe --entity-type topics --entity-name {0}.u --all
kafka-configs {at} --alter --topic {0}.u --delete-config retention.ms --add-config max.message.bytes=2000
kafka-configs {at} --describe --topic {0}.u
kafka-configs {at} --describe --topic {0}.none
kafka-configs {at} --describe --topic {0}.none --all
kafka-configs {at} --alter --topic {0}.none --add-config retention.ms=1000
kafka-configs {at} --alter --topic {0}.u --add-config retention.ms=x
kafka-configs {at} --alter --topic {0}.u --add-config nonsense=1
kafka-configs {at} --alter --topic {0}.u --add-config retention.ms
kafka-configs {at} --alter --topic {0}.u --add-config a/b=1
kafka-configs {at} --alter --topic {0}.u --add-config-file {folder}/{0}.properties
kafka-configs {at} --describe --topic {0}.u
kafka-configs {at} --alter --broker 1 --add-config log.cleaner.threads=2
kafka-configs {at} --describe --broker 1
kafka-configs {at} --describe --entity-type brokers
kafka-configs {at} --alter --broker-defaults --add-config log.retention.ms=7000000
kafka-configs {at} --describe --broker-defaults
kafka-configs {at} --describe --entity-type brokers --entity-default
kafka-configs {at} --alter --entity-type brokers --entity-default --delete-config log.retention.ms
kafka-configs {at} --alter --broker 1 --delete-config log.cleaner.threads
kafka-configs {at} --describe --broker 1
kafka-configs {at} --describe --broker 77
kafka-configs {at} --alter --broker x --add-config log.cleaner.threads=2
kafka-configs {at} --alter --broker 1 --add-config node.id=7
kafka-configs {at} --alter --group {0}-g --add-config consumer.session.timeout.ms=50000
kafka-configs {at} --describe --group {0}-g
kafka-configs {at} --describe --group {0}-none
kafka-configs {at} --alter --group {0}-g --delete-config consumer.session.timeout.ms
kafka-configs {at} --alter --client-metrics {0}-m --add-config metrics=org.apache.kafka.,interval.ms=60000
kafka-configs {at} --describe --client-metrics {0}-m
kafka-configs {at} --describe --entity-type client-metrics
kafka-configs {at} --describe --client-metrics {0}-none
kafka-configs {at} --alter --client-metrics {0}-m --delete-config metrics,interval.ms
kafka-configs {at} --alter --user {0}-a --add-config SCRAM-SHA-256=[iterations=8192,password=x],SCRAM-SHA-512=[password=s]
kafka-configs {at} --describe --user {0}-a
kafka-configs {at} --alter --user {0}-a --add-config producer_byte_rate=1024,consumer_byte_rate=20000000
kafka-configs {at} --describe --user {0}-a
kafka-configs {at} --describe --entity-type users --entity-name {0}-a --entity-type clients
kafka-configs {at} --alter --user {0}-a --client {0}-c --add-config request_percentage=12.5
kafka-configs {at} --describe --user {0}-a --client {0}-c
kafka-configs {at} --describe --entity-type users
kafka-configs {at} --describe --entity-type clients
kafka-configs {at} --alter --client {0}-c --add-config controller_mutation_rate=0.5
kafka-configs {at} --describe --client {0}-c
kafka-configs {at} --alter --client {0}-c --delete-config controller_mutation_rate
kafka-configs {at} --alter --client {0}-c --delete-config controller_mutation_rate
kafka-configs {at} --alter --client {0}-c --add-config SCRAM-SHA-256=[password=x]
kafka-configs {at} --alter --user {0}-a --add-config nonsense=1
kafka-configs {at} --alter --user {0}-a --delete-config nonsense
kafka-configs {at} --alter --user {0}-a --add-config producer_byte_rate=x
kafka-configs {at} --alter --user {0}-a --add-config SCRAM-SHA-256=[iterations=1,password=x]
kafka-configs {at} --alter --user {0}-a --add-config SCRAM-SHA-256=[nonsense]
kafka-configs {at} --alter --user {0}-a --add-config producer_byte_rate=1,SCRAM-SHA-256=[password=x]
kafka-configs {at} --alter --user-defaults --add-config SCRAM-SHA-256=[password=x]
kafka-configs {at} --alter --user {0}-a --delete-config SCRAM-SHA-256
kafka-configs {at} --alter --user {0}-a --delete-config SCRAM-SHA-256
kafka-configs {at} --alter --user {0}-a --delete-config SCRAM-SHA-512
kafka-configs {at} --alter --user {0}-a --delete-config producer_byte_rate,consumer_byte_rate
kafka-configs {at} --describe --user {0}-a
kafka-configs {at} --alter --user-defaults --add-config producer_byte_rate=1.5E9
kafka-configs {at} --describe --user-defaults
kafka-configs {at} --alter --ip 127.0.0.{n} --add-config connection_creation_rate=50
kafka-configs {at} --describe --ip 127.0.0.{n}
kafka-configs {at} --alter --ip 127.0.0.{n} --delete-config connection_creation_rate
kafka-configs {at} --alter --ip 127.0.0.{n} --add-config producer_byte_rate=50
kafka-configs {at} --alter --ip no.such.host.invalid --add-config connection_creation_rate=50
kafka-configs {at} --alter --describe --topic x
kafka-configs {at} --describe --topic x --add-config a=b
kafka-configs {at} --describe
kafka-configs --describe --topic x
kafka-configs {at} --describe --entity-type nonsense
kafka-configs {at} --describe --topic x --user y
kafka-configs {at} --describe --topic x --entity-type users
kafka-configs {at} --describe --entity-type topics --entity-type topics
kafka-configs {at} --describe --entity-type topics --entity-default
kafka-configs {at} --describe --entity-type broker-loggers
kafka-configs {at} --alter --entity-type users --add-config a=b
kafka-configs {at} --alter --entity-type topics --add-config a=b
kafka-configs {at} --alter --topic x
kafka-configs {at} --alter --topic x --add-config a=b --add-config-file f
kafka-configs {at} --alter --entity-type users --entity-type clients --entity-name x --add-config producer_byte_rate=1
kafka-configs {at} --describe --topic x --topic y
kafka-configs {at} --nonsense
kafka-configs --version
"""
CONSOLE = r"""
kafka-console-producer {at} --topic {0}.lines << one|two||three
kafka-console-producer {at} --topic {0}.lines --sync --request-required-acks 1 --compression-codec << four
kafka-console-producer {at} --topic {0}.lines --compression-codec zstd --timeout 5 << five
kafka-console-producer {at} --topic {0}.lines --compression-codec nonsense << five
kafka-console-producer {at} --topic {0}.lines --request-required-acks 7 << five
kafka-console-producer {at} --topic {0}.lines --line-reader no.such.Reader << five
kafka-console-producer {at} --topic {0}.lines --reader-property parse.key=true --reader-property key.separator=: << a:1|b:2:3
kafka-console-producer {at} --topic {0}.lines --reader-property parse.key=true << nokey
kafka-console-producer {at} --topic {0}.lines --property parse.key=true --property ignore.error=true << nokey|a	b
kafka-console-producer {at} --topic {0}.lines --reader-property parse.key=true --reader-property parse.headers=true << h1:v1,h2:v2	k	v
kafka-console-producer {at} --topic {0}.lines --reader-property parse.headers=true --reader-property null.marker=NIL << NIL	NIL|h:NIL	v
kafka-console-producer {at} --topic {0}.lines --reader-property parse.headers=true << h1	v
kafka-console-producer {at} --topic {0}.lines --reader-property headers.delimiter=, << v
kafka-console-producer {at} --topic {0}.lines --reader-property key.separator=N --reader-property null.marker=N << v
kafka-console-producer {at} --topic {0}.lines --producer-property acks=1 << six
kafka-console-producer {at} --topic {0}.lines --max-partition-memory-bytes 100 << seven
kafka-console-producer {at} --topic x --property a=b --reader-property c=d << seven
kafka-console-producer --topic x << seven
kafka-console-producer --topic x --bootstrap-server nonsense << seven
kafka-console-producer {at} << seven
kafka-console-producer {at} --topic x --nonsense << seven
kafka-console-producer --version
kafka-console-consumer {at} --topic {0}.lines --from-beginning --max-messages 15 --timeout-ms 4000
kafka-console-consumer {at} --topic {0}.lines --from-beginning --max-messages 15 --formatter-property print.key=true --formatter-property print.headers=true --formatter-property print.offset=true --formatter-property print.partition=true --formatter-property print.epoch=true --formatter-property print.delivery=true --timeout-ms 3000
kafka-console-consumer {at} --topic {0}.lines --from-beginning --max-messages 15 --property print.key=true --property key.separator=:: --property null.literal=NULL --property print.value=false --timeout-ms 3000
kafka-console-consumer {at} --topic {0}.t --partition 0 --offset 1 --max-messages 2 --formatter-property print.timestamp=true --timeout-ms 3000
kafka-console-consumer {at} --topic {0}.t --partition 1 --offset earliest --max-messages 1 --timeout-ms 3000
kafka-console-consumer {at} --topic {0}.t --partition 1 --from-beginning --max-messages 3 --isolation-level read_committed --timeout-ms 3000
kafka-console-consumer {at} --topic {0}.t --partition 1 --timeout-ms 300
kafka-console-consumer {at} --include {0}.[tu] --from-beginning --max-messages 6 --timeout-ms 3000
kafka-console-consumer {at} --topic {0}.t --from-beginning --max-messages 6 --group {0}-cc --timeout-ms 3000
kafka-console-consumer {at} --topic {0}.t --from-beginning --timeout-ms 600 --group {0}-cc
kafka-consumer-groups {at} --describe --group {0}-cc
kafka-console-consumer {at} --topic {0}.t --from-beginning --max-messages 2 --value-deserializer org.apache.kafka.common.serialization.StringDeserializer --partition 0 --timeout-ms 3000
kafka-console-consumer {at} --topic {0}.t --from-beginning --max-messages 2 --value-deserializer org.apache.kafka.common.serialization.LongDeserializer --partition 0 --timeout-ms 3000
kafka-console-consumer {at} --topic {0}.t --from-beginning --max-messages 2 --formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter --partition 0 --timeout-ms 3000
kafka-console-consumer {at} --topic {0}.t --formatter no.such.Formatter
kafka-console-consumer {at} --topic {0}.t --include x
kafka-console-consumer {at}
kafka-console-consumer --topic x
kafka-console-consumer {at} --topic x --offset 3
kafka-console-consumer {at} --include x --partition 3
kafka-console-consumer {at} --topic x --partition 3 --offset nonsense
kafka-console-consumer {at} --topic x --partition 3 --offset 3 --from-beginning
kafka-console-consumer {at} --topic x --partition 3 --group g
kafka-console-consumer {at} --topic x --group g --command-property group.id=h
kafka-console-consumer {at} --topic x --from-beginning --command-property auto.offset.reset=latest
kafka-console-consumer {at} --topic x --property a=b --formatter-property c=d
kafka-console-consumer {at} --topic x --consumer-property a=b --command-property c=d
kafka-console-consumer {at} --topic x --isolation-level nonsense
kafka-console-consumer --version
"""
SCRIPTS = {"console": CONSOLE, "configs": CONFIGS, "topics": TOPICS, "consumer-groups": CONSUMER_GROUPS}


def script_lines(name: str) -> list[str]:
    """Return the lines of a script."""
    return SCRIPTS[name].strip().splitlines()
