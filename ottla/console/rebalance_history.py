"""Timeline of the rebalances of groups that this node coordinates: members that joined and left, reasons, durations.

Groups are compared with their last state every `SAMPLE_S` seconds; in between, events of the groups are observed only
for the reasons why members leave. The memory is bounded: `MAX_CONSOLE_REBALANCES` rebalances of each of
`MAX_CONSOLE_GROUPS` groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ottla.broker.config.limits import (
    MAX_CONSOLE_GROUPS,
    MAX_CONSOLE_REBALANCE_MEMBERS,
    MAX_CONSOLE_REBALANCES,
)
from ottla.broker.coordinator.events import TimerExpired
from ottla.broker.coordinator.shard_state import CoordinatorState
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.coordinator import GroupCoordinator, state_machine_of
from ottla.broker.groups.state_machine import GroupStateMachine
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.messages.leave_group import LeaveGroupRequest

SAMPLE_S = 1.0
LEFT = "left"
SESSION_EXPIRED = "session timeout"
REBALANCE_EXPIRED = "rebalance timeout"
_SETTLED_STATES = frozenset({"Stable", "Empty", "Dead"})
_MAX_REASONS = 1_000
_MAX_ID_CHARS = 1_000
"""Group id and member id together: of a member with longer ids, the reason is not stored."""
_REASON_CHARS = 200
_NAME_CHARS = 200
"""Characters of a member id or client id that are kept: clients choose both, up to 32 KiB each."""
_REASON_BY_TIMER = {"session": SESSION_EXPIRED, "join": REBALANCE_EXPIRED, "sync": REBALANCE_EXPIRED}
_REASON_BY_TIMER["rebalance"] = REBALANCE_EXPIRED


class RebalancedMember(NamedTuple):
    """Member that joined or left: id, client id, and why it left; the reason of a member that joined is empty."""

    id: str
    client_id: str
    reason: str


class Rebalance:
    """Rebalance of a group to a new generation (classic groups) or group epoch (other groups)."""

    def __init__(self, at_ms: int, epoch: int) -> None:
        self.at_ms = at_ms
        """Time in milliseconds since 1970 at which it was noticed, or at which a classic group began it."""
        self.epoch = epoch
        self.joined: list[RebalancedMember] = []
        self.left: list[RebalancedMember] = []
        self.joined_count = 0
        self.left_count = 0
        self.duration_ms: int | None = None
        """None while it is not complete."""

    @property
    def has_other_cause(self) -> bool:
        """True if no member joined or left: a subscription, an assignor or a topic has changed."""
        return not self.joined_count and not self.left_count

    def add_members(self, joined: Mapping[str, str], departed: Mapping[str, RebalancedMember]) -> None:
        """Add members by member id: ``joined`` has client ids.

        All are counted; the lists have at most `MAX_CONSOLE_REBALANCE_MEMBERS`, with shortened ids.
        """
        self.joined_count += len(joined)
        self.left_count += len(departed)
        for member, client in joined.items():
            if len(self.joined) < MAX_CONSOLE_REBALANCE_MEMBERS:
                self.joined.append(RebalancedMember(member[:_NAME_CHARS], client[:_NAME_CHARS], ""))
        self.left += list(departed.values())[: MAX_CONSOLE_REBALANCE_MEMBERS - len(self.left)]


class _FollowedGroup:
    """Last known state of a group, and its rebalances."""

    def __init__(self, epoch: int, members: dict[str, str]) -> None:
        self.epoch = epoch
        self.members = members
        """Client id by member id."""
        self.rebalances: deque[Rebalance] = deque(maxlen=MAX_CONSOLE_REBALANCES)
        self.is_seen = True

    @property
    def current(self) -> Rebalance | None:
        """The rebalance that is not complete; None if there is none."""
        last = self.rebalances[-1] if self.rebalances else None
        return last if last is not None and last.duration_ms is None else None


class RebalanceHistory:
    """Rebalances of the groups of this node, from periodic comparison with their last state."""

    def __init__(self, env: Env, coordinator: GroupCoordinator) -> None:
        self._env = env
        self._coordinator = coordinator
        self._groups: dict[str, _FollowedGroup] = {}
        self._machines: set[GroupStateMachine] = set()
        self._reasons: dict[tuple[str, str], str] = {}
        """Why members left since the last sample, by group and member; member ``""``: the whole group."""

    async def run(self) -> None:
        """Take a sample every `SAMPLE_S` seconds until cancelled; then remove the observers of the shards."""
        try:
            while True:
                await run_in_background(self._env, self.sample())
                await self._env.sleep(SAMPLE_S)
        finally:
            for machine in self._machines:
                machine.event_observer = None

    def find(self, group_id: str) -> list[Rebalance]:
        """Return the rebalances of a group, the newest first.

        Empty if there was none since the first sample, or the node does not coordinate the group.
        """
        found = self._groups.get(group_id)
        return [] if found is None else list(reversed(found.rebalances))

    def sample(self) -> Job[None]:
        """Compare the groups with their state in the last sample and store their rebalances, as a job.

        Observes the events of all active shards from then on. Groups that this node does not have any more are removed.
        """
        machines = set()
        for shard in self._coordinator:
            if shard.state is CoordinatorState.ACTIVE:
                machine = state_machine_of(shard)
                machines.add(machine)
                is_new = machine not in self._machines
                machine.event_observer = self.on_event
                for group in _groups_of(machine):
                    self._compare(group, is_new=is_new)
                    yield None
        self._machines = machines
        for group_id in [each for each, followed in self._groups.items() if not followed.is_seen]:
            del self._groups[group_id]
        for followed in self._groups.values():
            followed.is_seen = False
        self._reasons.clear()

    def on_event(self, event: Any) -> None:
        """Store why a member is about to leave its group, for the next sample; called before each event of a shard.

        Events other than expired timers and LeaveGroup requests are ignored.
        """
        if len(self._reasons) >= _MAX_REASONS:
            return
        if type(event) is TimerExpired:
            reason = _REASON_BY_TIMER.get(event.key[0].rpartition("-")[2])
            if reason is not None and len(event.key) > 1:
                self._reasons[event.key[1], event.key[2] if len(event.key) > 2 else ""] = reason
        elif type(event) is GroupRequest and type(event.request) is LeaveGroupRequest:
            group_id = event.request.group_id
            for member in event.request.members[: _MAX_REASONS - len(self._reasons)]:
                if member.reason and len(group_id) + len(member.member_id) <= _MAX_ID_CHARS:
                    self._reasons[group_id, member.member_id] = f"{LEFT}: {member.reason[:_REASON_CHARS]}"

    def _compare(self, group: Any, *, is_new: bool) -> None:
        """Compare a group with its state in the last sample; begin, extend or complete a rebalance if it differs.

        ``is_new``: the group's shard was not in the last sample, so that its present members did not join just now.
        """
        group_id, epoch = group.id, _epoch_of(group)
        followed = self._groups.get(group_id)
        if followed is None:
            if len(self._groups) >= MAX_CONSOLE_GROUPS:
                return
            followed = self._groups[group_id] = (
                _FollowedGroup(epoch, _members_of(group)) if is_new else _FollowedGroup(0, {})
            )
        followed.is_seen = True
        current = followed.current
        is_stable = _state_of(group) in _SETTLED_STATES
        if epoch == followed.epoch and len(group.members) == len(followed.members) and current is None and is_stable:
            return
        now_ms = self._env.now_ms()
        members = _members_of(group)
        joined = {member: client for member, client in members.items() if member not in followed.members}
        left = {
            member: RebalancedMember(member[:_NAME_CHARS], client[:_NAME_CHARS], self._reason(group_id, member))
            for member, client in followed.members.items()
            if member not in members
        }
        if current is None:
            current = Rebalance(_start_ms(group, now_ms), epoch)
            followed.rebalances.append(current)
        current.epoch = epoch
        current.add_members(joined, left)
        followed.epoch, followed.members = epoch, members
        if is_stable:
            current.duration_ms = max(_end_ms(group, now_ms) - current.at_ms, 0)

    def _reason(self, group_id: str, member: str) -> str:
        return self._reasons.get((group_id, member)) or self._reasons.get((group_id, "")) or LEFT


def _groups_of(machine: GroupStateMachine) -> Iterator[Any]:
    """Yield the groups of a shard of all types."""
    yield from list(machine.classic_groups.groups.values())
    yield from machine.list_consumer_groups()
    yield from machine.list_share_groups()
    yield from machine.list_streams_groups()


def _epoch_of(group: Any) -> int:
    """Return the generation of a classic group, or the epoch of another one."""
    epoch: int = group.epoch if hasattr(group, "epoch") else group.generation
    return epoch


def _state_of(group: Any) -> str:
    state = group.state
    return state if isinstance(state, str) else str(state.value)


def _members_of(group: Any) -> dict[str, str]:
    return {member.id: member.client_id for member in group.members.values()}


def _start_ms(group: Any, now_ms: int) -> int:
    """Return the time (ms since 1970) at which a classic group began its rebalance; ``now_ms`` for other groups."""
    since_ms = getattr(group, "state_since_ms", -1)
    return since_ms if since_ms >= 0 and _state_of(group) not in _SETTLED_STATES else now_ms


def _end_ms(group: Any, now_ms: int) -> int:
    """Return the time (ms since 1970) at which a classic group completed its rebalance; ``now_ms`` for other groups."""
    since_ms = getattr(group, "state_since_ms", -1)
    return since_ms if since_ms >= 0 else now_ms
