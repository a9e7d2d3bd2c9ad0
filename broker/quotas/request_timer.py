"""Timer of the event loop time of a request, without its waits and without the time of other tasks (KIP-124).

Loaded once there are request quotas.

Source: ``RequestChannel.Request.requestThreadTimeNanos``, ``KafkaChannel.addNetworkThreadTimeNanos`` (apache/kafka
4.3.1), which measure threads.
From KIP-124.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ottla.broker.api_spec import MutationQuota, QuotaKind
from ottla.jobs.task_timer import TaskTimer
from ottla.wire.framing import RequestFrame

Peer = Any
"""Client of a request (`ottla.broker.requests.peer.Peer`), which refers to the timer."""


class RequestTimeQuota(Protocol):
    """Request quota (KIP-124) as `RequestTimer` uses it; implemented by `QuotaManagers`."""

    def request_throttle_ms(self, peer: Peer, client_id: str) -> int:
        """Record a request's processing time so far; return its throttle time in ms, 0 without request quotas.

        A positive one is also stored in ``peer.throttle_ms``.
        """

    def record_response(self, peer: Peer, client_id: str) -> None:
        """Record a request's time since `request_throttle_ms`: mostly of encoding, and sending a large response."""


class RequestQuotaSource(Protocol):
    """Holder of the quota managers, which exist only while a quota is configured; implemented by `QuotaHolder`."""

    @property
    def quotas(self) -> RequestTimeQuota | None:
        """Quota managers; None while no quota is configured."""


class RequestTimer(TaskTimer):
    """Timer of the event loop time of one request in ms, without its waits; it charges the client's request quota.

    `run` runs the request's coroutine, `set_throttle_time` is called before the response is sent, `stop` after it.
    """

    __slots__ = ("_quota_source", "client_id", "is_exempt")

    def __init__(self, now_ms: Callable[[], float], metering: RequestQuotaSource) -> None:
        super().__init__(now_ms)
        self._quota_source = metering
        self.client_id: str | None = None
        """Client id of the request; None until it has a response that counts for the request quota."""
        self.is_exempt = False
        """True for a Fetch of a follower, which is exempt from the request quota."""

    def set_throttle_time(
        self, peer: Peer, request: RequestFrame, answer: Any, kind: QuotaKind | MutationQuota
    ) -> None:
        """Record the time of a request in its client's request quota, and set the throttle time of the response.

        For Fetch neither, as its handler has done it; nothing at all for an exempt API, or a Fetch of a follower.
        """
        quotas = self._quota_source.quotas
        if self.is_exempt or kind is QuotaKind.EXEMPT or quotas is None:
            return
        self.client_id = request.client_id
        if kind is not QuotaKind.FETCH:
            delay_ms = quotas.request_throttle_ms(peer, request.client_id)
            if delay_ms and hasattr(answer, "throttle_time_ms"):
                answer.throttle_time_ms = max(answer.throttle_time_ms, delay_ms)

    def stop(self, peer: Peer) -> None:
        """Record the event loop time since the throttle time was set: of encoding, and of sending a large response.

        No effect for a request without a response, or exempt from the request quota.
        """
        if self._quota_source.quotas is not None and self.client_id is not None:
            self._quota_source.quotas.record_response(peer, self.client_id)
