"""``ottla quota``: list, set and remove client quotas of a Kafka cluster."""

from __future__ import annotations

import argparse

from ottla.cli.arguments import command_parser, suggestion
from ottla.cli.common import add_connection, print_output, run_with_client
from ottla.cli.errors import CommandFailed, raise_for_error
from ottla.client.cluster_client import ClusterClient
from ottla.controller.control.client_quotas import (
    CLIENT_ID,
    CONNECTIONS,
    CONTROLLER_MUTATION,
    DEFAULT,
    EXACT,
    FETCH,
    IP,
    PRODUCE,
    REQUEST,
    USER,
)
from ottla.wire.messages import alter_client_quotas, describe_client_quotas

TEXT = """Limit the bytes, request time and mutations per second of users and client ids, and the connections per second
of addresses. A client above its quota is throttled. The most specific quota applies.

  producer_byte_rate, consumer_byte_rate   bytes per second, on each broker
  request_percentage                       percentage of one thread, on each broker
  controller_mutation_rate                 partitions created or deleted per second, in the cluster
  connection_creation_rate                 connections per second, addresses only

examples:
  ottla quota list
  ottla quota set --user alice producer_byte_rate=1000000 consumer_byte_rate=2000000
  ottla quota set --user alice --client billing request_percentage=25
  ottla quota set --any-client controller_mutation_rate=10
  ottla quota set --ip 10.0.0.7 connection_creation_rate=20
  ottla quota remove --user alice producer_byte_rate
  ottla quota remove --any-client
"""
KEYS = (PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION, CONNECTIONS)
_KINDS = {"user": USER, "client": CLIENT_ID, "ip": IP}
ANY = "<default>"


def _parser() -> argparse.ArgumentParser:
    out = command_parser("quota", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (
        ("list", "list all quotas, or the quotas of one entity"),
        ("set", "set quotas; other quotas of the entity keep their values"),
        ("remove", "remove quotas of an entity (default: all of its quotas)"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        add_connection(verb)
        for kind, label in zip(_KINDS, ("user", "client id", "IP address"), strict=True):
            which = verb.add_mutually_exclusive_group()
            which.add_argument(
                f"--{kind}", metavar="ADDRESS" if kind == "ip" else "NAME", help=f"quota of this {label}"
            )
            which.add_argument(f"--any-{kind}", action="store_true", help=f"default quota of every {label}")
        if name == "set":
            verb.add_argument("quotas", nargs="+", metavar="KEY=VALUE")
        elif name == "remove":
            verb.add_argument("quotas", nargs="*", metavar="KEY")
    return out


def _entities(options: argparse.Namespace) -> list[tuple[str, str | None]]:
    """Return type and name of each quota entity that the options name; the name None stands for the default entity."""
    out: list[tuple[str, str | None]] = []
    for option, kind in _KINDS.items():
        name = getattr(options, option)
        if name is not None or getattr(options, f"any_{option}"):
            out.append((kind, name))
    return out


def _check(keys: list[str]) -> None:
    for key in keys:
        if key not in KEYS:
            raise CommandFailed(f"unknown quota: {key}{suggestion(key, KEYS)} (choose from {', '.join(KEYS)})")


async def _described_quotas(
    client: ClusterClient, options: argparse.Namespace, *, strict: bool
) -> list[describe_client_quotas.EntryData]:
    components = [
        describe_client_quotas.ComponentData(kind, DEFAULT if name is None else EXACT, name)
        for kind, name in _entities(options)
    ]
    answer = await client.call(describe_client_quotas.DescribeClientQuotasRequest(components, strict))
    raise_for_error(answer.error_code, answer.error_message, "quotas")
    return answer.entries or []


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    rows = []
    for entry in await _described_quotas(client, options, strict=False):
        names = {x.entity_type: ANY if x.entity_name is None else x.entity_name for x in entry.entity}
        components = {option: names.get(kind, "") for option, kind in _KINDS.items()}
        rows += [{**components, "quota": value.key, "value": _number(value.value)} for value in entry.values]
    print_output(sorted(rows, key=lambda row: [str(x) for x in row.values()]), options.output, "no quotas")


def _number(value: float) -> float:
    return int(value) if value == int(value) else value


async def _alter(client: ClusterClient, options: argparse.Namespace, ops: list[alter_client_quotas.OpData]) -> None:
    entity = [alter_client_quotas.AlterClientQuotasRequestEntityData(kind, name) for kind, name in _entities(options)]
    entry = alter_client_quotas.AlterClientQuotasRequestEntryData(entity, ops)
    answer = await client.call(alter_client_quotas.AlterClientQuotasRequest([entry]))
    for row in answer.entries:
        raise_for_error(row.error_code, row.error_message, "quota")


def _require_entity(options: argparse.Namespace) -> None:
    if not _entities(options):
        raise CommandFailed("entity expected: --user, --client, --ip, --any-user, --any-client or --any-ip")


async def _set(client: ClusterClient, options: argparse.Namespace) -> None:
    _require_entity(options)
    ops = []
    for pair in options.quotas:
        key, _, text = pair.partition("=")
        _check([key])
        try:
            value = float(text)
        except ValueError:
            raise CommandFailed(f"{key}=NUMBER expected: {pair}") from None
        if not 0 <= value < float("inf"):
            raise CommandFailed(f"{key} out of range: {text} (0 or more)")
        ops.append(alter_client_quotas.OpData(key, value))
    await _alter(client, options, ops)
    for op in ops:
        print(f"{op.key} is {_number(op.value)}")


async def _remove(client: ClusterClient, options: argparse.Namespace) -> None:
    _require_entity(options)
    keys: list[str] = options.quotas
    _check(keys)
    known = {value.key for entry in await _described_quotas(client, options, strict=True) for value in entry.values}
    gone = [key for key in KEYS if key in known and (not keys or key in keys)]
    if not gone:
        raise CommandFailed("the entity does not have this quota")
    await _alter(client, options, [alter_client_quotas.OpData(key, 0.0, True) for key in gone])
    for key in gone:
        print(f"{key} is removed")


VERBS = {"list": _list, "set": _set, "remove": _remove}


def run(arguments: list[str]) -> int:
    """Run ``ottla quota`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = _parser().parse_args(arguments)
    return run_with_client(options, lambda client: VERBS[options.verb](client, options))
