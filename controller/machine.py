"""The controller machine: one request or event in, records and an answer out; replayed records make the image.

It joins the control areas (`topics`, `configs`, `brokers`) and knows nothing of disks, sockets or quorums: a quorum
of one and a quorum of many drive it alike. Source: ``QuorumController.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ottla.controller import (
    brokers,
    configs,
    elections,
    fast_fencing,
    features,
    heartbeats,
    isr,
    places,
    reassignments,
    topics,
    widening,
)
from ottla.controller.config_rules import MIN_ISR
from ottla.controller.decision import Decision, Defaults, Steps, at_once
from ottla.controller.delta import Delta, between
from ottla.controller.draft import Draft
from ottla.controller.healing import Absences
from ottla.controller.image import Image
from ottla.controller.leases import SESSION_KEY, SESSION_MS, Leases
from ottla.controller.periodic import Chore, Sight
from ottla.controller.placement import Chance
from ottla.wire.messages import allocate_producer_ids as ap
from ottla.wire.messages import alter_configs as ac
from ottla.wire.messages import alter_partition as alp
from ottla.wire.messages import alter_partition_reassignments as ar
from ottla.wire.messages import assign_replicas_to_dirs as ad
from ottla.wire.messages import broker_heartbeat as bh
from ottla.wire.messages import broker_registration as br
from ottla.wire.messages import controller_registration as cr
from ottla.wire.messages import create_partitions as cp
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import delete_topics as dt
from ottla.wire.messages import elect_leaders as el
from ottla.wire.messages import incremental_alter_configs as ia
from ottla.wire.messages import list_partition_reassignments as lr
from ottla.wire.messages import metadata_records as m
from ottla.wire.messages import unregister_broker as ub
from ottla.wire.messages import update_features as uf
from ottla.wire.schema import Message


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
        self.probes = fast_fencing.Probes()
        """Soft state, of a controller that stands by too: which brokers a probe has reached."""
        self._new_id = new_id
        self._chance = chance
        self._draft: Draft | None = None
        self._transaction: list[Message] | None = None
        self._held: list[Message] | None = None
        """What stood in the open transaction when the image was taken."""

    def activated(self, now_ms: float, own: int | None = None) -> None:
        """Become the active controller: soft state begins anew. ``own``: the broker of this very process."""
        self.contacts.forget()
        self.absences.forget()
        self.leases.began(self.latest, now_ms, own)

    def decide(self, event: Any, version: int = 0, next_offset: int = 0, now_ms: float = 0) -> Decision | Steps:
        """What the rules say to one event, against the latest image; its records would begin at ``next_offset``.

        ``now_ms`` is of the monotonic clock, as what `leases` hear.
        """
        image, static = self.latest, self.defaults.broker
        match event:
            case ct.CreateTopicsRequest():
                return topics.create_topics(image, event, version, self.defaults, self._new_id, self._chance)
            case dt.DeleteTopicsRequest():
                return topics.delete_topics(image, event, version)
            case cp.CreatePartitionsRequest():
                return widening.create_partitions(image, event, version, self._chance)
            case ia.IncrementalAlterConfigsRequest():
                return configs.incremental_alter(image, event, version, self.defaults)
            case ac.AlterConfigsRequest():
                return configs.legacy_alter(image, event, version, self.defaults)
            case ap.AllocateProducerIdsRequest():
                return brokers.allocate_producer_ids(image, event)
            case uf.UpdateFeaturesRequest():
                least = static.get(MIN_ISR, "1")
                me = features.Deciding(self.node_id, self.kraft_version, self.static_voters, least)
                return features.update_features(image, event, version, me)
            case ub.UnregisterBrokerRequest():
                return brokers.unregister(image, event, static)
            case br.BrokerRegistrationRequest():
                cluster = brokers.Cluster(self.cluster_id, self.kraft_version, self.leases, now_ms)
                return brokers.register(image, event, next_offset, static, cluster)
            case bh.BrokerHeartbeatRequest():
                return heartbeats.heartbeat(image, self.contacts, self.leases, event, next_offset, static)
            case fast_fencing.Gone():
                return fast_fencing.fence_gone(image, self.leases, self.probes, event, static)
            case Chore():
                return event.decide(Sight(image, self.leases, self.absences, static, now_ms))
            case ad.AssignReplicasToDirsRequest():
                return places.assign(image, event, static)
            case alp.AlterPartitionRequest():
                return isr.alter_partition(image, event, version, static)
            case el.ElectLeadersRequest():
                return elections.elect_leaders(image, event, version, static)
            case ar.AlterPartitionReassignmentsRequest():
                return reassignments.alter_reassignments(image, event, version, static)
            case lr.ListPartitionReassignmentsRequest():
                return reassignments.list_reassignments(self.image, event, version)
            case cr.ControllerRegistrationRequest():
                return brokers.register_controller(event)
            case _:
                raise AssertionError(f"no control area handles {event!r}")

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
