"""Clients' own metrics on one node: joins who pushes with what was pushed.

Source: ``ClientMetricsManager.java`` (apache/kafka 4.3.1). Where Kafka hands what was pushed to a plug-in, here it is
shown on the metrics page; a node without one takes it and forgets it.
"""

from __future__ import annotations

from ottla.broker.telemetry.instances import RESERVED, Connected, Instance, Instances
from ottla.broker.telemetry.pushed import Pushed
from ottla.broker.telemetry.subscriptions import Who, subscriptions_in
from ottla.broker.turn import Steps
from ottla.controller.delta import MetadataDelta
from ottla.controller.image import RESOURCE_CLIENT_METRICS, MetadataImage
from ottla.wire.compression import CompressionType, decompress
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.push_telemetry import PushTelemetryRequest
from ottla.wire.primitives import uuid_to_string
from ottla.world.env import Env


class Telemetry:
    """What a node knows of its clients' metrics."""

    def __init__(self, env: Env, is_shown: bool) -> None:  # noqa: FBT001
        self._env = env
        self._instances = Instances()
        self.pushed = Pushed() if is_shown else None

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Subscriptions may have changed."""
        if any(kind == RESOURCE_CLIENT_METRICS for kind, _ in delta.configs):
            self._instances.subscribe(subscriptions_in(image))

    def _of(self, ident: bytes, who: Who, peer: Connected, now_ms: float) -> Instance:
        return self._instances.of(ident, {**who, "client_instance_id": uuid_to_string(ident)}, peer, now_ms)

    def ask(self, ident: bytes, who: Who, peer: Connected) -> Instance:
        """A client asks what to push; one without an id gets one.

        Raises:
            ProtocolError: THROTTLING_QUOTA_EXCEEDED.
        """
        now_ms = self._env.monotonic_ms()
        instance = self._of(self._env.uuid() if ident == RESERVED[0] else ident, who, peer, now_ms)
        instance.ask(now_ms)
        return instance

    def push(self, request: PushTelemetryRequest, who: Who, peer: Connected, most_bytes: int) -> Steps[None]:
        """A client pushes.

        Raises:
            ProtocolError: as `Instance.push`, INVALID_RECORD where the metrics cannot be read.
        """
        if request.client_instance_id in RESERVED:
            raise ProtocolError(ErrorCode.INVALID_REQUEST)
        now_ms = self._env.monotonic_ms()
        instance = self._of(request.client_instance_id, who, peer, now_ms)
        instance.push(request, now_ms, most_bytes)
        if not request.metrics:
            return
        try:
            data = bytes(decompress(CompressionType(request.compression_type), request.metrics, most_bytes))
            if self.pushed is not None:
                yield from self.pushed.take(instance, data, now_ms)
        except WireError as error:
            instance.last_error = ErrorCode.INVALID_RECORD
            raise ProtocolError(ErrorCode.INVALID_RECORD, str(error)) from None
