"""Internal topics of streams groups: created in the background; a failed creation is not requested again for a time.

Source: ``AutoTopicCreationManager.createStreamsInternalTopics``, ``ExpiringErrorCache`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

logger = logging.getLogger("ottla.admin")
MAX_FAILURES = 1_000


class TopicCreationFailure(NamedTuple):
    """Error of a topic's creation, and the wall-clock time in ms until which it is not retried."""

    error_message: str
    until_ms: int


class StreamsInternalTopics:
    """Creator of internal topics, with pending and recently failed creations."""

    def __init__(
        self,
        submit: Callable[[Any, int], Awaitable[Any]],
        beside: Callable[[Callable[[], Awaitable[None]]], None],
        now_ms: Callable[[], int],
        timeout_ms: int,
    ) -> None:
        self._submit = submit
        self._start_in_background = beside
        self._now_ms = now_ms
        self._timeout_ms = timeout_ms
        self._in_creation: set[str] = set()
        self._failures: dict[str, TopicCreationFailure] = {}
        """Failures by topic, oldest first; at most `MAX_FAILURES`."""

    def create(self, topics: Iterable[CreatableTopic], quiet_ms: int) -> None:
        """Create topics in the background, except pending and recently failed ones.

        ``quiet_ms``: time in ms without a retry after a failure.
        """
        wanted = [x for x in topics if x.name not in self._in_creation and self.failure(x.name) is None]
        if wanted:
            self._in_creation.update(topic.name for topic in wanted)
            self._start_in_background(partial(self._create_now, wanted, quiet_ms))

    def failure(self, name: str) -> str | None:
        """Return the error message of a topic's recently failed creation, None without one.

        TOPIC_ALREADY_EXISTS is a failure, too.
        """
        failed = self._failures.get(name)
        return failed.error_message if failed is not None and failed.until_ms > self._now_ms() else None

    async def _create_now(self, topics: list[CreatableTopic], quiet_ms: int) -> None:
        try:
            response = await self._submit(CreateTopicsRequest(topics, self._timeout_ms), 7)
            for row in response.topics:
                if row.error_code:
                    exists = row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS  # another broker has created it
                    why = row.error_message or ErrorCode(row.error_code).text
                    self._record_failure(row.name, why, quiet_ms, logging.INFO if exists else logging.WARNING)
        except OSError:
            pass  # the controller has stopped the node already
        except ProtocolError as error:
            for topic in topics:
                self._record_failure(topic.name, error.message or error.code.text, quiet_ms)
        finally:
            self._in_creation.difference_update(topic.name for topic in topics)

    def _record_failure(self, name: str, why: str, quiet_ms: int, level: int = logging.WARNING) -> None:
        logger.log(level, "Auto topic creation failed for %s: %s", name, why)
        self._failures.pop(name, None)
        self._failures[name] = TopicCreationFailure(why, self._now_ms() + quiet_ms)
        if len(self._failures) > MAX_FAILURES:
            del self._failures[next(iter(self._failures))]
