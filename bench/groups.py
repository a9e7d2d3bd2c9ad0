"""Ten thousand consumers in a thousand groups on one node: join, consume, commit, and heartbeats under that load.

``python -m bench.groups [--groups 1000] [--members 10]``. Each consumer is a connection of its own that uses the
protocol as a stock client does; all of them run in one other process, so that the node's memory is its own.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import select
import socket
import statistics
import tempfile
import time
from pathlib import Path

import trio

from compat_tests.support.processes import OttlaProcess
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.real_env import RealEnv
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request
from ottla.wire.messages import create_topics, fetch, find_coordinator, heartbeat, join_group, offset_commit, sync_group
from ottla.wire.record_batch import records

TOPIC = "load"
HEARTBEAT_S = 3.0


class ClassicGroupLoad:
    """Common state of all consumers: port of the node, numbers of stable members and commits, and connections."""

    def __init__(self, port: int, groups: int, members: int) -> None:
        self.port = port
        self.groups = groups
        self.members = members
        self.env = RealEnv()
        self.sizes: dict[str, set[str]] = {}
        self.stable = 0
        self.all_stable = trio.Event()
        self.ready: dict[Consumer, tuple[Channel, int]] = {}
        self.committed = 0

    def member_stable(self, group: str, size: int, member: str) -> None:
        """Record that ``member`` has an assignment in a generation of ``size`` members; ignored if that is not all.

        Sets `all_stable` once all members of all groups are recorded.
        """
        have = self.sizes.setdefault(group, set())
        if size == self.members and member not in have:
            have.add(member)
            self.stable += 1
            if self.stable == self.groups * self.members:
                self.all_stable.set()


class Consumer:
    """Member of a classic group with a connection of its own."""

    def __init__(self, load: ClassicGroupLoad, group: str, number: int) -> None:
        self.load = load
        self.group = group
        self.number = number
        self.member = ""
        self.leads_for: list[str] = []

    async def run(self, gate: trio.CapacityLimiter) -> None:
        """Join, consume, commit and send heartbeats until cancelled; start over at each rebalance.

        ``gate`` limits the connections that are opened at the same time.
        """
        async with gate:
            stream = await self.load.env.net.connect("127.0.0.1", self.load.port)
            connection = Channel(stream, f"c{self.number}")
        while True:
            generation = await self._join(connection)
            if generation >= 0 and await self._sync(connection, generation):
                await self._consume(connection, generation)
                await self._beat(connection, generation)

    async def _join(self, connection: Channel) -> int:
        protocols = [
            join_group.JoinGroupRequestProtocol(
                "range", b"\x00\x01\x00\x00\x00\x01\x00\x04load\xff\xff\xff\xff\x00\x00\x00\x00"
            )
        ]
        request = join_group.JoinGroupRequest(self.group, 45_000, 300_000, self.member, None, "consumer", protocols)
        answer = await connection.call(request, 9)
        if answer.error_code:
            self.member = answer.member_id if answer.error_code == 79 else ""
            return -1
        self.member = answer.member_id
        self.leads_for = [m.member_id for m in answer.members]
        return int(answer.generation_id)

    async def _sync(self, connection: Channel, generation: int) -> bool:
        shares = [
            sync_group.SyncGroupRequestAssignment(m, b"%d,%d" % (i, len(self.leads_for)))
            for i, m in enumerate(self.leads_for)
        ]
        request = sync_group.SyncGroupRequest(self.group, generation, self.member, None, "consumer", "range", shares)
        answer = await connection.call(request, 5)
        if answer.error_code:
            return False
        mine, _, of = answer.assignment.partition(b",")
        self.partition = int(mine)
        self.load.member_stable(self.group, int(of), self.member)
        return True

    async def _consume(self, connection: Channel, generation: int) -> None:
        part = fetch.FetchPartition(self.partition, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[fetch.FetchTopic(TOPIC, partitions=[part])]
        )
        got = await connection.call(request, 12)
        assert len(got.responses[0].partitions[0].records) > 0
        row = offset_commit.OffsetCommitRequestPartition(self.partition, 1)
        done = await connection.call(
            offset_commit.OffsetCommitRequest(
                self.group,
                generation,
                self.member,
                topics=[offset_commit.OffsetCommitRequestTopic(TOPIC, partitions=[row])],
            ),
            9,
        )
        self.load.committed += done.topics[0].partitions[0].error_code == 0

    async def _beat(self, connection: Channel, generation: int) -> None:
        """Send heartbeats until one is refused (a rebalance), or until cancelled: then `HeartbeatLoop` continues."""
        self.load.ready[self] = (connection, generation)
        await trio.sleep(HEARTBEAT_S * self.load.env.random())
        while True:
            with trio.CancelScope(shield=True):  # cancelling a call closes its connection, which is still needed
                answer = await connection.call(heartbeat.HeartbeatRequest(self.group, generation, self.member), 4)
            if answer.error_code:
                del self.load.ready[self]
                return
            await trio.sleep(HEARTBEAT_S)


class HeartbeatLoop:
    """Loop without trio that sends the heartbeats of all members, spread evenly, and measures their latencies.

    ``frames``: socket and encoded Heartbeat request of each member.
    """

    def __init__(self, frames: list[tuple[socket.socket, bytes]]) -> None:
        self._poll = select.epoll()
        self._frames = {sock.fileno(): (sock, frame) for sock, frame in frames}
        self._sent: dict[int, float] = {}
        self.took_ms: list[float] = []
        self.errors = 0
        for number in self._frames:
            self._poll.register(number, select.EPOLLIN)

    def run(self, watch_s: float) -> None:
        """Send heartbeats for ``watch_s`` seconds, one for each member every `HEARTBEAT_S`; fill `took_ms`."""
        step = HEARTBEAT_S / len(self._frames)
        began = time.perf_counter()
        due = itertools.cycle(self._frames)
        count = 0
        while (now := time.perf_counter()) < began + watch_s:
            while count * step < now - began:
                self._send(next(due))
                count += 1
            for number, _ in self._poll.poll(step):
                self._receive(number)

    def _send(self, number: int) -> None:
        if number not in self._sent:  # the last one is still in flight: a real client would wait too
            sock, frame = self._frames[number]
            self._sent[number] = time.perf_counter()
            sock.send(frame)

    def _receive(self, number: int) -> None:
        answer = self._frames[number][0].recv(4096)
        sent = self._sent.pop(number, None)
        if sent is None:
            return  # response to a heartbeat from before this loop
        self.took_ms.append((time.perf_counter() - sent) * 1000)
        self.errors += answer[13:15] != b"\x00\x00"  # behind size, number, tags and throttle time


async def _prepare(load: ClassicGroupLoad) -> None:
    client = ClusterClient(load.env, f"127.0.0.1:{load.port}")
    await client.call(create_topics.CreateTopicsRequest([create_topics.CreatableTopic(TOPIC, load.members, 1)], 30_000))
    for partition in range(load.members):
        await client.produce(TOPIC, partition, [records.NewRecord(b"k", b"v", load.env.now_ms())])
    while True:
        connection = await client.bootstrap_channel()
        found = await connection.call(
            find_coordinator.FindCoordinatorRequest(coordinator_keys=["x"]),
            connection.version_for(ApiKey.FIND_COORDINATOR),
        )
        if not found.coordinators[0].error_code:
            break
        await trio.sleep(0.1)
    client.close()


async def _main(load: ClassicGroupLoad) -> list[tuple[socket.socket, bytes]]:
    """Let all members join, consume and commit, and print the times; return the socket and heartbeat of each member."""
    await _prepare(load)
    gate = trio.CapacityLimiter(200)
    began = time.perf_counter()
    total = load.groups * load.members
    async with trio.open_nursery() as nursery:
        for index in range(load.members):
            for group in range(load.groups):
                nursery.start_soon(Consumer(load, f"group-{group}", index).run, gate)
        with trio.fail_after(300):
            await load.all_stable.wait()
            print(f"{total} consumers in {load.groups} groups stable after {time.perf_counter() - began:.1f} s")
            while load.committed < total or len(load.ready) < total:  # noqa: ASYNC110 - a look now and then will do
                await trio.sleep(0.1)
            print(f"{load.committed} commits after {time.perf_counter() - began:.1f} s")
        await trio.sleep(HEARTBEAT_S)
        nursery.cancel_scope.cancel()
    out = []
    for consumer, (connection, generation) in load.ready.items():
        sock = connection.stream.detach()  # type: ignore[attr-defined]
        beat = heartbeat.HeartbeatRequest(consumer.group, generation, consumer.member)
        out.append((sock, encode_request(ApiKey.HEARTBEAT, 4, 1, "beat", beat)))
    return out


def main() -> None:
    """Run the load against a new node, and print heartbeat latencies and the memory of the node."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--watch", type=float, default=30.0, help="seconds of heartbeats to measure")
    parser.add_argument("--delay-ms", default="0", help="group.initial.rebalance.delay.ms")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        node = OttlaProcess(Path(folder) / "data", group_initial_rebalance_delay_ms=options.delay_ms)
        with node:
            load = ClassicGroupLoad(node.port, options.groups, options.members)
            beats = HeartbeatLoop(trio.run(_main, load))
            beats.run(options.watch)
            took = sorted(beats.took_ms)
            print(
                f"{len(took)} heartbeats in {options.watch:.0f} s, {beats.errors} refused: median "
                f"{statistics.median(took):.1f} ms, p99 {took[int(len(took) * 0.99)]:.1f} ms, worst {took[-1]:.1f} ms"
            )
            status = Path(f"/proc/{node.pid}/status").read_text()
            memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
            print(f"memory of the node: {memory // 1024} MB")


if __name__ == "__main__":
    main()
