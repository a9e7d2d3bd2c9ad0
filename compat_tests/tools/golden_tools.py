"""Recorded output of Kafka's tools against three Kafka nodes, with which that against ours is compared.

``python -m compat_tests.tools.golden_tools`` starts three real Kafkas, lets the tools talk to them and writes it anew.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from compat_tests.tools.cluster_tools_script import run_script

RECORDING_FILE = Path(__file__).parent / "golden" / "tools.txt"


def load_recording() -> str:
    """The recording."""
    return RECORDING_FILE.read_text(encoding="utf-8")


def main() -> None:
    """Ask three real Kafkas, and write."""
    with tempfile.TemporaryDirectory() as folder:
        said = run_script(Path(folder), kafka=True)
    RECORDING_FILE.write_text("\n".join(said), encoding="utf-8")


if __name__ == "__main__":
    main()
