"""Routing of requests and events of the controller to the function in `control` that decides on them.

Some modules in `control` and their messages are loaded with the first of their requests. Broker registrations and
heartbeats, which every node needs, and periodic tasks are in `controller_state_machine`. Source:
``ControllerApis.scala``, ``QuorumController.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ottla.controller.config.config_validation import MIN_ISR
from ottla.controller.control.alter_partition import alter_partition
from ottla.controller.control.alter_partition_reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from ottla.controller.control.assign_replicas_to_dirs import assign_replicas_to_dirs
from ottla.controller.control.broker_heartbeat_tracker import BrokerHeartbeatTracker
from ottla.controller.control.broker_registration import allocate_producer_ids, register_controller, unregister_broker
from ottla.controller.control.controller_result import ControllerDefaults, ControllerResult, ControllerResultSteps
from ottla.controller.control.create_and_delete_topics import TopicCreationContext, create_topics, delete_topics
from ottla.controller.control.create_partitions import create_partitions
from ottla.controller.control.elect_leaders import elect_leaders
from ottla.controller.control.fast_fencing import fence_refused_broker
from ottla.controller.control.update_features import FeatureUpdateContext, update_features
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.partitions.replica_placer import RandomFunction
from ottla.jobs.pending_request import ChargeQuota

if TYPE_CHECKING:
    from ottla.controller.control.fast_fencing import BrokerProbes


class ControllerStateView(Protocol):
    """Interface to `ottla.controller.controller_state_machine.ControllerStateMachine` that request handlers use."""

    defaults: ControllerDefaults
    node_id: int
    kraft_version: int
    static_voters: tuple[int, ...]
    image: MetadataImage
    latest_image: MetadataImage
    heartbeat_tracker: BrokerHeartbeatTracker
    new_uuid: Callable[[], bytes]
    random: RandomFunction
    charge_quota: ChargeQuota

    @property
    def probes(self) -> BrokerProbes:
        """Broker processes that a probe has reached (fast fencing)."""


RequestHandler = Callable[[ControllerStateView, Any, int], ControllerResult | ControllerResultSteps]


def route_request(machine: ControllerStateView, event: Any, version: int) -> ControllerResult | ControllerResultSteps:
    """Return records and response for a request or event, or a job for them, decided on the latest image.

    Only ListPartitionReassignments is decided on the committed image. ``version``: API version of the request.

    Raises:
        ProtocolError: the request is rejected; a job raises it when it runs.
    """
    rule = REQUEST_HANDLERS.get(type(event).__name__)
    assert rule is not None, f"no control area handles {event!r}"
    return rule(machine, event, version)


def _create_topics(machine: ControllerStateView, event: Any, version: int) -> ControllerResult | ControllerResultSteps:
    creation = TopicCreationContext(machine.defaults, machine.new_uuid, machine.random, machine.charge_quota)
    return create_topics(machine.latest_image, event, version, creation)


def _incremental_alter_configs(
    machine: ControllerStateView, event: Any, version: int
) -> ControllerResult | ControllerResultSteps:
    # lazy: 1.3 ms, 76 kB
    from ottla.controller.control.alter_configs import incremental_alter_configs

    return incremental_alter_configs(machine.latest_image, event, version, machine.defaults)


def _alter_configs(machine: ControllerStateView, event: Any, version: int) -> ControllerResult | ControllerResultSteps:
    # lazy: 1.3 ms, 76 kB
    from ottla.controller.control.alter_configs import alter_configs

    return alter_configs(machine.latest_image, event, version, machine.defaults)


def _create_acls(machine: ControllerStateView, event: Any, version: int) -> ControllerResult | ControllerResultSteps:
    # lazy: 1.3 ms, 72 kB
    from ottla.controller.control.acls import create_acls

    return create_acls(machine.latest_image, event, machine.new_uuid, machine.defaults.static_config)


def _alter_client_quotas(
    machine: ControllerStateView, event: Any, version: int
) -> ControllerResult | ControllerResultSteps:
    # lazy: 1.3 ms, 71 kB
    from ottla.controller.control.client_quotas import alter_client_quotas

    return alter_client_quotas(machine.latest_image, event)


def _delete_acls(machine: ControllerStateView, event: Any, version: int) -> ControllerResult | ControllerResultSteps:
    # lazy: 1.3 ms, 72 kB
    from ottla.controller.control.acls import delete_acls

    return delete_acls(machine.latest_image, event, machine.defaults.static_config)


def _update_features(
    machine: ControllerStateView, event: Any, version: int
) -> ControllerResult | ControllerResultSteps:
    least = machine.defaults.static_config.get(MIN_ISR, "1")
    me = FeatureUpdateContext(machine.node_id, machine.kraft_version, machine.static_voters, least)
    return update_features(machine.latest_image, event, version, me)


def _alter_scram(machine: ControllerStateView, event: Any, version: int) -> ControllerResult | ControllerResultSteps:
    # lazy: 3.5 ms, 104 kB
    from ottla.controller.control.scram_credentials import alter_scram_credentials

    return alter_scram_credentials(machine.latest_image, event)


def _delegation_tokens(
    machine: ControllerStateView, event: Any, version: int
) -> ControllerResult | ControllerResultSteps:
    # lazy: 1.2 ms, 60 kB
    from ottla.controller.control.delegation_tokens import decide_token_request as decide_token

    return decide_token(machine.latest_image, event, version, machine.defaults.static_config, machine.new_uuid)


REQUEST_HANDLERS: dict[str, RequestHandler] = {
    "CreateTopicsRequest": _create_topics,
    "DeleteTopicsRequest": lambda machine, request, version: delete_topics(
        machine.latest_image, request, version, machine.charge_quota
    ),
    "CreatePartitionsRequest": lambda machine, request, version: create_partitions(
        machine.latest_image, request, version, machine.random, machine.charge_quota
    ),
    "IncrementalAlterConfigsRequest": _incremental_alter_configs,
    "AlterConfigsRequest": _alter_configs,
    "AllocateProducerIdsRequest": lambda machine, request, version: allocate_producer_ids(
        machine.latest_image, request
    ),
    "CreateAclsRequest": _create_acls,
    "DeleteAclsRequest": _delete_acls,
    "AlterClientQuotasRequest": _alter_client_quotas,
    "UpdateFeaturesRequest": _update_features,
    "UnregisterBrokerRequest": lambda machine, request, version: unregister_broker(
        machine.latest_image, request, machine.defaults.static_config
    ),
    "ControllerRegistrationRequest": lambda machine, request, version: register_controller(request),
    "BrokerConnectionRefused": lambda machine, request, version: fence_refused_broker(
        machine.latest_image, machine.heartbeat_tracker, machine.probes, request, machine.defaults.static_config
    ),
    "AssignReplicasToDirsRequest": lambda machine, request, version: assign_replicas_to_dirs(
        machine.latest_image, request, machine.defaults.static_config
    ),
    "AlterPartitionRequest": lambda machine, request, version: alter_partition(
        machine.latest_image, request, version, machine.defaults.static_config
    ),
    "ElectLeadersRequest": lambda machine, request, version: elect_leaders(
        machine.latest_image, request, version, machine.defaults.static_config
    ),
    "AlterPartitionReassignmentsRequest": lambda machine, request, version: alter_partition_reassignments(
        machine.latest_image, request, version, machine.defaults.static_config
    ),
    "ListPartitionReassignmentsRequest": lambda machine, request, version: list_partition_reassignments(
        machine.image, request, version
    ),
    "AlterUserScramCredentialsRequest": _alter_scram,
    "TokenRequestContext": _delegation_tokens,
}
"""Handlers by the class name of request or event; by name, so that no message class is imported for a comparison."""
