"""Comparison of share partitions with Kafka's class: the same scenarios, and the state after each step."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.support.jars import classpath, jars
from ottla.broker.share_partitions.acknowledgement import (
    RecordStateChange,
    RecordStateChanges,
    ShareAcknowledgementBatch,
    acknowledge_records,
    complete_changes,
    expire_locks,
    next_lock_expiry_ms,
    release_acquired_records,
)
from ottla.broker.share_partitions.acquisition import AcquireRequest, FetchedOffsets, acquire_records
from ottla.broker.share_partitions.in_flight import InFlightState
from ottla.broker.share_partitions.share_partition import SharePartition, SharePartitionLimits
from ottla.broker.share_state.state_batches import PersisterStateBatch, combine_state_batches
from ottla.wire.errors import ProtocolError

SCENARIOS = int(os.environ.get("OTTLA_SCENARIOS", "400"))
STEPS = 40


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a driver of Kafka's class."""
    jars("kafka")
    out = tmp_path_factory.mktemp("share")
    source = Path(__file__).parent.parent / "java" / "share" / "SharePartitionDriver.java"
    subprocess.run(
        ["javac", "-nowarn", "-cp", classpath(), "-d", str(out), str(source)], check=True, capture_output=True
    )
    return out


def kafka(program: Path, lines: list[str]) -> list[str]:
    text = "".join(f"{line}\n" for line in lines)
    command = ["java", "-cp", f"{program}:{classpath()}", "kafka.server.share.SharePartitionDriver"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    out = [line[2:] for line in done.stdout.splitlines() if line.startswith("= ")]
    assert len(out) == len(lines), done.stderr[-2000:]
    return out


class SharePartitionDriver:
    """Driver of our share partition with the same commands."""

    def __init__(self, words: list[str]) -> None:
        self.now, self.writes = 0, "now"
        self.held: list[RecordStateChanges] = []
        start, rest = words[4].split("|")
        rows = [PersisterStateBatch(*map(int, row.split(","))) for row in rest.split(";") if row]
        self.share = SharePartition(int(start), rows, SharePartitionLimits(*map(int, words[1:4])))
        self.written = ""
        self.has_hole = False
        """The start lies behind a batch whose records went their own ways: Kafka's class fails there."""

    def step(self, line: str) -> str:
        """Return the result of a command, in the form of Kafka's driver."""
        words, self.written = line.split(" "), ""
        answer = "" if words[0] == "new" else getattr(self, words[0])(*words[1:])
        preceding = self.share.last_batch_at_or_before(self.share.start_offset)
        self.has_hole |= (
            preceding is not None and preceding.last_offset < self.share.start_offset and preceding.batch_state is None
        )
        share = self.share
        following = share.next_fetch_offset()
        where = f"{share.start_offset} {share.end_offset} {share.delivery_complete_count} {following}"
        return f"{answer}|{self.written}|{where} {str(share.can_acquire()).lower()}|{self.flying()}"

    def flying(self) -> str:
        def format_value(state: InFlightState) -> str:
            return f"{int(state.state)}x{state.delivery_count}@{state.member_id}{'!' if state.rollback_state else ''}"

        rows = []
        for batch in self.share:
            runs = batch.runs(batch.first_offset, batch.last_offset)
            singles = "".join(f"{format_value(run.state)} " * run.record_count for run in runs)
            inside = format_value(batch.batch_state) if batch.batch_state is not None else singles
            rows.append(f"{batch.first_offset}-{batch.last_offset}[{inside}]")
        return "".join(rows)

    def fetch(self, member: str, most: str, size: str, strict: str, at: str, ranges: str) -> str:
        read = [(int(a), int(b)) for a, b in (x.split("-") for x in ranges.split(","))]
        request = AcquireRequest(member, int(most), int(size), is_record_limit_strict=strict == "1")
        rows = acquire_records(self.share, request, FetchedOffsets(int(at), read), self.now)
        return "".join(f"{row.first_offset}-{row.last_offset}x{row.delivery_count}," for row in rows)

    def ack(self, member: str, text: str) -> str:
        batches = []
        for part in text.split(";"):
            first, last, types = part.split(",")
            batches.append(ShareAcknowledgementBatch(int(first), int(last), [int(x) for x in types]))
        try:
            changes = acknowledge_records(self.share, member, batches, self.now)
        except ProtocolError as error:
            return f"E{int(error.code)}"
        return "" if self.write(changes) else "EW"

    def mode(self, writes: str) -> str:
        self.writes = writes
        return ""

    def release(self, member: str) -> str:
        self.write(release_acquired_records(self.share, member))
        return ""

    def write(self, changes: RecordStateChanges) -> bool:
        if not changes.changes:
            return True
        # Kafka joins adjacent batches in its state, Ottla joins them when it sends them
        rows = "".join(map(self.format_change, changes.changes))
        self.written = f" {self.share.start_offset}/{self.share.delivery_complete_count}:{rows}"
        if self.writes == "later":
            self.held.append(changes)
            return True
        complete_changes(self.share, changes, self.now, written=self.writes == "now")
        return self.writes == "now"

    def format_change(self, row: RecordStateChange) -> str:
        first, last, count, state = row.state_batch
        step = last - first + 1 if row.batch.batch_state is not None else 1
        return "".join(f"{at}-{at + step - 1}={int(state)}x{count}," for at in range(first, last + 1, step))

    def tick(self, ms: str) -> str:
        until = self.now + int(ms)
        while (end := next_lock_expiry_ms(self.share)) is not None and end <= until:
            self.now = max(self.now, end)
            if not expire_locks(self.share, self.now):
                break
            if self.writes != "later":
                self.share.advance_start_offset()
        self.now = until
        return ""

    def complete(self, how: str) -> str:
        if self.held:
            changes = self.held.pop(0)
            complete_changes(self.share, changes, self.now, written=how == "ok")
        return ""

    def log(self, offset: str) -> str:
        self.share.update_log_start_offset(int(offset))
        return ""


def beginning(rng: random.Random) -> str:
    limit, locks, lock_ms, start = (
        rng.choice([2, 3, 5, 5, 10]),
        rng.choice([8, 20, 100]),
        rng.choice([10, 30]),
        rng.randrange(4),
    )
    rows, at = [], start
    for _ in range(rng.randrange(1, 6) if rng.random() < 0.35 else 0):
        at += rng.choice([0, 0, 0, 1, 3])
        size, state = rng.randrange(1, 5), rng.choice([0, 0, 2, 4])
        rows.append(f"{at},{at + size - 1},{rng.randrange(1, limit + (state > 0))},{state}")
        at += size
    return f"new {limit} {locks} {lock_ms} {start}|{';'.join(rows)}"


def some_log(rng: random.Random) -> list[tuple[int, int]]:
    out, at = [], 0
    while at < 200:
        size = rng.randrange(1, 7)
        out.append((at, at + size - 1))
        at += size + (rng.randrange(1, 4) if rng.random() < 0.08 else 0)
    return out


class SharePartitionRandomTest:
    """Random steps drawn while the test runs, so that most acknowledged records were acquired."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.log = some_log(rng)
        self.strict = int(rng.random() < 0.4)
        self.defers = rng.random() < 0.3
        """Whether writes may be decided later; then no lock runs out, which would be written as well."""
        self.got: list[tuple[str, int, int]] = []
        self.lines = [beginning(rng)]
        self.ours = SharePartitionDriver(self.lines[0].split(" "))
        self.answers = [self.ours.step(self.lines[0])]

    def play(self) -> Iterator[None]:
        for _ in range(STEPS):
            line = self.line()
            if line is None or self.ours.has_hole:
                continue
            self.lines.append(line)
            self.answers.append(self.ours.step(line))
            if line.startswith("fetch"):
                self.note(line.split(" ")[1], self.answers[-1].split("|")[0])
            yield

    def note(self, member: str, rows: str) -> None:
        for row in rows.split(",")[:-1]:
            first, last = row.split("x")[0].split("-")
            if int(first) <= int(last):
                self.got.append((member, int(first), int(last)))

    def line(self) -> str | None:
        rng, dice = self.rng, self.rng.random()
        if dice < 0.42:
            at = self.ours.share.next_fetch_offset()
            read = [row for row in self.log if row[1] >= at][: rng.randrange(1, 5)]
            ranges = ",".join(f"{a}-{b}" for a, b in read)
            sizes = f"{rng.choice([1, 2, 5, 10, 50])} {rng.choice([1, 3, 10, 100])}"
            return f"fetch {rng.choice('ab')} {sizes} {self.strict} {at} {ranges}" if read else None
        if dice < 0.72:
            return self.acknowledgement() if self.got else None
        if dice < 0.78:
            return f"release {rng.choice('ab')}"
        if dice < 0.86:
            return None if self.defers else f"tick {rng.choice([1, 5, 10, 30])}"
        if dice < 0.91:
            return f"mode {rng.choice(['now', 'now', 'later' if self.defers else 'fail', 'fail'])}"
        if dice < 0.97:
            return f"complete {rng.choice(['ok', 'ok', 'fail'])}"
        return f"log {self.ours.share.start_offset + rng.randrange(-1, 8)}"

    def acknowledgement(self) -> str:
        rng = self.rng
        member, first, last = rng.choice(self.got)
        if rng.random() < 0.5:
            first = rng.randrange(first, last + 1)
            last = rng.randrange(first, last + 1)
        last += rng.randrange(1, 4) if rng.random() < 0.05 else 0
        member = rng.choice("abc") if rng.random() < 0.1 else member
        types = (
            rng.choice("01122334")
            if rng.random() < 0.6
            else "".join(rng.choice("0112234") for _ in range(last - first + 1))
        )
        more = [x for x in self.got if x[0] == member and x[1] > last] if rng.random() < 0.3 else []
        text = f"ack {member} {first},{last},{types}"
        if more:
            _, begin, end = rng.choice(more)
            text += f";{begin},{end},{rng.choice('0112234')}"
        return text


def is_kafkas_failure(answer: str) -> bool:
    """Return True for failures of Kafka's class: a lock that was not released, a missing offset."""
    return answer.startswith(("XNullPointer", "XIllegalArgument"))


def test_share_partition_in_random_scenarios_equals_kafka(program: Path) -> None:
    scenarios = [SharePartitionRandomTest(seed) for seed in range(SCENARIOS)]
    for scenario in scenarios:
        for _ in scenario.play():
            pass
    theirs = iter(kafka(program, [line for scenario in scenarios for line in scenario.lines]))
    steps = 0
    for number, scenario in enumerate(scenarios):
        answers = [next(theirs) for _ in scenario.lines]
        for at, (ours, text) in enumerate(zip(scenario.answers, answers, strict=True)):
            if is_kafkas_failure(text) or (scenario.ours.has_hole and at == len(answers) - 1):
                break
            assert ours == text, f"story {number}: " + "; ".join(scenario.lines[: at + 1])
            steps += 1
    assert steps > SCENARIOS * STEPS * 0.7


def test_combine_state_batches_on_random_states_equals_kafka(program: Path) -> None:
    rng = random.Random(5)

    def some(*, in_order: bool) -> list[PersisterStateBatch]:
        out, at = [], rng.randrange(4)
        for _ in range(rng.randrange(6)):
            first = at + rng.randrange(3) if in_order else rng.randrange(20)
            at = first + rng.randrange(1, 6)
            out.append(PersisterStateBatch(first, at - 1, rng.randrange(1, 4), rng.choice([0, 2, 4])))
        return out

    def format_value(rows: list[PersisterStateBatch]) -> str:
        return "".join(",".join(map(str, row)) + ";" for row in rows)

    cases = [(rng.choice([-1, 0, 3, 8]), some(in_order=True), some(in_order=rng.random() < 0.6)) for _ in range(10_000)]
    theirs = kafka(program, [f"combine {start} {format_value(old)} {format_value(new)}" for start, old, new in cases])
    for (start, old, new), answer in zip(cases, theirs, strict=True):
        assert format_value(combine_state_batches(old, new, start)) == answer, (start, old, new)
