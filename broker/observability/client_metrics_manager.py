"""Client metrics manager of a broker: subscriptions of clients, and the store of pushed values.

Source: ``ClientMetricsManager.java`` (apache/kafka 4.3.1). Kafka passes pushed metrics to a plug-in; here they are
exported by the `/metrics` page; a node without one discards them.
"""

from __future__ import annotations

from ottla.broker.observability.client_metrics_instances import (
    RESERVED_IDS,
    ClientMetricsInstance,
    ClientMetricsInstanceCache,
)
from ottla.broker.observability.client_metrics_store import ClientMetricsStore
from ottla.broker.observability.client_metrics_subscriptions import ClientAttributes, read_subscriptions
from ottla.broker.requests.peer import Peer
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import RESOURCE_CLIENT_METRICS, MetadataImage
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.push_telemetry import PushTelemetryRequest
from ottla.wire.record_batch.compression import CompressionType, decompress


class ClientMetricsManager:
    """Client metrics manager of a broker; ``is_shown``: pushed values are stored for the `/metrics` page."""

    def __init__(self, env: Env, is_shown: bool) -> None:  # noqa: FBT001
        self._env = env
        self._instances = ClientMetricsInstanceCache()
        self.store = ClientMetricsStore() if is_shown else None

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Update the subscriptions if their configuration changed in the metadata."""
        if any(kind == RESOURCE_CLIENT_METRICS for kind, _ in delta.configs):
            self._instances.set_subscriptions(read_subscriptions(image))

    def _get_instance(
        self, ident: bytes, attributes: ClientAttributes, peer: Peer, now_ms: float
    ) -> ClientMetricsInstance:
        return self._instances.get_or_create(
            ident, {**attributes, "client_instance_id": uuid_to_string(ident)}, peer, now_ms
        )

    def get_subscription(self, ident: bytes, attributes: ClientAttributes, peer: Peer) -> ClientMetricsInstance:
        """Return a client's instance with its subscription, created if needed; for the zero id with a random id.

        ``ident``: client instance id; ``attributes``: attributes for match patterns, without the id.

        Raises:
            ProtocolError: THROTTLING_QUOTA_EXCEEDED: the request is too early.
        """
        now_ms = self._env.monotonic_ms()
        instance = self._get_instance(self._env.uuid() if ident == RESERVED_IDS[0] else ident, attributes, peer, now_ms)
        instance.check_get_request(now_ms)
        return instance

    def push(
        self, request: PushTelemetryRequest, attributes: ClientAttributes, peer: Peer, most_bytes: int
    ) -> Job[None]:
        """Validate, decompress and store pushed metrics, as a job; a node without a store discards them.

        ``most_bytes`` limits the compressed and the decompressed size.

        Raises:
            ProtocolError: INVALID_REQUEST for a reserved client instance id; INVALID_RECORD for metrics that are
                malformed or too large when decompressed; see also `ClientMetricsInstance.check_push_request`.
        """
        if request.client_instance_id in RESERVED_IDS:
            raise ProtocolError(ErrorCode.INVALID_REQUEST)
        now_ms = self._env.monotonic_ms()
        instance = self._get_instance(request.client_instance_id, attributes, peer, now_ms)
        instance.check_push_request(request, now_ms, most_bytes)
        if not request.metrics:
            return
        try:
            data = bytes(decompress(CompressionType(request.compression_type), request.metrics, most_bytes))
            if self.store is not None:
                yield from self.store.add_push(instance, data, now_ms)
        except WireError as error:
            instance.last_error = ErrorCode.INVALID_RECORD
            raise ProtocolError(ErrorCode.INVALID_RECORD, str(error)) from None
