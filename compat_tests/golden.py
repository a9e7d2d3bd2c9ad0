"""Kafka's answers to the whole script, kept: the fast suite holds a node to them where there is no Java.

``python -m compat_tests.golden`` asks a real Kafka and writes them anew; the Java suite compares them with a live one.
What differs from node to node (ids, ports, times) is left out; which requests were asked is told by their digest.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from compat_tests.comparing import MAY_DIFFER, Everything, comparable, everything, in_order, own_apis
from ottla.tools.dump import plain
from ottla.wire.apis import ApiKey
from ottla.wire.schema import Message

WHERE = Path(__file__).parent / "golden" / "peer.json.gz"


def asked(key: ApiKey, version: int, request: Message) -> str:
    """Which request it was, in short."""
    return f"{key.name} v{version} {zlib.crc32(json.dumps(kept(plain(request))).encode()):08x}"


def kept(value: Any) -> Any:
    """An answer without what may differ, as JSON gives it back."""
    if isinstance(value, dict):
        return {name: kept(v) for name, v in value.items() if name not in MAY_DIFFER}
    return [kept(v) for v in value] if isinstance(value, list | tuple) else value


def recording(said: Everything) -> dict[str, Any]:
    """What is kept of everything a node said."""
    return {
        "talk": [[asked(key, v, request), kept(comparable(key, answer))] for key, v, request, answer in said.talk],
        "abuse": own_apis(said.abuse),
        "told": {story: kept(in_order([list(step) for step in steps])) for story, steps in said.told.items()},
    }


@cache
def recorded() -> dict[str, Any]:
    """The recording."""
    out: dict[str, Any] = json.loads(gzip.decompress(WHERE.read_bytes()))
    return out


def main() -> None:
    """Ask a real Kafka, and write."""
    from compat_tests.cluster import KafkaProcess

    with tempfile.TemporaryDirectory() as folder, KafkaProcess(Path(folder) / "kafka") as kafka:
        said = recording(everything(kafka.port))
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    WHERE.parent.mkdir(exist_ok=True)
    WHERE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
