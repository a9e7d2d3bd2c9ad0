"""Initial feature levels of a new cluster, by Kafka release, and the releases that each level needs.

Source: ``MetadataVersion.java``, ``Feature.java``, ``Formatter.java`` (apache/kafka 4.3.1).

From KIP-584 and KIP-1022.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.metadata.record_serde import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    NEWEST_METADATA_VERSION,
    OLDEST_METADATA_VERSION,
)

RELEASES = {
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}
"""Kafka's release name of each supported metadata.version."""
assert (min(RELEASES), max(RELEASES)) == (OLDEST_METADATA_VERSION, NEWEST_METADATA_VERSION)

LEVELS_SINCE = {
    ELR_VERSION: {1: 26},
    "group.version": {1: 22},
    "share.version": {1: 28},
    "streams.version": {1: 29},
    "transaction.version": {1: 24, 2: 24},
}
"""For each feature, the lowest metadata.version at which a new cluster starts with a level by default."""
LEVEL_NEEDS = {(ELR_VERSION, 1): 23}
"""For a (feature, level), the lowest metadata.version that supports it."""


class InvalidFeatureLevel(Exception):
    """Invalid release, feature or level, or a combination with which no cluster can start; message: one line."""


def metadata_version_of_release(text: str) -> int:
    """Return the newest metadata.version of a release, such as ``4.1``, ``4.1.2`` or ``4.1-IV0``.

    Raises:
        InvalidFeatureLevel: unknown or unsupported release.
    """
    name = ".".join(text.split(".")[:2])
    found = [level for level, release in RELEASES.items() if name in (release, release.partition("-")[0])]
    if not found:
        raise InvalidFeatureLevel(f"no release {text!r}; supported: {', '.join(RELEASES.values())}")
    return max(found)


def default_level(feature: str, metadata_version: int) -> int:
    """Return the level at which a new cluster of a metadata.version starts a feature of `LEVELS_SINCE`; 0: off."""
    steps = LEVELS_SINCE[feature].items()
    return max((level for level, since in steps if since <= metadata_version), default=0)


def bootstrap_feature_levels(release: str | None, chosen: Mapping[str, int], *, dynamic_quorum: bool) -> dict[str, int]:
    """Return the feature levels of a new cluster, including metadata.version, kraft.version and features at level 0.

    ``release``: Kafka release, None for the newest. ``chosen``: levels set by the user; the others follow from the
    release. ``dynamic_quorum``: True if the voters are in a VotersRecord (kraft.version 1).

    Raises:
        InvalidFeatureLevel: an unknown release, feature or level, levels that exclude each other, or a release and
            a chosen metadata.version.
    """
    if release is not None and METADATA_VERSION in chosen:
        raise InvalidFeatureLevel(
            f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity."
        )
    metadata = (
        metadata_version_of_release(release)
        if release is not None
        else chosen.get(METADATA_VERSION, NEWEST_METADATA_VERSION)
    )
    if metadata not in RELEASES:
        raise InvalidFeatureLevel(f"{METADATA_VERSION} {metadata} is not one of {min(RELEASES)} to {max(RELEASES)}")
    out = {METADATA_VERSION: metadata, KRAFT_VERSION: chosen.get(KRAFT_VERSION, int(dynamic_quorum))}
    out.update({name: default_level(name, metadata) for name in LEVELS_SINCE})
    for name, level in chosen.items():
        if name not in SUPPORTED_FEATURES:
            raise InvalidFeatureLevel(
                f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(SUPPORTED_FEATURES))}"
            )
        low, high = SUPPORTED_FEATURES[name]
        if not (0 if name != METADATA_VERSION else low) <= level <= high:
            raise InvalidFeatureLevel(f"No feature {name} with feature level {level} (maximum {high})")
        out[name] = level
    for (name, level), needed in LEVEL_NEEDS.items():
        if out[name] >= level and metadata < needed:
            raise InvalidFeatureLevel(
                f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level {needed}"
            )
    if out[KRAFT_VERSION] != int(dynamic_quorum):
        why = "the voters are static (controller.quorum.voters)" if not dynamic_quorum else "the voters are dynamic"
        raise InvalidFeatureLevel(f"{KRAFT_VERSION} cannot be {out[KRAFT_VERSION]}: {why}")
    return out
