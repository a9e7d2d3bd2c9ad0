"""StreamsGroupHeartbeat: a member joins, remains or leaves, and the group is updated.

Records are in Kafka's order: a tombstone of an empty classic group, the member (19), the topology (23), the group's
epoch (17), targets (21), their epoch (20), the member's current assignment (22).

Source: ``GroupMetadataManager.streamsGroupHeartbeat`` and what it calls (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH
from ottla.broker.groups.streams import records
from ottla.broker.groups.streams.configured_topology import (
    ConfiguredInternalTopic,
    ConfiguredTopology,
    configure_topology,
)
from ottla.broker.groups.streams.endpoint_partitions import build_endpoint_partitions
from ottla.broker.groups.streams.groups import StreamsGroups
from ottla.broker.groups.streams.owned_tasks import ReportedTasks, check_epoch, check_tasks_exist, owned_tasks
from ottla.broker.groups.streams.reconciliation import StreamsMemberTarget, check_member_state, reconcile
from ottla.broker.groups.streams.status import StreamsGroupStatus
from ottla.broker.groups.streams.streams_group import (
    EMPTY_TASKS,
    StreamsGroup,
    StreamsGroupMember,
    TasksTuple,
    TasksTupleWithEpochs,
)
from ottla.broker.groups.streams.target_assignment import (
    capture_input,
    compute_and_write_targets,
    work_units,
)
from ottla.broker.groups.streams.topology import StreamsTopology, from_request
from ottla.jobs.state_machine import RequestReply
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import streams_group_heartbeat


@dataclass(slots=True)
class StreamsHeartbeatResult:
    """Response to a StreamsGroupHeartbeat, and the internal topics by name that the caller must create."""

    response: streams_group_heartbeat.StreamsGroupHeartbeatResponse
    internal_topics_to_create: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)


def heartbeat(groups: StreamsGroups, pending: Any, now_ms: int, *, call: GroupRequest) -> GroupEffects:
    """Return the effects of a StreamsGroupHeartbeat; the reply to ``pending`` is a `StreamsHeartbeatResult`.

    Groups and members change when the records are replayed; caches, the initial delay and a requested shutdown change
    at once. For a large group the continuation of the effects computes the targets and fills in the response, which is
    sent after it. ``now_ms``: wall clock.

    Raises:
        ProtocolError: error of the response.
    """
    beaten = StreamsHeartbeatResult(streams_group_heartbeat.StreamsGroupHeartbeatResponse())
    fx = GroupEffects(replies=[RequestReply(pending, beaten)])
    if call.request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
        _leave(groups, call, beaten, fx)
    else:
        _StreamsHeartbeat(groups, call, beaten, now_ms, fx).run()
    return fx


def _leave(groups: StreamsGroups, call: GroupRequest, beaten: StreamsHeartbeatResult, fx: GroupEffects) -> None:
    request: streams_group_heartbeat.StreamsGroupHeartbeatRequest = call.request
    group = groups.require_group(request.group_id)
    if request.shutdown_application and group.shutdown_requested_by is None:
        group.shutdown_requested_by = request.member_id
    groups.fence_member(group, group.require_member(request.member_id).id, fx)
    beaten.response = streams_group_heartbeat.StreamsGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=LEAVE_GROUP_MEMBER_EPOCH, status=[]
    )


class _StreamsHeartbeat:
    """Processing of a StreamsGroupHeartbeat request of a member that joins or stays."""

    def __init__(
        self, groups: StreamsGroups, call: GroupRequest, beaten: StreamsHeartbeatResult, now_ms: int, fx: GroupEffects
    ) -> None:
        self._groups = groups
        self._call = call
        self._result = beaten
        self._request: streams_group_heartbeat.StreamsGroupHeartbeatRequest = call.request
        self._now_ms = now_ms
        self._fx = fx
        self._status: list[streams_group_heartbeat.Status] = []
        self._reported_tasks: ReportedTasks = (
            self._request.active_tasks,
            self._request.standby_tasks,
            self._request.warmup_tasks,
        )

    def run(self) -> None:
        """Update the member by its request, then the group; add records, timers and the response to the effects.

        In a large group a new target assignment is computed by the continuation of the effects, which adds its records
        and the response.

        Raises:
            ProtocolError: error of the response.
        """
        groups, fx = self._groups, self._fx
        group, member = self._member()
        updated = self._updated_member(member)
        bump = updated != member
        if bump:
            fx.records.append(records.member_record(group.id, updated))
        topology = self._topology(group)
        if group.topology is not None and updated.topology_epoch < group.topology.epoch:
            why = (
                f"The member's topology epoch {updated.topology_epoch} is behind the group's topology epoch "
                f"{group.topology.epoch}."
            )
            self._add_status(StreamsGroupStatus.STALE_TOPOLOGY, why)
        configured, metadata_hash = self._configured(group, topology)
        validated = topology.epoch if configured.is_ready else -1
        if configured.is_ready:
            check_tasks_exist(configured.subtopologies or {}, self._reported_tasks)
        configs = groups.assignor_configs(group.id)
        bump = bump or metadata_hash != group.metadata_hash or validated != group.validated_epoch
        epoch = group.epoch
        if bump or configs != group.configs:
            epoch += 1
            fx.records.append(records.epoch_record(group.id, epoch, metadata_hash, validated, configs))
        group.hash_checked_epoch = epoch
        owned = owned_tasks(self._reported_tasks)
        check_member_state(member, owned)
        groups.delay_first_assignment(group, self._now_ms, fx)

        def finish(target_epoch: int, target: TasksTuple, out: GroupEffects) -> None:
            self._finish(group, member, updated, StreamsMemberTarget(target_epoch, target, owned), configured, out)

        if group.id in groups.delayed_groups:
            self._add_status(
                StreamsGroupStatus.ASSIGNMENT_DELAYED,
                "Assignment delayed due to the configured initial rebalance delay.",
            )
            finish(group.target_epoch, EMPTY_TASKS, fx)
        elif group.target_epoch >= epoch:
            finish(group.target_epoch, group.target.get(updated.id, EMPTY_TASKS), fx)
        elif not group.is_assignment_due(groups.setting(group.id, "assignment.interval.ms"), self._now_ms):
            self._add_status(
                StreamsGroupStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval."
            )
            finish(group.target_epoch, group.target.get(updated.id, EMPTY_TASKS), fx)
        else:
            assignment_input = capture_input(group, epoch, updated, configured, configs, self._now_ms)
            fx.continue_with(
                compute_and_write_targets(assignment_input, updated.id, finish), work_units(assignment_input)
            )

    def _add_status(self, status: StreamsGroupStatus, detail: str) -> None:
        self._status.append(streams_group_heartbeat.Status(status, detail))

    def _member(self) -> tuple[StreamsGroup, StreamsGroupMember]:
        groups, request = self._groups, self._request
        if request.member_epoch != 0:
            group = groups.require_group(request.group_id, "Streams group")
            member = group.require_member(request.member_id)
            check_epoch(member, request.member_epoch, self._reported_tasks)
            return group, member
        group = groups.get_or_create_group(request.group_id, self._fx)
        if len(group.members) >= groups.settings.max_size:
            why = f"The streams group has reached its maximum capacity of {groups.settings.max_size} members."
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        return group, group.members.get(request.member_id) or StreamsGroupMember(request.member_id)

    def _updated_member(self, member: StreamsGroupMember) -> StreamsGroupMember:
        """Return a copy of the member with the fields of the request; omitted fields are unchanged.

        Raises:
            ProtocolError: UNKNOWN_SERVER_ERROR: a client tag is repeated.
        """
        request, endpoint, tags = self._request, self._request.user_endpoint, self._request.client_tags
        named = {} if tags is None else {tag.key: tag.value for tag in tags}
        if tags is not None and len(named) < len(tags):
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka
        timeout = request.rebalance_timeout_ms
        return replace(
            member,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == -1 else timeout,
            topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
            client_id=self._call.client_id,
            client_host=f"/{self._call.client_host}",
            process_id=member.process_id if request.process_id is None else request.process_id,
            endpoint=member.endpoint if endpoint is None else (endpoint.host, endpoint.port),
            tags=member.tags if tags is None else records.sorted_tags(named),
        )

    def _topology(self, group: StreamsGroup) -> StreamsTopology:
        """Return the topology of the group; that of the first heartbeat with one is added to the effects as a record.

        Raises:
            ProtocolError: INVALID_REQUEST: the request has another topology, of no older epoch; UNKNOWN_SERVER_ERROR:
                there is no topology.
        """
        if self._request.topology is None:
            if group.topology is None:
                raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)  # only if the topology record is missing in the log
            return group.topology
        topology = from_request(self._request.topology)
        if group.topology is None:
            self._fx.records.append(records.topology_record(group.id, topology))
            return topology
        if group.topology.epoch <= topology.epoch and not group.topology.has_same_content(topology):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return group.topology

    def _configured(self, group: StreamsGroup, topology: StreamsTopology) -> tuple[ConfiguredTopology, int]:
        """Return the configured topology and the metadata hash.

        The hash is computed again if it is stale, and the topology configured again if the hash has changed.

        Raises:
            ProtocolError: as `configure_topology`.
        """
        known = group.configured
        if group.topology is not None and known is not None and not group.is_metadata_stale:
            return known, group.metadata_hash
        topics = self._groups.topics
        metadata_hash = topics.hash_of(topology.required_topics)
        if known is None or group.topology is None or metadata_hash != group.metadata_hash:
            known = group.configured = configure_topology(topology, topics.image)
            group.cached_endpoint_partitions.clear()
        return known, metadata_hash

    def _finish(
        self,
        group: StreamsGroup,
        member: StreamsGroupMember,
        updated: StreamsGroupMember,
        goal: StreamsMemberTarget,
        configured: ConfiguredTopology,
        fx: GroupEffects,
    ) -> None:
        """Reconcile the member with its target ``goal``, fill in the response, and restart the session timeout.

        The caller of the heartbeat gets the missing internal topics of ``configured``, to create them.
        """
        groups, request = self._groups, self._request
        moved = updated if updated.is_reconciled_to(goal.epoch) else reconcile(updated, goal, group)
        if moved != updated:
            fx.records.append(records.current_assignment_record(group.id, moved))
            groups.watch_revocation(group.id, moved, self._now_ms, fx)
        groups.arm_session(group.id, moved, self._now_ms, fx)
        self._result.response = response = streams_group_heartbeat.StreamsGroupHeartbeatResponse(
            member_id=moved.id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=groups.setting(group.id, "heartbeat.interval.ms"),
            status=self._status,
        )
        if request.member_epoch == 0 or member.assigned != moved.assigned:
            _set_response_tasks(response, moved.assigned)
            group.cached_endpoint_partitions.pop(moved.id, None)
            group.endpoint_epoch += moved.endpoint is not None
        if group.endpoint_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = build_endpoint_partitions(group, moved, groups.topics.image)
        if group.id in groups.groups:
            response.endpoint_information_epoch = group.endpoint_epoch
        if configured.problem is not None:
            self._add_status(*configured.problem)
            self._result.internal_topics_to_create = configured.missing_internal_topics
        if request.shutdown_application and group.shutdown_requested_by is None:
            group.shutdown_requested_by = updated.id
        if group.shutdown_requested_by is not None:
            why = (
                f"Streams group member {group.shutdown_requested_by} encountered a fatal error and requested a shutdown"
            )
            self._add_status(StreamsGroupStatus.SHUTDOWN_APPLICATION, f"{why} for the entire application.")


def _set_response_tasks(
    response: streams_group_heartbeat.StreamsGroupHeartbeatResponse, held: TasksTupleWithEpochs
) -> None:
    row = streams_group_heartbeat.StreamsGroupHeartbeatResponseTaskIds
    parts = [[row(name, sorted(tasks[name])) for name in iteration_order.hash_map_order(tasks)] for tasks in held]
    response.active_tasks, response.standby_tasks, response.warmup_tasks = parts
