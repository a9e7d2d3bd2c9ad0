"""Recording of Kafka's responses to the whole script, for tests of a node without Java.

``python -m compat_tests.vs_kafka.golden_answers`` records them again from Kafka; the Java suite compares them with a
running one. Fields that differ from node to node (ids, ports, times) are left out; requests are stored as digests.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from compat_tests.support.processes import KafkaProcess
from compat_tests.vs_kafka.answer_comparison import (
    MAY_DIFFER,
    AllAnswers,
    collect_all_answers,
    comparable,
    normalize_order,
    without_api_list,
)
from ottla.tools.dump import to_json_value
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message

RECORDING_FILE = Path(__file__).parent / "golden" / "peer.json.gz"


def request_key(key: ApiKey, version: int, request: Message) -> str:
    """Return a short key of a request."""
    return (
        f"{key.name} v{version} {zlib.crc32(json.dumps(without_variable_fields(to_json_value(request))).encode()):08x}"
    )


def without_variable_fields(value: Any) -> Any:
    """Return a response without variable fields, as read back from JSON."""
    if isinstance(value, dict):
        return {name: without_variable_fields(v) for name, v in value.items() if name not in MAY_DIFFER}
    return [without_variable_fields(v) for v in value] if isinstance(value, list | tuple) else value


def build_recording(answers: AllAnswers) -> dict[str, Any]:
    """Build the recording of a node's responses."""
    return {
        "api_responses": [
            [request_key(key, v, request), without_variable_fields(comparable(key, answer))]
            for key, v, request, answer in answers.api_answers
        ],
        "malformed_frames": without_api_list(answers.malformed_answers),
        "scenarios": {
            scenario: without_variable_fields(normalize_order([list(step) for step in steps]))
            for scenario, steps in answers.scenario_answers.items()
        },
    }


@cache
def load_recording() -> dict[str, Any]:
    """Return the recording."""
    out: dict[str, Any] = json.loads(gzip.decompress(RECORDING_FILE.read_bytes()))
    return out


def main() -> None:
    """Run the script with Kafka, and write the recording."""
    with tempfile.TemporaryDirectory() as folder, KafkaProcess(Path(folder) / "kafka") as kafka:
        answer = build_recording(collect_all_answers(kafka.port))
    encoded = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    RECORDING_FILE.parent.mkdir(exist_ok=True)
    RECORDING_FILE.write_bytes(gzip.compress(encoded.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
