"""kcat with the command line of the other clients; ``KCAT`` names its program.

kcat sends one set of headers with all records of a run, so each record is a run of its own; it sets no timestamps and
has no admin commands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

COUNT = 40
BIG = 1_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
KCAT = os.environ.get("KCAT", "kcat")
GROUP = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=300"]


def kcat(*arguments: str, stdin: str = "") -> str:
    """Run kcat with arguments and an input; return its output, and fail on another status than 0."""
    done = subprocess.run([KCAT, *arguments], input=stdin, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stderr[-1000:]}"
    return done.stdout


def main() -> None:
    """Run the mode of the command line with kcat."""
    mode, bootstrap, topic, group = sys.argv[1:]
    at = ["-q", "-b", bootstrap]
    if mode == "member":
        os.execv(KCAT, [KCAT, *at, *GROUP, "-u", "-f", "%p %s\n", "-G", group, topic])

    def send(row: tuple[str, int]) -> None:
        codec, i = row
        key = "" if i % 7 == 0 else f"key-{i}"
        value = "" if i % 11 == 5 else f"{codec}-{i}"
        where = [*at, "-P", "-t", topic, "-z", codec, "-H", f"n={i}", "-K", ":", "-Z", "-X", "acks=all"]
        kcat(*where, stdin=f"{key}:{value}\n")

    send((CODECS[0], 0))  # the first record creates the topic
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(send, [(c, i) for c in CODECS for i in range(COUNT)][1:]))
    lines = kcat(*at, *GROUP, "-e", "-f", "%k\t%s\t%h\n", "-G", group, topic).splitlines()
    got = []
    for line in lines:
        key, value, headers = line.split("\t")
        got.append([key, value, headers.partition("=")[2], None])
    kcat(*at, "-P", "-t", f"{topic}-big", "-D", "\x01", "-X", "message.max.bytes=1048588", stdin="x" * BIG)
    big = len(kcat(*at, "-C", "-t", f"{topic}-big", "-e", "-f", "%s"))
    print(json.dumps({"codecs": CODECS, "got": got, "end": len(got), "big": big}))


if __name__ == "__main__":
    main()
