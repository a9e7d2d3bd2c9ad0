"""Candidates of shell completion: commands, verbs, options, and names of topics, groups, brokers and contexts."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.cli.arguments import CommandParser
from ottla.cli.connection_settings import connection_security, find_settings, resolve_bootstrap
from ottla.cli.contexts import load_contexts
from ottla.cli.errors import CommandFailed
from ottla.cli.main import import_command
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv, run_blocking
from ottla.wire.errors import ProtocolError, WireError
from ottla.wire.messages.list_groups import ListGroupsRequest

TIMEOUT_S = 2
"""Maximum time in seconds for listing names of a cluster while the shell waits for candidates."""
NameLister = Callable[[ClusterClient], Awaitable[list[str]]]


class Candidate(NamedTuple):
    """Completion candidate: the word, and its description, which may be empty."""

    word: str
    text: str = ""


class _Captured(Exception):
    """Raised to stop a command before it parses its arguments; carries the command's parser."""

    def __init__(self, parser: CommandParser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


def command_options(name: str) -> CommandParser:
    """Return the argument parser of a command: call its ``run``, and stop that before it parses arguments."""

    def capture(parser: CommandParser) -> None:
        raise _Captured(parser)

    CommandParser.on_parse = capture
    try:
        # lazy: 245.4 ms, 12764 kB: the command that is completed
        import_command(name)([])
    except _Captured as captured:
        return captured.parser
    finally:
        CommandParser.on_parse = None
    raise AssertionError(f"{name} parses no arguments")


def complete(arguments: Sequence[str], commands: dict[str, str]) -> list[Candidate]:
    """Return the completion candidates for the last of ``arguments``, which may be empty or incomplete.

    Names of topics, groups and brokers are requested from the cluster. If that takes longer than `TIMEOUT_S`, SIGALRM
    ends the process.

    Args:
        arguments: the words after ``ottla``.
        commands: description of each command by name.
    """
    if len(arguments) > 1 and arguments[0] == "help":
        arguments = arguments[1:]
    if len(arguments) < 2:
        found: Iterable[Candidate] = [Candidate(name, text) for name, text in commands.items()]
    elif arguments[0] not in commands:
        return []
    else:
        found = _argument_candidates(arguments)
    last = arguments[-1] if arguments else ""
    return [each for each in found if each.word.startswith(last)]


def _argument_candidates(arguments: Sequence[str]) -> Iterator[Candidate]:
    parser: argparse.ArgumentParser = command_options(arguments[0])
    named: list[str] = []
    pending: argparse.Action | None = None
    given = argparse.Namespace(bootstrap=None, command_config=None, context=None)
    for word in arguments[1:-1]:
        if pending is not None:
            if hasattr(given, pending.dest):
                setattr(given, pending.dest, word)
            pending = None
        elif word.startswith("-"):
            action = parser._option_string_actions.get(word)
            pending = action if action is not None and action.nargs is None else None
        elif (verbs := _verbs(parser)) is not None and not named:
            chosen = verbs.choices.get(word) if isinstance(verbs.choices, dict) else None
            if chosen is None:
                return
            parser = chosen
        else:
            named.append(word)
    if pending is not None:
        yield from _values(pending, arguments[0], named, given)
    elif arguments[-1].startswith("-"):
        yield from _options(parser)
    elif (verbs := _verbs(parser)) is not None:
        yield from (Candidate(each.dest, each.help or "") for each in verbs._choices_actions)
    else:
        action = _positional(parser, len(named))
        if action is not None:
            yield from _values(action, arguments[0], named, given)


def _verbs(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[CommandParser] | None:
    return next((x for x in parser._actions if isinstance(x, argparse._SubParsersAction)), None)


def _options(parser: argparse.ArgumentParser) -> Iterator[Candidate]:
    for action in parser._actions:
        long = [name for name in action.option_strings if name.startswith("--")]
        if long and action.help is not argparse.SUPPRESS:
            yield Candidate(long[0], action.help or "")


def _positional(parser: argparse.ArgumentParser, count: int) -> argparse.Action | None:
    """Return the positional argument after the first ``count`` ones; None if the command has no more.

    A last argument that may be repeated is returned for all further ones.
    """
    actions = [x for x in parser._actions if not x.option_strings]
    if count < len(actions):
        return actions[count]
    return actions[-1] if actions and actions[-1].nargs in ("*", "+") else None


def _values(
    action: argparse.Action, command: str, named: Sequence[str], given: argparse.Namespace
) -> Iterator[Candidate]:
    """Yield the candidates for the value of an option or argument; none for a file, which the shell completes.

    Args:
        action: the option or positional argument.
        command: name of the command.
        named: positional arguments before it.
        given: connection options on the command line.
    """
    if action.choices is not None:
        yield from map(Candidate, action.choices)
        return
    subject = action.dest
    if command == "config" and subject == "name" and named:
        subject = named[0]
    if command == "context" or subject == "context":
        yield from _context_names()
    elif subject in ("topic", "group"):
        yield from map(Candidate, _cluster_names({"topic": _topics, "group": _groups}[subject], given))
    elif subject in ("broker", "logger"):
        yield from map(Candidate, [*_cluster_names(_brokers, given), *(["default"] if subject == "broker" else [])])


def _context_names() -> list[Candidate]:
    try:
        contexts = load_contexts()
    except CommandFailed:
        return []
    return [Candidate(name, values.get("bootstrap.servers", "")) for name, values in sorted(contexts.settings.items())]


async def _topics(client: ClusterClient) -> list[str]:
    return sorted(topic.name or "" for topic in (await client.metadata(None)).topics if not topic.is_internal)


async def _groups(client: ClusterClient) -> list[str]:
    answers = [await channel.call(ListGroupsRequest()) for channel in await client.all_brokers()]
    return sorted(group.group_id for answer in answers for group in answer.groups)


async def _brokers(client: ClusterClient) -> list[str]:
    return [str(number) for number in sorted(x.node_id for x in (await client.metadata([])).brokers)]


def _cluster_names(list_names: NameLister, given: argparse.Namespace) -> list[str]:
    """Return names that ``list_names`` requests from the cluster of the command line, a variable or a context.

    After `TIMEOUT_S` without result, SIGALRM ends the whole process, so that the shell gets no candidates.

    Returns:
        The names; empty if the connection or a request fails.
    """

    async def main() -> list[str]:
        client = ClusterClient(BlockingEnv(), bootstrap, timeout_s=TIMEOUT_S, access=access)
        try:
            return await list_names(client)
        finally:
            client.close()

    signal.alarm(TIMEOUT_S)  # kills this process at the timeout: then there are no candidates
    try:
        settings = find_settings(given)
        bootstrap, access = resolve_bootstrap(given, settings), connection_security(settings)
        return run_blocking(main())
    except (CommandFailed, ProtocolError, WireError, OSError, ValueError):
        return []
    finally:
        signal.alarm(0)
