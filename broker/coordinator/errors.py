"""Errors of coordinators: client error codes of failed appends, and failures of a state machine.

Source: ``CoordinatorOperationExceptionHelper.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TypeVar

from ottla.wire.errors import ErrorCode, ProtocolError, WireError

T = TypeVar("T")
logger = logging.getLogger("ottla.coordinator")

_CLIENT_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def to_client_error(error: ErrorCode) -> ErrorCode:
    """Return the error code to send to the client if an append failed with ``error``; most codes stay unchanged."""
    return _CLIENT_ERRORS.get(error, error)


class CoordinatorStateError(Exception):
    """State machine failed on the state replayed from its log, or on a record of that log.

    Any client that may write to the internal topic may have written that state, so this is no broken invariant of the
    node: only the shard with this state fails. The cause is in ``__cause__``.
    """


def wrap_state_errors(
    results: Iterator[T], answers: tuple[type[Exception], ...] = (ProtocolError, WireError)
) -> Iterator[T]:
    """Yield the items of ``results``, an iterator of a state machine; convert its unexpected exceptions.

    Raises:
        ProtocolError, WireError: one of the expected exceptions (``answers``), raised by the state machine.
        CoordinatorStateError: the state machine raised another exception.
    """
    while True:
        try:
            result = next(results)
        except StopIteration:
            return
        except answers:
            raise
        except Exception as error:
            raise CoordinatorStateError from error
        yield result


def report_failure(error: CoordinatorStateError, topic: str, partition: int, event: str) -> None:
    """Log that the state machine of a shard raised an exception on an event; the caller has the shard fail.

    ``event``: name of its type, ``Load`` for the replay of the log, ``NoneType`` for a continuation.

    Tests and the simulator replace this function, mostly by one that raises, so that such a failure ends them.
    """
    text = "Coordinator of %s-%d failed: %s raised an exception; it returns NOT_COORDINATOR until it is loaded again"
    logger.critical(text, topic, partition, event, exc_info=error.__cause__)
