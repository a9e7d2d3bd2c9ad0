"""Changes of topics: create, add partitions, alter a configuration, delete records, delete.

The user confirms each change on a page with its consequences; the request is that of Kafka's own tools.
"""

from __future__ import annotations

from ottla.console.offsets import EARLIEST, LATEST
from ottla.console.page import Change, InvalidInput, PageRequest, View, check, confirm_and_execute, split_entries
from ottla.console.pages.topics import fetch_offsets, fetch_settings, find_topic
from ottla.console.rendering import format_count, url
from ottla.controller.metadata.image import RESOURCE_TOPIC
from ottla.wire.messages import create_partitions, create_topics, delete_topics, incremental_alter_configs
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.metadata import MetadataResponseTopic

TIMEOUT_MS = 10_000
_SET, _DELETE = 0, 1
"""Operations of ``AlterConfigOp``."""
MAX_SETTINGS = 50


def _topic_url(name: str) -> str:
    return url("/topic", name=name)


def _plural(count: int, noun: str) -> str:
    return f"{format_count(count)} {noun}" if count == 1 else f"{format_count(count)} {noun}s"


# ---------------------------------------------------------------------- create


async def get_new_topic(_: PageRequest) -> View:
    """Return the page with the form of a new topic."""
    return View("new_topic.html", {"title": "New topic"})


def _parse_settings(text: str) -> dict[str, str]:
    """Return the configurations of lines ``KEY=VALUE``.

    Raises:
        InvalidInput: a line has another form, or there are too many.
    """
    out = {}
    for line in split_entries(text, MAX_SETTINGS, "settings"):
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise InvalidInput(f"settings: KEY=VALUE expected: {line[:80]}")
        out[key.strip()] = value.strip()
    return out


async def create_topic(page: PageRequest) -> View:
    """Create the topic of the form, if it is confirmed; else validate it and return the confirmation page.

    Raises:
        InvalidInput: a field is invalid. ProtocolError: the controller refused the topic.
    """
    name, partitions = page.text("name"), page.number("partitions", -1, 1, 2**31 - 1)
    replication = page.number("replication", -1, 1, 2**15 - 1)
    settings = _parse_settings(page.fields.get("settings", ""))
    configs = [create_topics.CreatableTopicConfig(key, value) for key, value in settings.items()]
    request = create_topics.CreateTopicsRequest(
        [create_topics.CreatableTopic(name, partitions, replication, configs=configs)], TIMEOUT_MS
    )

    async def execute() -> str:
        row = (await page.client.call(request)).topics[0]
        check(row.error_code, row.error_message, f"topic {name}")
        return f"Topic {name} was created with {_plural(row.num_partitions, 'partition')}."

    await _validate(page, create_topics.CreateTopicsRequest(request.topics, TIMEOUT_MS, validate_only=True), name)
    count = "the default number of partitions" if partitions < 0 else _plural(partitions, "partition")
    copies = "the default number of replicas" if replication < 0 else _plural(replication, "replica")
    consequences = [f"A new topic with {count} and {copies} of each; nothing is lost."]
    consequences += [f"Setting {key} is {value}." for key, value in settings.items()]
    return await confirm_and_execute(
        page, Change(f"Create topic {name}", consequences, "Create the topic", execute, _topic_url(name))
    )


async def _validate(page: PageRequest, request: create_topics.CreateTopicsRequest, name: str) -> None:
    """Send a request with ``validate_only``, unless the form is confirmed.

    Raises:
        ProtocolError: the topic is invalid.
    """
    if page.fields.get("confirmed") != "yes":
        row = (await page.client.call(request)).topics[0]
        check(row.error_code, row.error_message, f"topic {name}")


# ---------------------------------------------------------------------- partitions


async def get_new_partitions(page: PageRequest) -> View:
    """Return the page with the form that adds partitions to the topic in the field ``name``.

    Raises:
        ProtocolError: the topic does not exist, or the session may not describe it.
    """
    topic = await find_topic(page, page.text("name"))
    values = {"title": f"Add partitions to {topic.name}", "topic": topic.name, "current": len(topic.partitions)}
    return View("new_partitions.html", values)


async def add_partitions(page: PageRequest) -> View:
    """Increase the number of partitions of a topic, if the form is confirmed; else return the confirmation page.

    Raises:
        InvalidInput: the number is not larger than the present one. ProtocolError: the controller refused it.
    """
    topic = await find_topic(page, page.text("name"))
    name, current = topic.name or "", len(topic.partitions)
    total = page.number("total", 0, 1, 2**31 - 1)
    if total <= current:
        raise InvalidInput(f"total: topic {name} has {current} partitions already; more are expected")

    async def execute() -> str:
        request = create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic(name, total, None)], TIMEOUT_MS
        )
        row = (await page.client.call(request)).results[0]
        check(row.error_code, row.error_message, f"topic {name}")
        return f"Topic {name} has {_plural(total, 'partition')}."

    consequences = [
        f"{_plural(total - current, 'partition')} more: {current} become {total}. Partitions cannot be removed again.",
        "Records with a key go to other partitions than before: the order by key is lost across the change.",
    ]
    return await confirm_and_execute(
        page, Change(f"Add partitions to {name}", consequences, "Add the partitions", execute, _topic_url(name))
    )


# ---------------------------------------------------------------------- settings


async def get_setting(page: PageRequest) -> View:
    """Return the page with the form of one configuration of a topic.

    Raises:
        InvalidInput: the topic has no such configuration, or the session may not see it.
    """
    name, key = page.text("name"), page.text("key")
    settings, problem = await fetch_settings(page, name)
    found = next((row for row in settings if row["name"] == key), None)
    if found is None:
        raise InvalidInput(problem or f"topic {name} has no setting {key}")
    return View("setting.html", {"title": f"{key} of {name}", "topic": name, "setting": found})


