"""Tests of the shared module of the pipelines, of their command lines and of their pages; Spark does not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_it.pipelines.pipeline import NAMES, chart, load, sort, text_table
from spark_it.pipelines.submit import ROOT, script, submit_command

HOW_TO = ROOT / "docs" / "how-to"


@pytest.mark.parametrize("name", NAMES)
def test_page_of_pipeline_names_command_script_topics_and_packages(name: str) -> None:
    pipeline, page = load(name), (HOW_TO / "pipelines" / f"{name}.md").read_text()
    assert pipeline.name == name
    assert f"`make demo PIPELINE={name}`" in page
    assert str(script(pipeline).relative_to(ROOT)) in page
    assert all(f"`{topic.name}`" in page for topic in pipeline.topics)
    assert all(f"`{package}`" in page for package in pipeline.packages)
    assert f"(pipelines/{name}.md)" in (HOW_TO / "pipelines.md").read_text()


def test_submit_command_has_packages_or_jars() -> None:
    lake = load("lake")
    fetched = submit_command(lake, "local[2]", "h:9092", Path("/f"), 10, {"spark.jars.ivy": "/i"})
    assert fetched[fetched.index("--packages") + 1].count(":") == 2 * 4
    assert "spark.jars.ivy=/i" in fetched
    local = submit_command(lake, "spark://h:7077", "h:9092", Path("/f"), 10, {}, [Path("/a.jar"), Path("/b.jar")])
    assert local[local.index("--jars") + 1] == "/a.jar,/b.jar"
    assert "--packages" not in local
    assert local[-2:] == ["--result", "/f/result.json"]


def test_sort_puts_none_first() -> None:
    assert sort([("b", 1), ("a", None), ("a", 2)]) == [("a", None), ("a", 2), ("b", 1)]


def test_chart_and_table_show_zero_largest_and_omitted_values() -> None:
    assert chart([0, 4, 8, -1]) == " ▄█ "
    assert chart([]) == ""
    lines = text_table(("name", "count"), [("a", 1000), ("b", None), ("c", 3)], 2).splitlines()
    assert lines == ["  name  count", "  a     1,000", "  b", "  ... 1 more"]


def test_inputs_without_a_clock_are_repeatable() -> None:
    for name in ("activity", "events", "replay", "joins", "lake", "exactly-once"):
        first, second = (list(load(name).make_input(300, lambda _: None)) for _ in range(2))
        assert first == second, name
