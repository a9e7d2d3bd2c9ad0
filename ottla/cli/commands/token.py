"""``ottla token``: create, list, renew and expire delegation tokens, which authenticate a client as their owner."""

from __future__ import annotations

import argparse
import os
import sys
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from datetime import UTC, datetime

from ottla.cli.arguments import MAX_INT64, command_parser, integer
from ottla.cli.common import add_connection, print_output, read_secret, run_with_client
from ottla.cli.connection_settings import find_settings
from ottla.cli.errors import CommandFailed, raise_for_error
from ottla.client.cluster_client import ClusterClient
from ottla.log.java_properties import MalformedProperties, dumps_settings, load_settings
from ottla.runtime.real_disk import open_private
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)

TEXT = """Create, list, renew and expire delegation tokens. A client logs in with a token by SCRAM, as the owner of the
token: the user name is the token id, the password its HMAC. A client that logged in with a token cannot create one.

The HMAC of a token is printed once, when it is created, or written to a file that only you can read. Afterwards, name a
token by its id, so that the HMAC is in no process list. If you may not describe the token, name a file with its HMAC.

examples:
  ottla token create
  ottla token create --owner User:spark --renewer User:yarn --config-out spark.properties
  ottla token list
  ottla token renew 5L6g3nShT-eMCtK--X86sw
  ottla token expire 5L6g3nShT-eMCtK--X86sw
"""
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OWNERS_MIN_VERSION = 3
"""First version of CreateDelegationToken that accepts an owner other than the requester."""
_VERBS = {
    "create": "create a token",
    "list": "list tokens that you own, requested, may renew or may describe",
    "renew": "extend the expiry time of a token, up to its maximum lifetime",
    "expire": "expire a token, now or later",
}


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of ``ottla token``."""
    out = command_parser("token", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in _VERBS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        add_connection(verb)
        if name == "create":
            verb.add_argument("--owner", metavar="User:NAME", help="owner of the token (default: you)")
            verb.add_argument(
                "--renewer",
                action="append",
                default=[],
                metavar="User:NAME",
                help="further principal that may renew the token",
            )
            verb.add_argument(
                "--lifetime-ms",
                type=integer(-1, MAX_INT64),
                default=-1,
                help="maximum lifetime (default: delegation.token.max.lifetime.ms)",
            )
            verb.add_argument(
                "--config-out", metavar="FILE", help="write client settings to this file, readable only by you"
            )
        elif name == "list":
            verb.add_argument("--owner", action="append", metavar="User:NAME", help="only tokens of this owner")
            verb.add_argument("--show-hmac", action="store_true", help="also print the HMACs")
        else:
            verb.add_argument("id", nargs="?", help="id of the token")
            verb.add_argument(
                "--hmac-file", metavar="FILE", help="file with the HMAC, in place of the id; - for standard input"
            )
            effect = (
                "extend by this time (default: delegation.token.expiry.time.ms)"
                if name == "renew"
                else "expire after this time, not now"
            )
            verb.add_argument("--period-ms", type=integer(-1, MAX_INT64), default=-1, help=effect)
    return out


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not colon or not kind:
        raise CommandFailed(f"{text}: write User:{text}")
    return kind, name


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return "never"


def _row(
    token_id: str, owner: str, requester: str, renewers: list[str], expiry_ms: int, max_ms: int
) -> dict[str, object]:
    return {
        "id": token_id,
        "owner": owner,
        "requester": requester,
        "renewers": ",".join(renewers) or "-",
        "expires": _time(expiry_ms),
        "at_latest": _time(max_ms),
    }


async def _create(client: ClusterClient, options: argparse.Namespace) -> None:
    if options.config_out is not None:
        client_settings(_own_settings(options), "", "")  # raises before a token is created that could not be used
    renewers = [create_delegation_token.CreatableRenewers(*_principal(x)) for x in options.renewer]
    version = (await client.bootstrap_channel()).version_for(ApiKey.CREATE_DELEGATION_TOKEN)
    request = create_delegation_token.CreateDelegationTokenRequest("", "", renewers, options.lifetime_ms)
    if options.owner is not None:
        if version < OWNERS_MIN_VERSION:
            raise CommandFailed("--owner: these brokers create tokens for the requester only")
        request.owner_principal_type, request.owner_principal_name = _principal(options.owner)
    made = await client.call(request, version)
    raise_for_error(made.error_code, None, "token")
    owner = f"{made.principal_type}:{made.principal_name}"
    requester = f"{made.token_requester_principal_type}:{made.token_requester_principal_name}"
    times = made.expiry_timestamp_ms, made.max_timestamp_ms
    row = _row(made.token_id, owner, requester if version >= OWNERS_MIN_VERSION else owner, options.renewer, *times)
    hmac = b64encode(made.hmac).decode()
    if options.config_out is None:
        row["hmac"] = hmac
    else:
        _write(options, made.token_id, hmac)
    print_output([row], options.output)


def client_settings(raw: bytes, token_id: str, hmac: str) -> str:
    """Return the content of a client properties file that logs in with the token, by SCRAM-SHA-512.

    The requester's settings are kept, except its credentials: ``sasl.*``, ``ssl.keystore.*`` and ``ssl.key.*``.

    Args:
        raw: the requester's client properties.
        token_id: id of the token, used as SCRAM user name.
        hmac: base64 HMAC of the token, used as SCRAM password.

    Raises:
        CommandFailed: the client properties are malformed, or their ``security.protocol`` is not a SASL protocol.
    """
    try:
        given = load_settings(raw)
    except MalformedProperties as error:
        raise CommandFailed(f"--command-config: {error}") from None
    protocol = given.get("security.protocol", "PLAINTEXT")
    if not protocol.startswith("SASL_"):
        raise CommandFailed(
            f"--config-out: security.protocol={protocol} has no authentication: use a listener with SASL"
        )
    kept = {key: given[key] for key in given if not key.startswith(("sasl.", "ssl.keystore.", "ssl.key."))}
    jaas = f'{_MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";'
    return dumps_settings({**kept, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas})


def _own_settings(options: argparse.Namespace) -> bytes:
    """Return the client settings of this command as the content of a properties file.

    Raises:
        CommandFailed: a file cannot be read, or a context does not exist.
    """
    return dumps_settings(find_settings(options).values).encode()


def _write(options: argparse.Namespace, token_id: str, hmac: str) -> None:
    text = client_settings(_own_settings(options), token_id, hmac)
    with open(open_private(options.config_out), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)  # also if the file existed
        file.write(text)


async def _describe_tokens(
    client: ClusterClient, owners: list[str] | None
) -> list[describe_delegation_token.DescribedDelegationToken]:
    filters = (
        None
        if owners is None
        else [describe_delegation_token.DescribeDelegationTokenOwner(*_principal(x)) for x in owners]
    )
    answer = await client.call(describe_delegation_token.DescribeDelegationTokenRequest(filters))
    raise_for_error(answer.error_code, None, "tokens")
    return sorted(answer.tokens, key=lambda x: (x.principal_name, x.issue_timestamp, x.token_id))


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    rows = []
    for x in await _describe_tokens(client, options.owner):
        renewers = [f"{r.principal_type}:{r.principal_name}" for r in x.renewers]
        requester = f"{x.token_requester_principal_type}:{x.token_requester_principal_name}".strip(":") or "-"
        times = x.expiry_timestamp, x.max_timestamp
        row = _row(x.token_id, f"{x.principal_type}:{x.principal_name}", requester, renewers, *times)
        if options.show_hmac:
            row["hmac"] = b64encode(x.hmac).decode()
        rows.append(row)
    print_output(rows, options.output, "no delegation tokens")


def _read(path: str) -> bytes:
    try:
        return b64decode(read_secret(path).strip(), validate=True)
    except (BadBase64, ValueError):
        raise CommandFailed("--hmac-file: base64 expected") from None


async def _hmac(client: ClusterClient, options: argparse.Namespace) -> bytes:
    """Return the HMAC of the token that ``--hmac-file`` or its id names.

    Raises:
        CommandFailed: the file cannot be read or is not base64, the token does not exist, or this client may not
            describe it.
    """
    if options.hmac_file is not None:
        return _read(options.hmac_file)
    found = [bytes(x.hmac) for x in await _describe_tokens(client, None) if x.token_id == options.id]
    if not found:
        raise CommandFailed(f"token {options.id} does not exist, or you may not describe it (--hmac-file FILE)")
    return found[0]


async def _renew(client: ClusterClient, options: argparse.Namespace) -> None:
    answer = await client.call(
        renew_delegation_token.RenewDelegationTokenRequest(await _hmac(client, options), options.period_ms)
    )
    raise_for_error(answer.error_code, None, "token")
    print(f"expires {_time(answer.expiry_timestamp_ms)}")


async def _expire(client: ClusterClient, options: argparse.Namespace) -> None:
    answer = await client.call(
        expire_delegation_token.ExpireDelegationTokenRequest(await _hmac(client, options), options.period_ms)
    )
    raise_for_error(answer.error_code, None, "token")
    print("expired" if options.period_ms < 0 else f"expires {_time(answer.expiry_timestamp_ms)}")


VERBS = {"create": _create, "list": _list, "renew": _renew, "expire": _expire}


def run(arguments: list[str]) -> int:
    """Run ``ottla token`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed; 2 if the token to renew or expire is not named, or both by id and file;
        130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = parser().parse_args(arguments)
    if options.verb in ("renew", "expire") and (options.id is None) == (options.hmac_file is None):
        print(f"ottla token {options.verb}: id or --hmac-file expected, one of them", file=sys.stderr)
        return 2

    async def work(client: ClusterClient) -> None:
        await VERBS[options.verb](client, options)

    return run_with_client(options, work)
