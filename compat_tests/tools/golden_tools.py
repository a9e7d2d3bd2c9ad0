"""Recorded output of Kafka's tools against three Kafka nodes, which that against ours is compared with.

``python -m compat_tests.tools.golden_tools`` starts three Kafka nodes, runs the tools and writes the recording again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from compat_tests.tools.cluster_tools_script import run_script

RECORDING_FILE = Path(__file__).parent / "golden" / "tools.txt"


def load_recording() -> str:
    """Return the recording."""
    return RECORDING_FILE.read_text(encoding="utf-8")


def main() -> None:
    """Run the tools against three Kafka nodes, and write the recording."""
    with tempfile.TemporaryDirectory() as folder:
        lines = run_script(Path(folder), kafka=True)
    RECORDING_FILE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
