"""``ottla kafka-acls``: the tool ``kafka-acls.sh``.

Source: ``AclCommand``, ``AclEntry`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.cli.kafka_tools.tool_options import FailureFormat, ToolOptions, admin_channel, has, raise_for, run_tool
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.controller.metadata.acl import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.wire.messages import create_acls, delete_acls, describe_acls

TEXT = "This tool helps to manage acls on kafka."
FAILURES = FailureFormat("Error while executing ACL command: ", has_class=True)
_CONFIGS = {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}
SUPPORTED = {
    ResourceType.TOPIC: {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        *_CONFIGS,
    },
    ResourceType.GROUP: {AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE, *_CONFIGS},
    ResourceType.CLUSTER: {
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        *_CONFIGS,
    },
    ResourceType.TRANSACTIONAL_ID: {AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT},
    ResourceType.DELEGATION_TOKEN: {AclOperation.DESCRIBE},
    ResourceType.USER: {AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS},
}
"""Operations that ACLs of each resource type may name, besides ALL."""
RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user-principal": ResourceType.USER,
}
ACTIONS = ("add", "remove", "list")


class Pattern(NamedTuple):
    """Resource pattern of ACLs, or of a filter: resource type, name, and pattern type."""

    kind: ResourceType
    name: str
    pattern: PatternType

    def text(self) -> str:
        """Return the pattern as Kafka's tools print it (``ResourcePattern.toString``)."""
        return f"ResourcePattern(resourceType={self.kind.name}, name={self.name}, patternType={self.pattern.name})"


