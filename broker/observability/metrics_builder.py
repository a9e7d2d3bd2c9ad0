"""Builder of a metrics page in the Prometheus text format 0.0.4, with the samples of each family together."""

from __future__ import annotations

from ottla.broker.observability.metric_families import FAMILIES
from ottla.jobs.job import Job

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def escape_label(value: str) -> str:
    """Return a label value with backslash, quote and line feed escaped, as the Prometheus text format requires."""
    return value.translate(_ESCAPES).encode("utf-8", "replace").decode()


def labels(**values: object) -> str:
    """Return a label set in the text format, such as ``{topic="t",partition="0"}``."""
    return "{" + ",".join(f'{name}="{escape_label(str(value))}"' for name, value in values.items()) + "}"


class MetricsBuilder:
    """Samples of a metrics page by family; they are added in any order and rendered family by family."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._encoded: dict[str, list[bytes]] = {}

    def add(self, name: str, value: float, labels: str = "") -> None:
        """Add a sample of a family; ``labels`` is a label set in the text format. Raises KeyError as `samples`."""
        self.samples(name).append(f"{name}{labels} {value}\n")

    def add_count(self, name: str, value: float, labels: str) -> None:
        """Add the ``_count`` sample of a summary: its number of observations; ``labels`` as in `add`."""
        self.samples(name).append(f"{name}_count{labels} {value}\n")

    def samples(self, name: str) -> list[str]:
        """Return the list of a family's text lines that are not encoded yet; a caller may append samples to it.

        Before the first `encode` it begins with the HELP and TYPE comments. Raises KeyError if the family is not in
        `FAMILIES`.
        """
        lines = self._lines.get(name)
        if lines is None:
            family = FAMILIES[name]
            kind = family.kind
            head = f"# HELP {name} {family.meaning}.\n# TYPE {name} {kind}\n"
            lines = self._lines[name] = [head]
        return lines

    def encode(self) -> None:
        """Encode the samples added so far to bytes, which take less memory."""
        for name, lines in self._lines.items():
            if lines:
                self._encoded.setdefault(name, []).append("".join(lines).encode())
                lines.clear()

    def finish(self) -> Job[list[bytes]]:
        """Return the encoded page, one piece for each family, as a job."""
        pieces = []
        self.encode()
        for family_pieces in self._encoded.values():
            pieces.append(b"".join(family_pieces))
            yield None
        return pieces
