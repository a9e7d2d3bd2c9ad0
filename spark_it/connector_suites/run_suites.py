"""Test suites of Spark's Kafka connector against Ottla or Apache Kafka.

``python -m spark_it.connector_suites.run_suites`` runs those that need no KDC. The suites come from the test jar of the
connector; only their class ``KafkaTestUtils``, which starts a broker in the JVM, is replaced by one of our own.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pyspark

from compat_tests.support.jars import CACHE, JARS, jars

PACKAGE = "org.apache.spark.sql.kafka010"
SUITES = (
    "KafkaMicroBatchV1SourceWithAdminSuite",
    "KafkaMicroBatchV1SourceWithConsumerSuite",
    "KafkaMicroBatchV2SourceWithAdminSuite",
    "KafkaMicroBatchV2SourceWithConsumerSuite",
    "KafkaContinuousSourceSuite",
    "KafkaContinuousSourceTopicDeletionSuite",
    "KafkaRelationSuiteV1",
    "KafkaRelationSuiteWithAdminV1",
    "KafkaRelationSuiteV2",
    "KafkaRelationSuiteWithAdminV2",
    "KafkaOffsetReaderSuite",
    "KafkaSinkMicroBatchStreamingSuite",
    "KafkaContinuousSinkSuite",
    "KafkaSinkBatchSuiteV1",
    "KafkaSinkBatchSuiteV2",
    "consumer.KafkaDataConsumerSuite",
    "KafkaDontFailOnDataLossSuite",
    "KafkaSourceStressForDontFailOnDataLossSuite",
    "KafkaSourceStressSuite",
)
"""Suites with a broker, without those that need a KDC or are contained in another one."""
TIMEOUT_S = 1800
"""Longest time of the JVM that runs suites, in s."""
SAMPLE = ("KafkaRelationSuiteV2", "KafkaSinkBatchSuiteV2", "consumer.KafkaDataConsumerSuite")
SOURCE = Path(__file__).resolve().parent / "scala" / "KafkaTestUtils.scala"
CLASSES = CACHE / "connector-suites"
OPENED = ("java.lang", "java.net", "java.nio", "java.util", "java.util.concurrent", "sun.nio.ch", "sun.security.action")
"""Packages of the JDK that Spark opens to itself."""


class SuiteTest(NamedTuple):
    """Test of a suite; ``failure`` is the first line of its error, empty if it passed."""

    suite: str
    name: str
    failure: str


def class_path() -> str:
    """Return the class path: our class with resources, the jars of pyspark, the connector and the test jars."""
    jars("spark")
    jars("suites")
    spark = Path(pyspark.__file__).parent / "jars"
    return ":".join(str(x) for x in (CLASSES, spark / "*", JARS / "spark" / "*", JARS / "suites" / "*"))


def compile_utilities() -> None:
    """Compile `SOURCE` with the Scala compiler among the jars of pyspark, unless it has not changed since.

    The resources of the connector's test jar are unpacked beside the class, since its suites open them as files.

    Raises:
        SystemExit: the source does not compile.
    """
    CLASSES.mkdir(parents=True, exist_ok=True)
    with (CACHE / "connector-suites.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stored, text = CLASSES / SOURCE.name, SOURCE.read_text()
        if stored.exists() and stored.read_text() == text:
            return
        command = ["java", "-cp", class_path(), "scala.tools.nsc.Main", "-usejavacp", "-deprecation"]
        done = subprocess.run([*command, "-d", str(CLASSES), str(SOURCE)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{SOURCE.name} does not compile:\n{done.stdout}{done.stderr}")
        unpack_resources()
        stored.write_text(text)


def unpack_resources() -> None:
    """Unpack the connector's test jar into `CLASSES`, without its classes."""
    test_jar = next(path for path in jars("suites") if path.name.startswith("spark-sql-kafka"))
    with zipfile.ZipFile(test_jar) as jar:
        jar.extractall(CLASSES, [name for name in jar.namelist() if not name.endswith(".class")])


def run_suites(suites: Sequence[str], broker: str = "ottla", pattern: str = "") -> list[SuiteTest]:
    """Run suites of the connector in one JVM and return their tests, without cancelled and ignored ones.

    Args:
        suites: names of classes, in `PACKAGE`.
        broker: ``ottla`` or ``kafka``.
        pattern: part of the names of the tests to run; all if empty.

    Raises:
        RuntimeError: a suite was aborted or ended without a report, or all suites took longer than `TIMEOUT_S`.
    """
    compile_utilities()
    with tempfile.TemporaryDirectory() as folder:
        reports, log = Path(folder, "reports"), Path(folder, "log.txt")
        command = ["java", "-Xmx2g", "-Xss4m", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED)]
        command += ["-Dspark.testing=true", "-Dspark.ui.enabled=false", f"-Djava.io.tmpdir={folder}"]
        command += [f"-Dlog4j2.configurationFile={SOURCE.with_name('log4j2.properties')}"]
        command += [f"-Dottla.suites.command={sys.executable} -m spark_it.connector_suites.broker {broker}"]
        command += ["-cp", class_path(), "org.scalatest.tools.Runner", "-oW", "-u", str(reports)]
        for suite in suites:
            command += ["-s", f"{PACKAGE}.{suite}"]
        command += ["-z", pattern] if pattern else []
        environment = {**os.environ, "SPARK_TESTING": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        with log.open("wb") as out:
            try:
                subprocess.run(
                    command, stdout=out, stderr=out, cwd=folder, env=environment, timeout=TIMEOUT_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"no end after {TIMEOUT_S} s; the end of the output:\n{last_output(log)}") from None
        tests = [test for path in sorted(reports.glob("*.xml")) for test in read_report(path)]
        if {test.suite for test in tests} != {suite.rpartition(".")[2] for suite in suites}:
            raise RuntimeError(f"suites without a report; the end of the output:\n{last_output(log)}")
    return tests


def last_output(log: Path) -> str:
    """Return the last lines of an output, up to 4,000 characters."""
    return log.read_text(errors="replace")[-4000:]


def read_report(path: Path) -> list[SuiteTest]:
    """Return the tests of a JUnit report, without skipped ones.

    Raises:
        RuntimeError: the suite was aborted outside its tests, as by an error of its broker.
    """
    out, root = [], ElementTree.parse(path).getroot()
    cases = list(root.iter("testcase"))
    if int(root.get("errors", "0")) > sum(case.find("error") is not None for case in cases):
        raise RuntimeError(f"{root.get('name')} was aborted:\n{(root.findtext('system-err') or '')[:2000]}")
    for case in cases:
        if case.find("skipped") is not None:
            continue
        problem = next((x for kind in ("failure", "error") if (x := case.find(kind)) is not None), None)
        text = "" if problem is None else re.sub(r"\s+", " ", problem.get("message") or problem.text or "failed")[:300]
        out.append(SuiteTest(case.get("classname", "").rpartition(".")[2], case.get("name", ""), text))
    return out


def main() -> int:
    """Run the suites of the command line; print a line for each, and the failures; return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", default=SUITES, help="names of suites; by default all")
    parser.add_argument("--broker", default="ottla", choices=("ottla", "kafka"))
    parser.add_argument("--tests", default="", help="part of the names of the tests to run")
    options = parser.parse_args()
    failed = 0
    for suite in options.suites:
        tests = run_suites([suite], options.broker, options.tests)
        failures = [test for test in tests if test.failure]
        failed += len(failures)
        print(f"{suite}: {len(tests) - len(failures)} passed, {len(failures)} failed", flush=True)
        for test in failures:
            print(f"  {test.name}: {test.failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
