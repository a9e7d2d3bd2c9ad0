"""Requests for the active controller: forwarded client requests, and automatic creation of topics.

Source: ``ForwardingManager.scala``, ``AutoTopicCreationManager.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker.config.limits import MAX_TOPICS_IN_CREATION
from ottla.broker.config.node_config import NodeConfig
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.wire.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from ottla.broker.metadata.streams_internal_topics import StreamsInternalTopics
    from ottla.broker.requests.forwardable_request import ForwardableRequest

logger = logging.getLogger("ottla.admin")
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"

StartInBackground = Callable[[Callable[[], Awaitable[None]]], None]
"""Function that starts a task in the background, for as long as the node runs."""


class RequestSubmitter(Protocol):
    """Channel to the active controller, local or remote."""

    async def submit(self, request: Any, version: int = 0) -> Any:
        """Send a request; return the response, once the changes are committed.

        ``version``: the newest to use, 0 for the newest that both sides support.

        Raises:
            ProtocolError: no response in time, or the error of the whole request.
            OSError: the metadata log could not be written.
        """


class RequestForwarder(RequestSubmitter, Protocol):
    """Channel that also forwards client requests: `ottla.broker.interbroker.controller_channel.ControllerChannel`."""

    async def forward(self, context: ForwardableRequest, request: Any) -> Any:
        """Forward a client's request with its principal (Envelope); return the response.

        Raises:
            WireError: the client must reconnect; OSError: the metadata log could not be written.
        """


class ControllerForwarder:
    """Sender of client requests and topic creations to the active controller, which may be in this process."""

    def __init__(
        self,
        controller: RequestForwarder,
        config: NodeConfig,
        beside: StartInBackground,
        wait_applied: Callable[[], Awaitable[None]],
    ) -> None:
        self._controller = controller
        self._config = config
        self._start_in_background = beside
        self._wait_applied = wait_applied
        self._topics_in_creation: set[str] = set()
        self._streams_topics: StreamsInternalTopics | None = None

    async def forward(self, context: ForwardableRequest, request: Any) -> Any:
        """Forward a client's request; return the controller's response after the metadata known here is applied.

        It also waits for log creations, at most 1 s, if few are pending. If the controller is another node, the
        request's changes may be applied here after the response. The response's throttle time mutes the connection.

        Raises:
            WireError: the controller does not support the request; the client must reconnect.
            OSError: the metadata log could not be written; the node stops.
        """
        answer = await self._controller.forward(context, request)
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms:  # the controller records the mutations; the broker throttles the client's connection
            context.peer.throttle_ms = max(context.peer.throttle_ms, throttle_ms)
        await self._wait_applied()
        return answer

    def auto_create(self, name: str) -> None:
        """Create a topic in the background; one request at a time for each name.

        An internal topic gets its own settings; `__cluster_metadata` is not created. Beyond `MAX_TOPICS_IN_CREATION`
        pending ones no further topic is created: the client gets UNKNOWN_TOPIC_OR_PARTITION and retries.
        """
        if name == OFFSETS_TOPIC:
            self.create_offsets_topic()
        elif name == TRANSACTIONS_TOPIC:
            self.create_transactions_topic()
        elif name == SHARE_TOPIC:
            self.create_share_topic()
        elif name != METADATA_TOPIC:  # the controller would reject it
            self.create_topic(name, -1, -1, {})

    def streams_internal_topics(self, now_ms: Callable[[], int]) -> StreamsInternalTopics:
        """Return the creator of streams groups' internal topics, created on first use; ``now_ms``: wall clock."""
        if self._streams_topics is None:
            # lazy: 1.5 ms, 44 kB
            from ottla.broker.metadata.streams_internal_topics import StreamsInternalTopics

            timeout_ms = self._config.number("request.timeout.ms")
            self._streams_topics = StreamsInternalTopics(
                self._controller.submit, self._start_in_background, now_ms, timeout_ms
            )
        return self._streams_topics

    def create_offsets_topic(self) -> None:
        """Create `__consumer_offsets` in the background."""
        config = self._config
        settings = {
            "compression.type": "producer",
            "cleanup.policy": "compact",
            "segment.bytes": config.text("offsets.topic.segment.bytes"),
        }
        self._create_internal(OFFSETS_TOPIC, "offsets.topic", settings)

    def create_transactions_topic(self) -> None:
        """Create `__transaction_state` in the background."""
        config = self._config
        settings = {
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": config.text("transaction.state.log.min.isr"),
            "segment.bytes": config.text("transaction.state.log.segment.bytes"),
            "unclean.leader.election.enable": "false",
        }
        self._create_internal(TRANSACTIONS_TOPIC, "transaction.state.log", settings)

    def _create_internal(self, name: str, prefix: str, settings: dict[str, str]) -> None:
        """Create an internal topic in the background.

        Args:
            name: name of the topic.
            prefix: prefix of the broker settings for partitions and replication factor, such as ``offsets.topic``.
            settings: configuration of the topic.
        """
        config = self._config
        partitions, replicas = config.number(f"{prefix}.num.partitions"), config.number(f"{prefix}.replication.factor")
        self.create_topic(name, partitions, replicas, settings)

    def create_share_topic(self) -> None:
        """Create `__share_group_state` in the background."""
        prefix = "share.coordinator.state.topic"
        settings = {
            "compression.type": "producer",
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "min.insync.replicas": self._config.text(f"{prefix}.min.isr"),
            "segment.bytes": self._config.text(f"{prefix}.segment.bytes"),
        }
        self._create_internal(SHARE_TOPIC, prefix, settings)

    def create_topic(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Create a topic in the background; -1 is the controller's default number of partitions or replicas.

        Nothing happens while the topic is being created, or while `MAX_TOPICS_IN_CREATION` are. A failure is logged.
        """
        if name not in self._topics_in_creation and len(self._topics_in_creation) < MAX_TOPICS_IN_CREATION:
            self._topics_in_creation.add(name)
            self._start_in_background(partial(self._create_now, name, partitions, replicas, settings))

    async def _create_now(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        # lazy: 0.9 ms, 23 kB
        from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

        configs = [CreatableTopicConfig(key, value) for key, value in settings.items()]
        topic = CreatableTopic(name, partitions, replicas, configs=configs)
        try:
            response = await self._controller.submit(CreateTopicsRequest([topic], 60_000), 7)
            row = response.topics[0]
            if row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:  # several brokers may have requested it at once
                logger.info("Auto topic creation of %s: another broker has created it", name)
            elif row.error_code:
                code = ErrorCode(row.error_code).name
                logger.warning("Auto topic creation failed for %s with error %s: %s", name, code, row.error_message)
        except OSError:
            pass  # the controller has stopped the node already
        except ProtocolError as error:
            self._log_failure(name, error.code, error.message)
        finally:
            self._topics_in_creation.discard(name)

    @staticmethod
    def _log_failure(topic: str, code: ErrorCode, message: str | None) -> None:
        logger.warning("Auto topic creation failed for %s with error %s: %s", topic, code.name, message or code.text)
