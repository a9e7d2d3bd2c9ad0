"""Settings beside Kafka: drawn values and pairs, asked of Kafka's own classes, and changes of a running broker.

``OTTLA_SETTINGS`` says how many values of each setting and how many pairs are drawn (``9,1000`` in the campaign);
``OTTLA_SETTINGS_SEED`` which seed.
"""

from __future__ import annotations

import os

from compat_tests.beside_settings import differs, is_listed, ours
from compat_tests.drawn_settings import TABLES, Drawn, Draws
from compat_tests.test_controller_rules import kafka

VALUES, PAIRS = (int(x) for x in os.environ.get("OTTLA_SETTINGS", "1,100").split(","))
SEED = int(os.environ.get("OTTLA_SETTINGS_SEED", "1"))


def compared(drawn: list[Drawn]) -> list[str]:
    """What differs, beyond what the limitations list."""
    found = []
    for case, theirs in zip(drawn, kafka("Settings.java", [x.line for x in drawn]), strict=True):
        mine = ours(case)
        if differs(case, mine, theirs) and not is_listed(case, mine):
            found.append(f"{case.kind} {case.settings}: {mine!r}, Kafka: {theirs}")
    return found


def test_drawn_settings_are_accepted_and_read_as_by_kafkas_classes() -> None:
    draws = Draws(SEED)
    drawn = [*draws.values(VALUES), *draws.pairs(PAIRS)]
    for kind, table in TABLES.items():
        assert {name for x in drawn if x.kind == kind for name in x.settings} == set(table), "every setting is drawn"
    found = compared(drawn)
    assert not found, f"{len(found)} of {len(drawn)} differ, seed {SEED}:\n" + "\n".join(found[:50])
