"""Responses of a node to the whole script, and the comparison of two nodes' responses field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from compat_tests.vs_kafka.malformed_frames import exchange, malformed_frames
from compat_tests.vs_kafka.scenarios.all_scenarios import ScenarioAnswers, run_scenarios
from compat_tests.vs_kafka.sessions.api_session import run_session
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.tools.dump import to_json_value
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message

# Fields that may differ between any two clusters: ids, ports, offsets of the metadata log.
MAY_DIFFER = ("topic_id", "port", "cluster_id", "member_id", "producer_id", "finalized_features_epoch")
MAY_DIFFER += ("log_dir", "usable_bytes", "replica_directory_id", "log_end_offset", "last_fetch_timestamp")
MAY_DIFFER += ("last_caught_up_timestamp",)
NAMES = ("name", "group_id", "member_id", "api_key", "partition_index", "topic", "key", "resource_name", "topic_name")


def normalize_order(value: Any) -> Any:
    """Sort lists of elements with names by name: their order has no meaning."""
    if isinstance(value, dict):
        return {k: normalize_order(v) for k, v in value.items()}
    if isinstance(value, list):
        items = [normalize_order(v) for v in value]
        if items and isinstance(items[0], dict):
            items.sort(key=lambda d: (str(d.get("resource_type")), str(next((d[n] for n in NAMES if n in d), ""))))
        return items
    return value


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Yield a text for each difference of two answers, below ``path``."""
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
    """Return the part of a response that is equal on any node."""
    out = normalize_order(to_json_value(answer))
    if key is ApiKey.API_VERSIONS:
        # Kafka serves more APIs; each of ours must be there, with Kafka's range.
        out["api_keys"] = [k for k in out["api_keys"] if k["api_key"] in set(BROKER_APIS)]
    if key is ApiKey.DESCRIBE_LOG_DIRS:
        for row in out["results"]:
            row["total_bytes"] = row["total_bytes"] > 0
    if key in (ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER):
        del out["error_message"]  # Kafka's message contains Java's objects
    if key is ApiKey.DESCRIBE_QUORUM:
        for topic in out["topics"]:
            for row in topic["partitions"]:
                row["high_watermark"] = row["high_watermark"] > 0
        for node in out.get("nodes", ()):
            for listener in node["listeners"]:
                del listener["host"]  # differs by configuration
    return out


ApiAnswers = list[tuple[ApiKey, int, Message, Any]]
MalformedAnswers = dict[str, list[str]]


class AllAnswers(NamedTuple):
    """Responses of a node: to each API and version, to invalid bytes, to scenarios of several steps."""

    api_answers: ApiAnswers
    malformed_answers: MalformedAnswers
    scenario_answers: ScenarioAnswers

    @property
    def count(self) -> int:
        """Return the number of requests."""
        return len(self.api_answers) + len(self.malformed_answers) + sum(map(len, self.scenario_answers.values()))


def collect_all_answers(port: int) -> AllAnswers:
    """Run the whole script; invalid bytes are sent first, while the node has no topic."""
    abuse = {sent.name: exchange(port, sent) for sent in malformed_frames()}
    return AllAnswers(list(run_session(port)), abuse, run_scenarios(port))


def compare_scenarios(ours: ScenarioAnswers, theirs: ScenarioAnswers) -> list[str]:
    """Return a text for each difference of the answers in scenarios."""
    return [
        f"{scenario}: {name}{text}"
        for scenario, steps in theirs.items()
        for (name, a), (_, b) in zip(ours[scenario], steps, strict=True)
        for text in differences(normalize_order(a), normalize_order(b))
    ]


def compare_api_answers(ours: ApiAnswers, theirs: ApiAnswers) -> list[str]:
    """Return a text for each difference of the answers to requests of single APIs."""
    found = []
    for (key, version, request, a), (_, _, _, b) in zip(ours, theirs, strict=True):
        for text in differences(comparable(key, a), comparable(key, b)):
            found.append(f"{key.name} v{version}{text}\n    {request}")
    return found


def without_api_list(answers: MalformedAnswers) -> MalformedAnswers:
    """Return answers with the list of ApiVersions responses removed: only the shape is compared here."""
    return {name: ["versions" if len(a) > 200 else a for a in got] for name, got in answers.items()}
