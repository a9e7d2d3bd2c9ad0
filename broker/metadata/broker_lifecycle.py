"""Life cycle of a broker in the cluster: registration, unfencing, heartbeats, controlled shutdown.

All requests go to the active controller. A response takes effect only when this node has applied the records:
heartbeats contain the offset of the last applied record.

Source: ``BrokerLifecycleManager.java`` (apache/kafka 4.3.1).

Registration and heartbeats: KIP-631; previous broker epoch: KIP-966; cordoned directories: KIP-1066.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from itertools import count

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.controller_forwarder import RequestSubmitter
from ottla.broker.metadata.publisher import BrokerMetadataPublisher
from ottla.broker.storage.log_dirs import CORDONED_LOG_DIRS, LogDirs
from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.record_serde import CORDONED_DIRS_MIN_VERSION, METADATA_VERSION
from ottla.env.env import FOREVER_S, Env
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from ottla.wire.messages.metadata_records import RegisterBrokerRecord

logger = logging.getLogger("ottla.lifecycle")

CATCH_UP_INTERVAL_S = 0.01
"""Interval of heartbeats until the broker is unfenced, and while it lags behind the metadata or gets no response."""
RETRY_S = 0.5
"""Delay between attempts to register. Kafka waits 2 s; the session of the former process has to expire first."""
SHUTDOWN_HEARTBEAT_S = 0.05
CONTROLLED_SHUTDOWN_TIMEOUT_S = 30.0
SHUTDOWN_RESPONSE_TIMEOUT_S = 1.0
"""Timeout for the response to a heartbeat at shutdown, after which the quorum is assumed to stop too."""


class BrokerState(IntEnum):
    """State in the life cycle of a broker (``BrokerState.java``)."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class RegistrationRejected(Exception):
    """Raised when the controller has not accepted the registration in time; the message has the reason in one line."""


