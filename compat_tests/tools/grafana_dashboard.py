"""Queries of a Grafana dashboard, with its variables replaced as Grafana does for a Prometheus data source."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from compat_tests.tools.prometheus_server import QuerySample

_LABEL_VALUES = re.compile(r"label_values\((?:(.+),\s*)?(\w+)\)\s*", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((.+)\)\s*", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))")
INTERVALS = {"__rate_interval": "1m", "__interval": "1m", "__range": "1m"}
"""Values of Grafana's own variables."""


class QueryApi(Protocol):
    """Interface of `PrometheusServer` that variables need."""

    def query(self, text: str) -> list[QuerySample]:
        """Return the samples of a PromQL query."""

    def label_values(self, label: str, selector: str) -> list[str]:
        """Return the values of a label in the series of a selector."""


class PanelQuery(NamedTuple):
    """Query of a panel."""

    panel: str
    text: str


def replace_variables(text: str, values: Mapping[str, str]) -> str:
    """Return a query with the values of its variables; a reference to an unknown variable is unchanged."""
    return _REFERENCE.sub(lambda found: values.get(found[1] or found[2], found[0]), text)


def _series_text(sample: QuerySample) -> str:
    """Return a sample as ``query_result`` shows it."""
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items() if name != "__name__")
    return f"{sample.labels.get('__name__', '')}{{{labels}}} {sample.value}"


class GrafanaDashboard:
    """Dashboard from a JSON file."""

    def __init__(self, file: Path) -> None:
        self._content = json.loads(file.read_text())
        self.title: str = self._content["title"]

    def queries(self) -> Iterator[PanelQuery]:
        """Yield the queries of all panels, also of those in collapsed rows."""
        yield from self._queries(self._content)

    def _queries(self, node: Any) -> Iterator[PanelQuery]:
        if isinstance(node, dict):
            for target in node.get("targets") or () if isinstance(node.get("targets"), list) else ():
                if target.get("expr"):
                    yield PanelQuery(node.get("title", ""), target["expr"].strip())
            for value in node.values():
                yield from self._queries(value)
        elif isinstance(node, list):
            for value in node:
                yield from self._queries(value)

    def variables(self, api: QueryApi) -> dict[str, str]:
        """Return the value of each variable: all values if the variable has that choice, else the first one.

        A variable without a value is left out.
        """
        found = dict(INTERVALS)
        for variable in self._content.get("templating", {}).get("list", ()):
            if variable["type"] != "query":
                continue
            query = variable["query"]
            text = replace_variables(query["query"] if isinstance(query, dict) else query, found)
            values = self._extract(_possible_values(api, text), replace_variables(variable.get("regex") or "", found))
            if not values:
                continue
            if not variable.get("includeAll"):
                found[variable["name"]] = values[0]
            else:
                found[variable["name"]] = variable.get("allValue") or f"({'|'.join(map(re.escape, values))})"
        return found

    @staticmethod
    def _extract(values: list[str], regex: str) -> list[str]:
        """Return the first group of each value that matches ``/regex/``, once each; all values without a regex."""
        if not regex:
            return values
        matches = [re.search(regex.strip("/"), value) for value in values]
        return list(dict.fromkeys(match[1] for match in matches if match))


def _possible_values(api: QueryApi, text: str) -> list[str]:
    if match := _LABEL_VALUES.fullmatch(text):
        return api.label_values(match[2], match[1] or '{__name__!=""}')
    match = _QUERY_RESULT.fullmatch(text)
    assert match, f"unknown query of a variable: {text}"
    return [_series_text(sample) for sample in api.query(match[1])]
