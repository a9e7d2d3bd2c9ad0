"""Nodes with tiered storage: Apache Kafka with its `LocalTieredStorage`, and Ottla with a store in a directory."""

from __future__ import annotations

from pathlib import Path

from compat_tests.support.jars import JARS, classpath, jars
from compat_tests.support.processes import KafkaProcess
from ottla.embedded import Broker

TIERED_SETTINGS = {
    "remote_log_storage_system_enable": "true",
    "remote_log_manager_task_interval_ms": "200",
    "remote_log_metadata_manager_listener_name": "PLAINTEXT",
    "rlmm_config_remote_log_metadata_topic_replication_factor": "1",
    "rlmm_config_remote_log_metadata_topic_num_partitions": "1",
    "log_retention_check_interval_ms": "200",
    "log_initial_task_delay_ms": "500",
    "remote_fetch_max_wait_ms": "60000",  # a read on a busy machine is not answered without records
}
"""Settings of both nodes."""
LOCAL_TIERED_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


class TieredKafka(KafkaProcess):
    """Apache Kafka that copies segments to a directory beside its log directory."""

    def __init__(self, data_dir: Path, port: int | None = None, **settings: str) -> None:
        jars("tiered")
        store = {
            "remote_log_storage_manager_class_name": LOCAL_TIERED_STORAGE,
            "rsm_config_dir": str(data_dir.parent / f"{data_dir.name}-store"),
        }
        super().__init__(data_dir, port, **(TIERED_SETTINGS | store | settings))

    def command(self) -> list[str]:
        """Return the command line, with the class of the store."""
        command = super().command()
        place = command.index("-cp") + 1
        command[place] = f"{classpath()}:{JARS / 'tiered' / '*'}"
        return command


def tiered_broker(store: Path) -> Broker:
    """Return Ottla in this process, not started yet, with a store in a directory."""
    settings = {name.replace("_", "."): value for name, value in TIERED_SETTINGS.items()}
    return Broker(settings={**settings, "rsm.config.url": str(store)})
