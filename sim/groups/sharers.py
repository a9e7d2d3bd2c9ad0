"""Members of a share group (KIP-932): they take records, and say of each what became of it.

They accept, release, reject and renew, one by one or many at once, with a request of its own or with their next fetch;
some records they keep until their lock is over. A member has one session with each broker it fetches from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.share.sessions import TopicIdPartition as SharedPlace
from ottla.peers.decoding import decode_records
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages import share_acknowledge as sa
from ottla.wire.messages import share_fetch as sf
from ottla.wire.messages import share_group_heartbeat as hb
from sim.clients import PAUSE_S, Address, Again, Service, Unsure
from sim.groups.locks import ACCEPT, REJECT, RELEASE, RENEW, Hold, Locks
from sim.groups.seats import Member, Over
from sim.history import Place

if TYPE_CHECKING:
    from sim.world import World

LEAVING = CLOSING = -1
LAST_EPOCH = 2**31 - 1
BEATS_S = 0.7
TURN_S = 0.25
LONGEST_WORK_S = 1.0
LATE_SHARE, LATE_WORK_S = 0.15, 5.0
"""Of the records, and how long a member may take for them: longer than it has."""
VERDICTS = ((ACCEPT, 0.68), (RELEASE, 0.12), (REJECT, 0.06), (RENEW, 0.09))
"""With their shares; the rest is kept for too long."""
KEPT = 0
KEPT_S = 4.0
"""Longer than a lock lasts."""
FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
NO_SESSION = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


class Sharing(NamedTuple):
    """What the members of a group have in common."""

    group: str
    locks: Locks
    ids: Mapping[bytes, str]
    topics: tuple[str, ...]


@dataclass(slots=True)
class Session:
    """With one broker."""

    epoch: int = 0
    places: set[Place] = field(default_factory=set)
    ready: dict[Place, dict[int, tuple[float, int]]] = field(default_factory=dict)
    """Of each record that is here: when the member is done with it, and what it will say then."""


class ShareMember(Member):
    """One life of a member."""

    def __init__(self, world: World, name: str, service: Service, shared: Sharing) -> None:
        super().__init__(world, name, service, shared.group)
        self._shared = shared
        self._locks = shared.locks
        self.epoch = 0
        self.wants: tuple[str, ...] = ()
        self.change()
        self._said: tuple[str, ...] | None = None
        self.assigned: set[Place] = set()
        self._next_beat_s = 0.0
        self._sessions: dict[Address, Session] = {}
        self._topic_ids = {name: topic_id for topic_id, name in shared.ids.items()}

    def change(self) -> None:
        """Subscribe to something else."""
        topics = self._shared.topics
        self.wants = self.world.rng.choice((topics, topics, topics[:1], topics[1:]))

    def over(self) -> None:
        """Its process is gone."""
        self._locks.lost(self.id)

    def drop(self) -> None:
        """With its connections its sessions end, and what it has there."""
        super().drop()
        self._sessions.clear()
        self._locks.lost(self.id)

    async def run(self) -> None:
        """Be a member until it has left."""
        while True:
            if self.calm:
                self.wants = self._shared.topics
            try:
                if self.world.now_s() >= self._next_beat_s:
                    await self._beat()
                await self._turn()
                if self.leaving:
                    await self._leave()
            except Again as error:
                self.world.note(f"{self.name} {self.epoch}: {error}")
                self.forget_leaders()
                await self.sleep(PAUSE_S * (0.5 + self.world.rng.random()))
            await self.sleep(TURN_S * (0.5 + self.world.rng.random()))

    # ------------------------------------------------------------------ membership

    async def _beat(self) -> None:
        request = hb.ShareGroupHeartbeatRequest(self.group, self.id, self.epoch)
        wants = self.wants
        if self.epoch == 0 or self._said != wants:
            request.subscribed_topic_names = list(wants)
        self._said = None
        answer = await self.coordinator(request, 1)
        code = answer.error_code
        self.check_sane(code, "heartbeat")
        if code in FENCED:
            self.epoch = 0
            self.assigned = set()
        if code:
            raise Again(ErrorCode(code).name)
        self._said = wants
        self.epoch = answer.member_epoch
        self.heard_s = self.world.now_s()
        self._next_beat_s = self.heard_s + BEATS_S
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            self.assigned = {(self._shared.ids[row.topic_id], number) for row in rows for number in row.partitions}
            self.world.note(f"{self.id} epoch {self.epoch}: {sorted(self.assigned)}")

    async def _leave(self) -> None:
        """End every session, and say goodbye. Raises: Again, Over."""
        for address, session in list(self._sessions.items()):
            if session.epoch:
                self._locks.lost(self.id)
                await self.call(sf.ShareFetchRequest(self.group, self.id, CLOSING, 0, 0, 0), 2, address)
        self._sessions.clear()
        answer = await self.coordinator(hb.ShareGroupHeartbeatRequest(self.group, self.id, LEAVING), 1)
        self.check_sane(answer.error_code, "goodbye")
        raise Over("left")

    # ------------------------------------------------------------------ records

    async def _turn(self) -> None:
        """Say what is to be said, then take more. Raises: Again."""
        by_address: dict[Address, set[Place]] = {address: set() for address in self._sessions}
        for place in sorted(self.assigned):
            by_address.setdefault(await self.leader(*place), set()).add(place)
        for address, places in by_address.items():
            session = self._sessions.setdefault(address, Session())
            said = self._verdicts(session)
            if said and (self.world.rng.random() < 0.7 or any(RENEW in x.values() for x in said.values())):
                await self._acknowledge(address, session, said)
                said = {}
            await self._fetch(address, session, places, said)

    def _verdicts(self, session: Session) -> dict[Place, dict[int, int]]:
        """What is to be said now, by partition and offset. Renewals go alone."""
        now = self.world.now_s()
        renews = self.world.rng.random() < 0.5
        out: dict[Place, dict[int, int]] = {}
        for place, ready in session.ready.items():
            for offset in [x for x, (at, kind) in ready.items() if kind == KEPT and at + KEPT_S < now]:
                del ready[offset]
            done = {x: kind for x, (at, kind) in ready.items() if at <= now and kind != KEPT}
            some = {x: kind for x, kind in done.items() if renews == (kind == RENEW)}
            if some and session.epoch:
                out[place] = some
        return out

    def _done(self, session: Session, said: Mapping[Place, Mapping[int, int]]) -> dict[Place, dict[int, Hold]]:
        """They are on their way."""
        holds = {}
        for place, offsets in said.items():
            holds[place] = self._locks.says(self.id, place, offsets)
            for offset, kind in offsets.items():
                del session.ready[place][offset]
                if kind == RENEW:
                    self._take(session, place, offset)
        return holds

    def _take(self, session: Session, place: Place, offset: int) -> None:
        rng = self.world.rng
        chance, verdict = rng.random(), KEPT
        for kind, share in VERDICTS:
            if chance < share:
                verdict = kind
                break
            chance -= share
        late = rng.random() < LATE_SHARE and not self.calm
        at = self.world.now_s() + rng.random() * (LATE_WORK_S if late else LONGEST_WORK_S)
        session.ready.setdefault(place, {})[offset] = (at, ACCEPT if self.calm else verdict)

    async def _acknowledge(self, address: Address, session: Session, said: dict[Place, dict[int, int]]) -> None:
        renews = any(RENEW in x.values() for x in said.values())
        holds, before_s = self._done(session, said), self._clock(address)
        topics: dict[str, list[sa.AcknowledgePartition]] = {}
        for (topic, number), offsets in said.items():
            part = sa.AcknowledgePartition(number, _batches(offsets, sa.AcknowledgementBatch))
            topics.setdefault(topic, []).append(part)
        rows = [sa.AcknowledgeTopic(self._topic_ids[name], parts) for name, parts in topics.items()]
        request = sa.ShareAcknowledgeRequest(self.group, self.id, session.epoch, renews, rows)
        cuts = self.world.ledger.power_cuts
        answer = await self.call(request, 2, address)
        self._check_session(address, session, answer.error_code)
        for topic in answer.responses:
            for part in topic.partitions:
                place = (self._shared.ids[topic.topic_id], part.partition_index)
                self._settled(place, part.error_code, said[place], holds[place], cuts)
                if renews and not part.error_code:
                    until_s = before_s + answer.acquisition_lock_timeout_ms / 1000
                    self._locks.renewed(self.id, place, said[place].keys(), until_s)

    def _settled(
        self, place: Place, code: int, offsets: Mapping[int, int], holds: Mapping[int, Hold], cuts: int
    ) -> None:
        self.check_sane(0 if code == ErrorCode.INVALID_REQUEST else code, "acknowledgement")
        if not code and cuts == self.world.ledger.power_cuts:
            self._locks.taken(place, offsets, holds)
        if code in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST):
            self._locks.refused(self._key(place), place, offsets, holds)

    def _check_session(self, address: Address, session: Session, code: int) -> None:
        """Count a session on, or forget it. Raises: Again."""
        if code in NO_SESSION:
            self._sessions.pop(address, None)
            self._locks.lost(self.id)
        self.check_sane(code, "session")
        if code:
            raise Again(ErrorCode(code).name)
        session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1

    def _key(self, place: Place) -> SharedPlace:
        return SharedPlace(self._topic_ids[place[0]], place[1])

    def _clock(self, address: Address) -> float:
        return self.world.host(address[0]).clock.monotonic_s()

    async def _fetch(
        self, address: Address, session: Session, places: set[Place], said: dict[Place, dict[int, int]]
    ) -> None:
        """Take records, and say what is said on the way. Raises: Again."""
        rng = self.world.rng
        places = places | {place for place, ready in session.ready.items() if ready}
        if not places and not session.epoch:
            return
        holds = self._done(session, said)
        topics: dict[str, list[sf.FetchPartition]] = {}
        for place in sorted((places - session.places) | said.keys()):
            batches = _batches(said.get(place, {}), sf.AcknowledgementBatch)
            topics.setdefault(place[0], []).append(sf.FetchPartition(place[1], 0, batches))
        forgotten = [
            sf.ForgottenTopic(self._topic_ids[name], [x[1] for x in some])
            for name, some in groupby(sorted(session.places - places), key=lambda x: x[0])
        ]
        rows = [sf.FetchTopic(self._topic_ids[name], parts) for name, parts in topics.items()]
        request = sf.ShareFetchRequest(
            *(self.group, self.id, session.epoch, 150, 1, 1 << 20),
            *(1 + int(rng.random() * 12), 1 + int(rng.random() * 8), int(rng.random() * 2), False),
            *(rows, forgotten),
        )
        before = {place: self._locks.sight(address[0], self._key(place), self.id) for place in places}
        asked_s, began_s, cuts = self._clock(address), self.world.now_s(), self.world.ledger.power_cuts
        try:
            answer = await self.call(request, 2, address)
        except Unsure:
            for place in places:
                self._locks.unsure[place] = self._locks.unsure.get(place, 0) + 1
            raise
        self._check_session(address, session, answer.error_code)
        session.places = places
        until_s = asked_s + answer.acquisition_lock_timeout_ms / 1000
        for topic in answer.responses:
            for part in topic.partitions:
                place = (self._shared.ids[topic.topic_id], part.partition_index)
                if place in said:
                    self._settled(place, part.acknowledge_error_code, said[place], holds[place], cuts)
                sight = self._locks.sight(address[0], self._key(place), self.id)
                old = before.get(place)
                same = old is not None and sight is not None and old.shared is sight.shared
                hold = Hold(self.id, address[0], until_s, sight if same else None, self.world.now_s())
                self._took(session, place, part, hold, began_s)

    def _took(self, session: Session, place: Place, part: Any, hold: Hold, began_s: float) -> None:
        """One partition of an answer."""
        self.check_sane(part.error_code, "fetch")
        if part.error_code:
            self.world.note(f"{self.name}: {place}: {ErrorCode(part.error_code).name}")
            self.forget_leaders()
            return
        try:
            there = {x.offset for x in decode_records(part.records or b"", 0)}
        except WireError as error:
            self.world.ledger.violation("bad-crc", str(error))
            return
        rows = [(x.first_offset, x.last_offset, x.delivery_count) for x in part.acquired_records]
        given = [offset for first, last, _ in rows for offset in range(first, last + 1)]
        if not there.issuperset(given):
            missing = sorted(set(given) - there)
            self.world.ledger.violation("share-hole", f"{place}: {missing} came to {self.id} without a record")
        self._locks.got(hold, place, self._key(place), rows, began_s)
        if given:
            self.world.note(f"{self.id} took {place} {rows}")
        for offset in given:
            self._take(session, place, offset)


def _batches(offsets: Mapping[int, int], kind: Any) -> list[Any]:
    """Neighbours as one batch, with a type for each, or one for all where they are alike."""
    out = []
    for _, some in groupby(enumerate(sorted(offsets)), key=lambda x: x[1] - x[0]):
        run = [offset for _, offset in some]
        types = [offsets[offset] for offset in run]
        out.append(kind(run[0], run[-1], types[:1] if len(set(types)) == 1 else types))
    return out
