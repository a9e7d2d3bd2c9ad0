"""Generator of the tables and the scenario in ``docs/explanation/controller-quorum.md``, by the state machine.

``python -m devtools.docs.quorum`` writes them into the page: into each block that begins with ```` ```text NAME ````.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ottla.controller.raft.state_machine.epoch_states import LEGAL_TRANSITIONS, PERSISTED_STATES, EpochState
from ottla.controller.raft.state_machine.events import BeginEpoch, EndEpoch, RaftEvent, RaftRequest, Resign, Vote
from ottla.controller.raft.tests.simulated_quorum import SimulatedQuorum

PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "controller-quorum.md"
BLOCK = re.compile(r"^```text (\S+)\n(.*?)^```$", re.M | re.S)
SEED = 4


def state_label(state: type[EpochState]) -> str:
    """Return the name of a state as Raft has it, such as Follower."""
    return state.__name__.removesuffix("State").removeprefix("Raft")


class QuorumTrace(SimulatedQuorum):
    """Quorum of three nodes that records its steps."""

    def __init__(self) -> None:
        super().__init__(SEED, 3, loss=0, kraft_version=1)
        self.sync_ms = 2
        self.accepts_proposals = False
        self.trace_text: list[str] = []
        self._since_ms = 0.0

    def start_recording(self) -> list[str]:
        """Start to record; return the list of the following lines."""
        self.trace_text, self._since_ms = [], self.now_ms
        return self.trace_text

    def add(self, number: int, text: str) -> None:
        """Format a line."""
        self.trace_text.append(f"{self.now_ms - self._since_ms:6.0f} ms  node {number}  {text}")

    def add_distinct(self, number: int, text: str) -> None:
        """Format a line, unless it repeats an earlier request."""
        if not any(line.endswith(f"node {number}  {text}") for line in self.trace_text):
            self.add(number, text)

    def step(self, number: int, event: RaftEvent) -> None:
        """Run an event, and record the changes of the node."""
        machine = self.hosts[number].machine
        before = None if machine is None else (type(machine.state), machine.epoch, machine.high_watermark)
        super().step(number, event)
        machine = self.hosts[number].machine
        assert machine is not None
        after = (type(machine.state), machine.epoch, machine.high_watermark)
        if before is None or before[:2] != after[:2]:
            led = f" of node {machine.leader_id}" if machine.leader_id not in (-1, number) else ""
            self.add(number, f"{state_label(after[0])}{led}, epoch {machine.epoch}")
        if machine.is_leader and before is not None and before[2] != after[2]:
            self.add(number, f"high watermark {machine.high_watermark}")

    def _send(self, host: object, peer: int, request: RaftRequest) -> None:
        match request:
            case Vote(pre_vote=pre, epoch=epoch, candidate=candidate):
                ask = f"Vote (pre-vote), epoch {epoch}" if pre else f"Vote, epoch {epoch}"
                self.add_distinct(candidate.id, f"-> node {peer}: {ask}")
            case BeginEpoch(leader_id, epoch):
                self.add_distinct(leader_id, f"-> node {peer}: BeginQuorumEpoch, epoch {epoch}")
            case EndEpoch(leader_id, epoch, successors):
                names = ", ".join(str(s.id) for s in successors)
                self.add(leader_id, f"-> node {peer}: EndQuorumEpoch, epoch {epoch}, preferred successors {names}")
            case _:
                pass  # fetches continue all the time
        super()._send(host, peer, request)  # type: ignore[arg-type]

    def elected(self, but: int = 0) -> int:
        """Wait until another node leads and has committed its first record; return its id."""

        def done() -> bool:
            return any(n != but and self.hosts[n].committed >= self.hosts[n].log.end_offset for n in self.leaders())

        self.run_until(done)
        return next(n for n in self.leaders() if n != but)


def states() -> list[str]:
    """Return the transitions between the states."""
    out = [f"{'state':<12} {'on disk':<8} may become"]
    for state, following in LEGAL_TRANSITIONS.items():
        names = sorted(state_label(x) for x in following if x is not state)
        out.append(f"{state_label(state):<12} {'yes' if state in PERSISTED_STATES else 'no':<8} {', '.join(names)}")
    return out


def election() -> list[str]:
    """Trace three nodes that were never started before."""
    scenario = QuorumTrace()
    lines = scenario.start_recording()
    scenario.start_all()
    scenario.elected()
    return lines


def quorum_with_leader() -> tuple[QuorumTrace, int, list[str]]:
    """Return a trace of three nodes with a leader, the leader, and the lines recorded from now on."""
    scenario = QuorumTrace()
    scenario.start_all()
    first = scenario.elected()
    scenario.run(scenario.now_ms + 5_000)
    return scenario, first, scenario.start_recording()


def killed() -> list[str]:
    """Trace a kill of the leader."""
    scenario, first, lines = quorum_with_leader()
    scenario.add(first, "is killed")
    scenario.crash(first)
    scenario.elected(but=first)
    return lines


def stopped() -> list[str]:
    """Trace a stop of the leader."""
    scenario, first, lines = quorum_with_leader()
    scenario.add(first, "shuts down")
    scenario.step(first, Resign())
    scenario.elected(but=first)
    return lines


MAKERS: dict[str, Callable[[], list[str]]] = {
    "states": states,
    "election": election,
    "killed": killed,
    "stopped": stopped,
}


def render_page(text: str) -> str:
    """Return the page with every block generated again.

    Raises:
        KeyError: A block has an unknown name.
    """
    return BLOCK.sub(lambda m: f"```text {m[1]}\n" + "".join(f"{x}\n" for x in MAKERS[m[1]]()) + "```", text)


def main() -> None:
    """Write the blocks."""
    PAGE.write_text(render_page(PAGE.read_text()))


if __name__ == "__main__":
    main()
