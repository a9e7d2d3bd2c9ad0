"""Text of a metrics page, family by family (Prometheus text format 0.0.4)."""

from __future__ import annotations

from ottla.broker.observability.metric_families import FAMILIES
from ottla.jobs.job import Job

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def escape_label(value: str) -> str:
    """Return a label value with backslash, quote and line feed escaped."""
    return value.translate(_ESCAPES).encode("utf-8", "replace").decode()


def labels(**values: object) -> str:
    """Return a label set: ``{topic="t",partition="0"}``."""
    return "{" + ",".join(f'{name}="{escape_label(str(value))}"' for name, value in values.items()) + "}"


class MetricsBuilder:
    """Samples by family. They are added in any order, and leave with each family in one piece."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._encoded: dict[str, list[bytes]] = {}

    def add(self, name: str, value: float, labels: str = "") -> None:
        """Add a sample of a family of `FAMILIES`."""
        self.samples(name).append(f"{name}{labels} {value}\n")

    def add_count(self, name: str, value: float, labels: str) -> None:
        """Add the number of observations of a summary."""
        self.samples(name).append(f"{name}_count{labels} {value}\n")

    def samples(self, name: str) -> list[str]:
        """Return the list that the samples of a family are appended to, as lines of text."""
        lines = self._lines.get(name)
        if lines is None:
            family = FAMILIES[name]
            kind = family.kind
            head = f"# HELP {name} {family.meaning}.\n# TYPE {name} {kind}\n"
            lines = self._lines[name] = [head]
        return lines

    def encode(self) -> None:
        """Replace the samples so far by their bytes, which take less memory."""
        for name, lines in self._lines.items():
            if lines:
                self._encoded.setdefault(name, []).append("".join(lines).encode())
                lines.clear()

    def finish(self) -> Job[list[bytes]]:
        """Return the pieces of the page."""
        pieces = []
        self.encode()
        for family_pieces in self._encoded.values():
            pieces.append(b"".join(family_pieces))
            yield None
        return pieces
