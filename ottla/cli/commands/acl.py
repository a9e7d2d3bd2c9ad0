"""``ottla acl``: list, add and remove ACLs of a Kafka cluster."""

from __future__ import annotations

import argparse

from ottla.cli.arguments import command_parser
from ottla.cli.common import add_connection, print_output, run_with_client
from ottla.cli.errors import CommandFailed, raise_for_error
from ottla.client.cluster_client import ClusterClient
from ottla.controller.metadata.acl import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    StandardAcl,
)
from ottla.wire.messages import create_acls, delete_acls, describe_acls

TEXT = """An ACL allows or denies operations of a principal on topics, groups, transactional ids or the cluster. The
brokers need an authorizer (authorizer.class.name). An operation without a matching ACL is denied. DENY overrides ALLOW.

examples:
  ottla acl list
  ottla acl add --allow User:alice --operation read --topic events
  ottla acl add --allow User:alice --operation read --group readers
  ottla acl add --allow User:billing --operation all --topic billing. --prefixed
  ottla acl add --deny User:bob --operation write --topic '*' --host 10.0.0.7
  ottla acl remove --principal User:alice --topic events
"""
_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "delegation-token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
_OPERATIONS = {o.name.lower().replace("_", "-"): o for o in AclOperation if o > AclOperation.ANY}


def _parser() -> argparse.ArgumentParser:
    out = command_parser("acl", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (
        ("list", "list all ACLs, or the ACLs that match"),
        ("add", "add ACLs"),
        ("remove", "remove the ACLs that match, and print them"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        add_connection(verb)
        for kind in _KINDS:
            verb.add_argument(f"--{kind}", metavar="NAME", help=f"{kind.replace('-', ' ')} of the ACL")
        verb.add_argument("--cluster", action="store_true", help="the cluster as resource")
        verb.add_argument("--prefixed", action="store_true", help="treat the name as a prefix (pattern type PREFIXED)")
        verb.add_argument("--host", help="client address of the ACL")
        many = name == "add"
        verb.add_argument(
            "--operation",
            action="append",
            default=[],
            choices=list(_OPERATIONS),
            metavar="OPERATION",
            help=f"{', '.join(_OPERATIONS)}{'; may be repeated' if many else ''}",
        )
        if name == "add":
            verb.add_argument(
                "--allow", action="append", default=[], metavar="User:NAME", help="principal that the ACL allows"
            )
            verb.add_argument(
                "--deny", action="append", default=[], metavar="User:NAME", help="principal that the ACL denies"
            )
        else:
            verb.add_argument("--principal", metavar="User:NAME", help="principal of the ACL")
        if name == "remove":
            verb.add_argument("--all", action="store_true", help="remove all ACLs")
    return out


def _resources(options: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    """Return type and name of each resource that the options name, also the cluster; empty if they name none."""
    out = [(kind, getattr(options, name.replace("-", "_"))) for name, kind in _KINDS.items()]
    named = [(kind, name) for kind, name in out if name is not None]
    return [*named, (ResourceType.CLUSTER, CLUSTER_NAME)] if options.cluster else named


def _acls_to_add(options: argparse.Namespace) -> list[StandardAcl]:
    """Return the ACLs that ``ottla acl add`` creates: one for each combination of resource, operation and principal.

    Raises:
        CommandFailed: principal, operation or resource is missing, or a principal is not ``TYPE:NAME``.
    """
    about, operations = _resources(options), [_OPERATIONS[o] for o in options.operation]
    principals = [(p, AclPermissionType.ALLOW) for p in options.allow] + [
        (p, AclPermissionType.DENY) for p in options.deny
    ]
    if not about or not operations or not principals:
        raise CommandFailed(
            "principal (--allow or --deny), --operation and resource (such as --topic or --cluster) expected"
        )
    for principal, _ in principals:
        if ":" not in principal:
            raise CommandFailed(f"{principal}: write User:{principal}")
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    return [
        StandardAcl(
            kind,
            name,
            pattern if kind is not ResourceType.CLUSTER else PatternType.LITERAL,
            principal,
            options.host or "*",
            o,
            p,
        )
        for kind, name in about
        for principal, p in principals
        for o in operations
    ]


def _row(acl: StandardAcl) -> dict[str, object]:
    return {
        "resource": acl.resource.name.lower(),
        "name": acl.name,
        "pattern": acl.pattern.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name.lower(),
        "permission": acl.permission.name.lower(),
    }


def _filters(options: argparse.Namespace) -> list[tuple[int, str | None, int, str | None, str | None, int, int]]:
    """Return the ACL filters that the options describe: the fields of DescribeAcls and DeleteAcls, in their order.

    There is one filter for each combination of resource and operation. A field that the options do not restrict is ANY
    or None.
    """
    pattern = int(PatternType.PREFIXED if options.prefixed else PatternType.ANY)
    operations = [int(_OPERATIONS[o]) for o in options.operation] or [int(AclOperation.ANY)]
    about: list[tuple[int, str | None]] = [(int(kind), name) for kind, name in _resources(options)]
    return [
        (kind, name, pattern, options.principal, options.host, operation, int(AclPermissionType.ANY))
        for kind, name in about or [(int(ResourceType.ANY), None)]
        for operation in operations
    ]


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    found: set[StandardAcl] = set()
    for wanted in _filters(options):
        answer = await client.call(describe_acls.DescribeAclsRequest(*wanted))
        raise_for_error(answer.error_code, answer.error_message, "rules")
        for r in answer.resources:
            at = ResourceType(r.resource_type), r.resource_name, PatternType(r.pattern_type)
            for a in r.acls:
                found.add(
                    StandardAcl(
                        *at, a.principal, a.host, AclOperation(a.operation), AclPermissionType(a.permission_type)
                    )
                )
    print_output([_row(acl) for acl in sorted(found)], options.output, "no ACLs")


async def _add(client: ClusterClient, options: argparse.Namespace) -> None:
    acls = _acls_to_add(options)
    rows = [
        create_acls.AclCreation(r, name, pattern, principal, host, o, p)
        for r, name, pattern, principal, host, o, p in acls
    ]
    answer = await client.call(create_acls.CreateAclsRequest(rows))
    for acl, row in zip(acls, answer.results, strict=True):
        raise_for_error(row.error_code, row.error_message, f"{acl.resource.name.lower()} {acl.name}")
    print_output([_row(acl) for acl in acls], options.output)


async def _remove(client: ClusterClient, options: argparse.Namespace) -> None:
    if not (options.all or _resources(options) or options.principal or options.host or options.operation):
        raise CommandFailed("conditions of ACLs, or --all, expected")
    answer = await client.call(
        delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(*x) for x in _filters(options)])
    )
    gone: set[StandardAcl] = set()
    for row in answer.filter_results:
        raise_for_error(row.error_code, row.error_message, "rules")
        for a in row.matching_acls:
            raise_for_error(a.error_code, a.error_message, a.resource_name)
            at = ResourceType(a.resource_type), a.resource_name, PatternType(a.pattern_type)
            gone.add(
                StandardAcl(*at, a.principal, a.host, AclOperation(a.operation), AclPermissionType(a.permission_type))
            )
    if not gone:
        raise CommandFailed("no ACL matches")
    print_output([_row(acl) for acl in sorted(gone)], options.output)


VERBS = {"list": _list, "add": _add, "remove": _remove}


def run(arguments: list[str]) -> int:
    """Run ``ottla acl`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = _parser().parse_args(arguments)
    return run_with_client(options, lambda client: VERBS[options.verb](client, options))
