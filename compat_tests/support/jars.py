"""Jars for the tests: Apache Kafka 4.3.1, its tools and libraries, Spark's Kafka connector, Delta and Iceberg.

Fetched once, by the Ivy of pyspark, into the tree's ignored ``.cache/``; so only a JDK is needed. ``python -m
compat_tests.support.jars`` fetches them ahead of a test run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = (
    ROOT / ".cache"
    if (ROOT / "pyproject.toml").exists()
    else Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "ottla-compat").expanduser()
)
"""Folder of the source tree, or the user's cache where the suite is installed."""
JARS = CACHE / "jars"
KAFKA_VERSION = "4.3.1"
_TRIES = 3
CHECKSUMS = {
    "kafka-storage-4.3.1-test.jar": "f3236936854c13815ffaa7f35a3f2d6861c125616cba5395b538b8680dded886",
}
"""SHA-256 of jars that are run as part of a broker, and that Ivy compares only with the repository's own checksum."""


class SparkMissing(Exception):
    """Error: pyspark, which contains Ivy, is not installed."""


def _ivy() -> Path:
    try:
        import pyspark
    except ImportError:
        raise SparkMissing("no pyspark: pip install 'ottla[spark]'") from None
    return next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))


def _fetch(conf: str) -> None:
    """Resolve one configuration of ivy.xml into a folder of its own."""
    target = JARS / conf
    command = [
        "java",
        "-jar",
        str(_ivy()),
        "-ivy",
        str(ROOT / "compat_tests" / "ivy.xml"),
        "-cache",
        str(CACHE / "ivy"),
    ]
    command += ["-confs", conf, "-types", "jar", "bundle"]
    command += ["-retrieve", str(target / "[artifact]-[revision](-[classifier]).[ext]"), "-warn"]
    for attempt in range(_TRIES):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            _verify(target)
            (target / ".complete").touch()
            return
        print(f"jars ({conf}), attempt {attempt + 1}: {done.stdout[-2000:]}{done.stderr[-2000:]}", file=sys.stderr)
    raise RuntimeError(f"the {conf} jars could not be fetched")


def _verify(folder: Path) -> None:
    """Compare the jars of a folder with `CHECKSUMS`; delete one that differs.

    Raises:
        RuntimeError: A jar differs.
    """
    for path in folder.glob("*.jar"):
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if CHECKSUMS.get(path.name, found) != found:
            path.unlink()
            raise RuntimeError(f"wrong checksum: {path.name} ({found})")


@cache
def jars(conf: str) -> list[Path]:
    """Return the jars of a configuration of ``ivy.xml``, such as ``kafka``, ``streams`` or ``connect``.

    They are fetched on first use; those of ``s3``, the file system ``s3a`` of Hadoop, have 546 MB.
    """
    JARS.mkdir(parents=True, exist_ok=True)
    with (CACHE / "jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (JARS / conf / ".complete").exists():
            _fetch(conf)
    return sorted((JARS / conf).glob("*.jar"))


def kafka_jar(stem: str) -> Path:
    """Return the path of one of Kafka's own jars, by name without version: ``kafka-clients``."""
    return next(p for p in jars("kafka") if p.name == f"{stem}-{KAFKA_VERSION}.jar")


def classpath(conf: str = "kafka") -> str:
    """Return the class path of Kafka or Kafka Streams for ``java -cp``; the first entry quiets its logging."""
    return ":".join([str(ROOT / "compat_tests" / "java" / "logging"), str(JARS / conf / "*")])


if __name__ == "__main__":
    for name in ("kafka", "streams", "connect", "shell", "spark", "lake", "tiered", "suites"):
        print(f"{name}: {len(jars(name))} jars in {JARS / name}")
