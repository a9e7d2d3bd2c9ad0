"""``ottla tier rebuild`` after the loss of the metadata topic: its records restore the reads from the remote store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.cli.tests.command_runs import run_command

METADATA = "__remote_log_metadata"
PARTITIONS = "rlmm.config.remote.log.metadata.topic.num.partitions"
REPLICAS = "rlmm.config.remote.log.metadata.topic.replication.factor"
VALUES = [b"%04d" % number * 50 for number in range(200)]
TIMEOUT_S = 120.0


class TieredDirectory:
    """Data directory and store of a node; the topic ``events`` has only its active segment on the local disk."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.store = directory / "store"
        self.store.mkdir()
        with self.node() as broker:
            settings = {"remote.storage.enable": "true", "local.retention.bytes": "1", "internal.segment.bytes": "5000"}
            broker.client.create_topic("events", 1, settings=settings)
            for value in VALUES:
                broker.produce("events", value)
            deadline_s = time.monotonic() + TIMEOUT_S
            while len(list((self.data / "events-0").glob("*.log"))) > 1:
                assert time.monotonic() < deadline_s, "segments stay on the local disk"
                time.sleep(0.05)

    def node(self, **settings: Any) -> ottla.Broker:
        every = {
            "remote.log.storage.system.enable": "true",
            "rsm.config.url": str(self.store),
            "remote.log.manager.task.interval.ms": "200",
            "log.retention.check.interval.ms": "200",
            PARTITIONS: "1",
        }
        return ottla.Broker(data_dir=self.data, settings=every | settings)

    def values(self) -> list[bytes]:
        """Return the values that a consumer gets after a restart, from the first offset to the end or an error."""
        with self.node() as broker:
            done = run_command("consume", "events", "-b", broker.bootstrap_servers, "--from-beginning", "--exit")
        return done.out.splitlines()


def lose_records(made: TieredDirectory, *, rebuilds: bool) -> None:
    """Delete and recreate the metadata topic while the node does not use it; ``rebuilds``: write its records anew."""
    with made.node(**{PARTITIONS: "2", REPLICAS: "2"}) as broker:
        at = ("-b", broker.bootstrap_servers)
        assert run_command("topic", "delete", METADATA, *at).status == 0
        created = run_command("topic", "create", METADATA, "--partitions", "1", "--config", "retention.ms=-1", *at)
        assert created.status == 0, created.err
        if rebuilds:
            printed = run_command("tier", "rebuild", str(made.store), "--partitions", "1")
            assert printed.status == 0, printed.err
            done = run_command("produce", METADATA, "-i", "json", *at, stdin=printed.out)
            assert done.status == 0, done.err


@pytest.mark.parametrize("rebuilds", [True, False])
def test_rebuilt_records_of_a_new_metadata_topic_restore_the_remote_records(tmp_path: Path, rebuilds: bool) -> None:
    made = TieredDirectory(tmp_path)
    lose_records(made, rebuilds=rebuilds)
    assert (made.values() == VALUES) is rebuilds
