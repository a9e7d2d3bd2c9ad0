"""``ottla kafka-cluster``: the tool ``kafka-cluster.sh``, which prints cluster id and nodes, and unregisters brokers.

Source: ``ClusterTool`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse

from ottla.cli.arguments import integer
from ottla.cli.kafka_tools.text_tables import padded
from ottla.cli.kafka_tools.tool_options import (
    ToolFailed,
    VerbOptions,
    add_servers,
    admin_channel,
    raise_for,
    run_tool,
)
from ottla.client.cluster_client import CONTROLLERS, ClusterClient
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

TEXT = "The Kafka cluster tool."
BROKERS = 1
NO_RACK_WIDTH = 10


def _parser() -> VerbOptions:
    out = VerbOptions("ottla kafka-cluster", description=TEXT)
    verbs = out.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("cluster-id", "Get information about the ID of a cluster."),
        ("unregister", "Unregister a broker."),
        ("list-endpoints", "List endpoints."),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        add_servers(verb, "-b", "-C")
        verb.add_argument("--config", help="Deprecated: --command-config.")
        verb.add_argument("--command-config", "-c", help="Config properties file for the Admin client.")
        if name == "unregister":
            verb.add_argument("--id", "-i", type=integer(0), required=True, help="The ID of the broker to unregister.")
        if name == "list-endpoints":
            verb.add_argument("--include-fenced-brokers", action="store_true", help="List fenced brokers too.")
    return out


async def _cluster_id(client: ClusterClient, options: argparse.Namespace) -> None:
    kind = CONTROLLERS if options.bootstrap_controller else BROKERS
    answer = await client.call(DescribeClusterRequest(endpoint_type=kind))
    raise_for(answer.error_code, answer.error_message)
    print(f"Cluster ID: {answer.cluster_id}")


async def _unregister(client: ClusterClient, options: argparse.Namespace) -> None:
    answer = await (await admin_channel(client, options)).call(UnregisterBrokerRequest(options.id))
    raise_for(answer.error_code, answer.error_message)
    print(f"Broker {options.id} is no longer registered.")


async def _list_endpoints(client: ClusterClient, options: argparse.Namespace) -> None:
    lists_controllers = bool(options.bootstrap_controller)
    if lists_controllers and options.include_fenced_brokers:
        raise ToolFailed("The option --include-fenced-brokers is only supported with --bootstrap-server option")
    request = DescribeClusterRequest(
        endpoint_type=CONTROLLERS if lists_controllers else BROKERS,
        include_fenced_brokers=options.include_fenced_brokers,
    )
    answer = await client.call(request)
    raise_for(answer.error_code, answer.error_message)
    nodes = sorted(answer.brokers, key=lambda node: node.broker_id)
    host_width = max((len(node.host) for node in nodes), default=100)
    rack_width = max((len(node.rack) for node in nodes if node.rack is not None), default=NO_RACK_WIDTH)
    state = [] if lists_controllers else ["STATE"]
    widths = [10, host_width, 10, rack_width, *[10] * len(state), 15]
    print(padded(widths, ["ID", "HOST", "PORT", "RACK", *state, "ENDPOINT_TYPE"]))
    for node in nodes:
        shown = [] if lists_controllers else ["fenced" if node.is_fenced else "unfenced"]
        kind = "controller" if lists_controllers else "broker"
        print(padded(widths, [node.broker_id, node.host, node.port, node.rack, *shown, kind]))


def run(arguments: list[str]) -> int:
    """Run ``kafka-cluster``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 1).
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.bootstrap_server and not options.bootstrap_controller:
        parser.error("one of the arguments --bootstrap-server/-b --bootstrap-controller/-C is required")
    if options.config and options.command_config:
        parser.error("--config and --command-config cannot be specified together.")
    if options.config:
        print(
            "Option --config has been deprecated and will be removed in a future version. Use --command-config instead."
        )
        options.command_config = options.config
    work = {"cluster-id": _cluster_id, "unregister": _unregister, "list-endpoints": _list_endpoints}[options.command]
    return run_tool(options, lambda client: work(client, options))
