"""Drawn workloads compared with Kafka: each client reads the same from both, and reports the same errors.

``OTTLA_WORKLOADS=1-200`` is the campaign; with ``OTTLA_WORKLOADS_RESUME=FILE`` it can be continued. With
``OTTLA_WORKLOADS_PLANTED=1`` each fault of `planted` must be found.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from compat_tests.workloads.campaign import WorkloadCampaign, done_seeds, run_campaign
from compat_tests.workloads.driver_processes import ToolchainMissing, driver_commands
from compat_tests.workloads.outcome_comparison import find_differences, split_confirmed
from compat_tests.workloads.seeded_faults import WORKLOAD_FAULTS, is_detected
from compat_tests.workloads.workload_generator import generate_workload

SEEDS = os.environ.get("OTTLA_WORKLOADS", "")
RESUME = os.environ.get("OTTLA_WORKLOADS_RESUME")
WITH_SEEDED_FAULTS = bool(os.environ.get("OTTLA_WORKLOADS_PLANTED"))
PLANTED_SEEDS = 50
SHORT_SEEDS = (3, 6, 7, 8, 16)
"""Seeds of CI: all clients, unusual frames, large messages, an open transaction, a topic deleted during a read."""


def _chosen() -> list[int]:
    if not SEEDS:
        return list(SHORT_SEEDS)
    first, _, last = SEEDS.partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.mark.xdist_group(__name__)
def test_drawn_workloads_read_the_same_as_on_kafka() -> None:
    try:
        driver_commands()
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    found: dict[int, list[str]] = {}
    with WorkloadCampaign() as stage:
        for result in run_campaign(stage, _chosen(), Path(RESUME) if RESUME else None):
            print(f"seed {result.seed}: {len(result.differences)} differences, {result.took_s:.0f} s", flush=True)
            if result.differences:
                found[result.seed] = result.differences
    if RESUME:
        found |= {seed: lines for seed, lines in done_seeds(Path(RESUME)).items() if lines}
    shown = json.dumps(found, indent=1)
    assert not found, f"python -m compat_tests.workloads --seed {next(iter(found))}: {shown}"


@pytest.mark.xdist_group(__name__)
@pytest.mark.skipif(not WITH_SEEDED_FAULTS, reason="part of a campaign: OTTLA_WORKLOADS_PLANTED=1")
@pytest.mark.parametrize("plant", WORKLOAD_FAULTS)
def test_drawn_workloads_find_a_planted_fault(plant: str) -> None:
    with WorkloadCampaign(plant=plant) as stage:
        for result in run_campaign(stage, range(1, PLANTED_SEEDS + 1), None):
            print(f"{plant}: seed {result.seed}: {result.differences[:1]}", flush=True)
            if is_detected(plant, result.differences):
                return
    pytest.fail(f"not found in {PLANTED_SEEDS} seeds: {plant}")


def test_generate_workload_of_same_seed_returns_same_workload() -> None:
    assert generate_workload(7) == generate_workload(7)
    assert generate_workload(7) != generate_workload(8)


def test_campaign_seeds_cover_sizes_partitions_and_steps() -> None:
    workloads = [generate_workload(seed) for seed in range(1, 201)]
    steps = [step for workload in workloads for step in workload["steps"]]
    names = {step["do"] for step in steps}
    clients = {step["client"] for step in steps if step["do"] == "consume"}
    records = [row for step in steps if step["do"] == "produce" for row in step["records"]]
    assert names >= {"produce", "consume", "finish", "list offsets", "fetch", "frame", "delete records", "restart"}
    assert clients == {"java", "confluent", "kafka-python", "aiokafka", "franz-go"}
    assert max(topic["partitions"] for workload in workloads for topic in workload["topics"]) > 400
    assert max(row[2] for row in records) > 15 << 20
    assert any(step["transaction"] and step["transaction"]["leave_open"] for step in steps if step["do"] == "produce")
    assert any(step["do"] == "consume" and step["delete"] is not None for step in steps)


ONE, OTHER, LOGGED = "step 1 (consume, client=java): stop", "step 2 (fetch): held back", "ottla logged an exception"


@pytest.mark.parametrize(
    ("first", "second", "twice", "once"),
    [
        ([ONE], [ONE], [ONE], []),
        ([ONE], [], [], [ONE]),
        ([ONE, OTHER], [OTHER], [OTHER], [ONE]),
        ([LOGGED], [ONE], [LOGGED], [ONE]),
        ([ONE], [ONE, LOGGED], [ONE, LOGGED], []),
    ],
)
def test_split_confirmed_separates_differences_of_one_run(
    first: list[str], second: list[str], twice: list[str], once: list[str]
) -> None:
    assert split_confirmed(first, second) == (twice, once)


CONSUMED = {"rows": {"0/0": [[0, 5, 0, 3, 77, 9], [1, 6, 0, 3, 78, 9]]}, "errors": {}, "stop": "end", "requests": {}}
STEP = {"do": "consume", "client": "java", "group": None}


@pytest.mark.parametrize(
    ("kind", "step", "changed", "found"),
    [
        ("plain", STEP, {}, ""),
        ("plain", STEP, {"rows": {}}, "partition 0/0: 0 records, on Kafka 2"),
        ("plain", STEP, {"errors": {"KafkaException": 1}}, "errors: ['KafkaException'], on Kafka []"),
        ("plain", STEP, {"stop": "timeout"}, "stop: timeout, on Kafka end"),
        ("plain", STEP, {"requests": {"1": 6000}}, "requests of API 1: 6000, on Kafka 0"),
        ("plain", STEP, {"requests": {"1": 100}}, ""),
        ("stamped", STEP, {"rows": {"0/0": [[0, 95, 0, 3, 77, 9], [1, 96, 0, 3, 78, 9]]}}, ""),
        ("compact", STEP, {"rows": {"0/0": [[1, 6, 0, 3, 78, 9]]}}, ""),
        ("compact", STEP, {"rows": {"0/0": [[0, 5, 0, 3, 77, 9]]}}, "partition 0/0: 1 records, on Kafka 1"),
        ("plain", {**STEP, "group": "g"}, {"rows": {"0/0": CONSUMED["rows"]["0/0"] * 2}}, ""),  # type: ignore[index]
    ],
)
def test_find_differences_ignores_differences_without_a_fault(
    kind: str, step: dict[str, object], changed: dict[str, object], found: str
) -> None:
    workload = {"topics": [{"kind": kind}], "steps": [step]}
    lines = find_differences(workload, [{**CONSUMED, **changed}], [dict(CONSUMED)])
    assert (found in lines[0]) if found else not lines


@pytest.mark.parametrize(("ottla", "found"), [(8132, ""), (8133, "8133, on Kafka 8132"), (8131, "")])
def test_find_differences_compares_last_stable_offset_from_log_start_on(ottla: int, found: str) -> None:
    workload = {"topics": [{"kind": "plain"}], "steps": [{"do": "list offsets"}]}
    outcomes = [
        {"answer": {"0: -2, isolation 0": [0, -1, 8132, 4], "0: -1, isolation 1": [0, -1, stable, 4]}}
        for stable in (ottla, 8130)
    ]
    lines = find_differences(workload, outcomes[:1], outcomes[1:])
    assert (found in lines[0]) if found else not lines


@pytest.mark.parametrize("is_deleted", [True, False])
def test_find_differences_after_delete_records_compares_errors_of_time_lookups(is_deleted: bool) -> None:
    steps = [{"do": "delete records", "topic": 0}] * is_deleted + [{"do": "list offsets", "topic": 0}]
    outcomes = [
        [{"answer": []}] * is_deleted + [{"answer": {"0: -3, isolation 0": row}}]
        for row in ([0, 5, 7, 4], [0, 6, 8, 4])
    ]
    assert len(find_differences({"topics": [{"kind": "plain"}], "steps": steps}, *outcomes)) == (not is_deleted)
