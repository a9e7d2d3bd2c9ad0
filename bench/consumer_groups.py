"""Load of consumer groups (KIP-848) on a node: time until they are stable, heartbeat latencies, pauses of the loop.

``python -m bench.consumer_groups [--groups 1000] [--members 10] [--large 2000]``. Members are as stock clients: each
has a connection, confirms its assignment at once, and else sends a heartbeat each five seconds. All run in one plain
loop in this process, which keeps its own work small: an unchanged heartbeat and its response are handled as bytes. The
large group is on a node that times every step of its loop (`bench.pauses`); then three members leave, one at a time.
"""

from __future__ import annotations

import argparse
import heapq
import os
import resource
import select
import socket
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from bench.pauses import NodeChildProcess
from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.framing import encode_request
from ottla.wire.messages import consumer_group_heartbeat, create_topics, find_coordinator

TOPIC = "load"
KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
HEAD_BYTES = 9
"""Bytes before the response: size, correlation id, no tags."""
JOIN_OVER_S = 5.0
LEAVING = -1
TRIES = 3
WITHIN_S = 120.0
MAX_CONCURRENT_HEARTBEATS = 20
"""Heartbeats that are sent before responses are read again."""
Answer = consumer_group_heartbeat.ConsumerGroupHeartbeatResponse


