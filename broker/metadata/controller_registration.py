"""Registration of a controller with the active controller, possibly itself (R-282).

Source: ``ControllerRegistrationManager.scala`` (apache/kafka 4.3.1).

From KIP-919.
"""

from __future__ import annotations

import logging

import trio

from ottla.broker.metadata.controller_forwarder import RequestSubmitter
from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.record_serde import METADATA_VERSION
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.env.env import Env
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)

logger = logging.getLogger("ottla.controller")

INITIAL_BACKOFF_S = 0.1
MAX_BACKOFF_S = 120.0
MIN_METADATA_LEVEL = 15
"""Lowest metadata.version with controller registrations."""
PLAINTEXT_PROTOCOL = 0


class ControllerRegistration:
    """Registration of this process's controller, repeated until it is in the metadata log."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        incarnation_id: bytes,
        endpoints: tuple[ListenerEndpoint, ...],
        controller: RequestSubmitter,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._endpoints = endpoints
        self._controller = controller
        self._needs_registration = False
        self._wakeup = trio.Event()

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Let `run` register if the committed metadata does not have the registration of this process.

        Not below metadata.version `MIN_METADATA_LEVEL`.
        """
        if not delta.features and self._node_id not in delta.controllers:
            return
        known = image.controllers.get(self._node_id)
        is_known = known is not None and known.incarnation_id == self._incarnation_id
        self._needs_registration = not is_known and image.features.get(METADATA_VERSION, 0) >= MIN_METADATA_LEVEL
        self._wakeup.set()

    async def run(self) -> None:
        """Register, and again whenever the metadata has another registration or none, until cancelled."""
        pause_s = INITIAL_BACKOFF_S
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            while self._needs_registration:
                if await self._register():
                    pause_s = INITIAL_BACKOFF_S
                    break  # the metadata log has the registration now
                await self._env.sleep(pause_s)
                pause_s = min(pause_s * 2, MAX_BACKOFF_S)

    async def _register(self) -> bool:
        request = ControllerRegistrationRequest(
            self._node_id,
            self._incarnation_id,
            False,
            [Listener(*end, PLAINTEXT_PROTOCOL) for end in self._endpoints],
            [Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
        )
        try:
            answer: ControllerRegistrationResponse = await self._controller.submit(request)
        except ProtocolError as error:
            logger.warning("Unable to register controller %d, retrying: %s", self._node_id, error)
            return False
        if answer.error_code:
            logger.warning(
                "Unable to register controller %d, retrying: %s", self._node_id, ErrorCode(answer.error_code).name
            )
        return not answer.error_code
