"""Plausible requests of members of consumer, share and streams groups, with drawn ids and epochs, for fuzzing."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.messages import consumer_group_heartbeat as consumer
from ottla.wire.messages import share_acknowledge as acknowledge
from ottla.wire.messages import share_fetch as fetch
from ottla.wire.messages import share_group_heartbeat as share
from ottla.wire.messages import streams_group_heartbeat as streams

T, U = topic_id_of("t"), topic_id_of("u")


def _epoch(rng: random.Random) -> int:
    return rng.choice((0, 0, 0, 1, 2, 3, 4, 5, 6, -1, -2))


def _member(rng: random.Random) -> str:
    return rng.choice(("m1", "m1", "m2", "m3"))


def _group(rng: random.Random, usual: str) -> str:
    return rng.choice((usual,) * 9 + tuple("ghsw"))


def _consumer(rng: random.Random) -> Message:
    owned = rng.choice(([], [], [consumer.ConsumerGroupHeartbeatRequestTopicPartitions(T, [0, 1])]))
    return consumer.ConsumerGroupHeartbeatRequest(
        _group(rng, "h"),
        _member(rng),
        _epoch(rng),
        rng.choice((None, None, "i")),
        None,
        3_000,
        ["t", "u"],
        rng.choice((None, None, "t|u", "(")),
        rng.choice((None, "uniform", "range")),
        owned,
    )


def _share(rng: random.Random) -> Message:
    return share.ShareGroupHeartbeatRequest(_group(rng, "s"), _member(rng), _epoch(rng), None, ["t", "u"])


def _streams(rng: random.Random) -> Message:
    epoch = max(_epoch(rng), -1)
    tasks: list[streams.StreamsGroupHeartbeatRequestTaskIds] = []
    if epoch > 0:
        tasks = [streams.StreamsGroupHeartbeatRequestTaskIds("0", [0, 1])]
    changelogs = [streams.TopicInfo("u", 0)]
    topology = streams.Topology(0, [streams.Subtopology("0", ["t"], [], changelogs)])
    return streams.StreamsGroupHeartbeatRequest(
        group_id=_group(rng, "w"),
        member_id=_member(rng),
        member_epoch=epoch,
        rebalance_timeout_ms=3_000 if epoch == 0 else -1,
        topology=topology if epoch == 0 else None,
        active_tasks=tasks,
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p" if epoch == 0 else None,
        user_endpoint=streams.StreamsGroupHeartbeatRequestEndpoint("here", 1) if epoch == 0 else None,
        client_tags=[] if epoch == 0 else None,
    )


def _fetch(rng: random.Random) -> Message:
    epoch = rng.choice((0, 0, 0, 1, 2, -1))
    topics = [fetch.FetchTopic(T, [fetch.FetchPartition(number) for number in range(3)])] if epoch == 0 else []
    return fetch.ShareFetchRequest("s", _member(rng), epoch, 100, 1, 1 << 20, 500, 500, topics=topics)


def _acknowledge(rng: random.Random) -> Message:
    first = rng.randint(0, 9)
    rows = [acknowledge.AcknowledgementBatch(first, first + rng.randint(0, 3), [rng.randint(0, 3)])]
    parts = [acknowledge.AcknowledgePartition(rng.randint(0, 2), rows)]
    return acknowledge.ShareAcknowledgeRequest(
        "s", _member(rng), rng.choice((1, 2, -1)), topics=[acknowledge.AcknowledgeTopic(T, parts)]
    )


LIKELY: Mapping[ApiKey, Callable[[random.Random], Message]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer,
    ApiKey.SHARE_GROUP_HEARTBEAT: _share,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _streams,
    ApiKey.SHARE_FETCH: _fetch,
    ApiKey.SHARE_ACKNOWLEDGE: _acknowledge,
}
"""Generator of such a request."""