class BenchMember:
    """Member of a consumer group: its connection, epoch, and number of assigned partitions."""

    def __init__(self, port: int, group: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group = group
        self.id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: list[consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions] | None = []
        self.count = 0
        self.sent_s = 0.0
        self.at_s = 0.0
        """Time (`time.perf_counter`) at which it reached its epoch."""
        self._raw = b""
        self._reported: tuple[int, bytes] = (0, b"")
        """An epoch, and the frame of a heartbeat that has only this epoch."""
        self._last_response = b"", Answer()

    def beat(self) -> None:
        """Send a heartbeat without waiting for the response; with the owned partitions only if they have changed."""
        if self.owned is None and self.epoch > 0:
            if self._reported[0] != self.epoch:
                quiet = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(self.group, self.id, self.epoch)
                self._reported = self.epoch, encode_request(KEY, 1, 1, "bench", quiet)
            self.sent_s = time.perf_counter()
            self.sock.sendall(self._reported[1])
            return
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            self.group, self.id, self.epoch, topic_partitions=self.owned
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names = 300_000, [TOPIC]
        self.owned = None
        self.sent_s = time.perf_counter()
        self.sock.sendall(encode_request(KEY, 1, 1, "bench", request))

    def receive(self) -> Answer | None:
        """Receive available bytes; return the response and update the epoch if it is complete, else return None."""
        self._raw += self.sock.recv(1 << 16)
        if len(self._raw) < 4 or len(self._raw) < 4 + int.from_bytes(self._raw[:4], "big"):
            return None
        if self._raw != self._last_response[0]:
            answer, _ = compiler.decode(
                consumer_group_heartbeat.ConsumerGroupHeartbeatResponse, 1, self._raw, HEAD_BYTES
            )
            self._last_response = self._raw, answer
        self._raw, answer = b"", self._last_response[1]
        if answer.member_epoch != self.epoch:
            self.epoch, self.at_s = answer.member_epoch, time.perf_counter()
        return answer


class ConsumerGroupLoad:
    """Members of ``groups`` groups with ``members`` members each, and an epoll loop that sends their heartbeats."""

    def __init__(self, port: int, groups: int, members: int) -> None:
        self.each = members
        self._poll = select.epoll()
        self.members: dict[int, BenchMember] = {}
        for _ in range(members):
            for number in range(groups):
                member = BenchMember(port, f"group-{number}")
                self.members[member.sock.fileno()] = member
                self._poll.register(member.sock, select.EPOLLIN)
        self.took_ms: list[float] = []
        self.late_ms: list[float] = []
        """Delay in ms with which each heartbeat was sent after it was due, because of this process itself."""
        self.refused = 0
        now, total = time.perf_counter(), len(self.members)
        self._due = [(now + JOIN_OVER_S * at / total, number) for at, number in enumerate(self.members)]

    def run(self, done: Callable[[], bool], within_s: float) -> float:
        """Send heartbeats until ``done`` returns True, which is called every 50 ms; return the duration in s.

        Raises:
            TimeoutError: it does not within ``within_s``.
        """
        began = looked = time.perf_counter()
        while (now := time.perf_counter()) < began + within_s:
            for _ in range(MAX_CONCURRENT_HEARTBEATS):
                if not self._due or self._due[0][0] > now:
                    break
                due_s, number = heapq.heappop(self._due)
                if number in self.members:
                    self.members[number].beat()
                    self.late_ms.append((self.members[number].sent_s - due_s) * 1000)
            ready = self._poll.poll(0 if self._due and self._due[0][0] <= now else 0.002)
            here_s = time.perf_counter()
            for number, _ in ready:
                self._answered(number, here_s)
            if now - looked > 0.05:
                looked = now
                if done():
                    return now - began
        raise TimeoutError("what was waited for never came")

    def _answered(self, number: int, here_s: float) -> None:
        member = self.members[number]
        answer = member.receive()
        if answer is None:
            return
        self.took_ms.append((here_s - member.sent_s) * 1000)
        wait_s = answer.heartbeat_interval_ms / 1000
        if answer.error_code:
            self.refused += 1
            member.epoch, member.owned, member.count, wait_s = 0, [], 0, 0.1
        elif answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            member.owned = [
                consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions(r.topic_id, r.partitions)
                for r in rows
            ]
            member.count, wait_s = sum(len(row.partitions) for row in rows), 0.0
        heapq.heappush(self._due, (time.perf_counter() + wait_s, number))

    def is_stable(self, partitions: int) -> bool:
        """Return True if in every group all members have one epoch, and ``partitions`` partitions in equal shares.

        Shares may differ by one partition.
        """
        seen: dict[str, list[BenchMember]] = {}
        for member in self.members.values():
            seen.setdefault(member.group, []).append(member)
        return all(
            len({member.epoch for member in group}) == 1
            and group[0].epoch > 0
            and sum(member.count for member in group) == partitions
            and max(member.count for member in group) - min(member.count for member in group) <= 1
            for group in seen.values()
        )

    def latency_text(self) -> str:
        """Return a text with the latencies of heartbeats since the last call, which are reset, and all refused ones."""
        took, self.took_ms = sorted(self.took_ms), []
        late, self.late_ms = sorted(self.late_ms), []
        return (
            f"{len(took)} heartbeats, {self.refused} refused: median {statistics.median(took):.1f} ms, "
            f"p99 {took[int(len(took) * 0.99)]:.1f} ms, worst {took[-1]:.1f} ms "
            f"(sent late by p99 {late[int(len(late) * 0.99)]:.1f} ms)"
        )

    def leave(self) -> BenchMember:
        """Let one member leave its group, wait for the response, remove it here, and return it, still connected."""
        number, member = next(iter(self.members.items()))
        self._poll.unregister(member.sock)
        del self.members[number]
        member.sock.setblocking(True)
        member.epoch = LEAVING
        member.beat()
        while member.receive() is None:
            pass
        return member

    def close(self) -> None:
        """Close the connections of all members but those that left."""
        for member in self.members.values():
            member.sock.close()


def prepare(port: int, partitions: int) -> None:
    """Create the topic with ``partitions`` partitions; wait, without a time limit, for a group coordinator."""
    peer = RawClient(port, timeout_s=60)
    peer.call(
        ApiKey.CREATE_TOPICS,
        5,
        create_topics.CreateTopicsRequest([create_topics.CreatableTopic(TOPIC, partitions, 1)], 60_000),
    )
    while (
        peer.call(ApiKey.FIND_COORDINATOR, 4, find_coordinator.FindCoordinatorRequest(coordinator_keys=["x"]))
        .coordinators[0]
        .error_code
    ):
        time.sleep(0.1)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process in s, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_many_groups(node: OttlaProcess, groups: int, members: int, watch_s: float) -> None:
    """Measure and print many members in small groups: time until they are stable, then latencies for ``watch_s``."""
    prepare(node.port, members)
    load = ConsumerGroupLoad(node.port, groups, members)
    before_s = cpu_s(node.pid)
    took_s = load.run(lambda: load.is_stable(members), WITHIN_S)
    at_s = cpu_s(node.pid)
    print(
        f"{groups * members} members in {groups} groups stable after {took_s:.1f} s, {at_s - before_s:.1f} s of "
        f"processor time; {load.latency_text()}",
        flush=True,
    )
    end = time.perf_counter() + watch_s
    load.run(lambda: time.perf_counter() > end, 2 * watch_s)
    print(
        f"at rest {watch_s:.0f} s, {cpu_s(node.pid) - at_s:.1f} s of processor time: {load.latency_text()}", flush=True
    )
    load.close()


def measure_large_group(child: NodeChildProcess, members: int) -> None:
    """Measure and print a very large group: time until it is stable, and until it is stable after a member has left.

    Members leave `TRIES` times, one at a time.
    """
    prepare(child.port, members)
    print(f"before anybody came: {pause_text(child.query())}", flush=True)
    load = ConsumerGroupLoad(child.port, 1, members)
    took_s = load.run(lambda: load.is_stable(members), WITHIN_S)
    seen = child.query()
    print(f"one group of {members} stable after {took_s:.1f} s; {load.latency_text()}; {pause_text(seen)}", flush=True)
    for _ in range(TRIES):
        load.leave()
        before = max(member.epoch for member in load.members.values())
        left_s = time.perf_counter()
        load.run(lambda: load.is_stable(members), WITHIN_S)
        at = sorted(member.at_s - left_s for member in load.members.values() if member.epoch > before)
        print(
            f"one leaves: the first has its target after {at[0]:.2f} s, the last of {len(at)} after {at[-1]:.2f} s; "
            f"{load.latency_text()}; {pause_text(child.query())}",
            flush=True,
        )
    load.close()


def pause_text(seen: dict[str, float]) -> str:
    """Return a text with the longest times for which the event loop was blocked; ``seen``: result of a query."""
    return f"loop held {seen['held'] * 1000:.0f} ms, computed {seen['computed'] * 1000:.0f} ms ({seen['who']})"


def main() -> None:
    """Measure many small groups and one large group, each on a new node, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--large", type=int, default=2000)
    parser.add_argument("--watch", type=float, default=20.0, help="seconds of heartbeats to measure")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        if options.groups:
            with OttlaProcess(Path(folder) / "data") as node:
                measure_many_groups(node, options.groups, options.members, options.watch)
                status = Path(f"/proc/{node.pid}/status").read_text()
                memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
                print(f"memory of the node: {memory // 1024} MB")
        if options.large:
            child = NodeChildProcess(Path(folder) / "large")
            try:
                measure_large_group(child, options.large)
            finally:
                child.kill()


if __name__ == "__main__":
    main()
