"""Kafka's metadata shell on our metadata log and on a snapshot of it: the same complete tree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.support.jars import JARS, classpath, jars
from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import wait_until
from compat_tests.vs_kafka.test_quotas import limit

SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
_IGNORED = re.compile(r"SnapshotFileReader Ignoring control record with type (KRAFT_|SNAPSHOT_)\w+ at offset \d+$")
"""Lines that are ignored, for Kafka's files too: of control records the reader knows only leader changes."""
_OF_A_START = re.compile(
    r"\s+(Broker|Controller|Partition)Registration\(|\s+offset \d+, epoch|\s+nextProducerId|\s+-?\d+$"
)
SHOWN = (
    re.escape("TOPIC:t: segment.ms: 7777777"),
    re.escape("finalized_transaction.version: 2"),
    re.escape("metadataVersion: Optional[4.3-IV0]"),
    re.escape("principal=User:alice, host=10.0.0.1, operation=READ, permissionType=ALLOW"),
    re.escape("resourceType=TOPIC, resourceName=t, patternType=LITERAL,"),
    re.escape("BrokerRegistration(id=1,"),
    re.escape("ControllerRegistration(id=1,"),
    re.escape("PartitionRegistration(replicas=[1],"),
    r"clientQuotas: .*alice.* producer_byte_rate: 54321\.0",
    r"SCRAM-SHA-256: alice: ",
)
"""Patterns of all paths that ``fill`` and a start create, in any order."""


def fill(node: OttlaProcess) -> None:
    """Create a topic with a config, an ACL, a user with a password, and a quota."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("t", 2, 1, config={"segment.ms": "7777777"})])["t"].result(120)
    allows = (AclOperation.READ, AclPermissionType.ALLOW)
    rule = AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:alice", "10.0.0.1", *allows)
    admin.create_acls([rule])[rule].result(120)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("alice", info, b"alice-secret")
    admin.alter_user_scram_credentials([change])["alice"].result(120)
    limit(node.port, "user", "alice", "producer_byte_rate", 54321.0)


def tree(path: Path) -> list[str]:
    """Return the tree that the shell prints of a file; the shell must end successfully without warnings."""
    jars("kafka")
    jars("shell")
    where = ["-cp", f"{classpath()}:{JARS / 'shell' / '*'}", "org.apache.kafka.shell.MetadataShell"]
    command = ["java", *where, "--snapshot", str(path), "tree", "/"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    complaints = [line for line in done.stderr.splitlines() if not _IGNORED.search(line)]
    assert (done.returncode, complaints) == (0, []), done
    return done.stdout.splitlines()


def newest(data_dir: Path) -> Path:
    return max((data_dir / "__cluster_metadata-0").glob("*.checkpoint"))


def whole(path: Path) -> list[str]:
    """Return the tree of a file with all of ``SHOWN`` in it.

    The shell loads the file in the background: on a busy machine its first output may be incomplete or empty, so it
    runs again.
    """
    for _ in range(8):
        lines = tree(path)
        text = " ".join(" ".join(lines).split())
        missing = [name for name in SHOWN if not re.search(name, text)]
        if not missing:
            return lines
    raise AssertionError(missing, text)


def test_metadata_shell_tree_of_log_equals_tree_of_snapshot(data_dir: Path) -> None:
    with OttlaProcess(data_dir, **SETTINGS) as node:
        fill(node)
    segment = data_dir / "__cluster_metadata-0" / f"{0:020}.log"
    assert b"alice" in segment.read_bytes()
    assert [path.name for path in segment.parent.glob("*.log")] == [segment.name]
    by_log = whole(segment)
    snapshots = {"metadata_log_max_record_bytes_between_snapshots": "1"}
    with OttlaProcess(data_dir, **SETTINGS, **snapshots):
        wait_until(lambda: b"alice" in newest(data_dir).read_bytes())
    by_snapshot = whole(newest(data_dir))
    kept = [[line for line in lines if not _OF_A_START.match(line)] for lines in (by_log, by_snapshot)]
    assert kept[0] == kept[1]
    assert len(kept[0]) > 40
