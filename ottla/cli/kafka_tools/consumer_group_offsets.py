"""Actions ``--reset-offsets`` and ``--delete-offsets`` of ``kafka-consumer-groups.sh`` and, changed, of similar tools.

Source: ``ConsumerGroupCommand``, ``OffsetsUtils`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.cli.common import connect_to_coordinator
from ottla.cli.errors import CommandFailed
from ottla.cli.group_admin import description, reset
from ottla.cli.group_admin.offsets import EARLIEST, LATEST, TopicPartitionKey, fetch_committed_offsets, list_offsets
from ottla.cli.kafka_tools.java_errors import default_text, java_text, message_text
from ottla.cli.kafka_tools.text_tables import padded, widest
from ottla.cli.kafka_tools.tool_options import ToolFailed, ToolOptions, has, java_integer
from ottla.client.cluster_client import ClusterClient
from ottla.runtime import blocking_env
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import offset_delete

RESETTABLE = ("Empty", "Dead")
MODES = {
    "to-offset": "to_offset",
    "to-earliest": "to_earliest",
    "to-latest": "to_latest",
    "shift-by": "shift_by",
    "to-datetime": "to_datetime",
    "by-duration": "by_duration",
    "from-file": "from_file",
    "to-current": "to_current",
}
PRINTED_CODES = (
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NON_EMPTY_GROUP,
)
PARTITION_CODES = (
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
Offsets = dict[TopicPartitionKey, int]


def _warn_clamped(at: TopicPartitionKey, offset: int, taken: int) -> None:
    which = "higher than latest" if offset > taken else "lower than earliest"
    text = f"New offset ({offset}) is {which} offset for topic partition {at[0]}-{at[1]}. Value will be set to {taken}"
    print(f"WARN {text}", file=sys.stderr)


def parse_topic_partitions(text: str, fail: Callable[[str], None]) -> list[TopicPartitionKey]:
    """Return topic and number of each partition of ``topic:0,1``.

    For another form, ``fail`` is called with the error message of Kafka's tool; it must not return.
    """
    parts = text.split(":")
    if len(parts) != 2:
        fail(f"Invalid topic arg '{text}', expected topic name and partitions")
    out = []
    for number in parts[1].split(","):
        try:
            out.append((parts[0], java_integer(number)))
        except ValueError:
            fail(f"Invalid partition '{number}' specified in topic arg '{text}''")
    return out


async def partition_numbers(client: ClusterClient, topics: Iterable[str]) -> dict[str, list[int]]:
    """Return the sorted partition numbers of each topic, by its name; empty without topics.

    Raises:
        ProtocolError: a topic has an error, such as UNKNOWN_TOPIC_OR_PARTITION or TOPIC_AUTHORIZATION_FAILED.
    """
    names = sorted(set(topics))
    out = {}
    for topic in (await client.metadata(names)).topics if names else ():
        if topic.error_code:
            raise ProtocolError(ErrorCode(topic.error_code))
        out[topic.name or ""] = sorted(row.partition_index for row in topic.partitions)
    return out


class OffsetReset:
    """Action ``--reset-offsets``: new offsets of groups without members, which are committed only with ``--execute``.

    Args:
        client: client of the cluster.
        options: parsed arguments.
        parser: prints the usage and exits with status 1 if the options are invalid.
    """

    def __init__(self, client: ClusterClient, options: argparse.Namespace, parser: ToolOptions) -> None:
        self._client = client
        self._options = options
        self._parser = parser
        self._plan: dict[str, Offsets] = {}

    async def _look(self, partitions: Iterable[TopicPartitionKey], timestamp: int) -> Offsets:
        wanted = list(partitions)
        found = await list_offsets(self._client, wanted, timestamp)
        for at in wanted:
            if timestamp not in (EARLIEST, LATEST) and found.get(at, 0) < 0:
                print(
                    f"\nWarn: Partition {at[1]} from topic {at[0]} is empty. Falling back to latest known offset.",
                )
            if at not in found:
                kind = {EARLIEST: "starting offset", LATEST: "ending offset"}.get(timestamp, "offset by timestamp")
                self._parser.fail_with_usage(f"Error getting {kind} of topic partition: {at[0]}-{at[1]}")
        return found

    async def _partitions(self, committed: Mapping[TopicPartitionKey, int]) -> list[TopicPartitionKey]:
        """Return the partitions to reset: those with committed offsets (``--all-topics``), or those of ``--topic``.

        Without both, the list is empty with ``--from-file``; else the usage is printed and the tool exits with status
        1.

        Raises:
            ProtocolError: a topic does not exist or may not be described.
        """
        options = self._options
        if options.all_topics:
            return sorted(committed)
        if not options.topic:
            if not has(options, "from-file"):
                self._parser.fail_with_usage("One of the reset scopes should be defined: --all-topics, --topic.")
            return []
        out = [
            at
            for text in options.topic
            if ":" in text
            for at in parse_topic_partitions(text, self._parser.fail_with_usage)
        ]
        whole = await partition_numbers(self._client, [text for text in options.topic if ":" not in text])
        return [*out, *((topic, number) for topic, numbers in whole.items() for number in numbers)]

    async def _check(self, wanted: Sequence[TopicPartitionKey]) -> None:
        """Check that the partitions ``wanted`` exist.

        Raises:
            ToolFailed: a topic or partition does not exist.
        """
        try:
            there = await partition_numbers(self._client, [topic for topic, _ in wanted])
        except ProtocolError as error:
            raise ToolFailed(f"java.util.concurrent.ExecutionException: {java_text(error)}") from None
        missing = [f"{topic}-{number}" for topic, number in wanted if number not in there[topic]]
        if missing:
            raise ToolFailed(f'The partitions "{",".join(missing)}" do not exist')

    async def _new_offsets(
        self, group: str, wanted: Sequence[TopicPartitionKey], committed: Mapping[TopicPartitionKey, int]
    ) -> Offsets:
        options = self._options
        name = next((name for name in MODES if has(options, name)), None)
        if name is None:
            shown = ", ".join(f"[{name}]" for name in MODES)
            self._parser.fail_with_usage(f"Option '[reset-offsets]' requires one of the following scenarios: [{shown}]")
        to = reset.ResetTarget(MODES[name], getattr(options, MODES[name]))
        if name == "from-file":
            if group not in self._plan:
                print(f"\nError: No reset plan for group {group} found")
                return {}
            to = reset.ResetTarget(to.mode, self._plan[group])
        missing = [at for at in wanted if at not in committed] if name == "shift-by" else []
        if missing:
            at = f"{missing[0][0]}-{missing[0][1]}"
            self._parser.fail_with_usage(
                f"Cannot shift offset for partition {at} since there is no current committed offset"
            )
        now_ms = blocking_env.BlockingEnv().now_ms()
        try:
            return await reset.target_offsets(self._look, to, wanted, committed, now_ms, _warn_clamped)
        except CommandFailed as error:
            raise ToolFailed(str(error)) from None

    async def _inactive_group(self, group: str) -> Offsets:
        committed = await self._present(group)
        try:
            wanted = await self._partitions(committed)
        except ProtocolError as error:
            raise ToolFailed(message_text(error)) from None
        await self._check(wanted)
        new = await self._new_offsets(group, wanted, committed)
        if self._options.execute and new:
            await self._store(group, new)
        return new

    async def _state(self, group: str) -> str:
        """Return the state of a group as its coordinator names it, such as ``Empty`` or ``Stable``.

        Raises:
            ProtocolError: the group does not exist or may not be described.
            CommandFailed: no coordinator is available.
        """
        return (await description.describe_consumer_group(self._client, group)).state

    def _refuse_active(self, group: str, state: str) -> None:
        """Print that the offsets of a group cannot be reset because its state is not in `RESETTABLE`."""
        print(
            f"\nError: Assignments can only be reset if the group '{group}' is inactive, "
            f"but the current state is {state}."
        )

    async def _present(self, group: str) -> Offsets:
        """Return the committed offset of each partition for which the group has one.

        Raises:
            CommandFailed: no coordinator is available, or it refused OffsetFetch.
        """
        return await fetch_committed_offsets(await connect_to_coordinator(self._client, group), group)

    async def _store(self, group: str, new: Offsets) -> None:
        """Commit the new offsets of a group at its coordinator.

        Raises:
            CommandFailed: no coordinator is available, or it refused an offset; those of other partitions may be
                committed.
        """
        await reset.commit_offsets(self._client, group, new)

    async def run(self, groups: Sequence[str]) -> None:
        """Compute the new offsets of groups, commit them with ``--execute``, and print them.

        They are printed as a table, with ``--export`` as CSV. A group in another state than Empty or Dead gets an
        error message and no new offsets; the other groups are still reset. A group that does not exist counts as Dead.
        After an error the groups before stay reset, and no table is printed.

        Raises:
            ToolFailed: the file of ``--from-file``, a partition or a target is invalid, or a group cannot be described.
            CommandFailed: no coordinator is available, or it refused an offset.
        """
        if has(self._options, "from-file"):
            path = self._options.from_file
            try:
                self._plan = reset.load_offsets_file(path, groups)
            except CommandFailed:
                raise ToolFailed(f"java.io.IOException: Unable to read file {path}") from None
        out: dict[str, Offsets] = {}
        for group in groups:
            try:
                state = await self._state(group)
            except ProtocolError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise ToolFailed(f"java.util.concurrent.ExecutionException: {java_text(error)}") from None
                state = "Dead"
            if state not in RESETTABLE:
                self._refuse_active(group, state)
            out[group] = await self._inactive_group(group) if state in RESETTABLE else {}
        (self._export if self._options.export else self._print)(out)

    def _export(self, out: Mapping[str, Offsets]) -> None:
        for group, offsets in out.items():
            first = [group] if len(self._options.group or ()) != 1 else []
            for (topic, number), offset in sorted(offsets.items()):
                print(*first, topic, number, offset, sep=",")
        print()

    def _print(self, out: Mapping[str, Offsets]) -> None:
        topics = [topic for offsets in out.values() for topic, _ in offsets]
        widths = [widest(15, list(out)), widest(15, topics), 10, 0]
        if out:
            print("\n" + padded(widths, ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]), end="")
        for group, offsets in out.items():
            for (topic, number), offset in sorted(offsets.items()):
                print("\n" + padded(widths, [group, topic, number, offset]), end="")
        print()


async def delete_offsets(client: ClusterClient, options: argparse.Namespace, parser: ToolOptions) -> None:
    """Delete the committed offsets of the group in ``--group`` for the topics or partitions of ``--topic``.

    The result of each partition is printed; an error code of the response is printed, too, and not raised.

    Raises:
        CommandFailed: no coordinator is available.
    """
    group = options.group[0]
    results: dict[TopicPartitionKey, str | None] = {}
    wanted: list[TopicPartitionKey] = []
    for text in dict.fromkeys(options.topic):
        if ":" in text:
            wanted += parse_topic_partitions(text, parser.fail_with_usage)
            continue
        try:
            wanted += [(text, number) for number in (await partition_numbers(client, [text]))[text]]
        except ProtocolError as error:
            results[text, -1] = java_text(error)
    parts: dict[str, list[offset_delete.OffsetDeleteRequestPartition]] = {}
    for topic, number in wanted:
        parts.setdefault(topic, []).append(offset_delete.OffsetDeleteRequestPartition(number))
    topics = [offset_delete.OffsetDeleteRequestTopic(topic, rows) for topic, rows in parts.items()]
    answer = await (await connect_to_coordinator(client, group)).call(offset_delete.OffsetDeleteRequest(group, topics))
    code = ErrorCode(answer.error_code)
    codes = {(topic.name, row.partition_index): row.error_code for topic in answer.topics for row in topic.partitions}
    for at in wanted:
        one = code or ErrorCode(codes.get(at, 0))
        results[at] = java_text(ProtocolError(one)) if one else None
        code = code or one
    _print_deletion(group, code, results)


def _print_deletion(group: str, code: ErrorCode, results: Mapping[TopicPartitionKey, str | None]) -> None:
    if not code:
        print(f"Request succeeded for deleting offsets from group {group}.")
    elif code in PRINTED_CODES:
        print(f"\nError: {default_text(code)}")
    elif code in PARTITION_CODES:
        print("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        print(f"\nError: Encountered some unknown error: {code.name}")
    widths = [widest(15, [topic for topic, _ in results]), 10, 15]
    print("\n" + padded(widths, ["TOPIC", "PARTITION", "STATUS"]), end="")
    for (topic, number), text in sorted(results.items(), key=lambda item: f"{item[0][0]}{item[0][1]}"):
        status = "Successful" if text is None else f"Error: {text}"
        print("\n" + padded(widths, [topic, "-" if number < 0 else number, status]), end="")
    print()
