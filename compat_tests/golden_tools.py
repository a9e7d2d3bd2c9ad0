"""What Kafka's own tools print beside three of Kafka's nodes, kept: ours are held to it without another three.

``python -m compat_tests.golden_tools`` starts three real Kafkas, lets the tools talk to them and writes it anew.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from compat_tests.tools_script import played

WHERE = Path(__file__).parent / "golden" / "tools.txt"


def recorded() -> str:
    """The recording."""
    return WHERE.read_text(encoding="utf-8")


def main() -> None:
    """Ask three real Kafkas, and write."""
    with tempfile.TemporaryDirectory() as folder:
        said = played(Path(folder), kafka=True)
    WHERE.write_text("\n".join(said), encoding="utf-8")


if __name__ == "__main__":
    main()
