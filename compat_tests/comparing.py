"""Everything a node answers to the whole script, and how two nodes' answers are compared field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from compat_tests.abuse import frames, outcome
from compat_tests.conversation import conversation
from compat_tests.scenarios import Told, tell
from ottla.broker.server.dispatch import BROKER_APIS
from ottla.tools.dump import plain
from ottla.wire.apis import ApiKey
from ottla.wire.schema import Message

# What may differ between any two clusters: ids, ports, how far the metadata log has come.
MAY_DIFFER = ("topic_id", "port", "cluster_id", "member_id", "producer_id", "finalized_features_epoch")
MAY_DIFFER += ("log_dir", "usable_bytes", "replica_directory_id", "log_end_offset", "last_fetch_timestamp")
MAY_DIFFER += ("last_caught_up_timestamp",)
NAMES = ("name", "group_id", "member_id", "api_key", "partition_index", "topic", "key", "resource_name", "topic_name")


def in_order(value: Any) -> Any:
    """Lists of things with names, by name: their order means nothing."""
    if isinstance(value, dict):
        return {k: in_order(v) for k, v in value.items()}
    if isinstance(value, list):
        items = [in_order(v) for v in value]
        if items and isinstance(items[0], dict):
            items.sort(key=lambda d: (str(d.get("resource_type")), str(next((d[n] for n in NAMES if n in d), ""))))
        return items
    return value


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours:
            if name not in MAY_DIFFER:
                yield from differences(ours[name], theirs.get(name), f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(x, y, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: {ours!r}, Kafka {theirs!r}"


def comparable(key: ApiKey, answer: Any) -> Any:
    """An answer as it must be on any node."""
    out = in_order(plain(answer))
    if key is ApiKey.API_VERSIONS:
        # Kafka serves more APIs; each of ours must be there, with Kafka's range.
        out["api_keys"] = [k for k in out["api_keys"] if k["api_key"] in set(BROKER_APIS)]
    if key is ApiKey.DESCRIBE_LOG_DIRS:
        for row in out["results"]:
            row["total_bytes"] = row["total_bytes"] > 0
    if key in (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER):
        del out["error_message"]  # Kafka's shows Java's objects
    if key is ApiKey.DESCRIBE_QUORUM:
        for topic in out["topics"]:
            for row in topic["partitions"]:
                row["high_watermark"] = row["high_watermark"] > 0
        for node in out.get("nodes", ()):
            for listener in node["listeners"]:
                del listener["host"]  # each is configured with its own
    return out


Talk = list[tuple[ApiKey, int, Message, Any]]
Abuse = dict[str, list[str]]


class Everything(NamedTuple):
    """What a node answered: to each API and version, to bytes that are no request, to stories of several steps."""

    talk: Talk
    abuse: Abuse
    told: Told

    @property
    def count(self) -> int:
        """How many requests that were."""
        return len(self.talk) + len(self.abuse) + sum(map(len, self.told.values()))


def everything(port: int) -> Everything:
    """The whole script: bytes that are no request first, while the node knows no topic."""
    abuse = {sent.name: outcome(port, sent) for sent in frames()}
    return Everything(list(conversation(port)), abuse, tell(port))


def compare_stories(ours: Told, theirs: Told) -> list[str]:
    return [
        f"{story}: {what}{text}"
        for story, steps in theirs.items()
        for (what, a), (_, b) in zip(ours[story], steps, strict=True)
        for text in differences(in_order(a), in_order(b))
    ]


def compare(ours: Talk, theirs: Talk) -> list[str]:
    found = []
    for (key, version, request, a), (_, _, _, b) in zip(ours, theirs, strict=True):
        for text in differences(comparable(key, a), comparable(key, b)):
            found.append(f"{key.name} v{version}{text}\n    {request}")
    return found


def own_apis(answers: Abuse) -> Abuse:
    """ApiVersions answers list what is served: of those only the shape is compared here."""
    return {name: ["versions" if len(a) > 200 else a for a in got] for name, got in answers.items()}
