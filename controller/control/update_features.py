"""UpdateFeatures on the active controller: changes of the finalized feature levels of the cluster.

All updates of a request are applied or none. A level can be lowered only if the request allows a downgrade, and
metadata.version never below a level at which records changed.

Source: ``FeatureControlManager.java`` (apache/kafka 4.3.1).

From KIP-584, with KRaft's levels: KIP-778.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ottla.controller.config.config_validation import MIN_ISR
from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage
from ottla.controller.metadata.record_serde import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION
from ottla.jobs.job import Job
from ottla.jobs.sequences import collect_job, sort_job
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata_records import ConfigRecord, FeatureLevelRecord
from ottla.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

# Levels of metadata.version that changed the metadata records (``MetadataVersion.didMetadataChange``).
LEVELS_WITH_NEW_RECORDS = (23, 30)
_PREFIX = "The update failed for all features since the following feature had an error: "


class UpgradeType(IntEnum):
    """Kind of a feature update: an upgrade, or a safe or unsafe downgrade (KIP-584)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class _Refused(Exception):
    """Invalid feature update; the text is Kafka's error message."""


def _invalid(name: str, level: int, why: str) -> _Refused:
    return _Refused(f"Invalid update version {level} for feature {name}. {why}")


class FeatureUpdateContext(NamedTuple):
    """State of the deciding controller: node id, the quorum's kraft.version and voters, its min.insync.replicas."""

    node_id: int
    kraft_version: int = 1
    static_voters: tuple[int, ...] = ()
    """Voters of ``controller.quorum.voters``, each of which must have registered before a level is changed."""
    min_isr: str = "1"
    """``min.insync.replicas`` in this node's configuration."""


def _check_range(name: str, level: int, node: str, low: int, high: int) -> None:
    if not low <= level <= high:
        if high == 0:
            raise _invalid(name, level, f"{node} does not support this feature.")
        only = str(low) if low == high else f"{low}-{high}"
        raise _invalid(name, level, f"{node} only supports versions {only}")


def _check_supported(name: str, level: int, image: MetadataImage, me: FeatureUpdateContext) -> None:
    """Raise _Refused unless this controller, all registered brokers and controllers support a level (R-283).

    Static voters must have registered.
    """
    _check_range(name, level, f"Local controller {me.node_id}", *SUPPORTED_FEATURES.get(name, (0, 0)))
    for broker_id, broker in sorted(image.brokers.items()):
        ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in broker.features}
        _check_range(name, level, f"Broker {broker_id}", *ranges.get(name, (0, 0)))
    for node_id, controller in sorted(image.controllers.items()):
        if node_id != me.node_id:
            ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in controller.features}
            _check_range(name, level, f"Controller {node_id}", *ranges.get(name, (0, 0)))
    for node_id in me.static_voters:
        if node_id != me.node_id and node_id not in image.controllers:
            raise _invalid(name, level, f"controller {node_id} has not registered, and may not support this feature")


def _check(name: str, level: int, current: int, kind: int, image: MetadataImage, me: FeatureUpdateContext) -> None:
    """Raise _Refused unless a feature may change from level ``current`` to ``level`` with upgrade type ``kind``."""
    if kind not in tuple(UpgradeType):
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    _check_supported(name, level, image, me)
    if level < current and kind == UpgradeType.UPGRADE:
        why = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
        raise _invalid(name, level, f"{why} downgrade.")
    if level > current and kind != UpgradeType.UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    if name == KRAFT_VERSION:
        if level < current:
            raise _invalid(name, level, "Can't downgrade the version of this feature.")
    elif name == METADATA_VERSION:
        _check_metadata_version(level, current, kind)
    elif name not in SUPPORTED_FEATURES:
        raise _invalid(name, level, f"Feature {name} not found.")


def _check_metadata_version(level: int, current: int, kind: int) -> None:
    if any(level < changed <= current for changed in LEVELS_WITH_NEW_RECORDS):
        problem = f"Unsupported metadata.version downgrade from {current} to {level}. "
        if kind == UpgradeType.UNSAFE_DOWNGRADE:
            raise _Refused(f"{problem}Unsafe metadata downgrade is not supported in this version.")
        why = "Refusing to perform the requested downgrade because it might delete metadata information."
        raise _Refused(problem + why)


def _records(image: MetadataImage, levels: dict[str, int], min_isr: str) -> Job[list[Message]]:
    """Return a FeatureLevelRecord for each changed feature except kraft.version, as a job.

    If the change enables ELR, min.insync.replicas is removed from single brokers and set as cluster default
    (``min_isr``) if no default exists.
    """
    out: list[Message] = []
    for name, level in levels.items():
        if name == KRAFT_VERSION or image.features.get(name, 0) == level:
            continue
        if name == ELR_VERSION and level > 0:
            places = yield from sort_job(image.configs)
            for kind, resource in places:
                yield None
                values = image.config(kind, resource)
                if kind == RESOURCE_BROKER and resource and MIN_ISR in values:
                    out.append(ConfigRecord(kind, resource, MIN_ISR, None))
            if MIN_ISR not in image.config(RESOURCE_BROKER, ""):
                out.append(ConfigRecord(RESOURCE_BROKER, "", MIN_ISR, min_isr))
        out.append(FeatureLevelRecord(name, level))
    return out


def reject_update(error: ErrorCode, why: str) -> ControllerResult:
    """Return the error response to UpdateFeatures, without records."""
    return ControllerResult(UpdateFeaturesResponse(error_code=error, error_message=_PREFIX + why))


def update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, version: int, me: FeatureUpdateContext
) -> ControllerResultSteps:
    """Return the records and response of UpdateFeatures, as a job; all updates are applied, or none.

    Each update is validated against the levels after the ones before it; the first invalid one rejects the request with
    INVALID_UPDATE_VERSION. With ``validate_only`` there are no records. kraft.version is only validated here: its
    record is a control record of the quorum.
    """
    levels = {**image.features, KRAFT_VERSION: me.kraft_version}
    wanted: dict[str, FeatureUpdateKey] = {}
    unknown = None  # the first unknown feature: no other unknown one is checked
    for update in request.feature_updates:
        name = update.feature
        if unknown is None and name not in SUPPORTED_FEATURES:
            unknown = name
        if name in SUPPORTED_FEATURES or name == unknown:
            wanted[name] = update
        yield None
    try:
        for name, update in wanted.items():
            yield None
            # Version 0 can request a downgrade, but Kafka's controller ignores that.
            kind = UpgradeType.UPGRADE if version == 0 else update.upgrade_type
            _check(name, update.max_version_level, levels.get(name, 0), kind, image, me)
            levels[name] = update.max_version_level
    except _Refused as error:
        return reject_update(ErrorCode.INVALID_UPDATE_VERSION, str(error))
    rows: list[UpdatableFeatureResult] = []
    if version < 2:
        rows = yield from collect_job(UpdatableFeatureResult(u.feature, 0, "NONE") for u in request.feature_updates)
    response = UpdateFeaturesResponse(error_message=None, results=rows)
    records = yield from _records(image, levels, me.min_isr)
    return ControllerResult(response, [] if request.validate_only else records)
