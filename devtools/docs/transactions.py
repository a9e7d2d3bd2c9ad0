"""Generator of the figures in ``docs/explanation/exactly-once.md``, by the transaction coordinator and the simulator.

``python -m devtools.docs.transactions`` writes them into the blocks of the page that begin with ```` ```text NAME ````
or ```` ```mermaid NAME ````.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.tests.transaction_coordinator_fixture import (
    A,
    TransactionCoordinatorNode,
    response_of,
    run,
    states,
    wait_until_idle,
)
from ottla.broker.transactions.transaction_metadata import IDLE_STATES, VALID_PREVIOUS_STATES, S

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "exactly-once.md"
BLOCK = re.compile(r"^```(text|mermaid) (\S+)\n(.*?)^```$", re.M | re.S)
NEVER_ON_DISK = frozenset({S.DEAD, S.PREPARE_EPOCH_FENCE})


def state_diagram() -> list[str]:
    """Return the lines of a Mermaid diagram of the transaction states that are stored in ``__transaction_state``."""
    out = ["stateDiagram-v2", "    [*] --> Empty"]
    for state in S:
        if state not in NEVER_ON_DISK:
            out += [
                f"    {state.state_name} --> {x.state_name}"
                for x in S
                if state in VALID_PREVIOUS_STATES[x] and x not in NEVER_ON_DISK
            ]
    return [*out, *(f"    {state.state_name} --> [*]" for state in S if state in IDLE_STATES)]


def message_trace() -> list[str]:
    """Return the trace of `transaction_messages`, which runs in a process with ``PYTHONHASHSEED=0``."""
    done = subprocess.run(
        [sys.executable, "-m", "devtools.docs.transaction_messages"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()


def state_table() -> list[str]:
    """Return a text table of all transaction states: stored or not, may expire or not, and the possible next states."""
    out = [f"{'state':<18} {'on disk':<8} {'may expire':<11} may become"]
    for state in S:
        after = ", ".join(x.state_name for x in S if state in VALID_PREVIOUS_STATES[x])
        on_disk = "no" if state in NEVER_ON_DISK else "yes"
        may_expire = "yes" if state in IDLE_STATES else "no"
        out.append(f"{state.state_name:<18} {on_disk:<8} {may_expire:<11} {after}".rstrip())
    return out


def transaction_trace() -> list[str]:
    """Return the trace of a coordinator: a transaction of two partitions, repeated EndTxn requests, a late batch."""
    node, out = TransactionCoordinatorNode(), []

    def show(label: str, pending: PendingBrokerRequest) -> None:
        _, state, epoch = states(node)[-1]
        assert state is not None
        answer = response_of(pending)
        received = f"epoch {answer[1]}" if isinstance(answer, tuple) else answer.name
        out.append(f"{label:<44} -> {received:<24} | {state.state_name}, epoch {epoch}")

    async def steps() -> None:
        show("InitProducerId", node.init())
        show("leader of t-0: AddPartitionsToTxn", node.add(A, 0))
        show("leader of t-1: AddPartitionsToTxn", node.add(A, 1))
        show("EndTxn, commit, epoch 0", node.end(A, commits=True))
        show("EndTxn, commit, epoch 0: markers pending", node.end(A, commits=True))
        await wait_until_idle()
        for request in node.marked:
            for marker in request.markers:
                names = [f"{topic.name}-{number}" for topic in marker.topics for number in topic.partition_indexes]
                _, state, epoch = states(node)[-1]
                assert state is not None
                label = f"WriteTxnMarkers: {', '.join(names)}, epoch {marker.producer_epoch}"
                out.append(f"{label:<44} -> {'NONE':<24} | {state.state_name}, epoch {epoch}")
        show("EndTxn, commit, epoch 0: repeated", node.end(A, commits=True))
        show("EndTxn, abort, epoch 0: already committed", node.end(A, commits=False))
        show("leader of t-0: late batch of epoch 0", node.add(A, 0))

    run(node, steps)
    return out


MAKERS: dict[str, Callable[[], list[str]]] = {
    "diagram": state_diagram,
    "states": state_table,
    "trace": transaction_trace,
    "nodes": message_trace,
}


def render_page(text: str) -> str:
    """Return the text of the page with all generated blocks replaced by new ones; ``text`` is the present page."""

    def made(match: re.Match[str]) -> str:
        lines = MAKERS[match[2]]()
        return f"```{match[1]} {match[2]}\n" + "".join(f"{line}\n" for line in lines) + "```"

    return BLOCK.sub(made, text)


def main() -> None:
    """Write all generated blocks into the page."""
    PAGE.write_text(render_page(PAGE.read_text()))


if __name__ == "__main__":
    main()