class Entry(NamedTuple):
    """Principal, host, operation and permission of an ACL."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType

    def text(self) -> str:
        """Return ``AccessControlEntry.toString``."""
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


CLUSTER = Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-acls", TEXT)
    out.connection("", has_controller=True)
    for name in RESOURCES:
        out.option(name, f"Name of the {name.replace('-', ' ')}; * stands for all.", is_repeated=True)
    out.flag("cluster", "ACLs of the cluster.")
    out.flag("idempotent", "With --producer: allow idempotent writes too.")
    out.option("resource-pattern-type", "literal (the default), prefixed; to list or remove also any, match.")
    out.flag("add", "Add ACLs.")
    out.flag("remove", "Remove ACLs.")
    out.flag("list", "List ACLs.")
    out.option("operation", "Operation that is allowed or denied (default: All).", is_repeated=True)
    out.option("allow-principal", "Principal to allow: User:name.", is_repeated=True)
    out.option("deny-principal", "Principal to deny: User:name.", is_repeated=True)
    out.option("principal", "With --list: only ACLs of this principal.", is_repeated=True)
    out.option("allow-host", "Hosts of allowed principals (default: *).", is_repeated=True)
    out.option("deny-host", "Hosts of denied principals (default: *).", is_repeated=True)
    out.flag("producer", "ACLs of a producer: Write, Describe and Create on topics.")
    out.flag("consumer", "ACLs of a consumer: Read and Describe on topics, Read on groups.")
    out.flag("force", "Ask for no confirmation.")
    return out


def _check(parser: ToolOptions, options: argparse.Namespace) -> None:
    """Check the combination of options; print Kafka's error message and exit with status 1 if it is invalid."""
    kind = options.resource_pattern_type
    if kind is not None and kind.upper() not in ("ANY", "MATCH", "LITERAL", "PREFIXED"):
        print(f"Error while executing ACL command: Cannot parse argument '{kind}' of option resource-pattern-type")
        raise SystemExit(1)
    if options.bootstrap_server and options.bootstrap_controller:
        parser.fail_with_usage("Only one of --bootstrap-server or --bootstrap-controller must be specified")
    if not options.bootstrap_server and not options.bootstrap_controller:
        parser.fail_with_usage("One of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(has(options, name) for name in ACTIONS) != 1:
        parser.fail_with_usage("Command must include exactly one action: --list, --add, --remove. ")
    parser.exclude(
        options, "list", "producer", "consumer", "allow-host", "allow-principal", "deny-host", "deny-principal"
    )
    for role in ("producer", "consumer"):
        parser.exclude(options, role, "operation", "deny-principal", "deny-host")
    if has(options, "principal") and not options.list:
        parser.fail_with_usage("The --principal option is only available if --list is set")
    if options.producer and not has(options, "topic"):
        parser.fail_with_usage("With --producer you must specify a --topic")
    if options.idempotent and not options.producer:
        parser.fail_with_usage("The --idempotent option is only available if --producer is set")
    has_other = not options.producer and (options.cluster or has(options, "transactional-id"))
    if options.consumer and (not has(options, "topic") or not has(options, "group") or has_other):
        parser.fail_with_usage(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )
    for text in (*(options.allow_principal or ()), *(options.deny_principal or ()), *(options.principal or ())):
        if ":" not in text:
            print(
                f"Error while executing ACL command: expected a string in format principalType:principalName "
                f"but got {text.strip()}"
            )
            raise SystemExit(1)


class AclPlan:
    """ACLs to add or remove, and filters, as the options of ``kafka-acls.sh`` describe them; nothing is sent."""

    def __init__(self, parser: ToolOptions, options: argparse.Namespace) -> None:
        self._parser = parser
        self._options = options
        self._pattern = PatternType[(options.resource_pattern_type or "literal").upper()]

    def patterns(self, *, required: bool) -> list[Pattern]:
        """Return the resource patterns that the options name, without duplicates.

        If there is none and one is ``required``, the usage is printed and the tool exits with status 1.
        """
        options = self._options
        out = [
            Pattern(kind, name.strip(), self._pattern)
            for option, kind in RESOURCES.items()
            for name in getattr(options, option.replace("-", "_")) or ()
        ]
        if self._pattern is PatternType.LITERAL and (options.cluster or options.idempotent):
            out.append(CLUSTER)
        if not out and required:
            self._parser.fail_with_usage(
                "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
                "--delegation-token <Delegation Token ID>"
            )
        return list(dict.fromkeys(out))

    def _entries(self, operations: Iterable[AclOperation]) -> list[Entry]:
        options = self._options
        out = []
        for principals, hosts, permission in (
            (options.allow_principal, options.allow_host, AclPermissionType.ALLOW),
            (options.deny_principal, options.deny_host, AclPermissionType.DENY),
        ):
            for principal in principals or ():
                for operation in sorted(operations):
                    out += [Entry(principal.strip(), host.strip(), operation, permission) for host in hosts or ("*",)]
        return list(dict.fromkeys(out))

    def acls(self) -> dict[Pattern, list[Entry]]:
        """Return the entries for each resource pattern that the options name, to add or to remove.

        With ``--producer`` or ``--consumer`` there are only those of the role. An empty list, of a pattern without
        principals, stands for all ACLs of the pattern. If no resource is named, or an operation does not apply to its
        resource type, the usage is printed and the tool exits with status 1.
        """
        options, patterns = self._options, self.patterns(required=True)
        out: dict[Pattern, list[Entry]] = {}

        def put(kind: ResourceType, operations: set[AclOperation]) -> None:
            for pattern in patterns:
                if pattern.kind is kind:
                    added = [x for x in self._entries(operations) if x not in out.get(pattern, ())]
                    out[pattern] = [*out.get(pattern, ()), *added]

        if options.producer:
            put(ResourceType.TOPIC, {AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE})
            put(ResourceType.TRANSACTIONAL_ID, {AclOperation.WRITE, AclOperation.DESCRIBE})
            if options.idempotent:
                out[CLUSTER] = self._entries({AclOperation.IDEMPOTENT_WRITE})
        if options.consumer:
            put(ResourceType.TOPIC, {AclOperation.READ, AclOperation.DESCRIBE})
            put(ResourceType.GROUP, {AclOperation.READ})
        if not options.producer and not options.consumer:
            names = {operation.name.replace("_", ""): operation for operation in AclOperation}
            requested = {
                names.get(text.strip().upper(), AclOperation.UNKNOWN) for text in options.operation or ("All",)
            }
            out = {pattern: self._entries(requested) for pattern in patterns}
        for pattern, entries in out.items():
            allowed = SUPPORTED[pattern.kind] | {AclOperation.ALL}
            if any(entry.operation not in allowed for entry in entries):
                shown = ", ".join(operation.name for operation in sorted(allowed))
                self._parser.fail_with_usage(f"ResourceType {pattern.kind.name} only supports operations [{shown}]")
        return out

    def acls_to_add(self) -> dict[Pattern, list[Entry]]:
        """Return the entries to add for each resource pattern.

        If no principal is named, or the pattern type is neither LITERAL nor PREFIXED, the usage is printed and the tool
        exits with status 1.
        """
        if self._pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
            self._parser.fail_with_usage(
                f"A '--resource-pattern-type' value of '{self._pattern.name}' is not valid when adding acls."
            )
        out = self.acls()
        if not all(out.values()):
            self._parser.fail_with_usage(
                "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
            )
        return out


async def _described(channel: Channel, pattern: Pattern | None) -> dict[Pattern, list[Entry]]:
    """Return the ACLs that match a resource pattern, by their own pattern; None stands for all ACLs.

    Raises:
        ProtocolError: DescribeAcls was refused.
    """
    kind, name, match = pattern or (ResourceType.ANY, None, PatternType.ANY)
    request = describe_acls.DescribeAclsRequest(
        int(kind), name, int(match), None, None, int(AclOperation.ANY), int(AclPermissionType.ANY)
    )
    answer = await channel.call(request)
    raise_for(answer.error_code, answer.error_message)
    return {
        Pattern(ResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type)): [
            Entry(acl.principal, acl.host, AclOperation(acl.operation), AclPermissionType(acl.permission_type))
            for acl in row.acls
        ]
        for row in answer.resources
    }


