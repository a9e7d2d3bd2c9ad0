"""Generator of the diagrams and traces in ``docs/explanation/broker-failure.md``, by the controller and the simulator.

``python -m devtools.docs.broker_failure`` writes them into the blocks of the page that begin with ```` ```text NAME
```` or ```` ```mermaid NAME ````; with an argument NAME it prints one.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import trio

from ottla.controller.control.broker_heartbeat import BrokerControlState, BrokerHeartbeatState, next_broker_state
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.wire.messages import broker_heartbeat, metadata_records
from sim.faults.node_lifecycle import NodeLifecycle
from sim.scenarios.cluster import ClusterScenario
from sim.workload.clients import create_topic

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "broker-failure.md"
BLOCK = re.compile(r"^```(text|mermaid) (\S+)\n(.*?)^```$", re.M | re.S)
SEED = 3
TOPIC = "payments"
GONE_S = 20.0
TRACE_S = 60.0
HEARTBEAT_FIELDS = (
    "caught up",
    "WantFence",
    "WantShutDown",
    "leads partitions",
    "other brokers lag",
)
"""Inputs of the decision on a heartbeat, in the order of `outcome`."""

# ---------------------------------------------------------------------- the states


def outcome(
    now: BrokerControlState, caught_up: bool, fence: bool, stop: bool, leads: bool, waits: bool
) -> BrokerControlState:
    """Return the state that the controller gives to a broker in state ``now`` after a heartbeat.

    The other arguments are in the order of `HEARTBEAT_FIELDS`; ``waits``: in a controlled shutdown, other brokers have
    not read the metadata up to its offset.
    """
    contacts = BrokerHeartbeatState(registration_offsets={1: 10})
    broker = metadata_records.RegisterBrokerRecord(1, broker_epoch=10, fenced=now is BrokerControlState.FENCED)
    other = metadata_records.RegisterBrokerRecord(2, broker_epoch=11, fenced=False)
    if now is BrokerControlState.CONTROLLED_SHUTDOWN:
        contacts.controlled_shutdown_offsets[1] = 20
        contacts.metadata_offsets[2] = 15 if waits else 25
    partition = PartitionRegistration(
        replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0, directories=(bytes(16),)
    )
    topics = {TOPIC: TopicImage(TOPIC, b"t" * 16, {0: partition})} if leads else {}
    image = MetadataImage(30, topics=topics, brokers={1: broker, 2: other})
    request = broker_heartbeat.BrokerHeartbeatRequest(1, 10, 10 if caught_up else 9, fence, stop)
    steps = next_broker_state(image, contacts, request)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: BrokerControlState = done.value
            return found


def edges() -> Iterator[tuple[BrokerControlState, BrokerControlState, str]]:
    """Yield the transitions (state, next state, conditions) of a broker by heartbeats, found by trying all heartbeats.

    The conditions are the inputs that are equal in all heartbeats that lead to the next state.
    """
    for now in (BrokerControlState.FENCED, BrokerControlState.UNFENCED, BrokerControlState.CONTROLLED_SHUTDOWN):
        led: dict[BrokerControlState, list[tuple[bool, ...]]] = {}
        for wishes in product((False, True), repeat=len(HEARTBEAT_FIELDS)):
            led.setdefault(outcome(now, *wishes), []).append(wishes)
        for after in BrokerControlState:
            if after is not now and after in led:
                texts = [
                    f"{'' if x[0] else 'not '}{word}"
                    for word, x in zip(HEARTBEAT_FIELDS, zip(*led[after], strict=True), strict=True)
                    if len(set(x)) == 1
                ]
                yield now, after, ", ".join(texts)


def broker_state_diagram() -> list[str]:
    """Return the lines of a Mermaid diagram of the states that a broker has in the controller."""
    names = {state: state.value.title().replace(" ", "") for state in BrokerControlState}
    out = ["stateDiagram-v2", f"    [*] --> {names[BrokerControlState.FENCED]}: registration"]
    out += [f"    {names[now]} --> {names[after]}: {why}" for now, after, why in edges()]
    for state in (BrokerControlState.UNFENCED, BrokerControlState.CONTROLLED_SHUTDOWN):
        out.append(f"    {names[state]} --> {names[BrokerControlState.FENCED]}: session expired")
    return [*out, f"    {names[BrokerControlState.SHUTDOWN_NOW]} --> [*]"]


# ---------------------------------------------------------------------- the scenarios


class BrokerFailureTrace(ClusterScenario):
    """Scenario of the simulator: three nodes, each of which leads a partition of a topic, and the failure of one node.

    ``dies`` is called with the scenario and the name of that node. The changes of the metadata are in `trace_text`.
    """

    def __init__(self, dies: Callable[[BrokerFailureTrace, str], None]) -> None:
        super().__init__(SEED, only_late=True)
        self.fault_plan.fault_kinds = []
        for lives in self.lifecycles.values():
            lives._settings |= {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}
        self.trace_text: list[str] = []
        self._dies = dies
        self._since_s = 0.0
        self._seen = MetadataImage()
        self._received: set[Any] = set()

    async def run(self) -> None:
        """Create the topic, then let one broker fail and return; trace the metadata for `TRACE_S` of virtual time."""
        async with trio.open_nursery() as everything:
            for lives in self.lifecycles.values():
                everything.start_soon(self._live, lives)
            await self.wait_until_full()
            await create_topic(
                self.simulation, TOPIC, {"min.insync.replicas": "2"}, self.service, [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
            )
            await self.wait_until_full()
            await trio.sleep(3.0)
            self._seen = self.image()
            everything.start_soon(self._listen)
            victim = self._victim()
            self._since_s = self.simulation.now_s()
            self._dies(self, victim)
            await trio.sleep(TRACE_S)
            everything.cancel_scope.cancel()

    def _victim(self) -> str:
        """Return the name of a node that is not the active controller, whose failure is another scenario."""
        active = {number for number, parts in self.live_nodes().items() if parts.controller.is_active}
        return next(name for name, number in self.numbers.items() if number not in active)

    async def _live(self, lives: NodeLifecycle) -> None:
        while True:
            await lives.run_once(None)
            await trio.sleep(GONE_S)

    def add(self, text: str) -> None:
        """Append a line to the trace, with the time in ms since the failure."""
        self.trace_text.append(f"{(self.simulation.now_s() - self._since_s) * 1000:7.0f} ms  {text}")

    async def _listen(self) -> None:
        """Add each change of brokers and partitions to the trace, as soon as a node has it, until cancelled."""
        while True:
            image = self.image()
            for number, known in sorted(image.brokers.items()):
                before = self._seen.brokers.get(number)
                if before is not None and before.broker_epoch != known.broker_epoch:
                    self.add(f"broker {number} registers again, fenced")
                elif before is not None and bool(before.fenced) != bool(known.fenced):
                    self.add(f"broker {number} is {'fenced' if known.fenced else 'unfenced'}")
            for number, now in sorted(image.topics[TOPIC].partitions.items()):
                before_ = self._seen.topics[TOPIC].partitions[number]
                if (before_.leader, before_.isr) != (now.leader, now.isr):
                    isr = ", ".join(map(str, sorted(now.isr)))
                    self.add(f"{TOPIC}-{number}: leader {now.leader}, leader epoch {now.leader_epoch}, ISR {isr}")
            self._seen = image
            await trio.sleep(0.001)


def kill_broker(run: BrokerFailureTrace, name: str) -> None:
    """Kill the simulated process of a node, and add that to the trace."""
    process = run.lifecycles[name].process
    assert process is not None
    run.add(f"broker {run.numbers[name]} is killed")
    process.kill()


def isolate_broker(run: BrokerFailureTrace, name: str) -> None:
    """Cut a node off the simulated network for `GONE_S`, and add that to the trace."""
    host = run.simulation.host(name)
    host.inbound_cut_until = host.outbound_cut_until = run.simulation.now_s() + GONE_S
    run.add(f"broker {run.numbers[name]} is isolated from the network for {GONE_S:.0f} s")


def trace_of(dies: Callable[[BrokerFailureTrace, str], None]) -> Callable[[], list[str]]:
    """Return a function that runs the scenario with the failure ``dies`` and returns the lines of its trace.

    ``dies`` is called with the scenario and the name of the node that has to fail. The returned function must be in
    `MAKERS`. The scenario runs in a process with ``PYTHONHASHSEED=0``, so that the trace is always the same.
    """

    def on_event() -> list[str]:
        if os.environ.get("PYTHONHASHSEED") == "0":
            run = BrokerFailureTrace(dies)
            run.simulation.run(run.run)
            return run.trace_text
        name = next(name for name, maker in MAKERS.items() if maker is on_event)
        done = subprocess.run(
            [sys.executable, "-m", "devtools.docs.broker_failure", name],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.splitlines()

    return on_event


MAKERS: dict[str, Callable[[], list[str]]] = {
    "broker": broker_state_diagram,
    "killed": trace_of(kill_broker),
    "cut": trace_of(isolate_broker),
}


def render_page(text: str) -> str:
    """Return the text of the page with all generated blocks replaced by new ones; ``text`` is the present page.

    Raises:
        KeyError: A block has an unknown name.
    """
    return BLOCK.sub(lambda b: f"```{b[1]} {b[2]}\n" + "".join(f"{x}\n" for x in MAKERS[b[2]]()) + "```", text)


def main() -> None:
    """Write all generated blocks into the page, or print the one that the command line names."""
    if len(sys.argv) > 1:
        logging.disable(logging.CRITICAL)
        sys.stdout.write("".join(f"{line}\n" for line in MAKERS[sys.argv[1]]()))
    else:
        PAGE.write_text(render_page(PAGE.read_text()))


if __name__ == "__main__":
    main()
