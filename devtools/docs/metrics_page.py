"""Generator of the reference page of the metrics from the table of metric families."""

from __future__ import annotations

from ottla.broker.config.limits import MAX_METRICS_GROUP_OFFSETS, MAX_METRICS_PARTITIONS, MAX_METRICS_TOPICS
from ottla.broker.observability.metric_families import SECTIONS, MetricFamily

INTRODUCTION = f"""\
This page is for operators who build dashboards and alerts. It lists each metric family of `/metrics`: the address that
`ottla.metrics.listener` names. [Monitor a cluster](../how-to/monitor.md) shows how to scrape it.

- Names follow the Prometheus JMX exporter's rules of common dashboards where Apache Kafka has the number, and
  kafka_exporter and kafka-lag-exporter where these have it. The others begin with `ottla_`.
- The lag in seconds of kafka-lag-exporter is missing: a scrape reads no log. See [L-8](limitations.md#l-8).
- A family appears as soon as it has a sample. Counters start at 0 when the process starts.
- A topic has a series without the label `topic` for the sum of all topics. Queries over topics need `topic!=""`.
- "From the leader" means that only the leader of a partition exports the sample, so that a sum over all brokers counts
  each partition once.
- Times have the quantiles of the requests of the last one to two minutes, with an error of at most 25 %.
- A node exports at most {MAX_METRICS_PARTITIONS:,} replicas, {MAX_METRICS_TOPICS:,} topics and \
{MAX_METRICS_GROUP_OFFSETS:,} committed offsets one by one. What is left out is counted.
"""


def _row(family: MetricFamily) -> str:
    names = ", ".join(f"`{name}`" for name in family.labels)
    return f"| `{family.name}` | {family.kind} | {family.unit} | {names} | {family.meaning} |"


def metrics_page() -> str:
    """Return the Markdown text of ``docs/reference/metrics.md``."""
    lines = ["# Metrics", "", "<!-- written by python -m devtools.docs.reference -->", "", INTRODUCTION.rstrip()]
    for section in SECTIONS:
        lines += ["", f"## {section.title}", "", "| name | type | unit | labels | meaning |", "|---|---|---|---|---|"]
        lines += [_row(family) for family in section.families]
    return "\n".join(lines) + "\n"
