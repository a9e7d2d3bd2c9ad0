"""Share group in the workload of a simulated run: topics, members, and verification.

``share-lost``: a record was never delivered. ``ArchivedOnlyAfterLimitOrAccept``: a record is final in the share
coordinator's state, though it was neither accepted, rejected nor delivered up to the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.metadata.controller_forwarder import SHARE_TOPIC
from ottla.broker.share_partitions.in_flight import RecordState
from ottla.broker.share_state.records import decode
from ottla.broker.share_state.share_group_offsets import UNINITIALIZED
from ottla.controller.metadata.image import RESOURCE_GROUP
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_share_group_offsets, incremental_alter_configs, share_group_describe
from sim.checkers.acquisition_locks import ACCEPT, REJECT, AcquisitionLocks, LiveNodesByHost
from sim.checkers.history import HistoryPartition
from sim.workload.clients import ClusterService, RetriableError, SimClient, log_start_offset, read_partition
from sim.workload.groups.group_workload import GroupWorkload
from sim.workload.groups.share_member import ShareGroupState, SimShareMember

if TYPE_CHECKING:
    from ottla.wire.record_batch.records import Record
    from sim.engine.simulation import Simulation
    from sim.workload.groups.member_slots import SimGroupMember

GROUP = "sharers"
TOPICS = ("s0", "s1")
DELIVERY_COUNT_LIMIT = 3
MEMBER_SLOTS = 3
STATE_PARTITIONS = 2


class ShareGroupWorkload(GroupWorkload):
    """Workload of a share group (KIP-932), with a checker of its acquired records."""

    group = GROUP
    topics = TOPICS

    def __init__(
        self, simulation: Simulation, service: ClusterService, ids: Mapping[bytes, str], living: LiveNodesByHost
    ) -> None:
        super().__init__(simulation, service, ids)
        clock = lambda host: simulation.host(host).clock.monotonic_s()  # noqa: E731 - one line says it
        self._locks = AcquisitionLocks(simulation.ledger, GROUP, DELIVERY_COUNT_LIMIT, living, clock, simulation.now_s)
        self._shared = ShareGroupState(GROUP, self._locks, ids, TOPICS)

    def member_factories(self) -> Iterator[Callable[[], SimGroupMember]]:
        """Yield the factory of the members of each slot."""
        for number in range(MEMBER_SLOTS):
            yield partial(SimShareMember, self._simulation, f"sharer-{number}", self._service, self._shared)

    async def prepare(self, asker: SimClient) -> None:
        """Set ``share.auto.offset.reset`` of the group to ``earliest``. Raises RetriableError."""
        config = incremental_alter_configs.AlterableConfig("share.auto.offset.reset", 0, "earliest")
        resource = incremental_alter_configs.AlterConfigsResource(RESOURCE_GROUP, GROUP, [config])
        answer = await asker.call(incremental_alter_configs.IncrementalAlterConfigsRequest([resource]), 1)
        if answer.responses[0].error_code:
            raise RetriableError(ErrorCode(answer.responses[0].error_code).name)

    async def _find_instability(self, asker: SimClient, members: Sequence[SimGroupMember]) -> str:
        at = await self._coordinator(asker)
        response = (await asker.call(share_group_describe.ShareGroupDescribeRequest([GROUP]), 1, at)).groups[0]
        if response.error_code or response.group_state != "Stable":
            return f"{ErrorCode(response.error_code).name} {response.group_state}"
        here = sorted(x.id for x in members if isinstance(x, SimShareMember))
        if sorted(x.member_id for x in response.members) != here:
            return f"members {sorted(x.member_id for x in response.members)} are not {here}"
        numbers = list(range(self._service.partitions))
        requests = [
            describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(topic, numbers) for topic in TOPICS
        ]
        request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            [describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(GROUP, requests)]
        )
        for topic in (await asker.call(request, 1, at)).groups[0].topics:
            for part in topic.partitions:
                place = (topic.topic_name, part.partition_index)
                if self._simulation.ledger.power_cuts and (part.start_offset == UNINITIALIZED or part.lag < 0):
                    continue  # the state is gone, or records that it knows are: none of the logs waits for another's
                end, begin = await self._end(asker, place), await log_start_offset(asker, *place)
                if part.error_code or has_pending_records(part.start_offset, part.lag, begin, end):
                    error = ErrorCode(part.error_code).name
                    return f"{place}: {error} from {part.start_offset}, {part.lag} behind {end}"
        return ""

    async def verify(self, asker: SimClient) -> None:
        """Report ``share-lost`` and ``ArchivedOnlyAfterLimitOrAccept``; the former not after a power cut."""
        ledger = self._simulation.ledger
        if not ledger.power_cuts:
            for place in [(topic, number) for topic in TOPICS for number in range(self._service.partitions)]:
                end = await asker.retry_until_done(partial(self._end, asker, place))
                lost = [offset for offset in range(end) if (place, offset) not in self._locks.delivered]
                if lost:
                    ledger.report_violation("share-lost", f"{place[0]}-{place[1]}: {lost[:10]} of {end}")
        for number in range(STATE_PARTITIONS):
            records = await read_partition(asker, SHARE_TOPIC, number)
            for detail in find_unearned_states(records, self._ids, self._locks, whole=not ledger.power_cuts):
                ledger.report_violation("ArchivedOnlyAfterLimitOrAccept", detail)


def has_pending_records(start_offset: int, lag: int, start: int, end: int) -> bool:
    """Return True if a share group with this start offset and lag has undelivered records in a log.

    ``start``, ``end``: log start offset, and end offset (exclusive). A negative lag is unknown and counts as pending.
    The lag is adjusted to records deleted from the log only with the next write of the share partition's state
    (``SharePartition.updateCacheAndOffsets``).
    """
    gone = max(start - start_offset, 0)
    return max(start_offset, 0) < end and not 0 <= lag <= gone


def find_unearned_states(
    records: Sequence[Record], ids: Mapping[bytes, str], locks: AcquisitionLocks, *, whole: bool = True
) -> Iterator[str]:
    """Yield a text for each delivery state in the state topic that no member caused.

    Args:
        records: Records of a partition of ``__share_group_state``, oldest first.
        ids: Names of topics by id; others are skipped.
        locks: Acknowledgements and deliveries as the members saw them.
        whole: True if no segment was lost in a power cut; else start offsets are not checked.
    """
    known: dict[HistoryPartition, dict[int, int]] = {}
    starts: dict[HistoryPartition, int] = {}
    for record in records:
        found = decode(record.key, record.value)
        if found is None or found.value is None or found.key.topic_id not in ids:
            continue
        place = (ids[found.key.topic_id], found.key.partition)
        states = known.setdefault(place, {})
        for row in found.value.state_batches:
            for offset in range(row.first_offset, row.last_offset + 1):
                states[offset] = row.delivery_state
                acknowledged = locks.acknowledgements.get((place, offset), set())
                where = f"{place[0]}-{place[1]} {offset}"
                if row.delivery_state == RecordState.ACKNOWLEDGED and ACCEPT not in acknowledged:
                    yield f"{where} is accepted without an acknowledgement: {sorted(acknowledged)}"
                early = row.delivery_count < locks.limit and REJECT not in acknowledged
                if row.delivery_state == RecordState.ARCHIVED and early:
                    yield f"{where} is archived after {row.delivery_count} deliveries: {sorted(acknowledged)}"
        start = found.value.start_offset
        if start == UNINITIALIZED or not whole:
            continue
        for offset in range(starts.get(place, 0), start):
            if not _is_done(states.get(offset), (place, offset), locks):
                yield f"{place[0]}-{place[1]} begins at {start} now, and {offset} is in state {states.get(offset)}"
        starts[place] = max(start, starts.get(place, 0))


def _is_done(state: int | None, at: tuple[HistoryPartition, int], locks: AcquisitionLocks) -> bool:
    """Return True if a record may be final: by its state, or by deliveries up to the limit.

    ``state``: the stored delivery state, None without one. An expired lock whose state could not be written is in no
    record of the state topic.
    """
    if state is not None and RecordState(state).is_final:
        return True
    return locks.delivered.get(at, 0) + locks.uncertain_acknowledgements.get(at[0], 0) >= locks.limit
