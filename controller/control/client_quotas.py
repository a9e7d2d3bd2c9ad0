"""AlterClientQuotas on the active controller, and the search of quotas: of users, client ids and IP addresses.

The entries of a request are independent; the changes of the valid ones are written as one batch: if that would be too
large the request is rejected as a whole. Removing a missing quota and setting an existing one succeed silently. A null
entity name is the default entity of its type.

Source: ``ClientQuotaControlManager.java``, ``ClientQuotasImage.java``, ``QuotaConfig.java`` (apache/kafka 4.3.1).

From KIP-546; addresses: KIP-612; changes of the metadata: KIP-599.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple

from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.limits import MAX_QUOTA_ENTITY_PARTS
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.partitions.partition_assignment import RequestTooLarge, check_batch_limits, utf8_size
from ottla.jobs.job import Job
from ottla.jobs.sequences import YIELD_EVERY
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from ottla.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.wire.messages.metadata_records import ClientQuotaRecord, EntityData

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
CONNECTIONS = "connection_creation_rate"
_LONG, _INT = 2**63 - 1, 2**31 - 1
_CLIENT_QUOTA_KEYS: Mapping[str, int | None] = {PRODUCE: _LONG, FETCH: _LONG, REQUEST: None, CONTROLLER_MUTATION: None}
"""Quota keys of users and client ids, with the maximum integer value of each; None: fractions are allowed."""
_IP_QUOTA_KEYS: Mapping[str, int | None] = {CONNECTIONS: _INT}
QuotaEntity = tuple[tuple[str, str | None], ...]
"""Entity: (entity type, name) pairs in the order of the types; a name of None is the default entity."""


def _entity(rows: list[Any]) -> QuotaEntity:
    return tuple(sorted({row.entity_type: row.entity_name for row in rows[:MAX_QUOTA_ENTITY_PARTS]}.items()))


def _allowed_keys(rows: list[Any]) -> Mapping[str, int | None] | str:
    """Return the quota keys that an entity may have, with the maximum value of each, or an error message (S-352).

    The name of an IP entity must be an address: host names are not resolved.
    """
    kinds = [row.entity_type for row in rows]
    if not kinds:
        return "Invalid empty client quota entity"
    for kind in kinds:
        if kind not in (USER, CLIENT_ID, IP):
            return f"Unhandled client quota entity type: {kind}"
    if len(set(kinds)) != len(kinds):
        return f"Invalid client quota entity, duplicate entity entry {kinds[0]}"
    for row in rows:
        if row.entity_name == "":
            return f"Empty {row.entity_type} not supported"
    if IP not in kinds:
        return _CLIENT_QUOTA_KEYS
    if len(kinds) > 1:
        return "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
    name = rows[0].entity_name
    try:
        ip_address(name or "::")
    except ValueError:
        return f"{name} is not a valid IP or resolvable host."
    return _IP_QUOTA_KEYS


def _wrong_value(keys: Mapping[str, int | None], key: str, value: float) -> str | None:
    if key not in keys:
        return f"Invalid configuration key {key}"
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    largest = keys[key]
    if largest is None:
        return None
    if value > largest:
        return f"Proposed value for {key} is too large for {'an INT' if largest == _INT else 'a LONG'}."
    return f"{key} cannot be a fractional value." if value % 1 > 1e-6 else None


def _records(image: MetadataImage, entry: AlterClientQuotasRequestEntryData) -> list[Message] | str:
    """Return the records of an AlterClientQuotas entry (none if nothing changes), or an error message."""
    if max(len(entry.entity), len(entry.ops)) > MAX_QUOTA_ENTITY_PARTS:
        return f"More than {MAX_QUOTA_ENTITY_PARTS} parts of an entity, or quota keys"
    keys = _allowed_keys(entry.entity)
    if isinstance(keys, str):
        return keys
    entity, out = _entity(entry.entity), list[Message]()
    named = [op.key for op in entry.ops]
    if len(set(named)) != len(named):
        return "Duplicate quota key, not updating the quotas of this entity"
    for op in entry.ops:
        set_now = image.others.get(("quota", entity, op.key))
        if op.remove:
            if set_now is not None:
                out.append(_record(entity, op.key, 0.0, remove=True))
            continue
        wrong = _wrong_value(keys, op.key, op.value)
        if wrong is not None:
            return wrong
        if not isinstance(set_now, ClientQuotaRecord) or set_now.value != op.value:
            out.append(_record(entity, op.key, op.value, remove=False))
    return out


def _record(entity: QuotaEntity, key: str, value: float, *, remove: bool) -> ClientQuotaRecord:
    return ClientQuotaRecord([EntityData(kind, name) for kind, name in entity], key, value, remove)


def alter_client_quotas(image: MetadataImage, request: AlterClientQuotasRequest) -> ControllerResultSteps:
    """Return the records and response of AlterClientQuotas, as a job; with ``validate_only`` there are no records.

    An invalid entry gets INVALID_REQUEST in its row. Of a duplicate entity the first entry is applied, although its row
    in the response is an error.
    """
    rows: dict[QuotaEntity, AlterClientQuotasResponseEntryData] = {}
    records: list[Message] = []
    size = 0
    try:
        for entry in request.entries:
            entity = _entity(entry.entity)
            changed: list[Message] | str = "Ignoring duplicate entity" if entity in rows else _records(image, entry)
            if isinstance(changed, str):
                rows[entity] = _row(entity, ErrorCode.INVALID_REQUEST, changed)
            else:
                rows[entity] = _row(entity, ErrorCode.NONE, None)
                records += changed
                size += len(changed) * utf8_size(name for _, name in entity)
                check_batch_limits(len(records), size)
            yield None
        results = list(rows.values())
    except RequestTooLarge as error:
        records, results = [], []
        for entry in request.entries:
            results.append(_row(_entity(entry.entity), error.code, str(error)))
            yield None
    return ControllerResult(AlterClientQuotasResponse(entries=results), [] if request.validate_only else records)


def _row(entity: QuotaEntity, code: ErrorCode, why: str | None) -> AlterClientQuotasResponseEntryData:
    named = [AlterClientQuotasResponseEntityData(kind, name) for kind, name in entity]
    return AlterClientQuotasResponseEntryData(code, why, named)


# ------------------------------------------------------------------ descriptions

EXACT, DEFAULT, SPECIFIED = 0, 1, 2


class QuotaEntityFilter(NamedTuple):
    """Components of a DescribeClientQuotas request: the entity types and names that a quota entity must have."""

    exact: Mapping[str, str | None]
    """Entity types with the name to match; None matches the default entity."""
    any_name: frozenset[str]
    """Entity types that match with any name, the default entity included."""
    strict: bool
    """True if only entities without further types match."""

    def matches(self, entity: QuotaEntity) -> bool:
        """Return True if a quota entity has all entity types of the filter, with the names that `exact` requires.

        A name of None is the default entity. A strict filter rejects entities with further types.
        """
        kinds = dict(entity)
        if self.strict and len(kinds) != len(self.exact) + len(self.any_name):
            return False
        return self.any_name <= kinds.keys() and all(k in kinds and kinds[k] == v for k, v in self.exact.items())


def filter_from_request(request: DescribeClientQuotasRequest) -> QuotaEntityFilter:
    """Return the filter of a DescribeClientQuotas request (S-353).

    Raises:
        ProtocolError: UNSUPPORTED_VERSION for an unknown entity type, INVALID_REQUEST for any other invalid component.
    """
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for row in request.components:
        kind = row.entity_type
        if not kind:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in (USER, CLIENT_ID, IP):
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if row.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown match type {row.match_type}")
        if (row.match is None) == (row.match_type == EXACT):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "A match string belongs to an exact match, and to no other.")
        if row.match_type == SPECIFIED:
            any_name.add(kind)
        else:
            exact[kind] = row.match
    kinds = {*exact, *any_name}
    if IP in kinds and len(kinds) > 1:
        why = "IP filter component should not be used with user or clientId filter component."
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Invalid entity filter component combination. {why}")
    return QuotaEntityFilter(exact, frozenset(any_name), request.strict)


def matching_quotas(image: MetadataImage, entity_filter: QuotaEntityFilter) -> Job[dict[QuotaEntity, dict[str, float]]]:
    """Return the quotas of each entity in the image that matches a filter, by entity and quota key, as a job."""
    out: dict[QuotaEntity, dict[str, float]] = {}
    for number, about in enumerate(image.others, 1):
        if about[0] == "quota" and entity_filter.matches(about[1]):
            record = image.others[about]
            assert isinstance(record, ClientQuotaRecord)
            out.setdefault(about[1], {})[about[2]] = record.value
        if number % YIELD_EVERY == 0:
            yield None
    return out
