"""Internal topics of a streams application (C-241): requested once, and not repeated for a while after a failure."""

from __future__ import annotations

from typing import Any

from ottla.broker.metadata.streams_internal_topics import MAX_FAILURES, StreamsInternalTopics
from ottla.broker.tests.handler_fixture import run_virtual
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicResult, CreateTopicsResponse


class FakeTopicController:
    """Controller with scripted responses to CreateTopics; started tasks run at `run`."""

    def __init__(self) -> None:
        self.now = 0
        self.errors: dict[str, tuple[ErrorCode, str | None]] = {}
        self.raises: Exception | None = None
        self.requested: list[list[str]] = []
        self.begun: list[Any] = []
        self.topics = StreamsInternalTopics(self._submit, self.begun.append, lambda: self.now, 30_000)

    async def _submit(self, request: Any, version: int) -> CreateTopicsResponse:
        self.requested.append([topic.name for topic in request.topics])
        if self.raises is not None:
            raise self.raises
        rows = [
            CreatableTopicResult(t.name, error_code=self.errors.get(t.name, (ErrorCode.NONE,))[0])
            for t in request.topics
        ]
        for row in rows:
            row.error_message = self.errors.get(row.name, (ErrorCode.NONE, None))[1]
        return CreateTopicsResponse(topics=rows)

    def create(self, *names: str) -> None:
        self.topics.create([CreatableTopic(name, 1, -1) for name in names], 10_000)

    def run(self) -> None:
        async def all_of_them() -> None:
            while self.begun:
                await self.begun.pop()()

        run_virtual(all_of_them)


def test_internal_topic_is_requested_once_at_a_time() -> None:
    controller = FakeTopicController()
    controller.create("a", "b")
    controller.create("b", "c")
    controller.run()
    assert sorted(controller.requested) == [["a", "b"], ["c"]]
    controller.create("a")
    controller.run()
    assert controller.requested[-1] == ["a"], "it may be asked for again once that has ended"


def test_failed_internal_topic_is_not_requested_for_a_while() -> None:
    controller = FakeTopicController()
    controller.errors = {"a": (ErrorCode.POLICY_VIOLATION, "not that"), "b": (ErrorCode.INVALID_CONFIG, None)}
    controller.create("a", "b", "c")
    controller.run()
    failures = [controller.topics.failure(name) for name in ("a", "b", "c")]
    assert failures == ["not that", ErrorCode.INVALID_CONFIG.text, None]
    controller.create("a")
    assert not controller.begun
    controller.now = 10_000
    assert controller.topics.failure("a") is None
    controller.create("a")
    controller.run()
    assert controller.requested[-1] == ["a"]


def test_controller_error_is_a_failure_of_all_topics() -> None:
    controller = FakeTopicController()
    controller.raises = ProtocolError(ErrorCode.REQUEST_TIMED_OUT)
    controller.create("a", "b")
    controller.run()
    assert [controller.topics.failure(name) for name in ("a", "b")] == [ErrorCode.REQUEST_TIMED_OUT.text] * 2
    controller.raises = OSError("the node stops")
    controller.create("c")
    controller.run()
    assert controller.topics.failure("c") is None


def test_stored_failures_are_bounded() -> None:
    controller = FakeTopicController()
    names = [f"t{number}" for number in range(MAX_FAILURES + 1)]
    controller.errors = dict.fromkeys(names, (ErrorCode.INVALID_CONFIG, "no"))
    controller.create(*names)
    controller.run()
    assert controller.topics.failure("t0") is None
    assert controller.topics.failure(names[-1]) == "no"
