"""``ottla config``: describe, set and unset configurations of brokers, topics, groups and client metrics.

Source: ``ConfigCommand.java``, ``ConfigResource.java``, ``DescribeConfigsResponse.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.cli.arguments import command_parser, parse_integer, suggestion
from ottla.cli.common import add_connection, parse_key_values, print_output, run_with_client
from ottla.cli.errors import CommandFailed, raise_for_error, raise_for_topic
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.wire.messages import describe_configs, incremental_alter_configs

TEXT = """Show and change dynamic configs: of all brokers (broker default), of one broker (broker 1), of a topic, of a
group, of a client metrics subscription, and log levels of a broker (logger 1). For a broker, the settings of its file
are also shown.

examples:
  ottla config describe topic events
  ottla config describe broker 1 --all
  ottla config set broker default log.retention.ms=86400000
  ottla config set group billing consumer.session.timeout.ms=45000
  ottla config unset topic events retention.ms max.message.bytes
  ottla config set client-metrics errors metrics=org.apache.kafka.producer. interval.ms=60000
"""
TYPES = {"broker": 4, "topic": 2, "group": 32, "client-metrics": 16, "logger": 8}
"""Type code of each config resource (``ConfigResource.Type``)."""
SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
"""Display name of each source of a value (``DescribeConfigsResponse.ConfigSource``)."""
DEFAULT_SOURCE = 5
DEFAULT = "default"
SET, DELETE = 0, 1
HIDDEN = "[hidden]"


class Resource(NamedTuple):
    """Config resource: its type as in `TYPES`, and its name; an empty broker name stands for all brokers."""

    kind: str
    name: str

    @property
    def text(self) -> str:
        """Name of the resource in messages, such as ``topic events`` or ``all brokers``."""
        return "all brokers" if self.kind == "broker" and not self.name else f"{self.kind} {self.name}"


def _parser() -> argparse.ArgumentParser:
    out = command_parser("config", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (
        ("describe", "show settings with their sources"),
        ("set", "change settings"),
        ("unset", "return settings to their defaults"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        add_connection(verb)
        verb.add_argument("type", choices=list(TYPES), help=f"type of the resource: {', '.join(TYPES)}")
        verb.add_argument("name", help="name of the resource; of a broker its id, or default for all brokers")
        if name == "describe":
            verb.add_argument("--all", action="store_true", help="show defaults too")
        elif name == "set":
            verb.add_argument("settings", nargs="+", metavar="KEY=VALUE")
        else:
            verb.add_argument("settings", nargs="+", metavar="KEY")
    return out


async def _find(client: ClusterClient, options: argparse.Namespace) -> tuple[Resource, Channel]:
    """Return the config resource that the options name, and a connection to a broker that can describe and alter it.

    A broker and its loggers are served by that broker, other resources by any.

    Raises:
        CommandFailed: no live broker has this id.
    """
    resource = Resource(options.type, options.name)
    if resource.kind not in ("broker", "logger"):
        return resource, await client.bootstrap_channel()
    if resource.kind == "broker" and resource.name == DEFAULT:
        return Resource("broker", ""), await client.bootstrap_channel()
    number = parse_integer(resource.name)
    brokers = {broker.node_id for broker in (await client.metadata([])).brokers}
    if number not in brokers:
        raise CommandFailed(f"broker {resource.name} does not exist (brokers: {', '.join(map(str, sorted(brokers)))})")
    assert number is not None
    return resource, await client.broker(number)


def _raise(row: Any, resource: Resource) -> None:
    if resource.kind == "topic":
        raise_for_topic(row.error_code, row.error_message, resource.name)
    raise_for_error(row.error_code, row.error_message, resource.text)


async def _described(resource: Resource, channel: Channel) -> list[Any]:
    wanted = describe_configs.DescribeConfigsResource(TYPES[resource.kind], resource.name, None)
    row = (await channel.call(describe_configs.DescribeConfigsRequest([wanted]))).results[0]
    _raise(row, resource)
    return list(row.configs)


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    resource, channel = await _find(client, options)
    rows = [
        {
            "key": c.name,
            "value": HIDDEN if c.is_sensitive else c.value,
            "source": SOURCES.get(c.config_source, "unknown"),
            "read_only": c.read_only,
        }
        for c in await _described(resource, channel)
        if options.all or c.config_source != DEFAULT_SOURCE
    ]
    print_output(rows, options.output, f"{resource.text}: no settings but defaults")


async def _check_names(client: ClusterClient, resource: Resource, channel: Channel, names: Iterable[str]) -> None:
    """Check by DescribeConfigs on ``channel`` that configuration names of a resource exist; not for client metrics.

    For all brokers the one with the lowest id is asked. Names with the prefix of a listener are not checked. Brokers
    accept unknown names (for plug-ins), so an unknown broker setting is refused only if a known one is similar.

    Raises:
        CommandFailed: a name is unknown, and the message suggests the nearest one; or the resource does not exist.
    """
    if resource.kind == "client-metrics":
        return  # DescribeConfigs lists only the set ones
    described = resource
    if resource == Resource("broker", ""):
        number = min(broker.node_id for broker in (await client.metadata([])).brokers)
        described, channel = Resource("broker", str(number)), await client.broker(number)
    known = {c.name for c in await _described(described, channel)}
    for name in names:
        if name in known or name.startswith("listener.name."):
            continue
        near = suggestion(name, known)
        if near or resource.kind in ("topic", "group", "logger"):
            raise CommandFailed(f"{resource.text}: unknown setting: {name}{near}")


async def _alter(client: ClusterClient, options: argparse.Namespace, changes: dict[str, str | None]) -> None:
    """Send IncrementalAlterConfigs for the resource of the options, and print the changes.

    ``changes``: new value of each setting; None deletes it.

    Raises:
        CommandFailed: the resource or a setting is unknown (as far as `_check_names` checks it), or the broker refused
            the change.
    """
    resource, channel = await _find(client, options)
    await _check_names(client, resource, channel, changes)
    configs = [
        incremental_alter_configs.AlterableConfig(k, DELETE if v is None else SET, v) for k, v in changes.items()
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(TYPES[resource.kind], resource.name, configs)]
    )
    _raise((await channel.call(request)).responses[0], resource)
    rows = [
        {"key": key, "value": value, "changed": "set" if value is not None else "unset"}
        for key, value in changes.items()
    ]
    print_output(rows, options.output)


async def _set(client: ClusterClient, options: argparse.Namespace) -> None:
    await _alter(client, options, dict(parse_key_values(options.settings)))


async def _unset(client: ClusterClient, options: argparse.Namespace) -> None:
    for key in options.settings:
        if "=" in key:
            raise CommandFailed(f"name of a setting expected: {key}")
    await _alter(client, options, dict.fromkeys(options.settings))


VERBS = {"describe": _describe, "set": _set, "unset": _unset}


def run(arguments: list[str]) -> int:
    """Run ``ottla config`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = _parser().parse_args(arguments)
    return run_with_client(options, lambda client: VERBS[options.verb](client, options))
