"""What a quorum promises, looked at after each step."""

from __future__ import annotations

from ottla.controller.raft.events import HardState
from ottla.controller.tests.quorum_hosts import Entry, Host


class Promises:
    """The promises, by the names that Kafka and others know them by."""

    def __init__(self, hosts: dict[int, Host]) -> None:
        self._hosts = hosts
        self.committed: list[Entry] = []
        self.leaders: dict[int, int] = {}
        self.majority_holds = True
        """Whether a majority's disks can be relied on: not after one of them was lost."""

    def remember(self, host: Host, hard: HardState) -> None:
        """MonotonicEpoch, OneVotePerEpoch; ``hard`` is on the disk from now on."""
        before = host.hard
        assert hard.epoch >= before.epoch, "MonotonicEpoch"
        same = hard.epoch == before.epoch
        if same and before.voted is not None and hard.voted is not None:
            assert hard.voted == before.voted, "OneVotePerEpoch"
        if same and before.leader_id >= 0:
            assert hard.leader_id in (-1, before.leader_id), "SingleLeaderPerEpoch"
        host.hard = hard

    def look(self, host: Host) -> None:
        """SingleLeaderPerEpoch, LeaderCompleteness, MonotonicHighWatermark."""
        machine = host.machine
        assert machine is not None
        assert machine.high_watermark == host.committed, "MonotonicHighWatermark"
        if not machine.is_leader:
            return
        if machine.epoch not in self.leaders:
            self.leaders[machine.epoch] = host.key.id
            last = len(self.committed) - 1
            if last >= host.log.start:
                assert last < host.log.end, "LeaderCompleteness: the new leader lacks committed records"
                assert host.log[last].epoch == self.committed[last].epoch, "LeaderCompleteness"
        assert self.leaders[machine.epoch] == host.key.id, f"SingleLeaderPerEpoch: two leaders in {machine.epoch}"

    def commit(self, host: Host, end: int) -> None:
        """MonotonicHighWatermark, CommittedNeverLost, MajorityReachedHighWatermark."""
        assert end > host.committed, "MonotonicHighWatermark"
        assert end <= host.log.end
        for offset in range(max(host.committed, host.log.start), min(end, len(self.committed))):
            assert host.log[offset] == self.committed[offset], "CommittedNeverLost: a committed record changed"
        host.committed = end
        if end > len(self.committed):
            self.committed += [host.log[offset] for offset in range(len(self.committed), end)]
            self._majority(host, end)

    def _majority(self, host: Host, end: int) -> None:
        assert host.machine is not None
        voters = host.machine.voters
        last = self.committed[end - 1]
        holding = [
            v for v in voters.current if v.names(self._hosts[v.id].key) and self._hosts[v.id].holds(end - 1, last)
        ]
        reached = len(holding) >= voters.majority
        assert reached or not self.majority_holds, f"MajorityReachedHighWatermark: {end} is on {holding} only"
