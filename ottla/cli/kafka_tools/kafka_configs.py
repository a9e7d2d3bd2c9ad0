"""``ottla kafka-configs``: the tool ``kafka-configs.sh``.

Source: ``ConfigCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import re
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.cli.arguments import parse_integer
from ottla.cli.kafka_tools.java_errors import java_text
from ottla.cli.kafka_tools.tool_options import (
    FailureFormat,
    ToolFailed,
    ToolOptions,
    admin_channel,
    has,
    raise_for,
    run_tool,
)
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import describe_configs, incremental_alter_configs
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from ottla.wire.messages.list_groups import ListGroupsRequest

TEXT = (
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics or "
    "group"
)
TOPICS, BROKERS, LOGGERS, METRICS, GROUPS = "topics", "brokers", "broker-loggers", "client-metrics", "groups"
USERS, CLIENTS, IPS = "users", "clients", "ips"
ENTITY_TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, METRICS, GROUPS, LOGGERS)
FLAGS = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": LOGGERS,
    "ip": IPS,
    "client-metrics": METRICS,
    "group": GROUPS,
}
DEFAULT_FLAGS = {"client-defaults": CLIENTS, "user-defaults": USERS, "broker-defaults": BROKERS, "ip-defaults": IPS}
RESOURCE_TYPES = {TOPICS: 2, BROKERS: 4, LOGGERS: 8, METRICS: 16, GROUPS: 32}
DYNAMIC_SOURCES = {TOPICS: 1, BROKERS: 2, METRICS: 7, GROUPS: 8}
"""Source of the settings that are shown without ``--all``; the loggers of a broker are all shown."""
DYNAMIC_DEFAULT_BROKER = 3
SOURCE_NAMES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
SET, DELETE = 0, 1
OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
"""Condition of Kafka's tool that a separator in ``--add-config`` does not stand between brackets."""


class Entities(NamedTuple):
    """Entities of a command: types, and names in the same order; the empty name stands for the default entity.

    There are fewer names than types if ``--describe`` is to show all entities of a type.
    """

    types: list[str]
    names: list[str]

    @property
    def kind(self) -> str:
        """First type, which decides how the configuration is stored."""
        return self.types[0]


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-configs", TEXT)
    out.connection("", has_controller=True)
    out.flag("alter", "Alter the configuration for the entity.")
    out.flag("describe", "List configs for the given entity.")
    out.flag("all", "List all configs for the given entity, including static configs if available.")
    out.option("entity-type", f"Type of entity ({'/'.join(ENTITY_TYPES)}).", is_repeated=True)
    out.option("entity-name", "Name of entity.", is_repeated=True)
    out.add_argument("--entity-default", action="append_const", dest="entity_name", const="", help="Default entity.")
    out.option("add-config", "Configs to set: k1=v1,k2=[v1,v2],k3=v3.")
    out.option("add-config-file", "Path to a properties file with configs to add.")
    out.option("delete-config", "Config keys to remove: k1,k2.", is_repeated=True)
    for name, kind in FLAGS.items():
        out.option(name, f"Entity of type {kind}.")
    for name, kind in DEFAULT_FLAGS.items():
        out.flag(name, f"The config defaults for all {kind}.")
    return out


def _entities(options: argparse.Namespace) -> Entities:
    named = {name: kind for name, kind in FLAGS.items() if has(options, name)}
    defaults = [kind for name, kind in DEFAULT_FLAGS.items() if has(options, name)]
    types = [*(options.entity_type or ()), *named.values(), *defaults]
    names = [*(options.entity_name or ()), *(getattr(options, name.replace("-", "_")) for name in named)]
    return Entities(types, [*names, *[""] * len(defaults)])


def _is_host(text: str) -> bool:
    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError):
        return False
    return True


