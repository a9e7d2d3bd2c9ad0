"""Generator of the table and the traces in ``docs/explanation/controller-quorum.md``, by the Raft state machine.

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
    """Return the name of a state of a node in the quorum, such as Follower."""
    return state.__name__.removesuffix("State").removeprefix("Raft")


class QuorumTrace(SimulatedQuorum):
    """Simulated quorum of three nodes that records state changes, and Vote, BeginQuorumEpoch, EndQuorumEpoch requests.

    Also the leader's high watermark. A repeated Vote or BeginQuorumEpoch is recorded once.
    """

    def __init__(self) -> None:
        super().__init__(SEED, 3, loss=0, kraft_version=1)
        self.sync_ms = 2
        self.accepts_proposals = False
        self.trace_text: list[str] = []
        self._since_ms = 0.0

    def start_recording(self) -> list[str]:
        """Start a new trace, with times from now on; return its list of lines, to which later steps append."""
        self.trace_text, self._since_ms = [], self.now_ms
        return self.trace_text

    def add(self, number: int, text: str) -> None:
        """Append a line about node ``number`` to the trace, with the time in ms since its start."""
        self.trace_text.append(f"{self.now_ms - self._since_ms:6.0f} ms  node {number}  {text}")

    def add_distinct(self, number: int, text: str) -> None:
        """Append a line about node ``number`` to the trace, unless it has that line already, at any time."""
        if not any(line.endswith(f"node {number}  {text}") for line in self.trace_text):
            self.add(number, text)

    def step(self, number: int, event: RaftEvent) -> None:
        """Let node ``number`` handle an event; add changes of state, epoch, and of a leader's high watermark."""
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
        """Run the simulation until a node leads and has committed its whole log; return its id.

        ``but``: id of a node that does not count, the former leader; 0 for none.
        """

        def done() -> bool:
            return any(n != but and self.hosts[n].committed >= self.hosts[n].log.end_offset for n in self.leaders())

        self.run_until(done)
        return next(n for n in self.leaders() if n != but)


def states() -> list[str]:
    """Return a text table of the states of a node in the quorum: stored or not, and the possible next states."""
    out = [f"{'state':<12} {'on disk':<8} may become"]
    for state, following in LEGAL_TRANSITIONS.items():
        names = sorted(state_label(x) for x in following if x is not state)
        out.append(f"{state_label(state):<12} {'yes' if state in PERSISTED_STATES else 'no':<8} {', '.join(names)}")
    return out


def election() -> list[str]:
    """Return the trace of the first election of three new nodes."""
    scenario = QuorumTrace()
    lines = scenario.start_recording()
    scenario.start_all()
    scenario.elected()
    return lines


def quorum_with_leader() -> tuple[QuorumTrace, int, list[str]]:
    """Return a simulated quorum that has had a leader for five seconds, its id, and the list of later trace lines."""
    scenario = QuorumTrace()
    scenario.start_all()
    first = scenario.elected()
    scenario.run(scenario.now_ms + 5_000)
    return scenario, first, scenario.start_recording()


def killed() -> list[str]:
    """Return the trace from a kill of the leader to the next election."""
    scenario, first, lines = quorum_with_leader()
    scenario.add(first, "is killed")
    scenario.crash(first)
    scenario.elected(but=first)
    return lines


def stopped() -> list[str]:
    """Return the trace from a clean stop of the leader, which resigns, to the next election."""
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
    """Return the text of the page with all generated blocks replaced by new ones; ``text`` is the present page.

    Raises:
        KeyError: A block has an unknown name.
    """
    return BLOCK.sub(lambda m: f"```text {m[1]}\n" + "".join(f"{x}\n" for x in MAKERS[m[1]]()) + "```", text)


def main() -> None:
    """Write all generated blocks into the page."""
    PAGE.write_text(render_page(PAGE.read_text()))


if __name__ == "__main__":
    main()
