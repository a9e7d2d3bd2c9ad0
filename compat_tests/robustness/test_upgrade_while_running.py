"""Node whose package is replaced while it runs: it goes on with the code it was started with."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

import ottla
from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import (
    create_topics,
    describe_groups,
    find_coordinator,
    init_producer_id,
    list_groups,
    list_transactions,
    share_group_describe,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.record_batch import records


class CopiedOttla(OttlaProcess):
    """Node with its code in ``where``."""

    def __init__(self, where: Path, data_dir: Path) -> None:
        super().__init__(data_dir, transaction_state_log_num_partitions="1")
        self._where = where

    def command(self) -> list[str]:
        """Return the command line."""
        code = (
            f"import sys; sys.path.insert(0, {str(self._where)!r}); from ottla.cli.main import main; sys.exit(main())"
        )
        usual = super().command()
        return [sys.executable, "-c", code, *usual[usual.index("serve") :]]


def kept_bytes(pid: int) -> int:
    """Return the number of bytes of code a node has in memory files."""
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if os.readlink(fd).startswith("/memfd:ottla-modules"):
                return fd.stat().st_size
    return 0


def has_kept_all(node: OttlaProcess) -> bool:
    """Return True when a node has its code in memory files: it adds a module in each iteration of its event loop."""
    before, peer = kept_bytes(node.pid), RawClient(node.port)
    for _ in range(20):
        peer.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    peer.close()
    return 0 < before == kept_bytes(node.pid)


def test_node_with_replaced_package_serves_apis_not_yet_loaded_and_stops(tmp_path: Path) -> None:
    package = tmp_path / "code" / "ottla"
    shutil.copytree(Path(ottla.__file__).parent, package, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    with CopiedOttla(package.parent, tmp_path / "data") as node:
        wait_until(lambda: has_kept_all(node))
        for path in package.rglob("*.py"):
            path.write_text("raise SystemError('another version')\n")
        shutil.rmtree(package / "broker")
        peer = RawClient(node.port)
        body = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", 1, 1)], 30_000)
        assert peer.call(ApiKey.CREATE_TOPICS, 7, body).topics[0].error_code == 0
        record = records.build_batch([records.NewRecord(b"k", b"v", time.time_ns() // 10**6)])
        assert peer.produce("t", 0, record).error_code == 0
        request = init_producer_id.InitProducerIdRequest("transactional", 60_000)
        wanted = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["transactional"])
        wait_until(lambda: peer.call(ApiKey.FIND_COORDINATOR, 4, wanted).coordinators[0].error_code == 0)
        wait_until(lambda: peer.call(ApiKey.INIT_PRODUCER_ID, 5, request).error_code == 0)
        assert (
            len(peer.call(ApiKey.LIST_TRANSACTIONS, 1, list_transactions.ListTransactionsRequest()).transaction_states)
            == 1
        )
        assert peer.call(ApiKey.LIST_GROUPS, 5, list_groups.ListGroupsRequest()).error_code == 0
        assert peer.call(ApiKey.DESCRIBE_GROUPS, 5, describe_groups.DescribeGroupsRequest(["g"])).groups
        assert peer.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, share_group_describe.ShareGroupDescribeRequest(["g"])).groups
        assert node.stop() == 0
    assert "another version" not in node.log.read_text()
