"""Leaders are elected on request (ElectLeaders), and now and then by the controller itself.

Source: ``ReplicationControlManager.electLeaders``, ``maybeBalancePartitionLeaders``, ``maybeElectUncleanLeaders``
(apache/kafka 4.3.1); KIP-183, KIP-460.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.controller.assignment import MAX_RECORDS_A_REQUEST, TOO_MANY_RECORDS
from ottla.controller.decision import PAUSE_EVERY, READ_EVERY, Decision, Steps, in_order
from ottla.controller.image import Image, Partition, Topic
from ottla.controller.leadership import is_leaderless, rules_of
from ottla.controller.partition_change import Election, Rules, change
from ottla.controller.places import may_lead
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import elect_leaders as el
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message
from ottla.wire.written import StreamingArray

ELECTIONS_A_TURN = 1_000
"""What the controller changes by itself at once; the rest comes in the next turn."""
_KINDS = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_IMPOSSIBLE = {
    Election.PREFERRED: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    Election.UNCLEAN: (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}
_NOT_NEEDED = "Leader election not needed for topic partition."


def has_preferred_leader(p: Partition) -> bool:
    """Whether the first replica leads."""
    return p.leader == p.replicas[0]


def _elect(
    image: Image, topic: Topic, number: int, p: Partition, rules: Rules, kind: Election
) -> m.PartitionChangeRecord | None:
    return change((topic.id, number), p, may_lead(image, p), rules, election=kind)


def elect_leaders(image: Image, request: el.ElectLeadersRequest, version: int, static: Mapping[str, str]) -> Steps:
    """Elect in each partition that is named, or in all (R293)."""
    response = el.ElectLeadersResponse(replica_election_results=StreamingArray(el.ElectLeadersResponse, version))
    if request.topic_partitions is not None and not request.topic_partitions:
        return Decision(response)
    kind = _KINDS.get(request.election_type)
    if kind is None:
        why = f"Unknown election type {request.election_type}"
        return (yield from _refused(request, version, ErrorCode.INVALID_REQUEST, why))
    records: list[Message] = []
    named: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        named = ((name, image.topics[name].partitions) for name in (yield from in_order(image.topics)))
    else:
        named = ((topic.topic, topic.partitions) for topic in request.topic_partitions)
    seen = 0
    for name, numbers in named:
        seen += 1
        if seen % READ_EVERY == 0:
            yield
        topic = image.topics.get(name)
        rules = rules_of(image, static, topic) if topic is not None else Rules()
        rows = StreamingArray(el.ElectLeadersResponse, version)
        for number in numbers:
            seen += 1
            if seen % PAUSE_EVERY == 0:
                yield
            code, message, record = _row(image, topic, name, number, rules, kind)
            if request.topic_partitions is None and code == ErrorCode.ELECTION_NOT_NEEDED:
                continue
            rows.append(el.PartitionResult(number, code, message))
            if record is not None:
                records.append(record)
                if len(records) > MAX_RECORDS_A_REQUEST:
                    return (yield from _refused(request, version, ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS))
        response.replica_election_results.append(el.ReplicaElectionResult(name, rows))
    return Decision(response, records)


def _row(
    image: Image, topic: Topic | None, name: str, number: int, rules: Rules, kind: Election
) -> tuple[ErrorCode, str | None, m.PartitionChangeRecord | None]:
    """One partition's election: error, message, record."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}", None
    p = topic.partitions.get(number)
    if p is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}", None
    if has_preferred_leader(p) if kind is Election.PREFERRED else not is_leaderless(p):
        return ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED, None
    record = _elect(image, topic, number, p, rules, kind)
    if record is None:
        return *_IMPOSSIBLE[kind], None
    return ErrorCode.NONE, None, record


def _refused(request: el.ElectLeadersRequest, version: int, code: ErrorCode, message: str) -> Steps:
    """The whole request fails, and each row says so (``ElectLeadersRequest.getErrorResponse``)."""
    results = StreamingArray(el.ElectLeadersResponse, version)
    for topic in request.topic_partitions or ():
        rows = StreamingArray(el.ElectLeadersResponse, version)
        for seen, number in enumerate(topic.partitions, 1):
            rows.append(el.PartitionResult(number, code, message))
            if seen % PAUSE_EVERY == 0:
                yield
        results.append(el.ReplicaElectionResult(topic.topic, rows))
        yield
    return Decision(el.ElectLeadersResponse(error_code=code, replica_election_results=results))


def _sweep(image: Image, static: Mapping[str, str], kind: Election, wants: Callable[[Partition, Rules], bool]) -> Steps:
    """Elect wherever it is wanted and somebody else leads after it; the answer: whether there may be more to do."""
    records: list[Message] = []
    seen = 0
    for name in (yield from in_order(image.topics)):
        topic = image.topics[name]
        rules = rules_of(image, static, topic)
        for number, p in topic.partitions.items():
            seen += 1
            if seen % PAUSE_EVERY == 0:
                yield
            record = _elect(image, topic, number, p, rules, kind) if wants(p, rules) else None
            if record is not None:
                records.append(record)
                if len(records) == ELECTIONS_A_TURN:
                    return Decision(True, records)
    return Decision(False, records)


def balance(image: Image, static: Mapping[str, str]) -> Steps:
    """First replicas lead again, where they can (R267); the answer: whether there may be more to do."""
    return _sweep(image, static, Election.PREFERRED, lambda p, rules: not has_preferred_leader(p))


def rescue(image: Image, static: Mapping[str, str]) -> Steps:
    """Who lives leads what nobody leads, where topics allow it (R267); the answer: whether there may be more to do."""
    return _sweep(image, static, Election.UNCLEAN, lambda p, rules: rules.unclean and is_leaderless(p))
