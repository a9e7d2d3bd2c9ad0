"""``ottla user``: list, set and remove the SCRAM credentials of users, which the cluster stores."""

from __future__ import annotations

import argparse
import getpass
import os
import warnings

from ottla.cli.arguments import command_parser, integer
from ottla.cli.common import add_connection, print_output, read_secret, run_with_client
from ottla.cli.errors import CommandFailed, raise_for_error
from ottla.client.cluster_client import ClusterClient
from ottla.client.scram import MAX_ITERATIONS, MECHANISM_TYPES, MIN_ITERATIONS, SCRAM_SHA_512, salted_password
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import alter_user_scram_credentials, describe_user_scram_credentials

TEXT = """List, add and remove users with a password (SCRAM).

The command prompts for the password, or reads it from a file or standard input, so that it is in no process list. The
password is not sent: the cluster gets the salted password of SCRAM. Use TLS, since this value also permits a login.

examples:
  ottla user list
  ottla user set alice
  ottla user set alice --password-file secret.txt --mechanism SCRAM-SHA-256
  ottla user remove alice
"""
_SALT_BYTES = 24


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of ``ottla user``."""
    out = command_parser("user", TEXT)
    out.add_argument("action", choices=["list", "set", "remove"], help="action")
    out.add_argument("user", nargs="?", help="name of the user; list: all by default")
    out.add_argument(
        "--mechanism", choices=list(MECHANISM_TYPES), help=f"set: default {SCRAM_SHA_512}; remove: default all"
    )
    out.add_argument(
        "--iterations",
        type=integer(MIN_ITERATIONS, MAX_ITERATIONS),
        default=MIN_ITERATIONS,
        help=f"default {MIN_ITERATIONS}",
    )
    out.add_argument("--password-file", metavar="FILE", help="file with the password; - for standard input")
    add_connection(out)
    return out


def _password(path: str | None) -> str:
    if path is not None:
        password = read_secret(path)
    else:
        try:
            with warnings.catch_warnings(action="error", category=getpass.GetPassWarning):
                password = getpass.getpass("password: ")
        except (getpass.GetPassWarning, EOFError):
            raise CommandFailed("no terminal to prompt for the password: --password-file FILE, - is stdin") from None
    if not password:
        raise CommandFailed("the password is empty")
    return password


async def _described_users(
    client: ClusterClient, user: str | None
) -> list[describe_user_scram_credentials.DescribeUserScramCredentialsResult]:
    users = None if user is None else [describe_user_scram_credentials.UserName(user)]
    answer = await client.call(describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users))
    raise_for_error(answer.error_code, answer.error_message, "users")
    for row in answer.results:
        if row.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            raise CommandFailed(f"user {row.user} does not exist")
        raise_for_error(row.error_code, row.error_message, f"user {row.user}")
    return list(answer.results)


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    names = {number: name for name, number in MECHANISM_TYPES.items()}
    rows = [
        {"user": row.user, "mechanism": names.get(info.mechanism, "unknown"), "iterations": info.iterations}
        for row in await _described_users(client, options.user)
        for info in row.credential_infos
    ]
    print_output(rows, options.output, "no users")


async def _set(client: ClusterClient, options: argparse.Namespace) -> None:
    mechanism = options.mechanism or SCRAM_SHA_512
    salt = os.urandom(_SALT_BYTES)
    salted = salted_password(mechanism, _password(options.password_file), salt, options.iterations)
    made = alter_user_scram_credentials.ScramCredentialUpsertion(
        options.user, MECHANISM_TYPES[mechanism], options.iterations, salt, salted
    )
    await _alter(client, alter_user_scram_credentials.AlterUserScramCredentialsRequest([], [made]))
    print(f"{options.user} may log in with {mechanism}")


async def _remove(client: ClusterClient, options: argparse.Namespace) -> None:
    """Delete the user's SCRAM credentials, by one request for each mechanism: a request may contain a user only once.

    Raises:
        CommandFailed: the user does not exist or has no credential for ``--mechanism``, or a request was refused; the
            credentials of the requests before it are deleted.
    """
    (row,) = await _described_users(client, options.user)
    wanted = [x.mechanism for x in row.credential_infos if options.mechanism in (None, _name(x.mechanism))]
    if not wanted:
        raise CommandFailed(f"{options.user} has no password for {options.mechanism}")
    for mechanism in wanted:
        gone = alter_user_scram_credentials.ScramCredentialDeletion(options.user, mechanism)
        await _alter(client, alter_user_scram_credentials.AlterUserScramCredentialsRequest([gone], []))
        print(f"{options.user} may no longer log in with {_name(mechanism)}")


def _name(mechanism: int) -> str | None:
    return next((name for name, number in MECHANISM_TYPES.items() if number == mechanism), None)


async def _alter(client: ClusterClient, request: alter_user_scram_credentials.AlterUserScramCredentialsRequest) -> None:
    answer = await client.call(request)
    for row in answer.results:
        raise_for_error(row.error_code, row.error_message, f"user {row.user}")


def run(arguments: list[str]) -> int:
    """Run ``ottla user`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = parser().parse_args(arguments)
    if options.user is None and options.action != "list":
        parser().error("the following arguments are required: user")
    action = {"list": _list, "set": _set, "remove": _remove}[options.action]

    async def work(client: ClusterClient) -> None:
        await action(client, options)

    return run_with_client(options, work)
