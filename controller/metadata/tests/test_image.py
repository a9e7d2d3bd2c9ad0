"""Metadata image and the records of its snapshot: equal after a round trip."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest

from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage, image_records
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.controller.metadata.record_serde import decode_record, encode_record
from ottla.controller.metadata.tests.test_delta import after, topic_id
from ottla.jobs.job import run_to_end
from ottla.wire.codec.schema import Message
from ottla.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

A, B, C = (bytes([n]) * 16 for n in (0xA, 0xB, 0xC))

# Each record type of an image, with no field at its default: two records that differ in every possible field.
KEPT: list[list[Message]] = [
    [FeatureLevelRecord("share.version", 1), FeatureLevelRecord("share.version", 2)],
    [FeatureLevelRecord("metadata.version", 29), FeatureLevelRecord("metadata.version", 30)],
    [
        RegisterBrokerRecord(
            3,
            True,
            A,
            7,
            [BrokerEndpoint("P", "h", 9, 2), BrokerEndpoint("Q", "i", 65_535, 3)],
            [BrokerFeature("f", 1, 2)],
            "rack",
            True,
            True,
            [A, B],
            [B],
        ),
        RegisterBrokerRecord(3, False, B, 8, [], [], None, False, False, [C], None),
    ],
    [
        RegisterControllerRecord(3, A, True, [ControllerEndpoint("C", "h", 9, 2)], [ControllerFeature("f", 1, 2)]),
        RegisterControllerRecord(3, B, False, [], []),
    ],
    [TopicRecord("t", topic_id(1)), TopicRecord("u", topic_id(1))],
    [
        PartitionRecord(1, topic_id(9), [1, 2, 3], [2, 3], [3], [2], 2, 1, 5, 6, [A, B, C], [1], [3]),
        PartitionRecord(1, topic_id(9), [4], [4], [], [], -1, 0, 7, 8, [C], None, None),
    ],
    [ConfigRecord(2, "t", "k", "v"), ConfigRecord(2, "t", "k", "w")],
    [ProducerIdsRecord(1, 2, 3_000), ProducerIdsRecord(4, 5, 6_000)],
    [
        AccessControlEntryRecord(A, 2, "n", 3, "User:a", "*", 4, 5),
        AccessControlEntryRecord(A, 3, "o", 4, "User:b", "h", 5, 6),
    ],
    [
        UserScramCredentialRecord("u", 1, b"s", b"k", b"v", 4096),
        UserScramCredentialRecord("u", 1, b"t", b"l", b"w", 8192),
    ],
    [
        DelegationTokenRecord("User:o", "User:r", ["User:x"], 1, 3, 2, "id"),
        DelegationTokenRecord("User:p", "User:s", [], 4, 6, 5, "id"),
    ],
    [
        ClientQuotaRecord([EntityData("user", "a"), EntityData("client-id", None)], "k", 1.5),
        ClientQuotaRecord([EntityData("client-id", None), EntityData("user", "a")], "k", 2.5),
    ],
]
BASE, _ = after(MetadataImage(), TopicRecord("base", topic_id(9)))


def reload_image(image: MetadataImage) -> MetadataImage:
    """Return the image of the serialized snapshot records of an image."""
    return after(MetadataImage(), *(decode_record(encode_record(r)) for r in image_records(image)))[0]


def content(image: MetadataImage) -> dict[str, Any]:
    names = [name for name in MetadataImage.__slots__ if name not in ("offset", "epoch")]  # type: ignore[attr-defined]
    return {name: getattr(image, name) for name in names}


@pytest.mark.parametrize("records", KEPT, ids=lambda records: type(records[0]).__name__)
def test_image_snapshot_keeps_every_record_field(records: list[Message]) -> None:
    seen = [content(BASE)]
    for record in records:
        image, delta = after(BASE, record)
        assert content(reload_image(image)) == content(image)
        assert any(r == record for r in image_records(image)), "record is missing in the snapshot"
        assert not delta.is_empty
        assert content(image) not in seen
        seen.append(content(image))
    both, _ = after(BASE, *records)
    if not isinstance(records[0], TopicRecord):
        assert [r for r in image_records(both) if type(r) is type(records[0])] == records[1:], "the later record wins"


REMOVALS: list[tuple[Message, Message]] = [
    (KEPT[0][0], FeatureLevelRecord("share.version", 0)),
    (KEPT[2][0], UnregisterBrokerRecord(3, 7)),
    (KEPT[4][0], RemoveTopicRecord(topic_id(1))),
    (KEPT[6][0], ConfigRecord(2, "t", "k", None)),
    (KEPT[8][0], RemoveAccessControlEntryRecord(A)),
    (KEPT[9][0], RemoveUserScramCredentialRecord("u", 1)),
    (KEPT[10][0], RemoveDelegationTokenRecord("id")),
    (KEPT[11][0], ClientQuotaRecord([EntityData("client-id", None), EntityData("user", "a")], "k", remove=True)),
]


@pytest.mark.parametrize(("record", "removal"), REMOVALS, ids=lambda r: type(r).__name__)
def test_removal_record_restores_image_and_is_in_delta(record: Message, removal: Message) -> None:
    there, _ = after(BASE, record)
    gone, delta = after(there, removal)
    assert content(gone) == content(BASE)
    assert not delta.is_empty
    assert after(there, record, removal)[1] == delta


def test_image_random_records_survive_snapshot() -> None:
    kinds = [record for records in KEPT for record in records] + [removal for _, removal in REMOVALS]
    kinds.remove(TopicRecord("u", topic_id(1)))  # an id has one name
    for seed in range(100):
        rng = random.Random(seed)
        image, _ = after(BASE, *(rng.choice(kinds) for _ in range(rng.randrange(30))))
        assert content(reload_image(image)) == content(image)


def test_image_builder_config_changes_leave_earlier_images_unchanged() -> None:
    draft = ImageBuilder(MetadataImage())
    images = []
    for value in ("1", "2", None, "3"):
        draft.replay(ConfigRecord(2, "t", "k", value))
        draft.replay(ConfigRecord(2, "t", f"other {value}", "x"))
        images.append(run_to_end(draft.image(len(images), 1)))
    assert [dict(image.config(2, "t")) for image in images] == [
        {"k": "1", "other 1": "x"},
        {"k": "2", "other 1": "x", "other 2": "x"},
        {"other 1": "x", "other 2": "x", "other None": "x"},
        {"k": "3", "other 1": "x", "other 2": "x", "other None": "x", "other 3": "x"},
    ]
    draft.replay(ConfigRecord(2, "t", "k", None))
    for name in ("1", "2", "3", "None"):
        draft.replay(ConfigRecord(2, "t", f"other {name}", None))
    assert (2, "t") not in run_to_end(draft.image(9, 1)).configs
    draft.replay(ConfigRecord(2, "t", "k", "4"))
    assert run_to_end(draft.image(10, 1)).config(2, "t") == {"k": "4"}


def with_elr(number: int, topic: int, **more: Any) -> PartitionRecord:
    return PartitionRecord(number, topic_id(topic), [1, 2, 3], [1], [], [], 1, 0, 4, 6, [A, B, C], **more)


def test_clear_elr_record_of_topic_or_all_topics_clears_eligible_leaders() -> None:
    """``ClearElrRecord``: partitions with eligible leaders get a higher partition epoch; their leader stays
    (KIP-966).
    """
    base, _ = after(
        MetadataImage(),
        *(TopicRecord(name, topic_id(n)) for n, name in enumerate("tu", 1)),
        with_elr(0, 1, eligible_leader_replicas=[2, 3]),
        with_elr(1, 1, last_known_elr=[2]),
        with_elr(2, 1),
        with_elr(0, 2, eligible_leader_replicas=[2]),
    )

    def found(image: MetadataImage) -> dict[tuple[str, int], tuple[Any, ...]]:
        rows = ((name, n, p) for name, t in image.topics.items() for n, p in t.partitions.items())
        return {
            (name, n): (p.elr, p.last_known_elr, p.leader, p.leader_epoch, p.partition_epoch) for name, n, p in rows
        }

    cleared = ((), (), 1, 4, 7)
    one, delta = after(base, ClearElrRecord("t"))
    assert found(one) == {**found(base), ("t", 0): cleared, ("t", 1): cleared}
    assert {name: t.partitions for name, t in delta.topics.items()} == {"t": {0, 1}}
    every, delta = after(base, ClearElrRecord(""))
    assert found(every) == {**found(one), ("u", 0): cleared}
    assert {name: t.partitions for name, t in delta.topics.items()} == {"t": {0, 1}, "u": {0}}
    assert after(base, ClearElrRecord("no such topic"))[1] == MetadataDelta()
    late, _ = after(base, with_elr(5, 1, eligible_leader_replicas=[3]), ClearElrRecord("t"))
    assert late.topics["t"].partitions[5].elr == (), "partitions of the same batch are cleared too"


def test_records_after_clear_elr_record_are_kept() -> None:
    """ELRs are cleared when the image is built, or at the change of a partition: the result is the same."""
    base, _ = after(
        MetadataImage(),
        *(TopicRecord(name, topic_id(n)) for n, name in enumerate("tuv", 1)),
        *(with_elr(number, topic, eligible_leader_replicas=[2]) for topic in (1, 2, 3) for number in (0, 1)),
    )
    reload_image = PartitionChangeRecord(0, topic_id(1), leader=-2, eligible_leader_replicas=[3])
    changes: list[Message] = [reload_image, RemoveTopicRecord(topic_id(2)), TopicRecord("u", topic_id(5))]
    made = with_elr(0, 5, eligible_leader_replicas=[2])
    image, delta = after(base, ClearElrRecord(""), *changes, made)
    assert {name: {n: p.elr for n, p in t.partitions.items()} for name, t in image.topics.items()} == {
        "t": {0: (3,), 1: ()},
        "u": {0: (2,)},
        "v": {0: (), 1: ()},
    }
    assert image.topics["t"].partitions[0].partition_epoch == 8, "records after the clear are applied"
    assert {name: t.partitions for name, t in delta.topics.items()} == {"t": {0, 1}, "u": {0}, "v": {0, 1}}
    twice, _ = after(base, ClearElrRecord(""), *changes, made, ClearElrRecord(""))
    assert not any(p.elr for t in twice.topics.values() for p in t.partitions.values()), "the second clear is applied"
    slowly = base
    for record in (ClearElrRecord(""), *changes, made):
        slowly, _ = after(slowly, record)
    assert slowly == image


ORDER = """
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import image_records
from ottla.controller.metadata.tests.test_image import large_image
print([repr(r) for r in image_records(large_image())], list(MetadataDelta.from_empty(large_image()).topics))
"""


def large_image() -> MetadataImage:
    """Return an image with several entries of each named type."""
    names = [f"n{n}" for n in range(20)]
    records: list[Message] = [TopicRecord(name, topic_id(n)) for n, name in enumerate(names)]
    records += [ConfigRecord(kind, name, "k", "v") for name in names for kind in (2, 32)]
    records += [UserScramCredentialRecord(name, 1) for name in names]
    records += [ClientQuotaRecord([EntityData("user", name)], "k", 1.0) for name in [*names, None]]
    records += [RegisterBrokerRecord(n) for n in (3, 1, 2)] + [RegisterControllerRecord(n) for n in (3, 1, 2)]
    random.Random(1).shuffle(records)
    return after(MetadataImage(), *records)[0]


def test_snapshot_records_have_same_order_in_every_process() -> None:
    """Hash tries are ordered by a hash that differs between processes."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", ORDER],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert len(large_image().others) == 20 + 21
    names = [r.name for r in image_records(large_image()) if isinstance(r, TopicRecord)]
    assert names == sorted(names) == list(MetadataDelta.from_empty(large_image()).topics)
    numbers = [r.broker_id for r in image_records(large_image()) if isinstance(r, RegisterBrokerRecord)]
    assert numbers == [1, 2, 3]
    assert [r.controller_id for r in image_records(large_image()) if isinstance(r, RegisterControllerRecord)] == numbers