class BrokerLifecycleManager:
    """Registration of this broker process, its heartbeats and its controlled shutdown, with the `BrokerState`."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        controller: RequestSubmitter,
        cache: MetadataCache,
        applier: BrokerMetadataPublisher,
        storage: LogDirs,
        newest: Callable[[], MetadataImage],
    ) -> None:
        """Create the manager and cordon the log directories of the current settings.

        ``controller`` is the channel for registration and heartbeats, ``applier`` the publisher with the offset for
        heartbeats; ``newest`` returns the last committed metadata image of this node, applied or not.
        """
        self._newest_image = newest
        self._env = env
        self._config = config
        self._controller = controller
        self._cache = cache
        self._publisher = applier
        self._log_dirs = storage
        storage.cordon(config.effective_value(newest(), CORDONED_LOG_DIRS) or "")
        self._incarnation_id = env.uuid()
        self._heartbeat_s = config.number("broker.heartbeat.interval.ms") / 1000
        self._image_changed = trio.Event()
        self._heartbeat_now = trio.Event()
        self._is_shutting_down = False
        self.ports: dict[str, int] = {}
        """Bound ports of this node's client listeners, by name."""
        self.broker_epoch = -1
        self.state = BrokerState.NOT_RUNNING
        self.on_registered: list[Callable[[int], None]] = []
        """Callbacks with the broker epoch, each time after the broker is unfenced."""

    # ------------------------------------------------------------------ registration

    async def register(self) -> None:
        """Register this broker, and wait until the committed metadata of this node contains the registration.

        The state becomes STARTING, then RECOVERY. Before that, no partition is led or followed: older metadata is about
        the broker's former process, and a leader with a shorter log than its followers in the same epoch would lose
        their records (R-279). The wait for the metadata has no limit.

        Raises:
            RegistrationRejected: no registration within ``initial.broker.registration.timeout.ms``.
            OSError: the metadata log could not be written.
        """
        self.state = BrokerState.STARTING
        limit_ms = self._config.number("initial.broker.registration.timeout.ms")
        self.broker_epoch = await self._register_until_accepted(self._env.monotonic_ms() + limit_ms)
        while not self._is_registered(self._newest_image()):
            await self._env.sleep(CATCH_UP_INTERVAL_S)
        self.state = BrokerState.RECOVERY

    def _is_registered(self, image: MetadataImage) -> bool:
        known = image.brokers.get(self._config.node_id)
        return known is not None and known.broker_epoch == self.broker_epoch

    async def unfence(self) -> None:
        """Send heartbeats until the broker is unfenced and this node has applied that, then call `on_registered`.

        Raises:
            OSError: the metadata log could not be written.
        """
        while not await self._try_unfence():
            await self._env.sleep(CATCH_UP_INTERVAL_S)
        self.state = BrokerState.RUNNING
        unfenced = (
            "[BrokerLifecycleManager id=%d] The broker has been unfenced. Transitioning from RECOVERY to RUNNING."
        )
        logger.info(unfenced, self._config.node_id)  # container tests wait for this line of Kafka's log
        for callback in self.on_registered:
            callback(self.broker_epoch)

    async def _register_until_accepted(self, until_ms: float) -> int:
        """Register until accepted and return the broker epoch (R-278); ``until_ms`` is a monotonic time.

        Raises:
            RegistrationRejected: not accepted until then. OSError: the metadata log could not be written.
        """
        last_logged = ""
        while True:
            try:
                answer: BrokerRegistrationResponse = await self._controller.submit(self._registration_request())
                if not answer.error_code:
                    return answer.broker_epoch
                why = ErrorCode(answer.error_code).name
            except ProtocolError as error:
                why = error.code.name
            if self._env.monotonic_ms() >= until_ms:
                raise RegistrationRejected(
                    f"Unable to register broker {self._config.node_id} with the controller quorum: {why}"
                )
            if why != last_logged:
                logger.warning(
                    "Unable to register broker %d, retrying: the controller returned %s", self._config.node_id, why
                )
                last_logged = why
            await self._env.sleep(RETRY_S)

    def _registration_request(self) -> BrokerRegistrationRequest:
        config = self._config
        return BrokerRegistrationRequest(
            config.node_id,
            self._cache.cluster_id,
            self._incarnation_id,
            [Listener(*address) for address in config.registered_listeners(self.ports)],
            [Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
            config.values.get("broker.rack"),
            log_dirs=sorted(self._log_dirs.online_ids),
            previous_broker_epoch=self._previous_broker_epoch(),
        )

    def _previous_broker_epoch(self) -> int:
        """Return the broker epoch of the last shutdown if it was clean, else -1 (R-272).

        For the only broker of a cluster it is that of its last registration: its log is complete after any shutdown, as
        no other broker could lead meanwhile.
        """
        if self.is_only_broker():
            return self._newest_image().brokers[self._config.node_id].broker_epoch
        return self._log_dirs.clean_shutdown_epoch

    async def _try_unfence(self) -> bool:
        """Request unfencing by a heartbeat; return True if this node has applied it within a heartbeat interval.

        After STALE_BROKER_EPOCH the broker registers again, and False is returned.
        """
        with self._env.timeout(self._heartbeat_s):
            await self._publisher.wait_applied()
        try:
            answer = await self._send_heartbeat(want_fence=self._applied_registration() is None)
        except ProtocolError as error:
            logger.info("Unable to send a heartbeat of broker %d, retrying: %s", self._config.node_id, error)
            return False
        if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
            self.broker_epoch = await self._register_until_accepted(FOREVER_S)
            return False
        if answer.error_code or answer.is_fenced:
            return False
        with self._env.timeout(self._heartbeat_s):
            while (known := self._applied_registration()) is None or known.fenced:
                await self._image_changed.wait()
            return True
        return False

    def _applied_registration(self) -> RegisterBrokerRecord | None:
        """Return the registration of this process in the applied image; None before it is applied."""
        known = self._cache.image.brokers.get(self._config.node_id)
        return known if known is not None and known.broker_epoch == self.broker_epoch else None

    # ------------------------------------------------------------------ heartbeats

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Wake the tasks that wait for applied metadata, and cordon the log directories of the settings.

        `run` sends a heartbeat at once if the cordoned directories changed, or if a changed broker needs it
        (`_needs_heartbeat`); neither before this broker is registered.
        """
        self._image_changed.set()
        self._image_changed = trio.Event()
        if (
            self._log_dirs.cordon(self._config.effective_value(image, CORDONED_LOG_DIRS) or "")
            and self.broker_epoch >= 0
        ):
            self._heartbeat_now.set()
        if self.broker_epoch >= 0 and any(self._needs_heartbeat(image, broker_id) for broker_id in delta.brokers):
            self._heartbeat_now.set()

    def _needs_heartbeat(self, image: MetadataImage, broker_id: int) -> bool:
        """Return True if a change of broker ``broker_id`` needs a heartbeat at once.

        That is if this broker was unregistered, or if another broker is in controlled shutdown.
        """
        broker = image.brokers.get(broker_id)
        if broker_id == self._config.node_id:
            return broker is None
        return broker is not None and broker.in_controlled_shutdown and not broker.fenced

    async def run(self) -> None:
        """Send heartbeats until the controlled shutdown starts or the task is cancelled.

        A heartbeat that is rejected with STALE_BROKER_EPOCH makes the broker register again, unlike Kafka's (L-102).

        Raises:
            OSError: the metadata log could not be written.
        """
        pause_s = self._heartbeat_s
        while not self._is_shutting_down:
            with self._env.timeout(pause_s):
                await self._heartbeat_now.wait()
            self._heartbeat_now = trio.Event()
            if not self._is_shutting_down:
                pause_s = await self._heartbeat_once()

    async def _heartbeat_once(self) -> float:
        """Send a heartbeat; return the delay in seconds until the next one.

        After STALE_BROKER_EPOCH the broker registers again and is unfenced first.
        """
        try:
            answer = await self._send_heartbeat()
        except ProtocolError as error:
            logger.warning("Unable to send a heartbeat of broker %d, retrying: %s", self._config.node_id, error)
            return CATCH_UP_INTERVAL_S if error.code is ErrorCode.REQUEST_TIMED_OUT else self._heartbeat_s
        if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
            logger.warning(
                "Broker %d sent a heartbeat but received error STALE_BROKER_EPOCH: registering again",
                self._config.node_id,
            )
            self.broker_epoch = await self._register_until_accepted(FOREVER_S)
            await self.unfence()
        elif answer.error_code:
            code = ErrorCode(answer.error_code).name
            logger.warning("Broker %d sent a heartbeat but received error %s", self._config.node_id, code)
        elif not answer.is_caught_up:
            return CATCH_UP_INTERVAL_S
        return self._heartbeat_s

    async def _send_heartbeat(
        self, *, want_fence: bool = False, want_shut_down: bool = False
    ) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            self._config.node_id,
            self.broker_epoch,
            self._publisher.offset,
            want_fence,
            want_shut_down,
            cordoned_log_dirs=self._cordoned_ids(),
        )
        answer: BrokerHeartbeatResponse = await self._controller.submit(request)
        return answer

    def _cordoned_ids(self) -> list[bytes] | None:
        """Return the ids of the cordoned directories for a heartbeat.

        None, which leaves them out, if neither node nor controller has any, if the registration is not applied yet, or
        if metadata.version is too old.
        """
        ids, known = self._log_dirs.cordoned_ids, self._applied_registration()
        level = self._cache.image.features.get(METADATA_VERSION, 0)
        nothing = not ids and (known is None or not known.cordoned_log_dirs)
        return None if nothing or known is None or level < CORDONED_DIRS_MIN_VERSION else sorted(ids)

    # ------------------------------------------------------------------ controlled shutdown

    async def controlled_shutdown(self) -> None:
        """Run a controlled shutdown: the controller ends all leaderships of the broker and fences it; wait for that.

        The wait ends early if a heartbeat is rejected or not answered in time (`_request_shutdown`), and at the latest
        after `CONTROLLED_SHUTDOWN_TIMEOUT_S`. Then it waits, without limit, until queued metadata is applied.
        Nothing is done for a broker that was not registered.

        Raises:
            OSError: the metadata log could not be written.
        """
        if self.broker_epoch < 0:
            return
        self._is_shutting_down = True
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._heartbeat_now.set()
        with self._env.timeout(CONTROLLED_SHUTDOWN_TIMEOUT_S):
            for number in count():
                if await self._request_shutdown():
                    break
                await self._env.sleep(SHUTDOWN_HEARTBEAT_S if number else 0)
        await self._publisher.wait_applied()
        self.state = BrokerState.SHUTTING_DOWN

    async def _request_shutdown(self) -> bool:
        """Request the controlled shutdown by a heartbeat; return True if this broker may stop now.

        It may stop if the controller grants the shutdown, rejects the heartbeat or does not respond within
        `SHUTDOWN_RESPONSE_TIMEOUT_S`; the only broker waits for `CONTROLLED_SHUTDOWN_TIMEOUT_S`.
        """
        answer: BrokerHeartbeatResponse | None = None
        try:
            with self._env.timeout(
                CONTROLLED_SHUTDOWN_TIMEOUT_S if self.is_only_broker() else SHUTDOWN_RESPONSE_TIMEOUT_S
            ):
                answer = await self._send_heartbeat(want_shut_down=True)
        except ProtocolError:
            pass
        return answer is None or answer.should_shut_down or answer.error_code != ErrorCode.NONE

    def is_only_broker(self) -> bool:
        """Return True if this broker is registered and no other is."""
        return list(self._newest_image().brokers) == [self._config.node_id]
