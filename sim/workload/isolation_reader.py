"""Readers with read_uncommitted or read_committed, as Kafka's consumers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages import fetch
from ottla.wire.record_batch import legacy_records
from ottla.wire.record_batch.control_record import ControlRecordType, parse_end_transaction_marker
from ottla.wire.record_batch.records import Record, iterate_records
from sim.checkers.history import HistoryPartition, OffsetsStep, OperationOutcome, PollStep
from sim.workload.clients import ClusterService, RetriableError, SimClient

if TYPE_CHECKING:
    from sim.engine.simulation import Simulation

TRANSACTIONAL_BIT = 1 << 4


class FetchView(NamedTuple):
    """Records of a partition that a consumer sees of one Fetch response, and offsets of the partition."""

    records: list[tuple[int, int | None]]
    """Offsets and values; the value None had a wrong checksum."""
    next_offset: int
    """Next offset to fetch, after control batches and aborted records."""
    last_stable_offset: int
    high_watermark: int


async def fetch_isolated(
    client: SimClient, place: HistoryPartition, offset: int, wait_ms: int, *, committed: bool
) -> FetchView:
    """Fetch a partition once from its leader, and return the records that a consumer sees.

    ``committed``: with read_committed, else with read_uncommitted. A batch with an invalid checksum is reported as
    ``bad-crc``.

    Raises:
        RetriableError: no response, or an error response.
    """
    topic, partition = place
    at = await client.leader(topic, partition)
    part = fetch.FetchPartition(partition, client.leader_epoch(topic, partition), offset, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 24,
        isolation_level=int(committed),
        topics=[fetch.FetchTopic(topic, partitions=[part])],
    )
    answer = await client.call(request, 12, at)
    row = answer.responses[0].partitions[0]
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        client.simulation.ledger.report_out_of_range(place, offset)
    if row.error_code:
        raise RetriableError(ErrorCode(row.error_code).name)
    try:
        shown, end = _visible_records(row, offset)
    except WireError as error:
        client.simulation.ledger.report_violation("bad-crc", str(error))
        shown, end = [], offset
    records = [(x.offset, client.service.unpack(place, x.value)) for x in shown]
    return FetchView(records, end, row.last_stable_offset, row.high_watermark)


def _visible_records(row: fetch.PartitionData, offset: int) -> tuple[list[Record], int]:
    """Return the records from ``offset`` on that a consumer sees of a response, and the next fetch offset.

    Control batches and records of aborted transactions are left out (``CompletedFetch.java``).

    Raises:
        WireError: a batch is malformed, or has an invalid checksum.
    """
    raw = row.records or b""
    aborted = sorted((x.first_offset, x.producer_id) for x in row.aborted_transactions or ())
    open_ones: dict[int, None] = {}
    out: list[Record] = []
    for pos, header in legacy_records.iterate_any_batches(raw):
        if not legacy_records.any_crc_matches(raw, header, pos):
            raise WireError(f"bad CRC in the batch at offset {header.base_offset}")
        while aborted and aborted[0][0] <= header.last_offset:
            open_ones[aborted.pop(0)[1]] = None
        records = list(iterate_records(raw, header, pos))
        if header.is_control:
            end = parse_end_transaction_marker(records[0]) if records else None
            if end is not None and end.control_type == ControlRecordType.ABORT:
                open_ones.pop(header.producer_id, None)
        elif not (header.attributes & TRANSACTIONAL_BIT and header.producer_id in open_ones):
            out += [x for x in records if x.offset >= offset]
        offset = max(offset, header.next_offset)
    return out, offset


class IsolationReader(SimClient):
    """Client that reads the partitions of a topic from their start, and records each read in the history."""

    def __init__(
        self, simulation: Simulation, name: str, topic: str, service: ClusterService, *, committed: bool
    ) -> None:
        super().__init__(simulation, name, service)
        self._topic = topic
        self._committed = committed
        self._at = dict.fromkeys(range(service.partitions), 0)

    async def run(self) -> None:
        """Read all partitions in a cycle until cancelled."""
        history, now_s = self.simulation.history, self.simulation.now_s
        number = history.start(self.name, "assign", now_s=now_s())
        history.end(number, OperationOutcome.OK, now_s(), places=[(self._topic, p) for p in self._at])
        while True:
            for partition in self._at:
                try:
                    await self.poll(partition, 100)
                except RetriableError:
                    self.invalidate_leaders()
            await self.sleep(0.1 + self.simulation.rng.random() * 0.3)

    async def poll(self, partition: int, wait_ms: int) -> FetchView:
        """Fetch a partition once from the next offset, advance it, and record the read in the history.

        Raises:
            RetriableError: no response, or an error response.
        """
        history, place = self.simulation.history, (self._topic, partition)
        number = history.start(self.name, "poll", now_s=self.simulation.now_s(), uncommitted=not self._committed)
        try:
            seen = await fetch_isolated(self, place, self._at[partition], wait_ms, committed=self._committed)
        except BaseException:
            history.end(number, OperationOutcome.FAIL, self.simulation.now_s())
            raise
        self._at[partition] = seen.next_offset
        history.end(number, OperationOutcome.OK, self.simulation.now_s(), [PollStep(place, tuple(seen.records))])
        return seen

    async def read_to_end(self, partition: int, within_s: float) -> list[tuple[int, int]]:
        """Read a partition to its end, and return offsets and values of the records, without those of a wrong checksum.

        The end is reached when the last stable offset equals the high watermark, or has not moved for ``within_s``
        simulated seconds; the history has both offsets of each response, from which ``lso-stuck`` is found.
        """
        out: list[tuple[int, int]] = []
        history, place = self.simulation.history, (self._topic, partition)
        since, stable = self.simulation.now_s(), -1
        while True:
            seen = await self.retry_until_done(partial(self.poll, partition, 50))
            out += [(offset, value) for offset, value in seen.records if value is not None]
            number = history.start(self.name, "look", now_s=self.simulation.now_s())
            history.end(
                number,
                OperationOutcome.OK,
                self.simulation.now_s(),
                [OffsetsStep(place, seen.last_stable_offset, seen.high_watermark)],
            )
            if (
                not seen.records
                and seen.last_stable_offset >= seen.high_watermark
                and self._at[partition] >= seen.last_stable_offset
            ):
                return out
            if seen.last_stable_offset != stable:
                since, stable = self.simulation.now_s(), seen.last_stable_offset
            elif self.simulation.now_s() > since + within_s:
                return out
            await self.sleep(0.05)
