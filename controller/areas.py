"""Which control area decides a request, for all requests but those of a node that idles (`machine` has them).

An area and its messages load with the first of its requests: most nodes never see most of them.
Source: ``ControllerApis.scala``, ``QuorumController.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ottla.controller.config_rules import MIN_ISR
from ottla.controller.decision import Decision, Defaults, Spend, Steps
from ottla.controller.image import Image
from ottla.controller.leases import Leases
from ottla.controller.placement import Chance

if TYPE_CHECKING:
    from ottla.controller.fast_fencing import Probes


class Decider(Protocol):
    """What an area may look at of the machine: `ottla.controller.machine.ControllerMachine`."""

    defaults: Defaults
    node_id: int
    kraft_version: int
    static_voters: tuple[int, ...]
    image: Image
    latest: Image
    leases: Leases
    new_id: Callable[[], bytes]
    chance: Chance
    spend: Spend

    @property
    def probes(self) -> Probes:
        """Which processes of brokers a probe has reached."""


Rule = Callable[[Decider, Any, int], Decision | Steps]


def decide(machine: Decider, event: Any, version: int) -> Decision | Steps:
    """What the rules say to one event, against the machine's latest image."""
    rule = RULES.get(type(event).__name__)
    assert rule is not None, f"no control area handles {event!r}"
    return rule(machine, event, version)


def _create_topics(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.topics import Making, create_topics

    making = Making(machine.defaults, machine.new_id, machine.chance, machine.spend)
    return create_topics(machine.latest, event, version, making)


def _delete_topics(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.topics import delete_topics

    return delete_topics(machine.latest, event, version, machine.spend)


def _create_partitions(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.widening import create_partitions

    return create_partitions(machine.latest, event, version, machine.chance, machine.spend)


def _incremental_alter_configs(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.configs import incremental_alter

    return incremental_alter(machine.latest, event, version, machine.defaults)


def _alter_configs(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.configs import legacy_alter

    return legacy_alter(machine.latest, event, version, machine.defaults)


def _allocate_producer_ids(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.brokers import allocate_producer_ids

    return allocate_producer_ids(machine.latest, event)


def _create_acls(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.acls import create_acls

    return create_acls(machine.latest, event, machine.new_id, machine.defaults.broker)


def _alter_client_quotas(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.quotas import alter_client_quotas

    return alter_client_quotas(machine.latest, event)


def _delete_acls(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.acls import delete_acls

    return delete_acls(machine.latest, event, machine.defaults.broker)


def _update_features(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.features import Deciding, update_features

    least = machine.defaults.broker.get(MIN_ISR, "1")
    me = Deciding(machine.node_id, machine.kraft_version, machine.static_voters, least)
    return update_features(machine.latest, event, version, me)


def _unregister_broker(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.brokers import unregister

    return unregister(machine.latest, event, machine.defaults.broker)


def _register_controller(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.brokers import register_controller

    return register_controller(event)


def _gone(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.fast_fencing import fence_gone

    return fence_gone(machine.latest, machine.leases, machine.probes, event, machine.defaults.broker)


def _assign_replicas_to_dirs(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.places import assign

    return assign(machine.latest, event, machine.defaults.broker)


def _alter_partition(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.isr import alter_partition

    return alter_partition(machine.latest, event, version, machine.defaults.broker)


def _elect_leaders(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.elections import elect_leaders

    return elect_leaders(machine.latest, event, version, machine.defaults.broker)


def _alter_reassignments(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.reassignments import alter_reassignments

    return alter_reassignments(machine.latest, event, version, machine.defaults.broker)


def _list_reassignments(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.reassignments import list_reassignments

    return list_reassignments(machine.image, event, version)


def _alter_scram(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.scram import alter

    return alter(machine.latest, event)


def _delegation_tokens(machine: Decider, event: Any, version: int) -> Decision | Steps:
    from ottla.controller.delegation_tokens import decide as decide_token

    return decide_token(machine.latest, event, version, machine.defaults.broker, machine.new_id)


RULES: dict[str, Rule] = {
    "CreateTopicsRequest": _create_topics,
    "DeleteTopicsRequest": _delete_topics,
    "CreatePartitionsRequest": _create_partitions,
    "IncrementalAlterConfigsRequest": _incremental_alter_configs,
    "AlterConfigsRequest": _alter_configs,
    "AllocateProducerIdsRequest": _allocate_producer_ids,
    "CreateAclsRequest": _create_acls,
    "DeleteAclsRequest": _delete_acls,
    "AlterClientQuotasRequest": _alter_client_quotas,
    "UpdateFeaturesRequest": _update_features,
    "UnregisterBrokerRequest": _unregister_broker,
    "ControllerRegistrationRequest": _register_controller,
    "Gone": _gone,
    "AssignReplicasToDirsRequest": _assign_replicas_to_dirs,
    "AlterPartitionRequest": _alter_partition,
    "ElectLeadersRequest": _elect_leaders,
    "AlterPartitionReassignmentsRequest": _alter_reassignments,
    "ListPartitionReassignmentsRequest": _list_reassignments,
    "AlterUserScramCredentialsRequest": _alter_scram,
    "TokenAsked": _delegation_tokens,
}
"""By the event's class; by name, so that no message is loaded to be compared with."""
