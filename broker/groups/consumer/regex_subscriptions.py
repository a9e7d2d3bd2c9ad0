"""Subscriptions by regular expression: resolved to topics outside of heartbeats, and stored in records.

A member's expression matches no topic until it is resolved. Each group has at most one resolution at a time, over the
topics that the member whose heartbeat started it may describe; it runs in time slices between other events of the
shard.

Source: ``GroupMetadataManager.maybeUpdateRegularExpressions``, ``handleRegularExpressionsResult``,
``TopicRegexResolver.java`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import re2

from ottla.broker.config.limits import MAX_PATTERN_BYTES, MIN_REGEX_REFRESH_INTERVAL_MS
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import records
from ottla.broker.groups.consumer.consumer_group import (
    ConsumerGroup,
    RegexUpdate,
    ResolvedRegularExpression,
)
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.member_change import MemberChange
from ottla.broker.groups.subscription_counts import adjust_count, adjust_subscription_counts
from ottla.broker.groups.topic_metadata import GroupTopicMetadata
from ottla.jobs.state_machine import ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError

REFRESH_MS = 600_000
"""``group.consumer.regex.refresh.interval.ms``, an internal setting in Kafka."""
NAMES_PER_STEP = 10

RegexSearch = Generator[None, None, dict[str, ResolvedRegularExpression]]


def update_regex(change: MemberChange, fx: GroupEffects) -> RegexUpdate:
    """Return the change of a member's regular expression; start a resolution of the group's expressions if one is due.

    Added to ``fx``: the tombstone of an expression that no member uses any more, and the timer of the resolution.
    A resolution is due for a new expression, for new topics, and after ten minutes, but at most every ten seconds and
    not while one is running; a later heartbeat starts it then.

    Raises:
        ProtocolError: INVALID_REGULAR_EXPRESSION.
    """
    groups, group, now_ms = change.groups, change.group, change.now_ms
    old, new = change.member.subscribed_regex, change.updated.subscribed_regex
    outcome, wanted = RegexUpdate.SAME, False
    if old != new:
        outcome = RegexUpdate.CHANGED
        if old and group.subscribed_regex_counts.get(old) == 1:
            fx.records.append(records.regex_tombstone(group.id, old))
        if new and new not in group.subscribed_regex_counts:
            _compiled(new)
            wanted = True
        elif (new and new in group.resolved_regexes) or (not new and old):
            outcome = RegexUpdate.RESOLVED
    if (not wanted and not group.subscribed_regex_counts) or group.id in groups.regex_searches:
        return outcome
    last = next(iter(group.resolved_regexes.values()), None)
    if last is not None and now_ms <= last.resolved_ms + MIN_REGEX_REFRESH_INTERVAL_MS:
        return outcome
    regexes = dict(group.subscribed_regex_counts)
    adjust_count(regexes, old, -1)
    adjust_count(regexes, new, 1)
    wanted = (
        wanted
        or len(regexes) != len(group.resolved_regexes)
        or (0 if last is None else last.image_offset) < groups.topics.last_new_topic_offset
        or (last is not None and now_ms > last.resolved_ms + REFRESH_MS)
    )
    if wanted and regexes:
        groups.regex_searches[group.id] = _search(groups.topics, list(regexes), change.call.can_describe, now_ms)
        fx.timers.append(ScheduleTimer(("consumer-regex", group.id), now_ms))
    return outcome


def _compiled(regex: str) -> Any:
    """Return the compiled pattern.

    Raises:
        ProtocolError: INVALID_REGULAR_EXPRESSION: RE2 rejects the expression.
    """
    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, MAX_PATTERN_BYTES
    try:
        return re2.compile(regex, options)
    except (re2.error, UnicodeError) as error:
        message = error.args[0] if error.args else b""
        text = message.decode("utf-8", "replace") if isinstance(message, bytes) else message
        why = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}."
        raise ProtocolError(ErrorCode.INVALID_REGULAR_EXPRESSION, why) from None


def _search(
    topics: GroupTopicMetadata, regexes: Iterable[str], sees: Callable[[str], bool] | None, now_ms: int
) -> RegexSearch:
    """Return the topics that each expression matches, among those for which ``sees`` is True (None: all), as a job.

    An invalid expression matches none. If the topics are very many, their hashes are computed as well.
    """
    out: dict[str, ResolvedRegularExpression] = {}
    image = topics.image
    for regex in regexes:
        try:
            pattern = _compiled(regex)
        except ProtocolError:  # an invalid expression in a record written by a client
            out[regex] = ResolvedRegularExpression(frozenset(), image.offset, now_ms)
            continue
        yield
        found = []
        for name in image.topics:
            if pattern.fullmatch(name) is not None and (sees is None or sees(name)):
                found.append(name)
            yield
        out[regex] = ResolvedRegularExpression(frozenset(found), image.offset, now_ms)
    yield from topics.topic_hashes_job(topics.unhashed(*(one.topics for one in out.values())), 1)
    return out


def continue_search(groups: ConsumerGroups, group_id: str, now_ms: int) -> GroupEffects:
    """Run `NAMES_PER_STEP` steps of the resolution of a group's expressions.

    A step matches one topic name with one expression, compiles an expression, or hashes a part of the topics. The
    returned effects have the timer for the next steps or, after the last, the records of the result, with a new group
    epoch if topics or the metadata hash changed. They are empty if no resolution runs, or if the group does not exist
    at the end of its resolution.

    The resolution runs on a timer, not as a continuation, for which all other events of the shard would wait.
    """
    fx = GroupEffects()
    search = groups.regex_searches.get(group_id)
    if search is None:
        return fx
    try:
        for _ in range(NAMES_PER_STEP):
            next(search)
    except StopIteration as end:
        del groups.regex_searches[group_id]
        group = groups.groups.get(group_id)
        if group is not None:
            _write_resolved(groups, group, end.value, fx)
    else:
        fx.timers.append(ScheduleTimer(("consumer-regex", group_id), now_ms))
    return fx


def _write_resolved(
    groups: ConsumerGroups, group: ConsumerGroup, found: dict[str, ResolvedRegularExpression], fx: GroupEffects
) -> None:
    """Add to ``fx`` the records of the resolved expressions, and of a new group epoch if their topics changed.

    The epoch is also bumped if the metadata hash changed.
    """
    names, bump = dict(group.subscribed_topic_names), False
    for regex, resolved in found.items():
        if regex not in group.subscribed_regex_counts:
            continue
        old = group.resolved_regexes.get(regex)
        before = frozenset[str]() if old is None else old.topics
        if before != resolved.topics:
            bump = True
            adjust_subscription_counts(names, before, by_regex=-1)
            adjust_subscription_counts(names, resolved.topics, by_regex=1)
        fx.records.append(records.regex_record(group.id, regex, resolved))
    metadata_hash = groups.topics.hash_of(names)
    if bump or metadata_hash != group.metadata_hash:
        fx.records.append(records.epoch_record(group.id, group.epoch + 1, metadata_hash))
        group.hash_checked_epoch = group.epoch + 1
