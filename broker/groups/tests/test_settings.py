"""Settings of groups: those of a node, and the defaults of the classes, with which other tests run."""

from __future__ import annotations

from ottla.broker.groups.classic.rebalance import GroupSettings
from ottla.broker.groups.settings import BoundedSetting
from ottla.broker.tests.group_coordinator_fixture import GroupCoordinatorNode


def test_group_settings_defaults_equal_defaults_of_configuration() -> None:
    node = GroupCoordinatorNode(led=False)
    found = node.groups.settings._replace(initial_rebalance_delay_ms=3_000, max_metadata_bytes=4_096)
    assert found == GroupSettings()


def test_group_settings_follow_configuration() -> None:
    node = GroupCoordinatorNode(
        led=False,
        group_consumer_assignors="range,uniform",
        group_consumer_migration_policy="DOWNGRADE",
        group_consumer_max_size="3",
        group_share_max_size="4",
        group_streams_max_size="5",
        group_streams_num_standby_replicas="1",
        group_streams_max_standby_replicas="4",
        offsets_retention_minutes="2",
    )
    settings = node.groups.settings
    consumer = settings.consumer
    assert (consumer.assignors, consumer.max_size) == (("range", "uniform"), 3)
    assert (consumer.allows_upgrade, consumer.allows_downgrade) == (False, True)
    assert (settings.share.max_size, settings.streams.max_size) == (4, 5)
    assert settings.streams.bounded_settings["streams.num.standby.replicas"] == BoundedSetting(1, 0, 4)
    assert settings.offsets_retention_ms == 120_000