async def alter_setting(page: PageRequest) -> View:
    """Set or delete a configuration of a topic, if the form is confirmed; else return the confirmation page.

    Raises:
        InvalidInput: the topic has no such configuration. ProtocolError: the change was refused.
    """
    name, key, value = page.text("name"), page.text("key"), page.fields.get("value", "")
    removes = page.fields.get("remove") == "yes"
    settings, problem = await fetch_settings(page, name)
    before = next((row for row in settings if row["name"] == key), None)
    if before is None:
        raise InvalidInput(problem or f"topic {name} has no setting {key}")

    async def execute() -> str:
        config = (
            incremental_alter_configs.AlterableConfig(key, _DELETE, None)
            if removes
            else incremental_alter_configs.AlterableConfig(key, _SET, value)
        )
        resource = incremental_alter_configs.AlterConfigsResource(RESOURCE_TOPIC, name, [config])
        row = (await page.client.call(incremental_alter_configs.IncrementalAlterConfigsRequest([resource]))).responses[
            0
        ]
        check(row.error_code, row.error_message, f"topic {name}")
        return f"{key} of topic {name} " + ("has its default again." if removes else f"is {value}.")

    consequences = [f"{key} is {before['value']} now (source: {before['source']})."]
    consequences.append("It gets the value of the broker." if removes else f"It becomes {value}.")
    if key.startswith("retention.") or key == "cleanup.policy":
        consequences.append("Records that the new value no longer keeps are deleted.")
    return await confirm_and_execute(
        page, Change(f"Change {key} of {name}", consequences, "Change the setting", execute, _topic_url(name))
    )


# ---------------------------------------------------------------------- deletion


async def _count_records(page: PageRequest, topic: MetadataResponseTopic) -> tuple[dict[int, int], dict[int, int]]:
    """Return the log start offsets and the end offsets, each by partition; those without a leader are left out."""
    name, numbers = topic.name or "", [p.partition_index for p in topic.partitions]
    return await fetch_offsets(page, name, numbers, EARLIEST), await fetch_offsets(page, name, numbers, LATEST)


async def delete_topic(page: PageRequest) -> View:
    """Delete the topic of the form, if it is confirmed; else return the confirmation page.

    Raises:
        ProtocolError: there is no such topic, or the deletion was refused.
    """
    topic = await find_topic(page, page.text("name"))
    name = topic.name or ""
    starts, ends = await _count_records(page, topic)
    records = sum(ends[number] - starts.get(number, 0) for number in ends)

    async def execute() -> str:
        request = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name)], timeout_ms=TIMEOUT_MS
        )
        row = (await page.client.call(request)).responses[0]
        check(row.error_code, row.error_message, f"topic {name}")
        return f"Topic {name} was deleted."

    consequences = [
        f"{_plural(len(topic.partitions), 'partition')} with up to {_plural(records, 'record')} are lost for good.",
        "Settings of the topic and committed offsets of groups in it are lost.",
    ]
    if topic.is_internal:
        consequences.append("This is an internal topic: groups or transactions lose their state.")
    change = Change(f"Delete topic {name}", consequences, "Delete the topic", execute, "/topics", is_destructive=True)
    return await confirm_and_execute(page, change)


async def get_records_to_delete(page: PageRequest) -> View:
    """Return the page with the form for deletion of a partition's records.

    Raises:
        InvalidInput: no such partition, or it has no leader. ProtocolError: no such topic.
    """
    topic = await find_topic(page, page.text("name"))
    number = page.number("partition", 0, 0, 2**31 - 1)
    starts, ends = await _count_records(page, topic)
    if number not in ends:
        raise InvalidInput(f"partition: topic {topic.name} has no partition {number} with a leader")
    values = {"topic": topic.name, "partition": number, "start": starts.get(number, 0), "end": ends[number]}
    return View("delete_records.html", {"title": f"Delete records of {topic.name}-{number}", **values})


async def delete_records(page: PageRequest) -> View:
    """Delete the records of a partition before an offset, if the form is confirmed; else return the confirmation page.

    Without an offset in the form, all records are deleted. Sends DeleteRecords to the leader.

    Raises:
        InvalidInput: the partition does not exist or has no leader. ProtocolError: the deletion was refused.
    """
    topic = await find_topic(page, page.text("name"))
    name, number = topic.name or "", page.number("partition", 0, 0, 2**31 - 1)
    starts, ends = await _count_records(page, topic)
    if number not in ends:
        raise InvalidInput(f"partition: topic {name} has no partition {number} with a leader")
    before = page.number("before", ends[number])

    async def execute() -> str:
        deletion = DeleteRecordsTopic(name, [DeleteRecordsPartition(number, before)])
        channel = await page.client.leader(name, number)
        row = (await channel.call(DeleteRecordsRequest([deletion], TIMEOUT_MS))).topics[0].partitions[0]
        check(row.error_code, None, f"{name}-{number}")
        return f"{name}-{number} starts at offset {row.low_watermark}."

    lost = max(min(before, ends[number]) - starts.get(number, 0), 0)
    consequences = [f"Up to {_plural(lost, 'record')} before offset {before} of {name}-{number} are lost for good."]
    change = Change(
        f"Delete records of {name}-{number}",
        consequences,
        "Delete the records",
        execute,
        _topic_url(name),
        is_destructive=True,
    )
    return await confirm_and_execute(page, change)
