"""Settings beside Kafka: drawn values and pairs, real starts, and changes of a running broker.

How many: ``OTTLA_SETTINGS`` values of each setting, and pairs (``9,1000`` in the campaign), ``OTTLA_SETTINGS_STARTS``
starts of each broker (``all`` in the campaign), ``OTTLA_SETTINGS_CHANGES`` changes; ``OTTLA_SETTINGS_SEED``: the seed.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.beside_settings import differs, is_listed, ours, without_listed
from compat_tests.changed_settings import Changed, compared, created_of, steps_of
from compat_tests.cluster import OTTLA, KafkaProcess, OttlaProcess, Process
from compat_tests.drawn_settings import BASE, TABLES, Drawn, Draws
from compat_tests.started_settings import STARTS, SameFile, Start, kafka_with
from compat_tests.test_controller_rules import kafka

VALUES, PAIRS = (int(x) for x in os.environ.get("OTTLA_SETTINGS", "1,100").split(","))
SEED = int(os.environ.get("OTTLA_SETTINGS_SEED", "1"))
NUMBER_OF_STARTS = os.environ.get("OTTLA_SETTINGS_STARTS", "3")
CHOSEN = STARTS if NUMBER_OF_STARTS == "all" else random.Random(SEED).sample(STARTS, int(NUMBER_OF_STARTS))
CHANGES = int(os.environ.get("OTTLA_SETTINGS_CHANGES", "100"))


def test_drawn_settings_are_accepted_and_read_as_by_kafkas_classes() -> None:
    draws = Draws(SEED)
    drawn = [*draws.values(VALUES), *draws.pairs(PAIRS), *draws.nodes(PAIRS)]
    for kind, table in TABLES.items():
        assert {name for x in drawn if x.kind == kind for name in x.settings} == set(table), "every setting is drawn"
    drawn += [rest for x in drawn if (rest := without_listed(x)) is not x and rest.settings]
    found = []
    for case, theirs in zip(drawn, kafka("Settings.java", [x.line for x in drawn]), strict=True):
        mine = ours(case)
        if differs(case, mine, theirs) and not is_listed(case, mine, theirs):
            found.append(f"{case.kind} {case.settings}: {mine!r}, Kafka: {theirs}")
    assert not found, f"{len(found)} of {len(drawn)} differ, seed {SEED}:\n" + "\n".join(found[:50])


def test_without_listed_of_a_pair_keeps_the_setting_that_is_not_listed() -> None:
    drawn = Drawn("broker", BASE, {"metrics.recording.level": "x", "num.partitions": "0"})
    rest = without_listed(drawn)
    assert rest.settings == {"num.partitions": "0"}
    assert without_listed(rest) is rest
    wrong = drawn._replace(settings={"metrics.recording.level": "INFO", "num.partitions": "0"})
    assert not is_listed(wrong, "refused", "ok"), "the setting alone does not make a difference a listed one"


def test_drawn_changes_of_a_running_broker_are_answered_and_shown_as_by_kafka(tmp_path: Path) -> None:
    found: list[str] = []
    with KafkaProcess(tmp_path / "kafka") as theirs, OttlaProcess(tmp_path / "ottla") as mine:
        brokers = Changed(mine.port), Changed(theirs.port)
        found += created_differently(*brokers)
        found += changed_differently(*brokers)
        theirs.kill()  # with some of these settings it takes minutes to stop
    assert not found, f"{len(found)} of {CHANGES} differ, seed {SEED}:\n" + "\n".join(found[:50])


def created_differently(ours: Changed, kafka: Changed) -> Iterator[str]:
    """Create topics with drawn values of LIST settings; generate what is stored differently."""
    for number, (name, value) in enumerate(created_of(random.Random(SEED), CHANGES // 5)):
        mine, theirs = (broker.create(f"created-{number}", name, value) for broker in (ours, kafka))
        if mine != theirs:
            yield f"topic created with {name}={value!r}: {mine}, Kafka: {theirs}"


def changed_differently(ours: Changed, kafka: Changed) -> Iterator[str]:
    """Change drawn settings of running brokers; generate what is answered or shown differently."""
    rng = random.Random(SEED)
    for step in steps_of(rng, CHANGES):
        wrong = compared(ours, kafka, step)
        if wrong is not None:
            yield wrong
        if rng.random() < 0.8:
            ours.reset(step)
            kafka.reset(step)


def starts(process: Process) -> bool:
    """Whether a broker starts."""
    try:
        with process:
            return True
    except RuntimeError:
        return False


@pytest.mark.parametrize("start", CHOSEN)
def test_a_broker_starts_with_settings_if_kafka_does(start: Start, tmp_path: Path, formatted: Path) -> None:
    shutil.copytree(formatted, tmp_path / "kafka")
    kafka = kafka_with(start, tmp_path / "kafka")
    has_started = starts(kafka)
    log = kafka.log.read_text()
    assert has_started == (start.refused is None), f"{start}: {log[-2000:]}"
    assert (start.refused or "") in log, f"{start}: Kafka breaks another rule: {log[-2000:]}"
    ottla = SameFile(kafka, tmp_path / "ottla", OTTLA)
    assert starts(ottla) == (has_started != start.is_listed), f"{start}: {ottla.log.read_text()}"


@pytest.fixture(scope="module")
def formatted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that Kafka has formatted."""
    where = tmp_path_factory.mktemp("formatted") / "kafka"
    KafkaProcess(where)
    return where
