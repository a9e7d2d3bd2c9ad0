"""Test suites of Spark's Kafka connector: a sample; ``OTTLA_CONNECTOR_SUITES=all`` runs all, on Kafka too.

On Kafka only the tests run that fail on Ottla: a test of the connector that fails on both says nothing about Ottla.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_it.connector_suites.run_suites import SAMPLE, SUITES, SuiteTest, read_report, run_suites

IS_CAMPAIGN = os.environ.get("OTTLA_CONNECTOR_SUITES") == "all"
SAMPLE_TESTS = 34
"""Tests of `SAMPLE` in version 4.0.0 of the connector."""

REPORT = """<testsuite><testcase name="a" classname="org.SomeSuite"/>
<testcase name="b" classname="org.SomeSuite"><skipped/></testcase>
<testcase name="c" classname="org.SomeSuite"><failure message="1 did not
  equal 2">at line 3</failure></testcase></testsuite>"""


def test_report_contains_failures_without_skipped_tests(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    assert read_report(path) == [SuiteTest("SomeSuite", "a", ""), SuiteTest("SomeSuite", "c", "1 did not equal 2")]


def test_report_of_aborted_suite_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT.replace("<testsuite>", '<testsuite name="SomeSuite" errors="1">'))
    with pytest.raises(RuntimeError, match="SomeSuite was aborted"):
        read_report(path)


@pytest.mark.skipif(IS_CAMPAIGN, reason="the campaign runs all suites")
@pytest.mark.xdist_group("spark")
def test_sample_of_connector_suites_passes() -> None:
    tests = run_suites(SAMPLE)
    assert len(tests) == SAMPLE_TESTS
    assert [test for test in tests if test.failure] == []


@pytest.mark.skipif(not IS_CAMPAIGN, reason="a campaign: OTTLA_CONNECTOR_SUITES=all")
@pytest.mark.parametrize("suite", SUITES)
def test_connector_suite_fails_only_where_it_fails_on_kafka(suite: str) -> None:
    failures = [test for test in run_suites([suite]) if test.failure]
    for test in failures:
        on_kafka = run_suites([suite], "kafka", test.name)
        assert [row for row in on_kafka if row.name == test.name and row.failure], (
            f"{test.name} fails on Ottla only: {test.failure}"
        )
