"""Prometheus of Debian's package as a process that scrapes nodes, and its query API."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import yaml

from compat_tests.support.processes import free_port

PROMETHEUS = shutil.which("prometheus")
"""Path of the program; None where the Debian package ``prometheus`` is not installed."""
READY_TIMEOUT_S = 180.0


class QuerySample(NamedTuple):
    """Sample of an instant query: the labels of its series, and its value."""

    labels: Mapping[str, str]
    value: float

    def label_text(self, *names: str) -> str:
        """Return the values of labels, with dashes between them; an absent label has an empty value."""
        return "-".join(self.labels.get(name, "") for name in names)


class PrometheusServer:
    """Prometheus with its data below ``folder``; ``configuration`` has the keys of ``prometheus.yml``."""

    def __init__(self, folder: Path, configuration: Mapping[str, Any]) -> None:
        self._folder = folder
        self._address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._configuration = folder / "prometheus.yml"
        self._configuration.write_text(yaml.safe_dump(dict(configuration)))
        self.log = folder / "prometheus.log"

    def __enter__(self) -> PrometheusServer:
        assert PROMETHEUS is not None
        command = [PROMETHEUS, f"--config.file={self._configuration}", f"--web.listen-address={self._address}"]
        command += [f"--storage.tsdb.path={self._folder / 'tsdb'}", "--log.level=warn"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise RuntimeError(f"Prometheus did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=10) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def _get(self, path: str, **parameters: str) -> Any:
        """Return the field ``data`` of a response.

        Raises:
            ValueError: Prometheus refused the query; the message has its error.
        """
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=120) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from None

    def query(self, text: str) -> list[QuerySample]:
        """Return the samples of an instant query at the present time; a scalar is a sample without labels."""
        data = self._get("query", query=text)
        if data["resultType"] == "scalar":
            return [QuerySample({}, float(data["result"][1]))]
        return [QuerySample(row["metric"], float(row["value"][1])) for row in data["result"]]

    def label_values(self, label: str, selector: str) -> list[str]:
        """Return the values that a label has in the series of a selector, in order."""
        found: list[str] = self._get(f"label/{label}/values", **{"match[]": selector})
        return found

    def values(self, text: str, *labels: str) -> dict[str, float]:
        """Return the values of a query by the texts of these labels."""
        return {sample.label_text(*labels): sample.value for sample in self.query(text)}
