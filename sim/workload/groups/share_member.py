"""Members of a share group (KIP-932), which acquire and acknowledge records.

They accept, release, reject and renew records, one by one or many at once, by ShareAcknowledge or with their next
ShareFetch; some locks they let expire. A member has one session with each broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.share_partitions.share_sessions import TopicIdPartition as SharedPlace
from ottla.client.record_decoding import decode_records
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages import share_acknowledge, share_fetch, share_group_heartbeat
from sim.checkers.acquisition_locks import ACCEPT, REJECT, RELEASE, RENEW, AcquiredRecord, AcquisitionLocks
from sim.checkers.history import HistoryPartition
from sim.workload.clients import PAUSE_S, Address, ClusterService, RetriableError, UnknownOutcome
from sim.workload.groups.member_slots import MemberEnded, SimGroupMember

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

LEAVING = CLOSING = -1
MAX_SESSION_EPOCH = 2**31 - 1
HEARTBEAT_INTERVAL_S = 0.7
POLL_INTERVAL_S = 0.25
MAX_PROCESSING_S = 1.0
LATE_SHARE, LATE_PROCESSING_S = 0.15, 5.0
"""Share of records with slow processing, and its maximum duration in seconds, longer than the lock."""
VERDICTS = ((ACCEPT, 0.68), (RELEASE, 0.12), (REJECT, 0.06), (RENEW, 0.09))
"""Acknowledgement types with their shares; the other locks expire."""
NO_VERDICT = 0
NO_VERDICT_S = 4.0
"""Time in seconds after which a lock has expired."""
FENCED_ERRORS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
SESSION_ERRORS = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


class ShareGroupState(NamedTuple):
    """Group id, checker of acquired records, topic names by id and topics, shared by all members of a share group."""

    group: str
    locks: AcquisitionLocks
    ids: Mapping[bytes, str]
    topics: tuple[str, ...]


@dataclass(slots=True)
class SimShareSession:
    """Share session of a member with one broker."""

    epoch: int = 0
    places: set[HistoryPartition] = field(default_factory=set)
    ready: dict[HistoryPartition, dict[int, tuple[float, int]]] = field(default_factory=dict)
    """Due time and acknowledgement type of each acquired record, by partition and offset."""


class SimShareMember(SimGroupMember):
    """Member of a share group, from join to leave."""

    def __init__(self, simulation: Simulation, name: str, service: ClusterService, shared: ShareGroupState) -> None:
        super().__init__(simulation, name, service, shared.group)
        self._shared = shared
        self._locks = shared.locks
        self.epoch = 0
        self.subscribed_topics: tuple[str, ...] = ()
        self.change_subscription()
        self._sent_subscription: tuple[str, ...] | None = None
        self.assigned: set[HistoryPartition] = set()
        self._next_beat_s = 0.0
        self._sessions: dict[Address, SimShareSession] = {}
        self._topic_ids = {name: topic_id for topic_id, name in shared.ids.items()}

    def change_subscription(self) -> None:
        """Choose a random subscription, possibly the present one; the next heartbeat reports a change."""
        topics = self._shared.topics
        self.subscribed_topics = self.simulation.rng.choice((topics, topics, topics[:1], topics[1:]))

    def on_process_end(self) -> None:
        """Record for the checker that the locks of the member have ended with its process."""
        self._locks.on_lost(self.id)

    def close_connections(self) -> None:
        """Close all connections, which ends the share sessions and releases the acquired records."""
        super().close_connections()
        self._sessions.clear()
        self._locks.on_lost(self.id)

    async def run(self) -> None:
        """Join, acquire and acknowledge records until the member has left; retry after a RetriableError.

        Raises:
            MemberEnded: the member has left.
        """
        while True:
            if self.is_stable_phase:
                self.subscribed_topics = self._shared.topics
            try:
                if self.simulation.now_s() >= self._next_beat_s:
                    await self._beat()
                await self._poll_once()
                if self.leaving:
                    await self._leave()
            except RetriableError as error:
                self.simulation.trace_event(f"{self.name} {self.epoch}: {error}")
                self.invalidate_leaders()
                await self.sleep(PAUSE_S * (0.5 + self.simulation.rng.random()))
            await self.sleep(POLL_INTERVAL_S * (0.5 + self.simulation.rng.random()))

    # ------------------------------------------------------------------ membership

    async def _beat(self) -> None:
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(self.group, self.id, self.epoch)
        wants = self.subscribed_topics
        if self.epoch == 0 or self._sent_subscription != wants:
            request.subscribed_topic_names = list(wants)
        self._sent_subscription = None
        answer = await self.call_coordinator(request, 1)
        code = answer.error_code
        self.check_expected_error(code, "heartbeat")
        if code in FENCED_ERRORS:
            self.epoch = 0
            self.assigned = set()
        if code:
            raise RetriableError(ErrorCode(code).name)
        self._sent_subscription = wants
        self.epoch = answer.member_epoch
        self.last_heartbeat_s = self.simulation.now_s()
        self._next_beat_s = self.last_heartbeat_s + HEARTBEAT_INTERVAL_S
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            self.assigned = {(self._shared.ids[row.topic_id], number) for row in rows for number in row.partitions}
            self.simulation.trace_event(f"{self.id} epoch {self.epoch}: {sorted(self.assigned)}")

    async def _leave(self) -> None:
        """Close every share session, and leave the group. Raises RetriableError, else MemberEnded."""
        for address, session in list(self._sessions.items()):
            if session.epoch:
                self._locks.on_lost(self.id)
                await self.call(share_fetch.ShareFetchRequest(self.group, self.id, CLOSING, 0, 0, 0), 2, address)
        self._sessions.clear()
        answer = await self.call_coordinator(
            share_group_heartbeat.ShareGroupHeartbeatRequest(self.group, self.id, LEAVING), 1
        )
        self.check_expected_error(answer.error_code, "goodbye")
        raise MemberEnded("left")

    # ------------------------------------------------------------------ records

    async def _poll_once(self) -> None:
        """Fetch from each leader of an assigned partition, with or after the due acknowledgements.

        Raises:
            RetriableError: no response, or an error of a session.
        """
        by_address: dict[Address, set[HistoryPartition]] = {address: set() for address in self._sessions}
        for place in sorted(self.assigned):
            by_address.setdefault(await self.leader(*place), set()).add(place)
        for address, places in by_address.items():
            session = self._sessions.setdefault(address, SimShareSession())
            acknowledgements = self._due_acknowledgements(session)
            if acknowledgements and (
                self.simulation.rng.random() < 0.7 or any(RENEW in x.values() for x in acknowledgements.values())
            ):
                await self._acknowledge(address, session, acknowledgements)
                acknowledgements = {}
            await self._fetch(address, session, places, acknowledgements)

    def _due_acknowledgements(self, session: SimShareSession) -> dict[HistoryPartition, dict[int, int]]:
        """Return the due acknowledgements, by partition and offset: either renewals or all other types, at random.

        Records without a verdict are dropped when their locks have expired.
        """
        now = self.simulation.now_s()
        renews = self.simulation.rng.random() < 0.5
        out: dict[HistoryPartition, dict[int, int]] = {}
        for place, ready in session.ready.items():
            for offset in [x for x, (at, kind) in ready.items() if kind == NO_VERDICT and at + NO_VERDICT_S < now]:
                del ready[offset]
            done = {x: kind for x, (at, kind) in ready.items() if at <= now and kind != NO_VERDICT}
            some = {x: kind for x, kind in done.items() if renews == (kind == RENEW)}
            if some and session.epoch:
                out[place] = some
        return out

    def _on_acknowledging(
        self, session: SimShareSession, acknowledgements: Mapping[HistoryPartition, Mapping[int, int]]
    ) -> dict[HistoryPartition, dict[int, AcquiredRecord]]:
        """Record for the checker that acknowledgements are sent; return the acquired records by partition and offset.

        They are no longer due; renewed records get a new verdict.
        """
        holds = {}
        for place, offsets in acknowledgements.items():
            holds[place] = self._locks.on_acknowledging(self.id, place, offsets)
            for offset, kind in offsets.items():
                del session.ready[place][offset]
                if kind == RENEW:
                    self._schedule_verdict(session, place, offset)
        return holds

    def _schedule_verdict(self, session: SimShareSession, place: HistoryPartition, offset: int) -> None:
        rng = self.simulation.rng
        draw, verdict = rng.random(), NO_VERDICT
        for kind, share in VERDICTS:
            if draw < share:
                verdict = kind
                break
            draw -= share
        late = rng.random() < LATE_SHARE and not self.is_stable_phase
        at = self.simulation.now_s() + rng.random() * (LATE_PROCESSING_S if late else MAX_PROCESSING_S)
        session.ready.setdefault(place, {})[offset] = (at, ACCEPT if self.is_stable_phase else verdict)

    async def _acknowledge(
        self, address: Address, session: SimShareSession, acknowledgements: dict[HistoryPartition, dict[int, int]]
    ) -> None:
        renews = any(RENEW in x.values() for x in acknowledgements.values())
        holds, before_s = self._on_acknowledging(session, acknowledgements), self._clock(address)
        topics: dict[str, list[share_acknowledge.AcknowledgePartition]] = {}
        for (topic, number), offsets in acknowledgements.items():
            part = share_acknowledge.AcknowledgePartition(
                number, _batches(offsets, share_acknowledge.AcknowledgementBatch)
            )
            topics.setdefault(topic, []).append(part)
        rows = [share_acknowledge.AcknowledgeTopic(self._topic_ids[name], parts) for name, parts in topics.items()]
        request = share_acknowledge.ShareAcknowledgeRequest(self.group, self.id, session.epoch, renews, rows)
        cuts = self.simulation.ledger.power_cuts
        answer = await self.call(request, 2, address)
        self._check_session(address, session, answer.error_code)
        for topic in answer.responses:
            for part in topic.partitions:
                place = (self._shared.ids[topic.topic_id], part.partition_index)
                self._on_acknowledge_response(place, part.error_code, acknowledgements[place], holds[place], cuts)
                if renews and not part.error_code:
                    until_s = before_s + answer.acquisition_lock_timeout_ms / 1000
                    self._locks.on_renewed(self.id, place, acknowledgements[place].keys(), until_s)

    def _on_acknowledge_response(
        self,
        place: HistoryPartition,
        code: int,
        offsets: Mapping[int, int],
        holds: Mapping[int, AcquiredRecord],
        cuts: int,
    ) -> None:
        self.check_expected_error(0 if code == ErrorCode.INVALID_REQUEST else code, "acknowledgement")
        if not code and cuts == self.simulation.ledger.power_cuts:
            self._locks.on_acknowledged(place, offsets, holds)
        if code in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST):
            self._locks.on_refused(self._key(place), place, offsets, holds)

    def _check_session(self, address: Address, session: SimShareSession, code: int) -> None:
        """Increment the session epoch; for an error of the response raise RetriableError.

        A session that the broker does not know is removed, and its locks have ended.
        """
        if code in SESSION_ERRORS:
            self._sessions.pop(address, None)
            self._locks.on_lost(self.id)
        self.check_expected_error(code, "session")
        if code:
            raise RetriableError(ErrorCode(code).name)
        session.epoch = 1 if session.epoch == MAX_SESSION_EPOCH else session.epoch + 1

    def _key(self, place: HistoryPartition) -> SharedPlace:
        return SharedPlace(self._topic_ids[place[0]], place[1])

    def _clock(self, address: Address) -> float:
        return self.simulation.host(address[0]).clock.monotonic_s()

    async def _fetch(
        self,
        address: Address,
        session: SimShareSession,
        places: set[HistoryPartition],
        acknowledgements: dict[HistoryPartition, dict[int, int]],
    ) -> None:
        """Send a ShareFetch with acknowledgements and process its response. Raises RetriableError."""
        rng = self.simulation.rng
        places = places | {place for place, ready in session.ready.items() if ready}
        if not places and not session.epoch:
            return
        holds = self._on_acknowledging(session, acknowledgements)
        topics: dict[str, list[share_fetch.FetchPartition]] = {}
        for place in sorted((places - session.places) | acknowledgements.keys()):
            batches = _batches(acknowledgements.get(place, {}), share_fetch.AcknowledgementBatch)
            topics.setdefault(place[0], []).append(share_fetch.FetchPartition(place[1], 0, batches))
        forgotten = [
            share_fetch.ForgottenTopic(self._topic_ids[name], [x[1] for x in some])
            for name, some in groupby(sorted(session.places - places), key=lambda x: x[0])
        ]
        rows = [share_fetch.FetchTopic(self._topic_ids[name], parts) for name, parts in topics.items()]
        request = share_fetch.ShareFetchRequest(
            *(self.group, self.id, session.epoch, 150, 1, 1 << 20),
            *(1 + int(rng.random() * 12), 1 + int(rng.random() * 8), int(rng.random() * 2), False),
            *(rows, forgotten),
        )
        before = {place: self._locks.server_state(address[0], self._key(place), self.id) for place in places}
        requested_s, began_s, cuts = self._clock(address), self.simulation.now_s(), self.simulation.ledger.power_cuts
        try:
            answer = await self.call(request, 2, address)
        except UnknownOutcome:
            for place in places:
                self._locks.uncertain_acknowledgements[place] = self._locks.uncertain_acknowledgements.get(place, 0) + 1
            raise
        self._check_session(address, session, answer.error_code)
        session.places = places
        until_s = requested_s + answer.acquisition_lock_timeout_ms / 1000
        for topic in answer.responses:
            for part in topic.partitions:
                place = (self._shared.ids[topic.topic_id], part.partition_index)
                if place in acknowledgements:
                    self._on_acknowledge_response(
                        place, part.acknowledge_error_code, acknowledgements[place], holds[place], cuts
                    )
                sight = self._locks.server_state(address[0], self._key(place), self.id)
                old = before.get(place)
                same = old is not None and sight is not None and old.share_partition is sight.share_partition
                hold = AcquiredRecord(self.id, address[0], until_s, sight if same else None, self.simulation.now_s())
                self._on_acquired(session, place, part, hold, began_s)

    def _on_acquired(
        self, session: SimShareSession, place: HistoryPartition, part: Any, hold: AcquiredRecord, began_s: float
    ) -> None:
        """Record the acquired records of a partition in a ShareFetch response, and schedule their acknowledgement.

        Acquired offsets without a record are reported as ``share-hole``.
        """
        self.check_expected_error(part.error_code, "fetch")
        if part.error_code:
            self.simulation.trace_event(f"{self.name}: {place}: {ErrorCode(part.error_code).name}")
            self.invalidate_leaders()
            return
        try:
            there = {x.offset for x in decode_records(part.records or b"", 0)}
        except WireError as error:
            self.simulation.ledger.report_violation("bad-crc", str(error))
            return
        rows = [(x.first_offset, x.last_offset, x.delivery_count) for x in part.acquired_records]
        given = [offset for first, last, _ in rows for offset in range(first, last + 1)]
        if not there.issuperset(given):
            missing = sorted(set(given) - there)
            self.simulation.ledger.report_violation(
                "share-hole", f"{place}: {missing} came to {self.id} without a record"
            )
        self._locks.on_acquired(hold, place, self._key(place), rows, began_s)
        if given:
            self.simulation.trace_event(f"{self.id} took {place} {rows}")
        for offset in given:
            self._schedule_verdict(session, place, offset)


def _batches(offsets: Mapping[int, int], kind: Any) -> list[Any]:
    """Return acknowledgement batches of adjacent offsets, with one type for all or one for each offset."""
    out = []
    for _, some in groupby(enumerate(sorted(offsets)), key=lambda x: x[1] - x[0]):
        run = [offset for _, offset in some]
        types = [offsets[offset] for offset in run]
        out.append(kind(run[0], run[-1], types[:1] if len(set(types)) == 1 else types))
    return out
