"""``ottla topic``: list, describe, create, configure, delete, export and import topics; add partitions."""

from __future__ import annotations

import argparse

from ottla.cli.arguments import MAX_INT16, command_parser, integer
from ottla.cli.common import (
    RESOURCE_TOPIC,
    add_connection,
    parse_key_values,
    print_output,
    require_topic,
    run_with_client,
)
from ottla.cli.errors import raise_for_topic
from ottla.client.cluster_client import ClusterClient
from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)

TEXT = """A topic is a named log. It is divided into partitions, and one broker is the leader of each partition.

examples:
  ottla topic list
  ottla topic list --size                          with the bytes of each topic
  ottla topic create events --partitions 6 --config retention.ms=86400000
  ottla topic describe events
  ottla topic config events --set max.message.bytes=2000000
  ottla topic export events events.jsonl
  ottla topic import copy events.jsonl
"""


def _parser() -> argparse.ArgumentParser:
    out = command_parser("topic", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (
        ("list", "list topics with their partitions and replicas"),
        ("describe", "show leader, replicas and offsets of each partition"),
        ("create", "create a topic"),
        ("partitions", "add partitions to a topic"),
        ("delete", "delete a topic with its records"),
        ("config", "show or change settings"),
        ("export", "write the records of a topic into a file, a JSON object on each line"),
        ("import", "append the records of an exported file to a topic, to the same partitions"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        add_connection(verb)
        if name == "list":
            verb.add_argument("--internal", action="store_true", help="also list internal topics")
        if name in ("list", "describe"):
            text = "also show bytes in log directories: size of the leaders, total size of all replicas"
            verb.add_argument("--size", action="store_true", help=text)
        if name == "list":
            continue
        verb.add_argument("topic", help="name of the topic")
        if name == "partitions":
            text = "new total number of partitions"
            verb.add_argument("--partitions", type=integer(1), required=True, metavar="N", help=text)
        if name == "create":
            text = "number of partitions (default: num.partitions of the broker)"
            verb.add_argument("--partitions", type=integer(1), default=-1, metavar="N", help=text)
            text = "number of replicas (default: default.replication.factor of the broker)"
            verb.add_argument("--replication-factor", type=integer(1, MAX_INT16), default=-1, metavar="N", help=text)
            verb.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="config of the topic")
        if name in ("export", "import"):
            text = (
                "file; - for standard output (default)" if name == "export" else "file; - for standard input (default)"
            )
            verb.add_argument("file", nargs="?", default="-", help=text)
        if name == "import":
            text = "create the topic with N partitions if it is missing (default: as many as the file needs)"
            verb.add_argument("--partitions", type=integer(1), metavar="N", help=text)
        if name == "config":
            verb.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting")
            verb.add_argument(
                "--delete", action="append", default=[], metavar="KEY", help="return a setting to its default"
            )
            verb.add_argument("--all", action="store_true", help="show defaults too")
    return out


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    every = (await client.metadata(None)).topics
    topics = [t for t in sorted(every, key=lambda t: t.name or "") if options.internal or not t.is_internal]
    rows = [
        {
            "topic": t.name,
            "partitions": len(t.partitions),
            "replicas": max((len(p.replica_nodes) for p in t.partitions), default=0),
            "id": uuid_to_string(t.topic_id),
        }
        for t in topics
    ]
    if options.size:
        # lazy: 3.3 ms, 298 kB: only with --size
        from ottla.cli.cluster_admin.replica_sizes import add_topic_sizes

        await add_topic_sizes(client, topics, rows)
    print_output(rows, options.output, "no topics")


async def _offset(client: ClusterClient, topic: str, partition: int, timestamp: int) -> int | None:
    """Return the offset that ListOffsets finds in a partition; None if the leader does not respond or returns an error.

    Args:
        client: client of the cluster.
        topic: topic name.
        partition: number of the partition.
        timestamp: time in ms, -1 for the end of the log, -2 for its start.
    """
    try:
        return await client.list_offset(topic, partition, timestamp)
    except (ProtocolError, OSError):
        return None


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    topic = await require_topic(client, options.topic)
    topic.partitions.sort(key=lambda p: p.partition_index)
    rows = []
    for p in topic.partitions:
        start = await _offset(client, options.topic, p.partition_index, -2)
        end = await _offset(client, options.topic, p.partition_index, -1)
        rows.append(
            {
                "partition": p.partition_index,
                "leader": p.leader_id,
                "epoch": p.leader_epoch,
                "replicas": p.replica_nodes,
                "isr": p.isr_nodes,
                "start": start,
                "end": end,
            }
        )
    if options.size:
        # lazy: 3.5 ms, 298 kB: only with --size
        from ottla.cli.cluster_admin.replica_sizes import add_partition_sizes

        await add_partition_sizes(client, topic, rows)
    print_output(rows, options.output)


async def _create(client: ClusterClient, options: argparse.Namespace) -> None:
    configs = [create_topics.CreatableTopicConfig(k, v) for k, v in parse_key_values(options.config).items()]
    topic = create_topics.CreatableTopic(options.topic, options.partitions, options.replication_factor, configs=configs)
    row = (await client.call(create_topics.CreateTopicsRequest([topic], 30_000))).topics[0]
    raise_for_topic(row.error_code, row.error_message, options.topic)
    print_output(
        [{"topic": row.name, "partitions": row.num_partitions, "replicas": row.replication_factor}], options.output
    )


async def _partitions(client: ClusterClient, options: argparse.Namespace) -> None:
    request = create_partitions.CreatePartitionsRequest(
        [create_partitions.CreatePartitionsTopic(options.topic, options.partitions, None)], 30_000
    )
    row = (await client.call(request)).results[0]
    raise_for_topic(row.error_code, row.error_message, options.topic)


async def _delete(client: ClusterClient, options: argparse.Namespace) -> None:
    connection = await client.bootstrap_channel()
    request = delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(options.topic)], timeout_ms=30_000
    )
    row = (await connection.call(request, 6)).responses[0]
    raise_for_topic(row.error_code, row.error_message, options.topic)


