"""Prepared request: one that repeats but for a few values, and is served without being decoded.

A client that reads on or writes on sends the same request again and again. Once a few in a row were alike, the bytes
that do not change are compared, and the values of the response are put into one that was encoded before. Whatever is
not as it was then is left to the handler, which has decided nothing yet.

The handler is the oracle: the bytes of a prepared response are those of its response.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import ZERO_UUID, Message

MAX_REQUEST_BYTES = 1024
"""Bytes of a prepared request, records left out."""
REPETITIONS = 3
"""Requests alike in a row, after which the next ones are prepared for."""
REPETITIONS_UNTIL_RETRY = 16
"""Requests alike in a row, after which they count anew: preparing costs as much as to handle a request, and is in vain
where the node counts each request, or where no two requests are alike.
"""
MARK = 0x6B1D_A35E_97F4_0000
"""Numbers from this one on stand for int64 values in a message that is encoded to see where they lie."""


class NotPreparable(Exception):
    """A request or a response has values that cannot be found in its bytes."""


def split_at_marks(raw: bytes, marks: Sequence[bytes]) -> list[bytes]:
    """Return the bytes before, between and behind the marks, which must stand in this order, each of them once."""
    out = []
    for mark in marks:
        before, found, raw = raw.partition(mark)
        if not found or mark in raw:
            raise NotPreparable
        out.append(before)
    return [*out, raw]


def offset_mark(number: int) -> int:
    """Return the number that stands for a value."""
    return MARK + number


def pack_mark(number: int) -> bytes:
    """Return the bytes of `offset_mark` in a message."""
    return offset_mark(number).to_bytes(8, "big")


def header_behind_id(context: RequestContext, request: Message) -> bytes:
    """Return the bytes of a frame between the correlation id and the body."""
    frame = context.frame
    body = compiler.encode(request, context.version)
    if not bytes(frame[8:]).endswith(body):  # encoded in another way, or with fields that are not known here
        raise NotPreparable
    return bytes(frame[8 : len(frame) - len(body)])


def is_repeated(context: RequestContext, likeness: Hashable) -> bool:
    """Count a request that the handler has served; return whether to prepare for the next ones.

    ``likeness`` is what a prepared request has in common with the next ones.
    """
    peer = context.peer
    if not peer.prepares_requests or context.services.quota_holder.quotas is not None:
        return False
    before, count = peer.request_repetitions
    count = count + 1 if likeness == before else 1
    peer.request_repetitions = likeness, count % REPETITIONS_UNTIL_RETRY
    if count != REPETITIONS:
        return False
    peer.prepared_request = None
    return True


class RepeatedRequest:
    """Guards that prepared requests have in common: nothing is counted, and the topics are the same and authorized."""

    def __init__(self, context: RequestContext, topics: Sequence[tuple[str, bytes]]) -> None:
        """``topics``: names, and the ids that the request names them by, zero where it does not."""
        self._services = context.services
        self._authorization_cache = context.peer.authorization_cache
        self._image: MetadataImage | None = None
        self._topics = topics

    def _authorized_topics(self) -> Set[str]:
        """Return the topics that the client is known to be authorized for."""
        raise NotImplementedError

    def _is_current(self) -> bool:
        """Return whether a request may be served without the handler."""
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
        """Return whether the topic ids of the request still are those of its topics."""
        for topic, topic_id in self._topics:
            if topic_id != ZERO_UUID:
                known = image.topics.get(topic)
                if known is None or known.id != topic_id or image.topic_names.get(known.id) != topic:
                    return False
        self._image = image
        return True