async def _add(channel: Channel, plan: AclPlan) -> None:
    for pattern, entries in plan.acls_to_add().items():
        there = (await _described(channel, pattern)).get(pattern, [])
        for entry in entries:
            if entry in there:
                print(f"Acl (pattern={pattern.text()}, entry={entry.text()}) already exists.")
        new = [entry for entry in entries if entry not in there]
        if not new:
            continue
        lines = "\n".join(f"\t{entry.text()}" for entry in new)
        print(f"Adding ACLs for resource `{pattern.text()}`: \n {lines}\n")
        rows = [create_acls.AclCreation(int(pattern.kind), pattern.name, int(pattern.pattern), *entry) for entry in new]
        for row in (await channel.call(create_acls.CreateAclsRequest(rows))).results:
            raise_for(row.error_code, row.error_message)


def _is_confirmed(options: argparse.Namespace, question: str) -> bool:
    if options.force:
        return True
    print(question, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


async def _remove(channel: Channel, options: argparse.Namespace, plan: AclPlan) -> None:
    for pattern, entries in plan.acls().items():
        question = f"Are you sure you want to delete all ACLs for resource filter `{pattern.text()}`? (y/n)"
        if entries:
            lines = "\n".join(f"\t{entry.text()}" for entry in entries)
            question = (
                f"Are you sure you want to remove ACLs: \n {lines}\n from resource filter `{pattern.text()}`? (y/n)"
            )
        if not _is_confirmed(options, question):
            continue
        anything = [(None, None, AclOperation.ANY, AclPermissionType.ANY)]
        filters = [
            delete_acls.DeleteAclsFilter(int(pattern.kind), pattern.name, int(pattern.pattern), *entry)
            for entry in entries or anything
        ]
        for row in (await channel.call(delete_acls.DeleteAclsRequest(filters))).filter_results:
            raise_for(row.error_code, row.error_message)
            for acl in row.matching_acls:
                raise_for(acl.error_code, acl.error_message)


def _print_acls(acls: dict[Pattern, list[Entry]]) -> None:
    for pattern, entries in sorted(acls.items()):
        lines = "\n".join(f"\t{entry.text()}" for entry in sorted(entries))
        print(f"Current ACLs for resource `{pattern.text()}`:\n{lines}\n")


async def _list(channel: Channel, options: argparse.Namespace, plan: AclPlan) -> None:
    found: dict[Pattern, list[Entry]] = {}
    wanted: list[Pattern | None] = [*plan.patterns(required=False)]
    for pattern in wanted or [None]:
        for at, entries in (await _described(channel, pattern)).items():
            found[at] = list(dict.fromkeys([*found.get(at, ()), *entries]))
    if not options.principal:
        _print_acls(found)
    for principal in dict.fromkeys(text.strip() for text in options.principal or ()):
        print(f"ACLs for principal `{principal}`")
        chosen = {at: [x for x in entries if x.principal == principal] for at, entries in found.items()}
        _print_acls({at: entries for at, entries in chosen.items() if entries})


def run(arguments: Sequence[str]) -> int:
    """Run ``kafka-acls``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    _check(parser, options)
    plan = AclPlan(parser, options)

    async def act(client: ClusterClient) -> None:
        channel = await admin_channel(client, options)
        if options.add:
            await _add(channel, plan)
        elif options.remove:
            await _remove(channel, options, plan)
        else:
            await _list(channel, options, plan)

    return run_tool(options, act, FAILURES)
