"""``ottla kafka-broker-api-versions``: the tool ``kafka-broker-api-versions.sh``, which prints the APIs of each broker.

Source: ``BrokerApiVersionsCommand``, ``NodeApiVersions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.cli.kafka_tools.tool_options import ToolOptions, raise_for, run_tool
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.env.hosts import format_address
from ottla.wire.api_keys import ApiKey, request_spec
from ottla.wire.messages.api_versions import ApiVersionsRequest

TEXT = "This tool helps to retrieve broker version information."


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-broker-api-versions", TEXT)
    out.connection()
    return out


def _text(number: int, low: int, high: int) -> str:
    """Return the output for API key ``number``: the broker's versions ``low`` to ``high``, and the newest usable one.

    That is the newest version that this client supports, too; "unusable" if there is none.
    """
    shown = str(low) if low == high else f"{low} to {high}"
    try:
        key = ApiKey(number)
    except ValueError:
        return f"UNKNOWN({number}): {shown}"
    spec = request_spec(key)
    newest = spec.versions.high - int(spec.latest_unstable)
    usable = f"usable: {min(newest, high)}"
    if newest < low:
        usable = "unusable: node too new"
    elif high < spec.versions.low:
        usable = "unusable: node too old"
    return f"{key.api_name}({number}): {shown} [{usable}]"


async def _versions(channel: Channel) -> list[str]:
    answer = await channel.call(ApiVersionsRequest("apache-kafka-java", "4.3.1"))
    raise_for(answer.error_code, None)
    rows = {row.api_key: _text(row.api_key, row.min_version, row.max_version) for row in answer.api_keys}
    for key in ApiKey:
        if key not in rows and "broker" in request_spec(key).listeners:
            rows[int(key)] = f"{key.api_name}({int(key)}): UNSUPPORTED"
    return [rows[number] for number in sorted(rows)]


async def _print_versions(client: ClusterClient) -> None:
    brokers = sorted((await client.metadata([])).brokers, key=lambda broker: broker.node_id)
    for broker in brokers:
        rack = "null" if broker.rack is None else broker.rack
        name = f"{format_address(broker.host, broker.port)} (id: {broker.node_id} rack: {rack} isFenced: false)"
        lines = await _versions(await client.broker(broker.node_id))
        print(f"{name} -> (\n\t" + ",\n\t".join(lines) + "\n)")


def run(arguments: list[str]) -> int:
    """Run ``kafka-broker-api-versions``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    parser.require(options, "bootstrap-server")
    return run_tool(options, _print_versions)
