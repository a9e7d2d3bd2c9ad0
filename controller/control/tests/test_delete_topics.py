"""DeleteTopics by name and by id at the controller (``ControllerApis.deleteTopics``)."""

from __future__ import annotations

from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.tests.test_controller_state_machine import create, machine, submit
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

INVALID = ErrorCode.INVALID_REQUEST
BY_BOTH = "The provided topic name maps to an ID that was already supplied."
DeletionResults = list[tuple[str | None, bytes, int, str | None]]


def with_topics() -> tuple[ControllerStateMachine, bytes, bytes]:
    controller = machine()
    for name in ("a", "b"):
        create(controller, name)
    return controller, controller.image.topics["a"].id, controller.image.topics["b"].id


def delete(controller: ControllerStateMachine, *topics: str | bytes | tuple[str, bytes]) -> DeletionResults:
    requested = []
    for x in topics:
        if isinstance(x, str):
            requested.append(DeleteTopicState(x))
        else:
            requested.append(DeleteTopicState(*x) if isinstance(x, tuple) else DeleteTopicState(None, x))
    rows = submit(controller, DeleteTopicsRequest(requested), 6).responses
    return [(r.name, r.topic_id, r.error_code, r.error_message) for r in rows]


def test_delete_topics_name_and_id_of_same_topic_returns_one_error_row() -> None:
    for name_first in (True, False):
        controller, a, b = with_topics()
        both: tuple[str | bytes, ...] = ("a", a) if name_first else (a, "a")
        rows = delete(controller, *both, b)
        assert rows == [("a", a, INVALID, BY_BOTH), ("b", b, 0, None)]
        assert set(controller.image.topics) == {"a"}


def test_delete_topics_duplicate_id_and_name_deletes_no_topic() -> None:
    controller, a, _ = with_topics()
    rows = delete(controller, a, "a", a)
    assert [(name, code, why) for name, _, code, why in rows] == [
        (None, INVALID, "Duplicate topic id."),
        ("a", INVALID, BY_BOTH),
    ]
    assert set(controller.image.topics) == {"a", "b"}


def test_delete_topics_id_with_duplicate_name_is_deleted() -> None:
    controller, a, _ = with_topics()
    rows = delete(controller, "a", "a", a)
    assert [(name, code, why) for name, _, code, why in rows] == [
        ("a", INVALID, "Duplicate topic name."),
        ("a", 0, None),
    ]
    assert set(controller.image.topics) == {"b"}


def test_delete_topics_without_or_with_two_identifiers_returns_invalid_request() -> None:
    controller, a, _ = with_topics()
    assert delete(controller, ZERO_UUID) == [(None, ZERO_UUID, INVALID, "Neither topic name nor id were specified.")]
    assert delete(controller, ("a", a)) == [("a", a, INVALID, "You may not specify both topic name and topic id.")]
    assert set(controller.image.topics) == {"a", "b"}


def test_delete_topics_invalid_row_returns_its_topic_id() -> None:
    controller, a, b = with_topics()
    both = "You may not specify both topic name and topic id."
    assert delete(controller, ("a", b), a)[0] == ("a", b, INVALID, both)
    assert delete(with_topics()[0], "b", "b")[0] == ("b", ZERO_UUID, INVALID, "Duplicate topic name.")
    controller, a, b = with_topics()
    assert delete(controller, "a", "a", a)[0] == ("a", ZERO_UUID, INVALID, "Duplicate topic name.")
