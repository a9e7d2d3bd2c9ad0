"""ISO 8601 durations as Java parses them."""

from __future__ import annotations

import pytest

from ottla.controller.config.config_keys import GROUP_KEYS, check_value
from ottla.controller.config.java_duration import by_duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT0S", 0),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt1h", 3_600_000),
        ("PT1.S", 1_000),
        ("PT1,5S", 1_500),
        ("PT0.0019S", 1),
        ("PT1.123456789S", 1_123),
        ("P-1DT25H", 3_600_000),
        ("-PT-5S", 5_000),
        ("+PT5S", 5_000),
        ("PT1M-0.5S", 59_500),
        ("P100000000D", 8_640_000_000_000_000),
        ("", None),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("1D", None),
        ("PT1", None),
        ("PT1.1234567890S", None),
        ("PT-1S", None),
        ("-P1D", None),
        ("P1H", None),
        ("PT\u0661S", None),
        ("P106751991167301D", None),
        ("P" + "9" * 5000 + "D", None),
    ],
)
def test_by_duration_ms_equals_java_and_config_validation(text: str, ms: int | None) -> None:
    """Validation and parsing must agree: otherwise a stored config would stop the node that reads it."""
    assert by_duration_ms(f"by_duration:{text}") == ms
    wrong = check_value(GROUP_KEYS["share.auto.offset.reset"], f"by_duration:{text}")
    assert (wrong is None) is (ms is not None)


@pytest.mark.parametrize("text", ["BY_DURATION:PT1S", "PT1S", "by_durationPT1S"])
def test_by_duration_ms_requires_lower_case_prefix(text: str) -> None:
    assert by_duration_ms(text) is None
    assert check_value(GROUP_KEYS["share.auto.offset.reset"], text) is not None
