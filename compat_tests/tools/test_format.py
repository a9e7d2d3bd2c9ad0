"""`ottla format` writes the same bytes as Kafka's storage tool except for times and new ids."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.support.jars import classpath, jars
from compat_tests.support.processes import OTTLA
from ottla.wire.codec.primitives import uuid_from_string
from ottla.wire.record_batch import batch_header

ID = "5L6g3nShT-eMCtK--X86sw"
VOTERS = (
    "3@10.0.0.3:9093:JEXY6aqzQY-32P5TStzaFg,1@one.example:9093:MvDxzVmcRsaTz33bUuRU6A,2@two:9093:07R5amHmR32VDA6jHkGbTA"
)
DYNAMIC = """
process.roles=broker,controller
node.id=2
listeners=PLAINTEXT://two:9092,CONTROLLER://two:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=one.example:9093
"""
STATIC = DYNAMIC + "controller.quorum.voters=1@one:9093,2@two:9093\n"
BROKER = """
process.roles=broker
node.id=9
listeners=PLAINTEXT://nine:9092
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=one:9093
"""
CASES = {
    "three voters": (DYNAMIC, ["--initial-controllers", VOTERS]),
    "three voters, a broker beside them": (BROKER, ["--initial-controllers", VOTERS]),
    "standalone": (DYNAMIC, ["--standalone"]),
    "voters come later": (DYNAMIC, ["--no-initial-controllers"]),
    "fixed voters": (STATIC, []),
    "an older release": (STATIC, ["--release-version", "4.1"]),
    "features": (DYNAMIC, ["--standalone", "--feature", "group.version=0", "--feature", "transaction.version=1"]),
    "no word of voters": (DYNAMIC, []),
    "fixed voters and others": (STATIC, ["--standalone"]),
    "a broker as the only controller": (BROKER, ["--standalone"]),
    "a feature nobody knows": (STATIC, ["--feature", "no.such=1"]),
    "a level nobody knows": (STATIC, ["--feature", "group.version=7"]),
    "dynamic voters without dynamic quorum": (STATIC, ["--feature", "kraft.version=1"]),
    "no release": (STATIC, ["--release-version", "9.9"]),
}


def by_ottla(arguments: list[str]) -> list[str]:
    return [OTTLA, "format", *arguments]


def by_kafka(arguments: list[str]) -> list[str]:
    return ["java", "-cp", classpath(), "kafka.tools.StorageTool", "format", *arguments]


def without_times(raw: bytes) -> list[bytes]:
    """Return the batches of a checkpoint without times and checksums; the header of a snapshot contains a time, too."""
    out = []
    for pos, header in batch_header.iterate_batches(raw):
        batch = bytearray(raw[pos : pos + header.size_bytes])
        batch[17:21] = bytes(4)
        batch[27:43] = bytes(16)
        if header.is_control and pos == 0:
            # timestamp of the header record
            batch[batch_header.HEADER_BYTES + 12 : batch_header.HEADER_BYTES + 20] = bytes(8)
        out.append(bytes(batch))
    return out


def formatted(folder: Path, config: str, options: list[str], command: Callable[[list[str]], list[str]]) -> object:
    """Return the exit status, and every file with its content."""
    folder.mkdir()
    dirs = [folder / "a", folder / "b"]
    (folder / "server.properties").write_text(f"{config}log.dirs={dirs[0]},{dirs[1]}\nmetadata.log.dir={dirs[1]}\n")
    arguments = ["-t", ID, "-c", str(folder / "server.properties"), *options]
    done = subprocess.run(command(arguments), capture_output=True, text=True, timeout=120, check=False, env=os.environ)
    made: dict[str, object] = {}
    own = b"no id"
    if (dirs[1] / "meta.properties").exists():
        text = (dirs[1] / "meta.properties").read_text()
        own = uuid_from_string(text.partition("directory.id=")[2].splitlines()[0])
    for path in sorted(p for d in dirs for p in d.rglob("*") if p.is_file() and p.name != ".lock"):
        name = str(path.relative_to(folder))
        if path.suffix == ".checkpoint":
            made[name] = without_times(path.read_bytes().replace(own, bytes(16)))
        else:
            lines = [x for x in path.read_text().splitlines() if not x.startswith("#")]
            fresh = "directory.id=" if not (VOTERS in options and "node.id=2" in config and "b/" in name) else "-"
            made[name] = sorted(x for x in lines if not x.startswith(fresh))
    output = sorted(x.replace(str(folder), "") for x in done.stdout.splitlines() if x.startswith("Formatting"))
    assert done.returncode == 0 or done.stderr, done
    return done.returncode, output, made


@pytest.mark.parametrize("case", CASES)
def test_format_writes_the_same_files_as_kafka_storage_tool(case: str, tmp_path: Path) -> None:
    jars("kafka")
    config, options = CASES[case]
    ours = formatted(tmp_path / "x", config, options, by_ottla)
    assert ours == formatted(tmp_path / "y", config, options, by_kafka)


def test_format_of_formatted_directory_fails_without_ignore_formatted(tmp_path: Path) -> None:
    jars("kafka")
    for folder, command in ((tmp_path / "x", by_ottla), (tmp_path / "y", by_kafka)):
        folder.mkdir()
        (folder / "c").write_text(f"{STATIC}log.dirs={folder}/d\n")
        statuses = []
        for more in ([], [], ["--ignore-formatted"], ["-g", "--cluster-id", "AnotherAnotherAnother0"]):
            arguments = ["-t", ID, "-c", str(folder / "c"), *more]
            statuses.append(
                subprocess.run(command(arguments), capture_output=True, timeout=120, check=False).returncode
            )
        assert statuses == [0, 1, 0, 1]
