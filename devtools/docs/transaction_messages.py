"""Trace of one transaction across three nodes, for ``docs/explanation/exactly-once.md``.

``python -m devtools.docs.transaction_messages`` prints it. The nodes are simulated: n1 and n2 lead a partition each, n3
is the transaction coordinator. Concurrent messages have one fixed order.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import trio

from ottla.client.channel import Channel
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import add_partitions_to_txn, end_txn, init_producer_id, produce, write_txn_markers
from sim.faults.node_lifecycle import NodeLifecycle
from sim.faults.transaction_steps import TransactionStep, observe_steps
from sim.scenarios.cluster import ClusterScenario
from sim.workload.clients import create_topic
from sim.workload.transactional_clients import SOURCE, TransactionalClient

SEED = 1
STATE = "__transaction_state"
REPLICA_ASSIGNMENTS = {SOURCE: [[1, 2, 3], [2, 3, 1]], STATE: [[3, 1, 2], [3, 2, 1]]}
STEP_TEXTS = {
    TransactionStep.ID_WRITTEN: "appends Empty",
    TransactionStep.OPEN_WRITTEN: "appends Ongoing",
    TransactionStep.OPEN: "Ongoing is committed",
    TransactionStep.DECIDED_WRITTEN: "appends PrepareCommit",
    TransactionStep.DECIDED: "PrepareCommit is committed: the decision is final",
    TransactionStep.COMPLETE_WRITTEN: "appends CompleteCommit",
}


def describe_request(request: Any) -> str | None:
    """Return a request of a transaction, of which only the first partition, as text; None for any other request."""
    match request:
        case init_producer_id.InitProducerIdRequest():
            return "InitProducerId"
        case produce.ProduceRequest():
            topic = request.topic_data[0]
            return f"Produce: a batch for {topic.name}-{topic.partition_data[0].index}"
        case add_partitions_to_txn.AddPartitionsToTxnRequest():
            topic = request.transactions[0].topics[0]
            return f"AddPartitionsToTxn: {topic.name}-{topic.partitions[0]}"
        case end_txn.EndTxnRequest():
            return f"EndTxn: {'commit' if request.committed else 'abort'}, epoch {request.producer_epoch}"
        case write_txn_markers.WriteTxnMarkersRequest():
            (marker,) = request.markers
            topic = marker.topics[0]
            how = "committed" if marker.transaction_result else "aborted"
            return f"WriteTxnMarkers: {topic.name}-{topic.partition_indexes[0]}, {how}, epoch {marker.producer_epoch}"
    return None


def describe_response(answer: Any) -> str:
    """Return the response to a request of a transaction as text: its first error code, and epoch or offset if any.

    Raises:
        AssertionError: it is another response.
    """
    match answer:
        case init_producer_id.InitProducerIdResponse() | end_txn.EndTxnResponse():
            return f"{_name(answer.error_code)}, epoch {answer.producer_epoch}"
        case produce.ProduceResponse():
            row = answer.responses[0].partition_responses[0]
            return f"{_name(row.error_code)}, at offset {row.base_offset}"
        case add_partitions_to_txn.AddPartitionsToTxnResponse():
            row = answer.results_by_transaction[0].topic_results[0].results_by_partition[0]
            return _name(row.partition_error_code)
        case write_txn_markers.WriteTxnMarkersResponse():
            return _name(answer.markers[0].topics[0].partitions[0].error_code)
    raise AssertionError(answer)


def _name(code: int) -> str:
    return ErrorCode(code).name


class TransactionTrace(ClusterScenario):
    """Scenario of the simulator: three nodes without faults, and one transaction; messages are in `trace_text`."""

    def __init__(self) -> None:
        super().__init__(SEED, transactions=2, only_late=True)
        self.fault_plan.fault_kinds = []
        self.trace_text: list[list[str]] = [[]]
        """Lines of the trace, in groups: a step of the coordinator, then the messages up to the next step."""

    async def run(self) -> None:
        """Create the topics, then run the transaction, and stop the nodes two seconds of virtual time later."""
        async with trio.open_nursery() as everything:
            for lives in self.lifecycles.values():
                everything.start_soon(self._live, lives)
            await self.wait_until_full()
            for name, placed in REPLICA_ASSIGNMENTS.items():
                settings = {"cleanup.policy": "compact"} if name == STATE else {}
                await create_topic(self.simulation, name, settings, self.service, placed)
            await self.wait_until_full()
            with observe_steps(self._reached):
                await self._transact()
                await trio.sleep(2.0)
            everything.cancel_scope.cancel()

    async def _live(self, lives: NodeLifecycle) -> None:
        await lives.run_once(None)

    def _reached(self, node_id: int, _name: str, step: TransactionStep) -> None:
        if step in STEP_TEXTS:
            self.trace_text += [[f"{f'n{node_id}':<16} {STEP_TEXTS[step]}"], []]

    def on_message(self, channel: Any, text: str, *, answers: bool) -> None:
        """Add a request of a channel, or with ``answers`` the response to it, to the trace."""
        here, there = channel.stream._owner.host.name, channel.stream.peer
        ends = f"{there} -> {here}" if answers else f"{here} -> {there}"
        self.trace_text[-1].append(f"{ends:<16} {text}")

    async def _transact(self) -> None:
        client = TransactionalClient(self.simulation, "producer", "payments", self.service, 2)

        async def body() -> None:
            for number in (0, 1):
                await client.write((SOURCE, number), [number])
                await client.sleep(0.5)

        await client.init()
        await client.transact(body, commit=True, requested=lambda: None)


def trace_messages() -> list[str]:
    """Run the scenario and return the lines of its trace; needs ``PYTHONHASHSEED=0`` to be the same each time.

    Replaces `Channel.call` in this process.
    """
    run = TransactionTrace()
    call = Channel.call

    async def traced_call(self: Any, request: Any, version: int | None = None) -> Any:
        text = describe_request(request)
        if text is None:
            return await call(self, request, version)
        run.on_message(self, text, answers=False)
        answer = await call(self, request, version)
        run.on_message(self, describe_response(answer), answers=True)
        return answer

    planted: Any = Channel
    planted.call = traced_call
    run.simulation.run(run.run)
    # Concurrent messages have one order: responses to the producer, then requests, then their responses.
    order = {"n3 -> producer": 0, "n3 -> n1": 1, "n3 -> n2": 2, "n1 -> n3": 3, "n2 -> n3": 4}
    for at, lines in enumerate(run.trace_text):
        if any("WriteTxnMarkers" in line for line in lines):
            run.trace_text[at] = sorted(lines, key=lambda line: order[line[:16].strip()])
    return [line for lines in run.trace_text for line in lines]


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "devtools.docs.transaction_messages"],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    logging.disable(logging.CRITICAL)
    sys.stdout.write("".join(f"{line}\n" for line in trace_messages()))
