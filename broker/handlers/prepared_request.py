"""Prepared request: a repeated Fetch or Produce request that is served without being decoded.

A client that continues to read or write sends nearly the same request again and again. After a few similar requests,
the constant bytes of the next ones are compared, and variable values are written into a response encoded before. If
anything differs, the handler serves the request; until then nothing was changed.

The bytes of a prepared response equal those of the handler's response.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import ZERO_UUID, Message

MAX_REQUEST_BYTES = 1024
"""Maximum size in bytes of a prepared request without its records."""
REPETITIONS = 3
"""Number of consecutive similar requests after which the next ones are prepared."""
REPETITIONS_UNTIL_RETRY = 16
"""Number of consecutive similar requests after which the count starts again.

Preparing costs as much as handling a request, and has no use with request quotas or where requests differ.
"""
MARK = 0x6B1D_A35E_97F4_0000
"""First of the int64 placeholders in an encoded sample message, by which the positions of its values are found."""


class NotPreparable(Exception):
    """Raised when the position of a variable value in a request or response cannot be found; nothing is prepared."""


def split_at_marks(raw: bytes, marks: Sequence[bytes]) -> list[bytes]:
    """Return the parts of ``raw`` before, between and after ``marks``, one more than there are marks.

    Raises:
        NotPreparable: A mark is missing, occurs twice or in another order.
    """
    out = []
    for mark in marks:
        before, found, raw = raw.partition(mark)
        if not found or mark in raw:
            raise NotPreparable
        out.append(before)
    return [*out, raw]


def offset_mark(number: int) -> int:
    """Return the int64 placeholder for the variable value with this number."""
    return MARK + number


def pack_mark(number: int) -> bytes:
    """Return the 8 bytes of `offset_mark` as encoded in a message."""
    return offset_mark(number).to_bytes(8, "big")


def header_behind_id(context: RequestContext, request: Message) -> bytes:
    """Return the bytes of a request frame between the correlation id and the body: client id and tagged fields.

    Raises:
        NotPreparable: The client encodes the body differently, or with unknown tagged fields.
    """
    frame = context.frame
    body = compiler.encode(request, context.version)
    if not bytes(frame[8:]).endswith(body):  # the client encodes differently, or with unknown tagged fields
        raise NotPreparable
    return bytes(frame[8 : len(frame) - len(body)])


def is_repeated(context: RequestContext, likeness: Hashable) -> bool:
    """Count a request that the handler has served; return True if the next ones are to be prepared.

    True only for the `REPETITIONS`-th consecutive similar request, and again if the count starts again. Then the
    connection's previous prepared request is removed. ``likeness`` is the value in which similar requests are equal,
    such as the size of the frame. Nothing is counted while there are quotas, or while each request of the connection
    must be handled or observed.
    """
    peer = context.peer
    if not peer.prepares_requests or context.key in peer.observed_apis:
        return False
    if context.services.quota_holder.quotas is not None:
        return False
    before, count = peer.request_repetitions
    count = count + 1 if likeness == before else 1
    peer.request_repetitions = likeness, count % REPETITIONS_UNTIL_RETRY
    if count != REPETITIONS:
        return False
    peer.prepared_request = None
    return True


class RepeatedRequest:
    """Base class of prepared Fetch and Produce requests: checks that a request may be served without its handler."""

    def __init__(self, context: RequestContext, topics: Sequence[tuple[str, bytes]]) -> None:
        """``topics`` has the names with the topic ids of the request; the id is zero where the request has none."""
        self.key = context.key
        self._services = context.services
        self._peer = context.peer
        self._authorization_cache = context.peer.authorization_cache
        self._image: MetadataImage | None = None
        self._topics = topics

    def _authorized_topics(self) -> Set[str]:
        """Return the topics that the client may read or write by the connection's cache; subclasses define it."""
        raise NotImplementedError

    def _is_current(self) -> bool:
        """Return whether requests may still be served without the handler.

        That is so while there are no quotas, no logs being created, and topics and authorization are unchanged.
        """
        services = self._services
        if services.quota_holder.quotas is not None or services.log_creator:
            return False
        if services.authorizer is not None:
            authorized = self._authorized_topics()
            if not all(topic in authorized for topic, _ in self._topics):
                return False
        image = services.metadata.image
        return image is self._image or self._has_same_topics(image)

    def _has_same_topics(self, image: MetadataImage) -> bool:
        """Return whether the topic ids of the request are still those of its topics in the metadata image."""
        for topic, topic_id in self._topics:
            if topic_id != ZERO_UUID:
                known = image.topics.get(topic)
                if known is None or known.id != topic_id or image.topic_names.get(known.id) != topic:
                    return False
        self._image = image
        return True
