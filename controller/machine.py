"""The controller machine: one request or event in, records and an answer out; replayed records make the image.

It joins the control areas (`brokers`, `heartbeats`, and through `areas` all others) and knows nothing of disks, sockets
or quorums: a quorum of one and a quorum of many drive it alike. Source: ``QuorumController.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.controller import brokers, heartbeats
from ottla.controller.decision import Decision, Defaults, Spend, Steps, at_once, unbounded
from ottla.controller.delta import Delta, between
from ottla.controller.draft import Draft
from ottla.controller.image import Image
from ottla.controller.leases import SESSION_KEY, SESSION_MS, Absences, Leases
from ottla.controller.periodic import Chore, Sight
from ottla.controller.placement import Chance
from ottla.wire.messages import broker_heartbeat as bh
from ottla.wire.messages import broker_registration as br
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.controller.fast_fencing import Probes


class ControllerMachine:
    """Hard state: two images. What is decided is decided on the ``latest``; only what is committed is seen."""

    def __init__(
        self,
        defaults: Defaults,
        new_id: Callable[[], bytes],
        node_id: int = 1,
        cluster_id: str = "",
        chance: Chance = lambda: 0.0,
    ) -> None:
        self.defaults = defaults
        self.node_id = node_id
        self.kraft_version = 1
        """The quorum's own level: its records lie outside the image."""
        self.static_voters: tuple[int, ...] = ()
        """Controllers that are fixed by configuration."""
        self.image = Image()
        """The newest committed one."""
        self.latest = Image()
        """With everything that was appended."""
        self.cluster_id = cluster_id
        self.contacts = heartbeats.Contacts()
        """Soft state: what brokers said last."""
        self.leases = Leases(int(defaults.broker.get(SESSION_KEY, SESSION_MS)))
        """Soft state: which brokers count as alive."""
        self.absences = Absences()
        """Soft state: since when brokers are away."""
        self.new_id = new_id
        self.chance = chance
        self.spend: Spend = unbounded
        """Who counts what the next request changes."""
        self._draft: Draft | None = None
        self._transaction: list[Message] | None = None
        self._held: list[Message] | None = None
        """What stood in the open transaction when the image was taken."""

    @cached_property
    def probes(self) -> Probes:
        """Soft state, of a controller that stands by too: which brokers a probe has reached."""
        from ottla.controller.fast_fencing import Probes  # a node alone probes nobody

        return Probes()

    def activated(self, now_ms: float, own: int | None = None) -> None:
        """Become the active controller: soft state begins anew. ``own``: the broker of this very process."""
        self.contacts.forget()
        self.absences.forget()
        self.leases.began(self.latest, now_ms, own)

    def decide(
        self, event: Any, version: int = 0, next_offset: int = 0, now_ms: float = 0, wall_ms: int = 0
    ) -> Decision | Steps:
        """What the rules say to one event, against the latest image; its records would begin at ``next_offset``.

        ``now_ms`` is of the monotonic clock, as what `leases` hear; ``wall_ms`` of the other one.
        """
        image, static = self.latest, self.defaults.broker
        match event:
            case br.BrokerRegistrationRequest():
                cluster = brokers.Cluster(self.cluster_id, self.kraft_version, self.leases, now_ms)
                return brokers.register(image, event, next_offset, static, cluster)
            case bh.BrokerHeartbeatRequest():
                return heartbeats.heartbeat(image, self.contacts, self.leases, event, next_offset, static)
            case Chore():
                return event.decide(Sight(image, self.leases, self.absences, static, now_ms, wall_ms))
            case _:
                from ottla.controller import areas  # a node that idles gets no other

                return areas.decide(self, event, version)

    def replay(self, offset: int, record: Message) -> None:
        """Take one appended record in. Records inside a metadata transaction wait for its end."""
        match record:
            case m.BeginTransactionRecord():
                self._transaction = []
            case m.EndTransactionRecord():
                for held in self._transaction or ():
                    self._take(held)
                self._transaction = None
            case m.AbortTransactionRecord():
                self._transaction = None
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case m.RegisterBrokerRecord():
                self.contacts.registered(record.broker_id, max(offset, record.broker_epoch))
                self._take(record)
            case m.BrokerRegistrationChangeRecord():
                self.contacts.changed(record.broker_id, is_fenced=record.fenced > 0)
                self._take(record)
            case _:
                self._take(record)

    def start_over(self) -> None:
        """What is replayed from now on makes the image from nothing: a snapshot takes the place of all before."""
        self._draft = Draft(Image())
        self._transaction = self._held = None

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction was begun and not ended."""
        return self._transaction is not None

    def _take(self, record: Message) -> None:
        if self._draft is None:
            self._draft = Draft(self.image)
        self._draft.take(record)

    def appended(self, offset: int, epoch: int) -> None:
        """Everything up to ``offset`` was replayed: what comes next is decided on it."""
        at_once(self.appending(offset, epoch))

    def appending(self, offset: int, epoch: int) -> Generator[None, None, None]:
        """As `appended`, in steps: where many topics changed."""
        if self._draft is None:
            self._draft = Draft(self.image)
        self.latest = yield from self._draft.imaging(offset, epoch)

    def publish(self) -> tuple[Image, Delta]:
        """Everything appended is committed: the image to be seen from now on, and what changed since the last one."""
        return at_once(self.publishing())

    def publishing(self) -> Generator[None, None, tuple[Image, Delta]]:
        """As `publish`, in steps; the new image is seen after the last one."""
        draft, image = self._draft or Draft(self.image), self.latest
        delta = yield from draft.comparing(image) if draft.base is self.image else between(self.image, image)
        self.image, self._draft = image, None
        self._held = None if self._transaction is None else list(self._transaction)
        return image, delta

    def revert(self) -> None:
        """What is not committed never was: leadership is lost."""
        self._draft = None
        self._transaction = None if self._held is None else list(self._held)
        self.latest = self.image
