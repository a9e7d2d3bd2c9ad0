"""``ottla kafka-features``: the tool ``kafka-features.sh``, which prints and changes finalized feature levels.

Source: ``FeatureCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import sys

from ottla.cli.kafka_tools.feature_levels import (
    FEATURES,
    dependencies_text,
    level_at,
    parse_level,
    parse_release,
    release_text,
    version_mapping,
)
from ottla.cli.kafka_tools.java_errors import message_text
from ottla.cli.kafka_tools.tool_options import (
    STDERR,
    ToolFailed,
    VerbOptions,
    add_servers,
    admin_channel,
    java_integer,
    raise_for,
    run_tool,
)
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.controller.control.update_features import UpgradeType
from ottla.controller.metadata.record_serde import METADATA_VERSION
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

TEXT = "This tool manages feature flags in Kafka."
TIMEOUT_MS = 30_000
NO_SERVERS = "You must specify either --bootstrap-controller or --bootstrap-server."


class FeatureOptions(VerbOptions):
    """Argument parser of ``kafka-features``; its errors begin with "Command line error"."""

    error_format = "Command line error: {message}. Type --help for help."


def _parser() -> FeatureOptions:
    out = FeatureOptions("ottla kafka-features", description=TEXT)
    add_servers(out)
    out.add_argument("--command-config", help="Property file containing configs to be passed to Admin Client.")
    verbs = out.add_subparsers(dest="command", required=True, metavar="COMMAND")
    describe = verbs.add_parser("describe", help="Describes the current active feature flags.")
    describe.add_argument("--node-id", type=java_integer, help="The node to send the request to; any by default.")
    for name, text in (
        ("upgrade", "Upgrade one or more feature flags."),
        ("downgrade", "Downgrade one or more feature flags."),
        ("disable", "Disable one or more feature flags; the same as downgrading to zero."),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.set_defaults(metadata=None, release_version=None, unsafe=False)
        if name != "disable":
            verb.add_argument("--metadata", help="Deprecated: the level of the metadata, such as 3.3-IV3.")
            verb.add_argument("--release-version", help="The release to set all features to.")
        verb.add_argument("--feature", action="append", help="A feature, for upgrade and downgrade FEATURE=LEVEL.")
        if name != "upgrade":
            verb.add_argument("--unsafe", action="store_true", help="Do it even if metadata may be lost.")
        verb.add_argument("--dry-run", action="store_true", help="Validate the change, but do not perform it.")
    mapping = verbs.add_parser("version-mapping", help="Print the features of a release.")
    mapping.add_argument("--release-version", help="The release; the newest stable one by default.")
    needs = verbs.add_parser("feature-dependencies", help="Print what the level of a feature depends on.")
    needs.add_argument("--feature", action="append", required=True, help="FEATURE=LEVEL; may be repeated.")
    return out


async def _node(client: ClusterClient, options: argparse.Namespace) -> Channel:
    """Return a connection to the node of ``--node-id``; without it to any broker or to the active controller.

    Raises:
        ToolFailed: the node id is negative.
        ProtocolError: no live node has the id.
    """
    number = options.node_id
    if number is None:
        return await admin_channel(client, options)
    if number < 0:
        raise ToolFailed(f"Invalid node id {number}: must be non-negative.")
    await (client.controllers() if options.bootstrap_controller else client.metadata([]))
    return await client.broker(number)


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    answer = await (await _node(client, options)).call(ApiVersionsRequest("apache-kafka-java", "4.3.1"))
    raise_for(answer.error_code, None)
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    epoch = answer.finalized_features_epoch if answer.finalized_features_epoch >= 0 else "-"
    for row in sorted(answer.supported_features, key=lambda row: row.name):
        shown = [
            (release_text(level) if row.name == METADATA_VERSION else str(level)).ljust(15)
            for level in (row.min_version, row.max_version, levels.get(row.name, 0))
        ]
        print(
            f"Feature: {row.name:<40}  SupportedMinVersion: {shown[0]}  SupportedMaxVersion: {shown[1]}  "
            f"FinalizedVersionLevel: {shown[2]}  Epoch: {epoch}"
        )


def _updates(options: argparse.Namespace) -> dict[str, int]:
    """Return the level to request for each feature; 0 disables it.

    Raises:
        ToolFailed: options exclude each other, a feature occurs twice, or a release or level is invalid.
    """
    op, features = options.command, options.feature
    if options.release_version is not None:
        if options.metadata is not None or features is not None:
            raise ToolFailed("Can not specify `release-version` with other feature flags.")
        metadata_version = parse_release(options.release_version)
        levels = {feature: level_at(feature, metadata_version) for feature in FEATURES}
        kept = {feature: level for feature, level in levels.items() if op != "upgrade" or level > 0}
        return {METADATA_VERSION: metadata_version, **kept}
    out: dict[str, int] = {}
    if options.metadata is not None:
        print(" `metadata` flag is deprecated and may be removed in a future release.")
        out[METADATA_VERSION] = parse_release(options.metadata)
    for text in features or ():
        name, level = (text, 0) if op == "disable" else parse_level(text)
        if name in out:
            raise ToolFailed(f"Feature {name} was specified more than once.")
        out[name] = level
    return out


async def _update(client: ClusterClient, options: argparse.Namespace) -> None:
    op, is_dry = options.command, options.dry_run
    updates = _updates(options)
    if not updates:
        raise ToolFailed(f"You must specify at least one feature to {op}")
    if not all(name.strip() for name in updates):
        raise ToolFailed("Provided feature can not be empty.")
    kind = UpgradeType.UPGRADE
    if op != "upgrade":
        kind = UpgradeType.UNSAFE_DOWNGRADE if options.unsafe else UpgradeType.SAFE_DOWNGRADE
    rows = [FeatureUpdateKey(name, level, upgrade_type=kind) for name, level in updates.items()]
    channel = await admin_channel(client, options)
    answer = await channel.call(UpdateFeaturesRequest(TIMEOUT_MS, rows, is_dry))
    if not answer.error_code:
        for name, level in sorted(updates.items()):
            done = "disabled" if op == "disable" else f"{op}d to {level}"
            print(f"{name} {'can be' if is_dry else 'was'} {done}.")
        return
    why = message_text(ProtocolError(ErrorCode(answer.error_code), answer.error_message))
    for name, level in sorted(updates.items()):
        wanted = f"disable {name}" if op == "disable" else f"{op} {name} to {level}"
        print(f"{'Can not' if is_dry else 'Could not'} {wanted}. {why}")
    sys.stdout.flush()
    raise ToolFailed(f"{len(updates)} out of {len(updates)} operation(s) failed.")


def _print_tables(options: argparse.Namespace) -> int:
    """Print the output of ``version-mapping`` or ``feature-dependencies``; return 0, or 1 after a printed failure."""
    try:
        if options.command == "version-mapping":
            print(version_mapping(options.release_version))
            return 0
        for text in options.feature:
            name, level = parse_level(text)
            print(dependencies_text(name, level, f"No feature:{name} with feature level {level}"))
    except ToolFailed as error:
        sys.stdout.flush()
        return STDERR.print(error)
    return 0


def run(arguments: list[str]) -> int:
    """Run ``kafka-features``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 1).
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command in ("version-mapping", "feature-dependencies"):
        return _print_tables(options)
    if not options.bootstrap_server and not options.bootstrap_controller:
        parser.error(NO_SERVERS)
    work = _describe if options.command == "describe" else _update
    return run_tool(options, lambda client: work(client, options))
