"""Dashboard and alert rules below docs/monitoring: each query uses metrics and labels that a node exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.observability.metric_families import FAMILIES, SUMMARY

MONITORING = Path(__file__).parent.parent / "docs" / "monitoring"
TARGET_LABELS = {"job", "instance"}
SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
FUNCTIONS = {
    "sum", "max", "min", "count", "rate", "increase", "deriv", "min_over_time", "by", "on", "and", "label_values",
    "job", "bool",
}  # fmt: skip


def panels(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if "targets" in node:
            yield node
        for value in node.values():
            yield from panels(value)
    elif isinstance(node, list):
        for value in node:
            yield from panels(value)


def dashboard() -> dict[str, Any]:
    return json.loads((MONITORING / "grafana-dashboard.json").read_text())


def queries() -> list[str]:
    found = [target["expr"] for panel in panels(dashboard()) for target in panel["targets"]]
    found += [each["query"] for each in dashboard()["templating"]["list"] if each["type"] == "query"]
    rules = (MONITORING / "alert-rules.yml").read_text()
    joined = re.sub(r">-\n\s+", "", re.sub(r"\n\s+and ", " and ", rules))
    found += re.findall(r"^ +expr: (.+)$", joined, re.MULTILINE)
    return found


def problems(query: str) -> list[str]:
    """Return the names of a query that no node exports."""
    found: list[str] = []
    grouped = {label.strip() for match in GROUPING.finditer(query) for label in match[1].split(",")}
    text = re.sub(r"\[[^\]]*\]", "", GROUPING.sub(" ", query))
    allowed = set(TARGET_LABELS)
    for name, selector in SELECTOR.findall(re.sub(r'"[^"]*"', '""', text)):
        family = FAMILIES.get(name.removesuffix("_count") if name not in FAMILIES else name)
        if name in FUNCTIONS or name == "up":
            continue
        if family is None and not query.startswith("label_values"):
            found.append(name)
        if family is None:
            continue
        if name != family.name and family.kind != SUMMARY:
            found.append(name)
        known = {*family.labels, *TARGET_LABELS}
        allowed |= known
        found += [label for label in re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", selector) if label not in known]
    if query.startswith("label_values"):
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]
        return [] if name in FAMILIES and label in {*FAMILIES[name].labels, *TARGET_LABELS} else [query]
    return found + [label for label in grouped if label not in allowed]


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_query_names_metrics_and_labels_that_a_node_exports(query: str) -> None:
    assert problems(query) == []


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("sum(kafka_no_such_metric)", ["kafka_no_such_metric"]),
        ('kafka_log_log_size{nope="x"}', ["nope"]),
        ("sum(kafka_log_log_size) by (nope)", ["nope"]),
        ("kafka_log_log_size_count", ["kafka_log_log_size_count"]),
        ("kafka_network_requestmetrics_totaltimems_count", []),
        ("label_values(kafka_log_log_size, nope)", ["label_values(kafka_log_log_size, nope)"]),
    ],
)
def test_query_with_unknown_name_is_found(query: str, wrong: list[str]) -> None:
    assert problems(query) == wrong


def test_queries_cover_dashboard_and_alert_rules() -> None:
    rules = (MONITORING / "alert-rules.yml").read_text()
    targets = sum(len(panel["targets"]) for panel in panels(dashboard()))
    assert len(queries()) == targets + 3 + rules.count("- alert:")
    assert rules.count("- alert:") == rules.count("remedy:") == rules.count("summary:")


def test_panels_have_a_description_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith(".")