async def _config(client: ClusterClient, options: argparse.Namespace) -> None:
    changes = [incremental_alter_configs.AlterableConfig(k, 0, v) for k, v in parse_key_values(options.set).items()]
    changes += [incremental_alter_configs.AlterableConfig(k, 1, None) for k in options.delete]
    if changes:
        resource = incremental_alter_configs.AlterConfigsResource(RESOURCE_TOPIC, options.topic, changes)
        changed = (await client.call(incremental_alter_configs.IncrementalAlterConfigsRequest([resource]))).responses[0]
        raise_for_topic(changed.error_code, changed.error_message, options.topic)
    wanted = describe_configs.DescribeConfigsResource(RESOURCE_TOPIC, options.topic, None)
    row = (await client.call(describe_configs.DescribeConfigsRequest([wanted]))).results[0]
    raise_for_topic(row.error_code, row.error_message, options.topic)
    rows = [
        {"key": c.name, "value": c.value, "default": c.config_source == 5}
        for c in row.configs
        if options.all or c.config_source != 5
    ]
    print_output(rows, options.output, f"topic {options.topic} has no settings of its own (--all shows the defaults)")


async def _export(client: ClusterClient, options: argparse.Namespace) -> None:
    # lazy: 3.3 ms, 186 kB: only to export
    from ottla.cli.records.topic_files import export_topic

    await export_topic(client, options)


async def _import(client: ClusterClient, options: argparse.Namespace) -> None:
    # lazy: 3.1 ms, 186 kB: only to import
    from ottla.cli.records.topic_files import import_topic

    await import_topic(client, options)


VERBS = {
    "export": _export,
    "import": _import,
    "list": _list,
    "describe": _describe,
    "create": _create,
    "partitions": _partitions,
    "delete": _delete,
    "config": _config,
}


def run(arguments: list[str]) -> int:
    """Run ``ottla topic`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = _parser().parse_args(arguments)

    async def work(client: ClusterClient) -> None:
        await VERBS[options.verb](client, options)

    return run_with_client(options, work)
