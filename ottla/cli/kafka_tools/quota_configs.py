"""Client quotas and SCRAM credentials in ``kafka-configs.sh``: entities of types users, clients and ips.

Source: ``ConfigCommand``, ``QuotaConfig`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ottla.cli.kafka_tools.java_errors import java_class, message_text
from ottla.cli.kafka_tools.tool_options import ToolFailed, raise_for
from ottla.client.channel import Channel
from ottla.client.scram import MECHANISM_TYPES, MIN_ITERATIONS, salted_password
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    alter_client_quotas,
    alter_user_scram_credentials,
    describe_client_quotas,
    describe_user_scram_credentials,
)

QUOTA_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
TYPE_TEXTS = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
USER_AND_CLIENT_QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_QUOTAS = ("connection_creation_rate",)
EXACT, DEFAULT, ANY = 0, 1, 2
"""Match types of DescribeClientQuotas."""
_SALT_BYTES = 24
_CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)


class EntitiesLike(Protocol):
    """Entity types and names of a ``kafka-configs`` command; an empty name is the default entity."""

    @property
    def types(self) -> list[str]:
        """Types, such as ``users``."""

    @property
    def names(self) -> list[str]:
        """Names, in the order of the types."""


def java_double(value: float) -> str:
    """Return ``Double.toString`` of a value, which uses an exponent from 10^7 on and below 10^-3, but not for 0.

    The digits are the shortest that identify the value, as in Java 19 and later.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    shown = next(text for p in range(1, 18) if float(text := f"{value:.{p}e}") == value)
    digits, _, exponent = shown.partition("e")
    return f"{digits.rstrip('0').ljust(3, '0')}E{int(exponent)}"


async def _quotas(channel: Channel, entities: EntitiesLike) -> list[describe_client_quotas.EntryData]:
    """Return the DescribeClientQuotas rows for the entity types and names of the command.

    A type without a name matches all entities of the type, the empty name its default entity.

    Raises:
        ToolFailed: there are more names than types; ProtocolError: the request was refused.
    """
    if len(entities.names) > len(entities.types):
        raise ToolFailed("More entity names specified than entity types")
    components = []
    for number, kind in enumerate(entities.types):
        name = entities.names[number] if number < len(entities.names) else None
        match = ANY if name is None else EXACT if name else DEFAULT
        components.append(describe_client_quotas.ComponentData(QUOTA_TYPES[kind], match, name or None))
    answer = await channel.call(describe_client_quotas.DescribeClientQuotasRequest(components, strict=True))
    raise_for(answer.error_code, answer.error_message)
    return list(answer.entries or ())


async def describe(channel: Channel, entities: EntitiesLike) -> None:
    """Print the quotas of entities; for users alone, without the default user, their SCRAM credentials, too.

    Raises:
        ToolFailed: there are more names than types; ProtocolError: the request was refused.
    """
    for entry in await _quotas(channel, entities):
        names = {row.entity_type: row.entity_name for row in entry.entity}
        shown = [
            f"the default {text}" if names[kind] is None else f"{text} '{names[kind]}'"
            for kind, text in TYPE_TEXTS.items()
            if kind in names
        ]
        values = ", ".join(f"{value.key}={java_double(value.value)}" for value in entry.values)
        print(f"Quota configs for {', '.join(shown)} are {values}")
    if entities.types == ["users"] and "" not in entities.names:
        await _describe_credentials(channel, entities.names)


async def _describe_credentials(channel: Channel, users: Sequence[str]) -> None:
    mechanisms = {number: name for name, number in MECHANISM_TYPES.items()}
    answer = await channel.call(
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            [describe_user_scram_credentials.UserName(user) for user in users]
        )
    )
    raise_for(answer.error_code, answer.error_message)
    for row in answer.results:
        if row.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if row.error_code:
            error = ProtocolError(ErrorCode(row.error_code), row.error_message)
            name = java_class(error.code).rpartition(".")[2]
            text = f"{name}: {message_text(error)}"
            print(f"Error retrieving SCRAM credential configs for user-principal '{row.user}': {text}")
            continue
        infos = ", ".join(
            f"{mechanisms.get(info.mechanism, 'UNKNOWN')}=iterations={info.iterations}" for info in row.credential_infos
        )
        print(f"SCRAM credential configs for user-principal '{row.user}' are {infos}")


def _scala(kind: str, names: Iterable[Any]) -> str:
    return f"{kind}({', '.join(map(str, names))})"