def _check(parser: ToolOptions, options: argparse.Namespace) -> Entities:
    """Check the combination of options, and return the entities that they name.

    If it is invalid, Kafka's error message is printed and the tool exits with status 1.
    """
    if options.alter == options.describe:
        parser.fail_with_usage("Command must include exactly one action: --describe, --alter")
    parser.exclude(options, "describe", "add-config", "delete-config")
    entities = _entities(options)
    types = entities.types
    repeated = [kind for number, kind in enumerate(types) if kind in types[:number]]
    if repeated:
        parser.error(f"Duplicate entity type(s) specified: {','.join(repeated)}")
    if not options.bootstrap_server and not options.bootstrap_controller:
        parser.error("Either --bootstrap-server or --bootstrap-controller must be specified.")
    for kind in types:
        if kind not in ENTITY_TYPES:
            connection = "--bootstrap-server or --bootstrap-controller"
            parser.error(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(ENTITY_TYPES)} "
                f"with a {connection} argument"
            )
    if not types:
        parser.error("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        parser.error(f"Only '{USERS}' and '{CLIENTS}' entity types may be specified together")
    uses_flags = any(has(options, name) for name in (*FLAGS, *DEFAULT_FLAGS))
    if uses_flags and (options.entity_type or options.entity_name):
        parser.error("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if options.bootstrap_server and options.bootstrap_controller:
        parser.error("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    _check_names(parser, options, entities)
    return entities


def _check_names(parser: ToolOptions, options: argparse.Namespace, entities: Entities) -> None:
    types, names = entities
    for name in filter(None, names):
        if entities.kind in (BROKERS, LOGGERS) and parse_integer(name) is None:
            parser.error(f"The entity name for {types[0]} must be a valid integer broker id, but it is: {name}")
        if entities.kind == IPS and not _is_host(name):
            parser.error(f"The entity name for {types[0]} must be a valid IP or resolvable host, but it is: {name}")
    has_name, has_default = any(names), "" in names
    shown, has_defaults = ",".join(types), any(kind in types for kind in (USERS, CLIENTS, BROKERS, IPS))
    if options.describe:
        if not has_defaults and "" in (options.entity_name or ()):
            parser.error(f"--entity-default must not be specified with --describe of {shown}")
        if LOGGERS in types and not has_name:
            parser.error(f"An entity name must be specified with --describe of {shown}")
        return
    if has_defaults and not has_name and not has_default:
        parser.error(
            "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
        )
    if not has_defaults and not has_name:
        parser.error(f"An entity name must be specified with --alter of {shown}")
    if has(options, "add-config") and has(options, "add-config-file"):
        parser.error("Only one of --add-config or --add-config-file must be specified")
    if not any(has(options, name) for name in ("add-config", "add-config-file", "delete-config")):
        parser.error(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    if len(types) != len(names):
        parser.error("An entity name must be specified for every entity type")


def parse_changes(options: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """Return the settings to add, and the names of the settings to delete.

    Those of ``--add-config`` override those in the file of ``--add-config-file``.

    Raises:
        ToolFailed: ``--add-config`` or a name to add is malformed; CommandFailed: the file cannot be read.
    """
    added: dict[str, str] = {}
    if options.add_config_file:
        # lazy: 0.0 ms, 0 kB: only with a file
        from ottla.cli.connection_settings import read_client_config

        added |= read_client_config(options.add_config_file)
    if options.add_config is not None:
        items = re.split(f",{OUTSIDE_BRACKETS}", options.add_config)
        pairs = [re.split(rf"\s*=\s*{OUTSIDE_BRACKETS}", item) for item in items]
        if any(len(pair) != 2 for pair in pairs):
            raise ToolFailed(
                'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" or '
                ' "key=[val1,val2]" to group values which contain commas.'
            )
        added |= {key.strip(): re.sub(r"[\[\]]", "", value).strip() for key, value in pairs}
    for key in added:
        if not re.fullmatch(r"[$a-zA-Z0-9._-]*", key):
            raise ToolFailed(f"Invalid character found for config key: {key}")
    deleted = [key.strip() for text in options.delete_config or () for key in text.split(",")]
    return added, deleted


# ---------------------------------------------------------------------- resources


async def _channel(client: ClusterClient, options: argparse.Namespace, kind: str, name: str) -> Channel:
    """Return a connection to the node that DescribeConfigs and IncrementalAlterConfigs for a resource are sent to.

    ``kind``, ``name``: type and name of the resource. The node is the broker itself for a broker or its loggers, else
    any broker, or with ``--bootstrap-controller`` the active controller.

    Raises:
        ProtocolError: no live node has the id of the broker.
    """
    if kind not in (BROKERS, LOGGERS) or not name:
        return await admin_channel(client, options)
    if options.bootstrap_controller:
        await client.controllers()
    else:
        await client.metadata([])
    return await client.broker(int(name))


async def _described(client: ClusterClient, options: argparse.Namespace, kind: str, name: str) -> list[Any]:
    """Return the rows of the resource ``name`` of type ``kind`` in a DescribeConfigs response, sorted by name.

    With ``--all`` these are all settings, otherwise only those set dynamically for this resource; of broker loggers
    all.

    Raises:
        ProtocolError: the request was refused.
    """
    wanted = describe_configs.DescribeConfigsResource(RESOURCE_TYPES[kind], name, None)
    channel = await _channel(client, options, kind, name)
    row = (await channel.call(describe_configs.DescribeConfigsRequest([wanted], include_synonyms=True))).results[0]
    raise_for(row.error_code, row.error_message)
    source = DYNAMIC_DEFAULT_BROKER if kind == BROKERS and not name else DYNAMIC_SOURCES.get(kind)
    shown = [x for x in row.configs if options.all or source is None or x.config_source == source]
    return sorted(shown, key=lambda x: str(x.name))


async def _resource_names(client: ClusterClient, kind: str) -> list[str]:
    """Return the names of all resources of type ``kind``.

    For brokers and loggers the last name is empty and stands for the default of all brokers.

    Raises:
        ProtocolError: a broker refused a request.
    """
    if kind == TOPICS:
        return [topic.name or "" for topic in (await client.metadata(None)).topics]
    if kind in (BROKERS, LOGGERS):
        return [*(str(broker.node_id) for broker in (await client.metadata([])).brokers), ""]
    answer = await client.call(ListConfigResourcesRequest([RESOURCE_TYPES[kind]]))
    raise_for(answer.error_code, None)
    names = {row.resource_name for row in answer.config_resources}
    if kind == GROUPS:
        for channel in await client.all_brokers():
            names |= {row.group_id for row in (await channel.call(ListGroupsRequest())).groups}
    return sorted(names)


async def _describe_resources(client: ClusterClient, options: argparse.Namespace, entities: Entities) -> None:
    kind = entities.kind
    names = entities.names[:1]
    is_known = options.bootstrap_controller or options.all or not names
    if not is_known and names[0] not in await _resource_names(client, kind):
        print(f"The {_singular(kind)} '{names[0]}' doesn't exist and doesn't have dynamic config.")
        return
    for name in names or await _resource_names(client, kind):
        which = "All" if options.all else "Dynamic"
        default = f"Default configs for {kind} in the cluster are:"
        print(f"{which} configs for {_singular(kind)} {name} are:" if name else default)
        for entry in await _described(client, options, kind, name):
            places = [f"{SOURCE_NAMES.get(x.source, 'UNKNOWN')}:{x.name}={_java(x.value)}" for x in entry.synonyms]
            sensitive = str(entry.is_sensitive).lower()
            shown = f"{entry.name}={_java(entry.value)} sensitive={sensitive} synonyms={{{', '.join(places)}}}"
            print(f"  {shown}")


def _singular(kind: str) -> str:
    return kind[:-1]


def _java(value: str | None) -> str:
    return "null" if value is None else value


async def _alter_resource(
    client: ClusterClient, options: argparse.Namespace, entities: Entities, added: dict[str, str], deleted: list[str]
) -> None:
    kind, name = entities.kind, entities.names[0]
    if kind == LOGGERS:
        known = {entry.name for entry in await _described(client, options, kind, name)}
        unknown = [key for key in (*deleted, *added) if key not in known]
        if unknown:
            raise ToolFailed(f"Invalid broker logger(s): {','.join(unknown)}")
    rows = [incremental_alter_configs.AlterableConfig(key, DELETE, "") for key in deleted]
    rows += [incremental_alter_configs.AlterableConfig(key, SET, value) for key, value in added.items()]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(RESOURCE_TYPES[kind], name, rows)]
    )
    channel = await _channel(client, options, kind, name)
    answer = (await channel.call(request)).responses[0]
    raise_for(answer.error_code, answer.error_message)


async def _act(client: ClusterClient, options: argparse.Namespace, entities: Entities) -> None:
    kind = entities.kind
    if kind in RESOURCE_TYPES:
        if options.describe:
            await _describe_resources(client, options, entities)
            return
        await _alter_resource(client, options, entities, *parse_changes(options))
    else:
        # lazy: 4 ms, 150 kB: only for users, clients and addresses
        from ottla.cli.kafka_tools import quota_configs

        channel = await admin_channel(client, options)
        if options.describe:
            await quota_configs.describe(channel, entities)
            return
        await quota_configs.alter(channel, entities, *parse_changes(options))
    name = entities.names[0]
    default = f"Completed updating default config for {kind} in the cluster."
    print(f"Completed updating config for {_singular(kind)} {name}." if name else default)


def run(arguments: Sequence[str]) -> int:
    """Run ``kafka-configs``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    entities = _check(parser, options)

    async def act(client: ClusterClient) -> None:
        try:
            await _act(client, options, entities)
        except ProtocolError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise
            head = f"Error while executing config command with args '{' '.join(arguments)}'"
            raise ToolFailed(f"{head}\njava.util.concurrent.ExecutionException: {java_text(error)}") from None

    return run_tool(options, act, FailureFormat("", to_stderr=True))
