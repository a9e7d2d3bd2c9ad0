"""Rate of created and deleted partitions (S-350 and S-351), and its use in the controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.api_spec import MutationQuota
from ottla.broker.dispatch.api_registry import API_SPECS
from ottla.broker.quotas.controller_mutation_quota import TokenBucket
from ottla.broker.quotas.quota_table import COUNTER_EXPIRY_MS
from ottla.broker.quotas.tests.test_client_quotas import QuotaFixture, QuotaUser
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.control.create_and_delete_topics import TopicCreationContext, create_topics, delete_topics
from ottla.controller.control.create_partitions import create_partitions
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.jobs.pending_request import ChargeQuota, no_quota
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import metadata_records
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

RATE = "controller_mutation_rate"
CREATE = ApiKey.CREATE_TOPICS
QUOTAS = {spec.key: spec.quota for spec in API_SPECS}
STRICT_SINCE = {key: kind.strict_since for key, kind in QUOTAS.items() if isinstance(kind, MutationQuota)}


def start_quota(fixture: QuotaFixture, key: ApiKey = CREATE, version: int = 7, user: QuotaUser | None = None) -> Any:
    return fixture.quotas.new_mutation_quota(user or QuotaUser(), "c", QUOTAS[key], version)


def throttle_time_of(changes: Any, before_ms: int = 0) -> int:
    answer = SimpleNamespace(throttle_time_ms=before_ms)
    changes.set_throttle_time(answer)
    return answer.throttle_time_ms


def test_token_bucket_starts_full_and_holds_eleven_seconds() -> None:
    bucket = TokenBucket()
    assert bucket.measure(2, 5_000) == 22
    assert bucket.record(30, 2, 5_000) == -8
    assert bucket.measure(2, 7_500) == -3
    assert bucket.measure(2, 10**9) == 22
    assert bucket.record(22, 2, 10**9) == 0
    assert bucket.measure(5, 10**9 + 1000) == 5, "another rate holds at once"


@pytest.mark.behaviour("P-100")
@pytest.mark.parametrize("key", list(STRICT_SINCE))
@pytest.mark.parametrize("strict", [False, True])
def test_mutation_quota_refuses_only_strict_versions_when_exhausted(key: ApiKey, strict: bool) -> None:
    fixture, user = QuotaFixture(), QuotaUser()
    fixture.set(2, key=RATE, user="u")
    first = start_quota(fixture, key, STRICT_SINCE[key] - (not strict), user)
    first.record(20)
    first.record(10)
    if strict:
        assert throttle_time_of(first) == 0, "nobody was refused: the charge itself is not held against him"
        second = start_quota(fixture, key, STRICT_SINCE[key], user)
        for _ in range(2):
            with pytest.raises(ProtocolError) as refused:
                second.record(1)
            assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert throttle_time_of(second) == 4000, "8 too many at 2 a second; what was refused did not count"
    else:
        first.record(1)
        assert throttle_time_of(first) == 4500
    assert user.throttle_ms in (4000, 4500)
    fixture.clock.ms += 4500
    again = start_quota(fixture, key, STRICT_SINCE[key], user)
    again.record(1)
    assert throttle_time_of(again) == 0


def test_mutation_throttle_time_is_reduced_by_elapsed_time() -> None:
    fixture, user = QuotaFixture(), QuotaUser()
    fixture.set(1, key=RATE, user="u")
    changes = start_quota(fixture, version=5, user=user)
    changes.record(13)
    fixture.clock.ms += 500
    assert throttle_time_of(changes) == 1500
    assert throttle_time_of(changes, 9000) == 9000, "the longer wait counts"
    fixture.clock.ms += 5000
    assert throttle_time_of(changes) == 0


def test_mutation_quota_is_none_without_quota_or_for_other_apis() -> None:
    fixture = QuotaFixture()
    assert start_quota(fixture) is None
    fixture.set(1, key=RATE, user="v")
    assert start_quota(fixture) is None
    fixture.set(1, key=RATE, user="u")
    assert start_quota(fixture) is not None
    assert start_quota(fixture, ApiKey.ALTER_CONFIGS, 2) is None
    assert fixture.quotas.is_enabled
    fixture.set(None, key=RATE, user="u")
    fixture.set(None, key=RATE, user="v")
    assert start_quota(fixture) is None
    assert not fixture.quotas.is_enabled


def test_token_buckets_idle_for_an_hour_are_removed() -> None:
    fixture = QuotaFixture()
    fixture.set(1, key=RATE, client_id=None)
    for number in range(5):
        fixture.quotas.new_mutation_quota(QuotaUser(), f"c{number}", QUOTAS[CREATE], 7).record(1)  # type: ignore[union-attr]
    mutations = fixture.quotas._controller_mutation
    assert mutations is not None
    assert len(mutations._counters) == 5
    fixture.clock.ms += COUNTER_EXPIRY_MS
    start_quota(fixture)
    assert len(mutations._counters) == 1


# ---------------------------------------------------------------- the controller's rules


def image(*topics: str, partitions: int = 2) -> MetadataImage:
    draft = ImageBuilder(MetadataImage())
    draft.replay(metadata_records.RegisterBrokerRecord(broker_id=1, broker_epoch=1, fenced=False))
    image = run_to_end(draft.image(1, 1))
    request = CreateTopicsRequest([CreatableTopic(name, partitions, 1) for name in topics])
    draft = ImageBuilder(image)
    for record in made(image, request).records:
        draft.replay(record)
    return run_to_end(draft.image(2, 1))


def made(image: MetadataImage, request: CreateTopicsRequest, charge_quota: ChargeQuota = no_quota) -> Any:
    ids = iter(bytes([n]) * 16 for n in range(1, 100))
    creation = TopicCreationContext(ControllerDefaults(), lambda: next(ids), lambda: 0.0, charge_quota)
    return run_to_end(create_topics(image, request, 7, creation))


class LimitedMutationQuota:
    """Quota that refuses when the given number of partitions is counted."""

    def __init__(self, capacity: int) -> None:
        self.remaining = capacity
        self.counted: list[int] = []

    def __call__(self, count: int) -> None:
        if self.remaining <= 0:
            raise ProtocolError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.remaining -= count
        self.counted.append(count)


def test_create_topics_counts_and_refuses_each_topic() -> None:
    quota = LimitedMutationQuota(3)
    topics = [CreatableTopic("a", 2, 1), CreatableTopic("b", 0, 1), CreatableTopic("c", 5, 1)]
    answer = made(image(), CreateTopicsRequest([*topics, CreatableTopic("d", 1, 1)]), quota)
    codes = [row.error_code for row in answer.response.topics]
    assert codes == [0, ErrorCode.INVALID_PARTITIONS, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert quota.counted == [2, 5]
    assert sum(isinstance(record, metadata_records.TopicRecord) for record in answer.records) == 2


def test_create_topics_validate_only_is_counted() -> None:
    quota = LimitedMutationQuota(3)
    made(image(), CreateTopicsRequest([CreatableTopic("a", 2, 1)], validate_only=True), quota)
    assert quota.counted == [2]


def test_delete_topics_counts_and_refuses_each_topic() -> None:
    quota, before = LimitedMutationQuota(1), image("a", "b")
    request = DeleteTopicsRequest([DeleteTopicState("x"), DeleteTopicState("a"), DeleteTopicState("b")])
    answer = run_to_end(delete_topics(before, request, 6, quota))
    codes = [row.error_code for row in answer.response.responses]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert (quota.counted, len(answer.records)) == ([2], 1)


def test_create_partitions_counts_only_new_partitions() -> None:
    quota, before = LimitedMutationQuota(1), image("a", "b")
    topics = [CreatePartitionsTopic("a", 2, None), CreatePartitionsTopic("b", 5, None)]
    request = CreatePartitionsRequest([*topics, CreatePartitionsTopic("c", 9, None)])
    answer = run_to_end(create_partitions(before, request, 3, lambda: 0.0, quota))
    codes = [row.error_code for row in answer.response.results]
    assert codes == [ErrorCode.INVALID_PARTITIONS, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert quota.counted == [3]
