"""Subscriptions to metadata: the whole image, then each delta in order; listeners that fail; the end of one."""

from __future__ import annotations

import pytest

from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.controller.metadata.subscriptions import MetadataSubscriptions
from ottla.jobs.job import run_to_end
from ottla.wire.messages.metadata_records import TopicRecord

Publication = tuple[int, tuple[str, ...]]
"""Offset of an image, and the topics that its delta names."""


class ImageSource:
    """A source of images in which each publication adds one topic."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.subscriptions = MetadataSubscriptions(lambda: self.image)
        self.calls: list[Publication] = []

    def create_topic(self, name: str) -> None:
        builder = ImageBuilder(self.image)
        builder.replay(TopicRecord(name, name.encode().rjust(16)))
        self.image = run_to_end(builder.image(self.image.offset + 1, 1))
        self.subscriptions.publish(self.image, run_to_end(builder.delta(self.image)))

    def record(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.calls.append((image.offset, tuple(delta.topics)))


def test_subscribe_calls_at_once_with_whole_image_and_then_with_each_delta() -> None:
    source = ImageSource()
    source.create_topic("a")
    source.create_topic("b")
    source.subscriptions.subscribe(source.record)
    assert source.calls == [(1, ("a", "b"))]
    source.create_topic("c")
    source.create_topic("d")
    assert source.calls[1:] == [(2, ("c",)), (3, ("d",))]


def test_subscribe_before_the_first_publication_waits_for_it() -> None:
    source = ImageSource()
    source.subscriptions.subscribe(source.record)
    assert source.calls == []
    source.create_topic("a")
    assert source.calls == [(0, ("a",))]


def test_listeners_are_called_in_the_order_of_subscription() -> None:
    source, order = ImageSource(), list[str]()
    source.subscriptions.subscribe(lambda image, delta: order.append("first"))
    source.subscriptions.subscribe(lambda image, delta: order.append("second"))
    source.create_topic("a")
    assert order == ["first", "second"]


def test_listener_subscribed_during_a_publication_is_called_with_it_once() -> None:
    source = ImageSource()

    def subscribe_another(image: MetadataImage, delta: MetadataDelta) -> None:
        if not source.calls:
            source.subscriptions.subscribe(source.record)

    source.subscriptions.subscribe(subscribe_another)
    source.create_topic("a")
    assert source.calls == [(0, ("a",))]
    source.create_topic("b")
    assert source.calls == [(0, ("a",)), (1, ("b",))]


def test_unsubscribe_ends_the_calls_even_during_a_publication() -> None:
    source = ImageSource()
    ended = source.subscriptions.subscribe(lambda image, delta: unsubscribe())
    unsubscribe = source.subscriptions.subscribe(source.record)
    twice = source.subscriptions.subscribe(source.record)
    source.create_topic("a")
    assert source.calls == [(0, ("a",))], "the other subscription of the listener remains"
    ended()
    twice()
    twice()
    source.create_topic("b")
    assert source.calls == [(0, ("a",))]


def test_os_error_of_a_listener_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    source = ImageSource()

    def fail(image: MetadataImage, delta: MetadataDelta) -> None:
        raise OSError("no space")

    source.subscriptions.subscribe(fail)
    source.subscriptions.subscribe(source.record)
    source.create_topic("a")
    source.create_topic("b")
    assert source.calls == [(0, ("a",)), (1, ("b",))]
    assert [r.getMessage() for r in caplog.records] == [
        f"Error while publishing metadata at offset {n}" for n in (0, 1)
    ]


def test_other_error_of_a_listener_is_raised() -> None:
    source = ImageSource()

    def fail(image: MetadataImage, delta: MetadataDelta) -> None:
        raise ValueError("a bug")

    source.subscriptions.subscribe(fail)
    with pytest.raises(ValueError, match="a bug"):
        source.create_topic("a")


def test_listener_that_fails_with_the_whole_image_is_not_subscribed() -> None:
    source = ImageSource()
    source.create_topic("a")

    def fail(image: MetadataImage, delta: MetadataDelta) -> None:
        source.record(image, delta)
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        source.subscriptions.subscribe(fail)
    source.create_topic("b")
    assert source.calls == [(0, ("a",))]