def _check_user_or_client(entities: EntitiesLike, added: Mapping[str, str], deleted: Sequence[str]) -> bool:
    """Check the names of settings of a user or client; return True if they are quotas, False for SCRAM mechanisms.

    ``added``: settings to set, with their values; ``deleted``: names of settings to delete.

    Raises:
        ToolFailed: a name is neither a quota nor, of a user, a SCRAM mechanism; there are both; or a SCRAM mechanism
            is set or deleted for the default user.
    """
    quotas = [key for key in (*added, *deleted) if key in USER_AND_CLIENT_QUOTAS]
    mechanisms = [key for key in (*added, *deleted) if key in MECHANISM_TYPES]
    is_user = entities.types == ["users"]
    kinds = f"quota and SCRAM credential configs can be {{}} for '{'users'}'"
    if not is_user:
        kinds = f"quota configs can be {{}} for '{'clients'}'"
    for keys, verb, collection in ((list(added), "added", "Set"), (deleted, "deleted", "ArrayBuffer")):
        allowed = (*USER_AND_CLIENT_QUOTAS, *MECHANISM_TYPES) if is_user else USER_AND_CLIENT_QUOTAS
        unknown = [key for key in keys if key not in allowed]
        if unknown:
            raise ToolFailed(
                f"Only {kinds.format(verb)} using --bootstrap-server. "
                f"Unexpected config names: {_scala(collection, unknown)}"
            )
    if mechanisms:
        if "" in entities.names:
            raise ToolFailed(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using "
                "--bootstrap-server."
            )
        if quotas:
            raise ToolFailed(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using "
                "--bootstrap-server."
            )
    return bool(quotas)


async def alter(channel: Channel, entities: EntitiesLike, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """Set and delete quotas of an entity, or SCRAM credentials of a user.

    ``added``: settings to set, with their values; ``deleted``: names of settings to delete.

    Raises:
        ToolFailed: a name or value is invalid; ProtocolError: the cluster refused the change.
    """
    if entities.types == ["ips"]:
        unknown = [key for key in (*added, *deleted) if key not in IP_QUOTAS]
        if unknown:
            raise ToolFailed(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}"
            )
    elif not _check_user_or_client(entities, added, deleted):
        await _alter_credentials(channel, entities.names[0], added, deleted)
        return
    await _alter_quotas(channel, entities, added, deleted)


async def _alter_quotas(
    channel: Channel, entities: EntitiesLike, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    entries = await _quotas(channel, entities)
    known = {value.key for entry in entries[:1] for value in entry.values}
    missing = [key for key in deleted if key not in known]
    if missing:
        raise ToolFailed(f"Invalid config(s): {','.join(missing)}")
    ops = []
    for key, text in added.items():
        try:
            ops.append(alter_client_quotas.OpData(key, float(text)))
        except ValueError:
            raise ToolFailed(f"Cannot parse quota configuration value for {key}: {text}") from None
    ops += [alter_client_quotas.OpData(key, 0.0, True) for key in deleted]
    entity = [
        alter_client_quotas.AlterClientQuotasRequestEntityData(QUOTA_TYPES[kind], name or None)
        for kind, name in zip(entities.types, entities.names, strict=True)
    ]
    answer = await channel.call(
        alter_client_quotas.AlterClientQuotasRequest(
            [alter_client_quotas.AlterClientQuotasRequestEntryData(entity, ops)]
        )
    )
    for row in answer.entries:
        raise_for(row.error_code, row.error_message)


async def _alter_credentials(channel: Channel, user: str, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    made = []
    for mechanism, text in added.items():
        found = _CREDENTIAL.fullmatch(text)
        if found is None:
            raise ToolFailed(f"Invalid credential property {mechanism.replace('-', '_')}={text}")
        iterations = int(found[1]) if found[1] not in (None, "-1") else MIN_ITERATIONS
        if iterations < MIN_ITERATIONS:
            raise ToolFailed(
                f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for {mechanism}"
            )
        salt = os.urandom(_SALT_BYTES)
        salted = salted_password(mechanism, found[2], salt, iterations)
        made.append(
            alter_user_scram_credentials.ScramCredentialUpsertion(
                user, MECHANISM_TYPES[mechanism], iterations, salt, salted
            )
        )
    gone = [
        alter_user_scram_credentials.ScramCredentialDeletion(user, MECHANISM_TYPES[mechanism]) for mechanism in deleted
    ]
    answer = await channel.call(alter_user_scram_credentials.AlterUserScramCredentialsRequest(gone, made))
    for row in answer.results:
        raise_for(row.error_code, row.error_message)
