"""Recording of Kafka's responses to the script about tiered storage, for a test without Java.

``python -m compat_tests.storage.tiered_answers`` records them again from Kafka with its `LocalTieredStorage`.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

from compat_tests.storage.tiered_nodes import TieredKafka
from compat_tests.storage.tiered_script import answers_of
from compat_tests.vs_kafka.answer_comparison import differences, normalize_order

RECORDING_FILE = Path(__file__).parent / "golden" / "tiered.json.gz"
Answers = dict[str, Any]


def load_recording() -> Answers:
    """Return the recorded responses by label."""
    answers: Answers = json.loads(gzip.decompress(RECORDING_FILE.read_bytes()))
    return answers


def compare_answers(answers: Answers, theirs: Answers) -> list[str]:
    """Return the differences of responses from Kafka's."""
    assert answers.keys() == theirs.keys(), "the script has changed: record Kafka's responses again"
    return [
        f"{label}{text}"
        for label, expected in theirs.items()
        for text in differences(normalize_order(answers[label]), normalize_order(expected))
    ]


def main() -> None:
    """Run the script with Kafka, and write the recording."""
    with tempfile.TemporaryDirectory() as folder, TieredKafka(Path(folder) / "kafka") as kafka:
        answers = dict(answers_of(kafka.port))
    encoded = json.dumps(answers, ensure_ascii=False, separators=(",", ":")).encode()
    RECORDING_FILE.parent.mkdir(exist_ok=True)
    RECORDING_FILE.write_bytes(gzip.compress(encoded, 9, mtime=0))
    print(f"{len(answers)} responses: {RECORDING_FILE}")


if __name__ == "__main__":
    main()
