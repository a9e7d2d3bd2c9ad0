"""Changes of the metadata on the console: texts, permissions by the page, bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.config.limits import MAX_CONSOLE_CHANGES
from ottla.console.metadata_changes import MAX_LISTED, MetadataChanges
from ottla.console.tests.console_fixture import console
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage


def test_changes_of_a_topic_are_listed_the_newest_first() -> None:
    with console() as made:
        browser = made.browser()
        made.broker.client.create_topic("orders", 2)
        text = browser.get("/metadata").text
        assert "Topic orders was created with 2 partitions." in text
        form = browser.get("/topic/setting?name=orders&key=retention.ms").form("/topic/setting")
        browser.change(form, value="1000")
        browser.change(browser.get("/topic?name=orders").form("/topic/delete"))
        text = browser.get("/metadata").text
        created, changed, deleted = (
            text.index(part)
            for part in ("orders was created", "Settings of topic orders have changed", "orders was deleted")
        )
        assert deleted < changed < created
        assert "/metadata" in {found.get("href") for _, found in browser.get("/cluster").markup.tags}


def test_memory_is_bounded() -> None:
    env: Any = SimpleNamespace(now_ms=lambda: 1)
    changes = MetadataChanges(env)
    changes.publish(MetadataImage(), MetadataDelta())
    for _ in range(20):
        changes.publish(MetadataImage(), MetadataDelta(brokers=frozenset(range(1000))))
    found = changes.newest()
    assert len(found) == MAX_CONSOLE_CHANGES
    assert found[0].text == "Further changes at the same time."
    assert [change.text for change in found[1 : MAX_LISTED + 1]] == [
        f"Broker {number} is gone." for number in reversed(range(MAX_LISTED))
    ]
