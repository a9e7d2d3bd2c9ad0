"""Generator of the figures in ``docs/explanation/replication.md``, by the state machine of a partition's leader.

``python -m devtools.docs.durability`` writes them into the blocks of the page that begin with ```` ```text NAME ```` or
```` ```mermaid NAME ````.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ottla.broker.replication.partition_state import (
    AlterPartitionResult,
    CommittedIsr,
    IsrState,
    LeaderState,
    PendingExpandIsr,
    PendingShrinkIsr,
)
from ottla.wire.errors import ErrorCode

PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "replication.md"
BLOCK = re.compile(r"^```(text|mermaid) (\S+)\n(.*?)^```$", re.M | re.S)
LAG_MS = 30_000
EPOCH, IMAGE = 4, 10


def leader_state(isr: tuple[int, ...] = (1, 2, 3), log_end: int = 7) -> LeaderState:
    """Return the state of a partition's leader, broker 1, whose followers 2 and 3 have fetched up to ``log_end``."""
    leading = LeaderState.start_epoch(1, EPOCH, IMAGE, (1, 2, 3), CommittedIsr(isr), log_end, 0)
    for broker in (2, 3):
        leading.update_follower(broker, 70, log_end, 0, log_end, 0)
    return leading


def trace() -> list[str]:
    """Return a trace from Produce of record 7 to its response: log end offsets and high watermark after each step.

    ``min.insync.replicas`` is 2.
    """
    leading, log_end = leader_state(), 7
    out = [f"{'':<50} {'log end offsets at the leader':<30} high watermark"]

    def on_result(label: str) -> None:
        ends = ", ".join(f"{b}: {f.end_offset}" for b, f in sorted(leading.followers.items()))
        high = leading.high_watermark(log_end, log_end, 1, LAG_MS, 2, lambda *_: True)
        out.append(f"{label:<50} {f'1: {log_end}, {ends}':<30} {high}")

    on_result("all replicas have records 0 to 6")
    log_end = 8
    on_result("Produce: record 7 at broker 1")
    for broker, answer in ((2, "record 7"), (3, "record 7"), (2, "no records"), (3, "high watermark 8")):
        offset = 7 if answer == "record 7" else 8
        leading.update_follower(broker, 70, offset, 0, log_end, 1)
        on_result(f"broker {broker} fetches from {offset}, response: {answer}")
    out.append("response to Produce")
    return out


def _image(leading: LeaderState) -> None:
    leading.apply_partition_state(IMAGE + 1, (1, 2, 3), CommittedIsr((1, 2, 3)))


def _expand(leading: LeaderState) -> None:
    outside = next((b for b in (2, 3) if b not in leading.committed_isr), 3)
    leading.maybe_expand_isr(outside, 7, lambda *_: True)


def _shrink(leading: LeaderState) -> None:
    leading.maybe_shrink_isr(LAG_MS + 1, 8, LAG_MS)


def _accepted(leading: LeaderState) -> None:
    isr = leading.committed_isr if isinstance(leading.isr, CommittedIsr) else leading.isr.requested_isr
    leading.handle_alter_partition_result(AlterPartitionResult(ErrorCode.NONE, EPOCH, IMAGE + 1, isr))


def _reverted(leading: LeaderState) -> None:
    leading.handle_alter_partition_result(AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA))


EVENTS: dict[str, Callable[[LeaderState], None]] = {
    "a replica catches up": _expand,
    "members lag behind": _shrink,
    "AlterPartition succeeds": _accepted,
    "AlterPartition is rejected": _reverted,
    "newer metadata image": _image,
}
WAYS_IN: dict[type[IsrState], Callable[[LeaderState], None]] = {
    CommittedIsr: lambda _: None,
    PendingExpandIsr: _expand,
    PendingShrinkIsr: _shrink,
}


def states() -> list[str]:
    """Return the lines of a Mermaid diagram of the states of the ISR at the leader, found by trying all events."""
    out = ["stateDiagram-v2", "    [*] --> CommittedIsr: leader elected"]
    for state, way_in in WAYS_IN.items():
        into: dict[str, list[str]] = {}
        for event, happen in EVENTS.items():
            leading = leader_state(
                (1, 2) if state is PendingExpandIsr or event == "a replica catches up" else (1, 2, 3)
            )
            way_in(leading)
            assert type(leading.isr) is state
            before = leading.isr
            happen(leading)
            if type(leading.isr) is not type(before):
                into.setdefault(type(leading.isr).__name__, []).append(event)
        out += [f"    {state.__name__} --> {after}: {' or '.join(events)}" for after, events in into.items()]
    return out


MAKERS: dict[str, Callable[[], list[str]]] = {"trace": trace, "states": states}


def render_page(text: str) -> str:
    """Return the text of the page with all generated blocks replaced by new ones; ``text`` is the present page."""
    return BLOCK.sub(lambda b: f"```{b[1]} {b[2]}\n" + "".join(f"{x}\n" for x in MAKERS[b[2]]()) + "```", text)


def main() -> None:
    """Write all generated blocks into the page."""
    PAGE.write_text(render_page(PAGE.read_text()))


if __name__ == "__main__":
    main()
