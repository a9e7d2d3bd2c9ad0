"""Raw member of a share group for scenarios: heartbeats, share session, acknowledgements."""

from __future__ import annotations

from typing import Any

from compat_tests.support.raw_client import wait_until
from compat_tests.vs_kafka.scenarios.consumer_group_scenarios import prepare_group
from compat_tests.vs_kafka.scenarios.scenario_session import BASE_MS, ScenarioSession
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import (
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from ottla.wire.record_batch import batch_header, records

HEARTBEAT, DESCRIBE = ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
MEMBERS = {name: f"AAAAAAAAAAAAAAAAAAAA{name}A" for name in "abc"}
"""Member ids as clients make them: 22 characters of base64url, which a share session requires."""
AcknowledgementBatch = tuple[int, int, list[int]]
"""First and last offset, and acknowledgement types: one for all, or one for each record."""


def record_batch(count: int, first: int = 0, **fields: Any) -> bytes:
    """Return records that contain their number."""
    items = [records.NewRecord(b"k", b"v%d" % number, BASE_MS + number) for number in range(first, first + count)]
    return records.build_batch(items, **fields)


def heartbeat_request(group: str, member: str, epoch: int, *topics: str, **fields: Any) -> Any:
    """Return a heartbeat."""
    return share_group_heartbeat.ShareGroupHeartbeatRequest(
        group, MEMBERS.get(member, member), epoch, None, list(topics) or None, **fields
    )


def describe_group(stage: ScenarioSession, group: str, when: str) -> None:
    """Describe the group."""
    stage.call(f"describe {when}", DESCRIBE, 1, share_group_describe.ShareGroupDescribeRequest([group], True), "looker")


def describe_offsets(stage: ScenarioSession, group: str, when: str, topic: str | None = None, version: int = 1) -> None:
    """Describe the offsets of a group, in one topic or all."""
    topics = None if topic is None else [describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(topic, [0])]
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
        [describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group, topics)]
    )
    stage.call(f"offsets {when}", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, request, "looker")


def prepare_share_group(stage: ScenarioSession, group: str, **settings: str) -> bytes:
    """Create a topic of a group's name, and let the group read it from the start."""
    own = stage.topic(group, 1)
    prepare_group(stage, group, "share.assignment.interval.ms")
    rows = {"share_auto_offset_reset": "earliest", **settings}
    stage.alter_configs("more settings", 32, group, *((k.replace("_", "."), 0, v) for k, v in rows.items()))
    stage.wait_until_current()
    return own


class RawShareConsumer:
    """Member of a share group, with its session at the broker, on a connection of its own."""

    def __init__(self, stage: ScenarioSession, group: str, name: str, topic: bytes) -> None:
        self.stage, self.group, self.name, self.topic = stage, group, name, topic
        self.member_id = f"{group} {name}"
        self.epoch = 0

    def join(self, topic: str) -> None:
        """Join, and send heartbeats until a partition is assigned."""
        peer = self.stage[self.member_id]
        first = self.stage.call(
            f"{self.name} joins", HEARTBEAT, 1, heartbeat_request(self.group, self.name, 0, topic), self.member_id
        )
        epoch, has = first.member_epoch, first.assignment

        def has_some() -> bool:
            nonlocal epoch, has
            if has is None or not has.topic_partitions:
                answer = peer.call(HEARTBEAT, 1, heartbeat_request(self.group, self.name, epoch))
                assert not answer.error_code, answer
                epoch, has = answer.member_epoch, answer.assignment
            return has is not None and bool(has.topic_partitions)

        wait_until(has_some)
        self.stage.record(f"{self.name} has", has)

    def _request(self, words: list[AcknowledgementBatch], fields: dict[str, Any], version: int) -> Any:
        text = [share_fetch.AcknowledgementBatch(*word) for word in words]
        requested = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        part = share_fetch.FetchPartition(fields.pop("partition", 0), acknowledgement_batches=text)
        topics = [share_fetch.FetchTopic(fields.pop("topic", self.topic), [part])]
        if version < 2:
            fields.pop("share_acquire_mode", None)
        everything = {"group_id": self.group, "member_id": MEMBERS[self.name], "share_session_epoch": self.epoch}
        return share_fetch.ShareFetchRequest(**{**everything, **requested, "topics": topics, **fields})

    def fetch(self, label: str, *words: AcknowledgementBatch, version: int = 2, **fields: Any) -> Any:
        """Send one request, and return its records by their offsets."""
        answer = self.stage[self.member_id].call(
            ApiKey.SHARE_FETCH, version, self._request(list(words), dict(fields), version)
        )
        self._record(label, answer)
        if not answer.error_code:
            self.epoch = self.epoch + 1 if fields.get("share_session_epoch", 0) != -1 else 0
        return answer

    def fetch_until_records(self, label: str, *words: AcknowledgementBatch, version: int = 2, **fields: Any) -> Any:
        """Fetch until records arrive.

        Kafka answers without records, even where there are some, while it loads the share partition and while an
        earlier fetch still holds the partition's fetch lock (SharePartition.maybeAcquireFetchLock, 4.3.1).
        """
        peer, rows = self.stage[self.member_id], list(words)
        for _ in range(200):
            answer = peer.call(
                ApiKey.SHARE_FETCH, version, self._request(rows, {"max_wait_ms": 200, **fields}, version)
            )
            if answer.error_code:
                break
            self.epoch, rows = self.epoch + 1, []
            if any(part.acquired_records for topic in answer.responses for part in topic.partitions):
                break
        self._record(label, answer)
        return answer

    def _record(self, label: str, answer: Any) -> None:
        for topic in answer.responses:
            for part in topic.partitions:
                part.records = (
                    None
                    if part.records is None
                    else [head.base_offset for _, head in batch_header.iterate_batches(bytes(part.records))]
                )
        self.stage.record(f"{self.name} {label}", answer)

    def acknowledge(self, label: str, *words: AcknowledgementBatch, version: int = 2, **fields: Any) -> Any:
        """Send an acknowledgement without a fetch."""
        text = [share_acknowledge.AcknowledgementBatch(*word) for word in words]
        part = share_acknowledge.AcknowledgePartition(fields.pop("partition", 0), text)
        topics = [share_acknowledge.AcknowledgeTopic(fields.pop("topic", self.topic), [part])]
        everything = {"group_id": self.group, "member_id": MEMBERS[self.name], "share_session_epoch": self.epoch}
        request = share_acknowledge.ShareAcknowledgeRequest(**{**everything, "topics": topics, **fields})
        answer = self.stage.call(f"{self.name} {label}", ApiKey.SHARE_ACKNOWLEDGE, version, request, self.member_id)
        if answer is not None and not answer.error_code:
            self.epoch = self.epoch + 1 if fields.get("share_session_epoch", 0) != -1 else 0
        return answer
