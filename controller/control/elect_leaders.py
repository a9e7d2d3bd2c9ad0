"""Leader elections: on request (ElectLeaders), and by the periodic tasks of the active controller.

Source: ``ReplicationControlManager.electLeaders``, ``maybeBalancePartitionLeaders``, ``maybeElectUncleanLeaders``
(apache/kafka 4.3.1); KIP-183, KIP-460.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.limits import MAX_RECORDS_PER_REQUEST
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.controller.partitions.leader_and_isr_updates import is_leaderless, leader_acceptor, topic_change_rules
from ottla.controller.partitions.partition_assignment import TOO_MANY_RECORDS
from ottla.controller.partitions.partition_change_builder import (
    PartitionChangeRules,
    PartitionElection,
    build_partition_change,
)
from ottla.jobs.sequences import YIELD_EVERY, sort_job
from ottla.wire.codec.compiler import response_array
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.wire.messages.metadata_records import PartitionChangeRecord

MAX_ELECTIONS_PER_RUN = 1_000
"""Maximum number of elections in a run of a periodic task; the rest follows in the next run."""
_KINDS = {0: PartitionElection.PREFERRED, 1: PartitionElection.UNCLEAN}
_IMPOSSIBLE = {
    PartitionElection.PREFERRED: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    PartitionElection.UNCLEAN: (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}
_NOT_NEEDED = "Leader election not needed for topic partition."


def has_preferred_leader(registration: PartitionRegistration) -> bool:
    """Return True if the preferred leader (first replica) is the leader."""
    return registration.leader == registration.replicas[0]


def _elect(
    image: MetadataImage,
    topic: TopicImage,
    number: int,
    p: PartitionRegistration,
    rules: PartitionChangeRules,
    kind: PartitionElection,
) -> PartitionChangeRecord | None:
    return build_partition_change((topic.id, number), p, leader_acceptor(image, p), rules, election=kind)


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, version: int, static: Mapping[str, str]
) -> ControllerResultSteps:
    """Return the records and response of ElectLeaders, for the partitions in the request or for all, as a job (R-293).

    Each partition has its own error. For all partitions (``topic_partitions`` is None), those that need no election
    have no row. An unknown election type (INVALID_REQUEST) or too many elections (POLICY_VIOLATION) reject the whole
    request.
    """
    response = ElectLeadersResponse(replica_election_results=response_array(ElectLeadersResponse, version))
    if request.topic_partitions is not None and not request.topic_partitions:
        return ControllerResult(response)
    kind = _KINDS.get(request.election_type)
    if kind is None:
        why = f"Unknown election type {request.election_type}"
        return (yield from _refused(request, version, ErrorCode.INVALID_REQUEST, why))
    records: list[Message] = []
    named: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        named = ((name, image.topics[name].partitions) for name in (yield from sort_job(image.topics)))
    else:
        named = ((topic.topic, topic.partitions) for topic in request.topic_partitions)
    for name, numbers in named:
        yield None
        topic = image.topics.get(name)
        rules = topic_change_rules(image, static, topic) if topic is not None else PartitionChangeRules()
        rows = response_array(ElectLeadersResponse, version)
        for number in numbers:
            yield None
            code, message, record = _elect_row(image, topic, name, number, rules, kind)
            if request.topic_partitions is None and code == ErrorCode.ELECTION_NOT_NEEDED:
                continue
            rows.append(PartitionResult(number, code, message))
            if record is not None:
                records.append(record)
                if len(records) > MAX_RECORDS_PER_REQUEST:
                    return (yield from _refused(request, version, ErrorCode.POLICY_VIOLATION, TOO_MANY_RECORDS))
        response.replica_election_results.append(ReplicaElectionResult(name, rows))
    return ControllerResult(response, records)


def _elect_row(
    image: MetadataImage,
    topic: TopicImage | None,
    name: str,
    number: int,
    rules: PartitionChangeRules,
    kind: PartitionElection,
) -> tuple[ErrorCode, str | None, PartitionChangeRecord | None]:
    """Decide the election in one partition; return error code, error message and record (None without a change)."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}", None
    p = topic.partitions.get(number)
    if p is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}", None
    if has_preferred_leader(p) if kind is PartitionElection.PREFERRED else not is_leaderless(p):
        return ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED, None
    record = _elect(image, topic, number, p, rules, kind)
    if record is None:
        return *_IMPOSSIBLE[kind], None
    return ErrorCode.NONE, None, record


def _refused(request: ElectLeadersRequest, version: int, code: ErrorCode, message: str) -> ControllerResultSteps:
    """Return the response with an error in each row too, as a job (``ElectLeadersRequest.getErrorResponse``)."""
    results = response_array(ElectLeadersResponse, version)
    for topic in request.topic_partitions or ():
        rows = response_array(ElectLeadersResponse, version)
        for number in topic.partitions:
            rows.append(PartitionResult(number, code, message))
            yield None
        results.append(ReplicaElectionResult(topic.topic, rows))
        yield None
    return ControllerResult(ElectLeadersResponse(error_code=code, replica_election_results=results))


def _elect_where(
    image: MetadataImage,
    static: Mapping[str, str],
    kind: PartitionElection,
    wants: Callable[[PartitionRegistration, PartitionChangeRules], bool],
) -> ControllerResultSteps:
    """Return the records of elections in the partitions for which ``wants`` is True, as a job.

    At most `MAX_ELECTIONS_PER_RUN`; the response is True if that limit was reached, so that there may be more.
    """
    records: list[Message] = []
    for name in (yield from sort_job(image.topics)):
        topic = image.topics[name]
        rules = topic_change_rules(image, static, topic)
        for number, p in topic.partitions.items():
            if number % YIELD_EVERY == 0:
                yield None
            record = _elect(image, topic, number, p, rules, kind) if wants(p, rules) else None
            if record is not None:
                records.append(record)
                if len(records) == MAX_ELECTIONS_PER_RUN:
                    return ControllerResult(True, records)
    return ControllerResult(False, records)


def balance_partition_leaders(image: MetadataImage, static: Mapping[str, str]) -> ControllerResultSteps:
    """Return the records that make preferred leaders the leaders where they are in sync and alive, as a job (R-267).

    A partition of which neither the leader nor the preferred leader is alive gets another in-sync one. Any imbalance
    counts: there is no threshold. The response is True if there may be more.
    """
    return _elect_where(image, static, PartitionElection.PREFERRED, lambda p, rules: not has_preferred_leader(p))


def elect_unclean_leaders(image: MetadataImage, static: Mapping[str, str]) -> ControllerResultSteps:
    """Return the records that elect live replicas, in sync or not, for leaderless partitions, as a job (R-267).

    Only topics with unclean leader election enabled. The response is True if there may be more.
    """
    return _elect_where(
        image, static, PartitionElection.UNCLEAN, lambda p, rules: rules.allows_unclean_election and is_leaderless(p)
    )
