"""Base class of members of groups with exclusive partitions: they revoke, start, consume and commit partitions.

``StaleMemberCommit``: a commit was accepted from a member whose leave was confirmed.
Members may be slow to revoke; they may be paused until they are fenced, and continue in their old epoch. They commit
offsets in their epoch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import offset_commit, offset_fetch
from sim.checkers.history import HistoryPartition
from sim.workload.clients import (
    PAUSE_S,
    ClusterService,
    RetriableError,
    UnknownOutcome,
    fetch_records,
    log_start_offset,
)
from sim.workload.groups.member_slots import SimGroupMember

if TYPE_CHECKING:
    from sim.checkers.assignment_checker import AssignmentChecker
    from sim.engine.simulation import Simulation

SLOW_SHARE = 0.15
"""Share of slow revocations, which may exceed the timeout."""
MAX_REVOCATION_S = 7.0
COMMITTED_SHARE = 0.7
READ_AHEAD_SHARE = 0.4
"""Share of polls in which a member first reads its partitions, although they may be assigned to others by now."""
HEARTBEAT_INTERVAL_S = 0.5
FENCED_ERRORS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)

STALE_EPOCH_ERRORS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


class AssignedGroupState(NamedTuple):
    """Group id, checker, topic names and offsets read, shared by all members of a group."""

    group: str
    assignment_checker: AssignmentChecker
    ids: Mapping[bytes, str]
    """Names of topics by id."""
    read_offsets: dict[HistoryPartition, set[int]]
    """Offsets that a member has read."""


class AssignedMember(SimGroupMember):
    """Base class of members of groups in which a partition has one owner: classic, consumer and streams protocol."""

    offset_commit_version = 9
    """Version of OffsetCommit."""
    reads_with_member_epoch = True
    """True if offsets are fetched with member id and epoch."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        service: ClusterService,
        shared: AssignedGroupState,
        instance_id: str | None = None,
    ) -> None:
        super().__init__(simulation, name, service, shared.group)
        self._shared = shared
        self._book = shared.assignment_checker
        self._instance_id = instance_id
        self._identity = instance_id or self.id
        self.epoch = 0
        self._target: set[HistoryPartition] = set()
        self.positions: dict[HistoryPartition, int] = {}
        """Next offset of each owned partition; -1 if not fetched yet."""
        self._kept: dict[HistoryPartition, int] = {}
        """Last committed offset of each partition."""
        self._revokes_at: float | None = None

    def on_process_end(self) -> None:
        """Record for the checker that the member's process has ended, so that it uses no partition any more."""
        self._book.on_member_removed(self.id)

    async def run(self) -> None:
        """Join, consume and commit until the member has left; retry after a RetriableError.

        Raises:
            MemberEnded: the member has left.
        """
        while True:
            try:
                if self.epoch and self.simulation.rng.random() < READ_AHEAD_SHARE:
                    await self._consume()
                await self._beat()
                await self._reconcile()
                if self.leaving:
                    for place in list(self.positions):
                        await self._commit(place)
                    await self._leave_group(for_good=False)
                await self._consume()
            except RetriableError as error:
                self.simulation.trace_event(f"{self.name} {self.epoch}: {error}")
                self._reset_reported_state()
                self.invalidate_leaders()
                await self.sleep(PAUSE_S * (0.5 + self.simulation.rng.random()))
            await self.sleep(HEARTBEAT_INTERVAL_S * (0.5 + self.simulation.rng.random()))

    # ------------------------------------------------------------------ membership

    @abstractmethod
    async def _beat(self) -> None:
        """Send a heartbeat, which joins if necessary, and process the response.

        Raises:
            RetriableError: no response, or an error response; MemberEnded: the member can never send another one.
        """

    @abstractmethod
    def _reset_reported_state(self) -> None:
        """Forget the reported state after an error, so that the full state is sent again."""

    @abstractmethod
    def _is_state_reported(self) -> bool:
        """Return False if the owned partitions have changed since they were reported.

        True, too, if the full state must be sent: the next heartbeat does so in any case.
        """

    @abstractmethod
    async def _leave_group(self, *, for_good: bool) -> None:
        """Leave the group, whether or not there is a response; ``for_good``: also as a static member.

        Raises:
            MemberEnded: always.
        """

    def _on_epoch(self, epoch: int, began: int, cuts: int) -> None:
        """Record the member epoch in a response to a heartbeat; report ``MemberEpochBack`` if it is lower than before.

        Nothing is reported after a power cut. ``began``: event number of the request; ``cuts``: number of power cuts
        before it.
        """
        if self.epoch:
            self._book.on_heartbeat(self.id, began)
            if epoch < self.epoch and cuts == self.simulation.ledger.power_cuts and not cuts:
                detail = f"{self.group}: {self.id} went from {self.epoch} to {epoch}"
                self.simulation.ledger.report_violation("MemberEpochBack", detail)
        self.epoch = epoch
        self.last_heartbeat_s = self.simulation.now_s()

    def _on_target(self, target: Collection[HistoryPartition], began: int, cuts: int) -> None:
        """Record the partitions ``target`` assigned in a response, which `_reconcile` applies; else as `_on_epoch`."""
        self._target = set(target)
        self._book.on_assigned(self.id, self._identity, self.epoch, sorted(target), began, cuts)
        self.simulation.trace_event(f"{self.id} epoch {self.epoch}: {sorted(target)}")

    def _abandon(self) -> None:
        """Forget all partitions without a commit, and set the epoch to 0, so that the next heartbeat joins."""
        self._book.on_member_removed(self.id)
        self.positions.clear()
        self._kept.clear()
        self._target = set()
        self._revokes_at = None
        self.epoch = 0
        self._reset_reported_state()

    async def _reconcile(self) -> None:
        """Commit and revoke partitions outside the assignment, then start the new ones, and report the change.

        At random, a revocation is delayed by up to `MAX_REVOCATION_S`; until then new partitions wait as well.

        Raises:
            RetriableError: no response, or an error response; MemberEnded: a commit had no response, so that it left.
        """
        going = [place for place in self.positions if place not in self._target]
        if going:
            if self._revokes_at is None:
                slow = self.simulation.rng.random() < SLOW_SHARE and not self.is_stable_phase
                self._revokes_at = self.simulation.now_s() + (
                    self.simulation.rng.random() * MAX_REVOCATION_S if slow else 0.0
                )
            if self.simulation.now_s() < self._revokes_at:
                return
            for place in going:
                await self._commit(place)
            self._revokes_at = None
            for place in going:
                self.positions.pop(place, None)
                self._kept.pop(place, None)
            self._book.on_revoked(self.id, going)
        for place in sorted(self._target):
            if place not in self.positions:
                self.positions[place] = -1
                self._book.on_owned(self.id, place)
        if self.epoch and not self._is_state_reported():
            await self._beat()

    # ------------------------------------------------------------------ records and offsets

    async def _consume(self) -> None:
        """Read some owned partitions, and mostly commit their offsets; errors as `_reconcile`."""
        places = sorted(self.positions)
        for place in self.simulation.rng.sample(places, min(2, len(places))):
            if self.positions[place] < 0:
                await self._fetch_position(place)
            if self.positions[place] < 0:
                continue
            try:
                records = await fetch_records(self, place[1], self.positions[place], 50, place[0])
            except RetriableError as error:
                if str(error) == ErrorCode.OFFSET_OUT_OF_RANGE.name:
                    await self._restart_partition(place)
                raise
            self._shared.read_offsets.setdefault(place, set()).update(x.offset for x in records)
            if records:
                self.positions[place] = records[-1].offset + 1
            if self.is_stable_phase or self.simulation.rng.random() < COMMITTED_SHARE:
                await self._commit(place)

    async def _restart_partition(self, place: HistoryPartition) -> None:
        """Set the position of a partition to its log start offset, as a power cut removed its records.

        Nothing is read here. Raises RetriableError.
        """
        self.positions[place] = await log_start_offset(self, *place)
        self.simulation.ledger.committed_to.pop(place, None)

    async def _fetch_position(self, place: HistoryPartition) -> None:
        topic = offset_fetch.OffsetFetchRequestTopics(place[0], partition_indexes=[place[1]])
        group = offset_fetch.OffsetFetchRequestGroup(self.group, topics=[topic])
        if self.reads_with_member_epoch:
            group.member_id, group.member_epoch = self.id, self.epoch
        requested_at = self.simulation.ledger.committed_to.get(place, 0)
        found = (
            await self.call_coordinator(offset_fetch.OffsetFetchRequest(groups=[group], require_stable=True), 9)
        ).groups[0]
        code = found.error_code or (found.topics[0].partitions[0].error_code if found.topics else 0)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
            return  # the next heartbeat returns the error
        if code:
            raise RetriableError(ErrorCode(code).name)
        row = found.topics[0].partitions[0]
        at = max(row.committed_offset, 0)
        self.require_leader_epoch(*place, row.committed_leader_epoch)
        self.simulation.ledger.verify_committed_offset(place, at, requested_at)
        self.positions[place] = self._kept[place] = at

    async def _commit(self, place: HistoryPartition) -> None:
        """Commit the offset of a partition if it has changed; an error of an old epoch is left to the next heartbeat.

        Raises:
            RetriableError: another error response.
            MemberEnded: no response, so that the commit may still happen; the member leaves.
        """
        offset = self.positions.get(place, -1)
        if offset < 0 or self._kept.get(place) == offset:
            return
        ledger, began = self.simulation.ledger, self._book.next_event()
        cuts = ledger.power_cuts
        try:
            code = await self._send_commit(place, offset)
        except UnknownOutcome:
            self.invalidate_leaders()
            await self._leave_group(for_good=True)
            return
        self.check_expected_error(code, "commit")
        if code in STALE_EPOCH_ERRORS:
            return  # the next heartbeat returns the error
        if code:
            raise RetriableError(ErrorCode(code).name)
        self._book.on_heartbeat(self.id, began, place)
        self._kept[place] = offset
        ledger.record_commit(place, offset, cuts)

    async def _send_commit(self, place: HistoryPartition, offset: int) -> int:
        """Send an OffsetCommit and return the error code of the response. Raises RetriableError."""
        self.simulation.ledger.record_commit_attempt(place, offset)
        row = offset_commit.OffsetCommitRequestPartition(place[1], offset, self.leader_epoch(*place))
        topic = offset_commit.OffsetCommitRequestTopic(place[0], partitions=[row])
        request = offset_commit.OffsetCommitRequest(self.group, self.epoch, self.id, self._instance_id, topics=[topic])
        answer: Any = await self.call_coordinator(request, self.offset_commit_version)
        return int(answer.topics[0].partitions[0].error_code)

    async def _commit_after_leaving(self, cuts: int) -> None:
        """Commit after a confirmed leave, which must be rejected. Raises RetriableError.

        ``cuts``: power cuts before it left.
        """
        for place in [place for place, offset in self.positions.items() if offset >= 0][:1]:
            code = await self._send_commit(place, self.positions[place])
            if not code and cuts == self.simulation.ledger.power_cuts:
                detail = f"{self.group}: {place[0]}-{place[1]} by {self.id} in {self.epoch}, after it had left"
                self.simulation.ledger.report_violation("StaleMemberCommit", detail)
