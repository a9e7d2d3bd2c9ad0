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
SCRIPTS = {"topics": TOPICS, "consumer-groups": CONSUMER_GROUPS}


def script_lines(name: str) -> list[str]:
    """Return the lines of a script."""
    return SCRIPTS[name].strip().splitlines()
