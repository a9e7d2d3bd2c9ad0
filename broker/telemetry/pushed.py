"""What clients pushed last, kept for whoever reads the metrics page.

A value is shown under ``ottla_client_`` and its own name, with who pushed it; what came as a difference is added up. A
client's values are forgotten three of its intervals after its last push, a minute at least. There are bounds to what is
kept, as clients say what they like: so much of one client and so much of all; what is beyond is counted and dropped.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import NamedTuple

from ottla.broker.telemetry.instances import LEAST_KEPT_MS, Instance
from ottla.broker.telemetry.otlp import Labels, Sample, samples
from ottla.broker.turn import Steps
from ottla.wire.primitives import uuid_to_string

PREFIX = "ottla_client_"
MOST_OF_ONE_BYTES = 512 * 1024
MOST_OF_ALL_BYTES = 4 * 1024 * 1024
_A_VALUE_BYTES = 300
_WHO = ("client_instance_id", "client_id", "client_software_name", "client_software_version")
_AT_ONCE = 50
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
Series = tuple[str, Labels]


class _Value(NamedTuple):
    value: float
    is_counter: bool


class _Pushed:
    """One client's."""

    def __init__(self, who: str) -> None:
        self.who = who
        self.values: dict[Series, _Value] = {}
        self.size_bytes = 0
        self.until_ms = 0.0


class Pushed:
    """Everybody's of whom there is a value."""

    def __init__(self) -> None:
        self._clients: dict[bytes, _Pushed] = {}
        self._size_bytes = 0
        self.pushes = 0
        self.dropped = 0
        """Values for which there was no room."""

    def take(self, instance: Instance, data: bytes, now_ms: float) -> Steps[None]:
        """Take in what a client pushed.

        Raises:
            WireError: that is no message of metrics.
        """
        self._sweep(now_ms)
        self.pushes += 1
        until_ms = now_ms + max(LEAST_KEPT_MS, 3 * instance.wanted.interval_ms)
        known = self._clients.get(instance.ident)
        if known is not None:
            known.until_ms = until_ms
        for sample in samples(data):
            if sample is not None:
                self._keep(instance, sample, until_ms)
            yield

    def _keep(self, instance: Instance, sample: Sample, until_ms: float) -> None:
        """Who has no value that is kept is not kept either: clients give themselves as many ids as they like."""
        kept = self._clients.get(instance.ident) or _Pushed(_labels(_about(instance)))
        kept.until_ms = until_ms
        labels = tuple(each for each in sample.labels if each[0] not in _WHO)
        series = sample.name, labels
        before = kept.values.get(series)
        if before is None:
            size_bytes = _A_VALUE_BYTES + len(sample.name) + sum(len(name) + len(text) for name, text in labels)
            if not kept.values:
                size_bytes += len(kept.who)
            full = kept.size_bytes + size_bytes > MOST_OF_ONE_BYTES
            if full or self._size_bytes + size_bytes > MOST_OF_ALL_BYTES:
                self.dropped += 1
                return
            self._clients[instance.ident] = kept
            kept.size_bytes += size_bytes
            self._size_bytes += size_bytes
        total = sample.value + (before.value if sample.is_delta and before is not None else 0.0)
        kept.values[series] = _Value(total, sample.is_counter)

    def _sweep(self, now_ms: float) -> None:
        for ident in [ident for ident, kept in self._clients.items() if kept.until_ms <= now_ms]:
            self._size_bytes -= self._clients.pop(ident).size_bytes

    def lines(self, now_ms: float) -> Generator[None, None, list[str]]:
        """All of it in Prometheus' text form, in steps: a name's values stand together."""
        self._sweep(now_ms)
        by_name: dict[str, list[tuple[str, Labels, _Value]]] = {}
        for kept in list(self._clients.values()):
            for number, ((name, labels), value) in enumerate(list(kept.values.items()), 1):
                by_name.setdefault(name, []).append((kept.who, labels, value))
                if number % _AT_ONCE == 0:
                    yield
        out = []
        for name, rows in by_name.items():
            kinds = {row[2].is_counter for row in rows}
            kind = "untyped" if len(kinds) > 1 else "counter" if kinds.pop() else "gauge"
            out.append(f"# HELP {PREFIX}{name} Pushed by clients.\n# TYPE {PREFIX}{name} {kind}\n")
            for number, (who, labels, value) in enumerate(rows, 1):
                out.append(f"{PREFIX}{name}{{{who}{_more(labels)}}} {_number(value.value)}\n")
                if number % _AT_ONCE == 0:
                    yield
            yield
        return out

    def counters(self) -> Iterator[tuple[str, str, int]]:
        """Of the pushes themselves: name, what it is, value. No client can name its own so."""
        yield "ottla_telemetry_pushes", "Pushes of clients' metrics that were taken.", self.pushes
        yield "ottla_telemetry_values_dropped", "Pushed values there was no room for.", self.dropped


def _about(instance: Instance) -> Labels:
    who = {**instance.who, "client_instance_id": uuid_to_string(instance.ident)}
    return tuple((name, (who.get(name) or "")[:200]) for name in _WHO)


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels)


def _more(labels: Labels) -> str:
    return f",{_labels(labels)}" if labels else ""


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) else repr(value)
