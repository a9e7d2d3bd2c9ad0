"""Settings compared with Kafka: drawn values and pairs, real starts, and changes of a running broker.

Numbers: ``OTTLA_SETTINGS`` values of each setting, and pairs (``9,1000`` in the campaign), ``OTTLA_SETTINGS_STARTS``
starts of each broker (``all`` in the campaign), ``OTTLA_SETTINGS_CHANGES`` changes; ``OTTLA_SETTINGS_SEED``: the seed.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.support.processes import OTTLA, KafkaProcess, NodeProcess, OttlaProcess
from compat_tests.vs_kafka.random_settings import (
    BASE_SETTINGS,
    TABLES,
    RandomSettings,
    RandomSettingsGenerator,
    decode_text,
    draw_tiered_topic,
)
from compat_tests.vs_kafka.settings_changes import (
    ConfigChangeClient,
    find_difference,
    generate_changes,
    generate_topic_configs,
)
from compat_tests.vs_kafka.settings_comparison import (
    is_different,
    is_documented_difference,
    parse_with_ottla,
    without_documented_differences,
)
from compat_tests.vs_kafka.startup_settings import STARTUP_CASES, OttlaWithKafkaConfig, StartupCase, kafka_process
from compat_tests.vs_kafka.test_controller_rules import run_kafka_rules

VALUES, PAIRS = (int(x) for x in os.environ.get("OTTLA_SETTINGS", "1,100").split(","))
SEED = int(os.environ.get("OTTLA_SETTINGS_SEED", "1"))
NUMBER_OF_STARTS = os.environ.get("OTTLA_SETTINGS_STARTS", "3")
CHOSEN = (
    STARTUP_CASES if NUMBER_OF_STARTS == "all" else random.Random(SEED).sample(STARTUP_CASES, int(NUMBER_OF_STARTS))
)
TIERED_TOPICS = 300
CHANGES = int(os.environ.get("OTTLA_SETTINGS_CHANGES", "100"))


def test_drawn_settings_are_accepted_and_parsed_as_by_kafka() -> None:
    draws = RandomSettingsGenerator(SEED)
    drawn = [*draws.values(VALUES), *draws.pairs(PAIRS), *draws.nodes(PAIRS)]
    for kind, table in TABLES.items():
        assert {name for x in drawn if x.kind == kind for name in x.settings} == set(table), "every setting is drawn"
    drawn += [rest for x in drawn if (rest := without_documented_differences(x)) is not x and rest.settings]
    found = []
    for case, theirs in zip(
        drawn, run_kafka_rules("ConfigValidation.java", [x.to_request_text for x in drawn]), strict=True
    ):
        mine = parse_with_ottla(case)
        if is_different(case, mine, theirs) and not is_documented_difference(case, mine, theirs):
            found.append(f"{case.kind} {case.settings}: {mine!r}, Kafka: {theirs}")
    assert not found, f"{len(found)} of {len(drawn)} differ, seed {SEED}:\n" + "\n".join(found[:50])


def test_drawn_settings_of_tiered_topics_are_accepted_as_by_kafka() -> None:
    rng = random.Random(SEED)
    drawn = [draw_tiered_topic(rng) for _ in range(TIERED_TOPICS)]
    answers = run_kafka_rules("ConfigValidation.java", [x.to_request_text for x in drawn])
    accepted = 0
    for case, theirs in zip(drawn, answers, strict=True):
        mine = parse_with_ottla(case)
        verdict, _, text = theirs.partition(" ")
        accepted += verdict == "ok"
        assert isinstance(mine, str) == (verdict == "no"), (case.broker, case.settings, mine, theirs)
        assert verdict == "ok" or mine == decode_text(text), (case.settings, mine, decode_text(text))
    assert TIERED_TOPICS * 0.1 < accepted < TIERED_TOPICS * 0.9


def test_without_documented_differences_keeps_other_setting_of_pair() -> None:
    drawn = RandomSettings("broker", BASE_SETTINGS, {"metrics.recording.level": "x", "num.partitions": "0"})
    rest = without_documented_differences(drawn)
    assert rest.settings == {"num.partitions": "0"}
    assert without_documented_differences(rest) is rest
    wrong = drawn._replace(settings={"metrics.recording.level": "INFO", "num.partitions": "0"})
    assert not is_documented_difference(wrong, "refused", "ok"), (
        "the setting alone does not make a difference a listed one"
    )


def test_drawn_changes_of_running_broker_equal_kafka(tmp_path: Path) -> None:
    found: list[str] = []
    with KafkaProcess(tmp_path / "kafka") as theirs, OttlaProcess(tmp_path / "ottla") as mine:
        brokers = ConfigChangeClient(mine.port), ConfigChangeClient(theirs.port)
        found += created_differently(*brokers)
        found += changed_differently(*brokers)
        theirs.kill()  # with some of these settings it takes minutes to stop
    assert not found, f"{len(found)} of {CHANGES} differ, seed {SEED}:\n" + "\n".join(found[:50])


def created_differently(ours: ConfigChangeClient, kafka: ConfigChangeClient) -> Iterator[str]:
    """Create topics with drawn values of LIST settings; yield the differences of the stored values."""
    for number, (name, value) in enumerate(generate_topic_configs(random.Random(SEED), CHANGES // 5)):
        mine, theirs = (broker.create(f"created-{number}", name, value) for broker in (ours, kafka))
        if mine != theirs:
            yield f"topic created with {name}={value!r}: {mine}, Kafka: {theirs}"


def changed_differently(ours: ConfigChangeClient, kafka: ConfigChangeClient) -> Iterator[str]:
    """Alter drawn settings of running brokers; yield the differences of responses and described values."""
    rng = random.Random(SEED)
    for step in generate_changes(rng, CHANGES):
        wrong = find_difference(ours, kafka, step)
        if wrong is not None:
            yield wrong
        if rng.random() < 0.8:
            ours.reset(step)
            kafka.reset(step)


def starts(process: NodeProcess) -> bool:
    """Return True when a broker starts."""
    try:
        with process:
            return True
    except RuntimeError:
        return False


@pytest.mark.parametrize("start", CHOSEN)
def test_broker_starts_with_settings_if_kafka_does(start: StartupCase, tmp_path: Path, formatted: Path) -> None:
    shutil.copytree(formatted, tmp_path / "kafka")
    kafka = kafka_process(start, tmp_path / "kafka")
    has_started = starts(kafka)
    log = kafka.log.read_text()
    assert has_started == (start.expected_error is None), f"{start}: {log[-2000:]}"
    assert (start.expected_error or "") in log, f"{start}: Kafka breaks another rule: {log[-2000:]}"
    ottla = OttlaWithKafkaConfig(kafka, tmp_path / "ottla", OTTLA)
    assert starts(ottla) == (has_started != start.is_documented_difference), f"{start}: {ottla.log.read_text()}"


@pytest.fixture(scope="module")
def formatted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that Kafka has formatted."""
    where = tmp_path_factory.mktemp("formatted") / "kafka"
    KafkaProcess(where)
    return where
