"""Levels of ``metadata.version`` and of other features by Kafka release, for ``kafka-features`` and ``kafka-storage``.

Releases that Kafka 4.3.1 knows are listed even if Ottla does not support them.

Source: ``MetadataVersion``, ``Feature``, ``KRaftVersion`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.cli.kafka_tools.tool_options import ToolFailed, java_short
from ottla.controller.bootstrap_features import LEVEL_NEEDS, LEVELS_SINCE, RELEASES, default_level
from ottla.controller.metadata.record_serde import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, NEWEST_METADATA_VERSION

_OLDER = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
}
KNOWN_RELEASES = {**_OLDER, **RELEASES, 31: "4.4-IV0"}
"""Release of each metadata.version that Kafka 4.3.1 knows; the last one is not stable."""
FEATURES = (*(KRAFT_VERSION, "transaction.version", "group.version", ELR_VERSION, "share.version", "streams.version"),)
"""Features besides metadata.version, in the order of Kafka's tools."""
_KRAFT_SINCE = 21


def parse_release(text: str, *, with_unstable: bool = True) -> int:
    """Return the level of metadata.version of a release, such as ``4.1``, ``4.1.2`` or ``4.1-IV0``.

    Args:
        text: the release.
        with_unstable: True to accept levels above the newest stable one, by their full name.

    Raises:
        ToolFailed: the release is unknown.
    """
    parts = text.split(".")
    name = text if len(parts) <= 2 else ".".join(parts[:2])
    known = {level: x for level, x in KNOWN_RELEASES.items() if with_unstable or level <= NEWEST_METADATA_VERSION}
    stable = {x.partition("-")[0]: level for level, x in known.items() if level <= NEWEST_METADATA_VERSION}
    exact = {x: level for level, x in known.items()}
    found = {**exact, **stable}.get(name)
    if found is None:
        shown = ", ".join(known.values())
        raise ToolFailed(f"Unknown metadata.version '{text}'. Supported metadata.version are: {shown}")
    return found


def release_text(level: int) -> str:
    """Return the name of a level of metadata.version, such as ``3.9-IV0``; of an unknown one such as ``UNKNOWN 99``."""
    return KNOWN_RELEASES.get(level, f"UNKNOWN {level}")


def level_at(feature: str, metadata_version: int) -> int:
    """Return the level at which a feature starts in a new cluster of a metadata.version; 0 if it is off."""
    if feature == KRAFT_VERSION:
        return int(metadata_version >= _KRAFT_SINCE)
    return default_level(feature, metadata_version)


def parse_level(text: str) -> tuple[str, int]:
    """Parse ``FEATURE=LEVEL``; the name of the feature is not checked.

    Raises:
        ToolFailed: ``=`` is missing, or the level is no number of 16 bits.
    """
    name, separator, level = text.partition("=")
    prefix = f"Can't parse feature=level string {text}: "
    if not separator:
        raise ToolFailed(f"{prefix}equals sign not found.")
    try:
        return name.strip(), java_short(level.strip())
    except ValueError:
        raise ToolFailed(f"{prefix}unable to parse {level.strip()} as a short.") from None


def version_mapping(release: str | None) -> str:
    """Return the lines of ``version-mapping`` for a release; None stands for the newest stable one.

    Raises:
        ToolFailed: the release is unknown.
    """
    text = KNOWN_RELEASES[NEWEST_METADATA_VERSION] if release is None else release
    metadata_version = parse_release(text)
    lines = [f"{METADATA_VERSION}={metadata_version} ({text})"]
    lines += [f"{feature}={level_at(feature, metadata_version)}" for feature in FEATURES]
    return "\n".join(lines)


def dependencies_text(feature: str, level: int, unknown_level: str) -> str:
    """Return the output of ``feature-dependencies`` for a level: the metadata.version that it requires, if any.

    Args:
        feature: name of the feature.
        level: level of the feature.
        unknown_level: error message for a level that a feature other than metadata.version does not have.

    Raises:
        ToolFailed: the feature or level is unknown.
    """
    if feature == METADATA_VERSION:
        if level not in KNOWN_RELEASES:
            raise ToolFailed(f"Unknown {METADATA_VERSION} {level}")
        return f"{feature}={level} ({KNOWN_RELEASES[level]}) has no dependencies."
    if feature not in FEATURES:
        raise ToolFailed(f"Unknown feature: {feature}")
    steps: Mapping[int, int] = {1: _KRAFT_SINCE} if feature == KRAFT_VERSION else LEVELS_SINCE[feature]
    if level not in (0, *steps):
        raise ToolFailed(unknown_level)
    needed = LEVEL_NEEDS.get((feature, level))
    if needed is None:
        return f"{feature}={level} has no dependencies."
    return f"{feature}={level} requires:\n    {METADATA_VERSION}={needed} ({KNOWN_RELEASES[needed]})"
