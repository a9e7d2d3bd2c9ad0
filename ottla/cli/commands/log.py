"""``ottla log``: report what log recovery would change in a data directory, or execute it; without the metadata log."""

from __future__ import annotations

import sys

from ottla.cli.arguments import command_parser
from ottla.cli.common import print_output
from ottla.cli.errors import failure_text
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.offline_check import check, repair
from ottla.runtime.blocking_env import BlockingEnv
from ottla.runtime.real_disk import RealDisk

TEXT = """Read every batch of every partition of a data directory, of Ottla or of Kafka, and report what recovery would
do: the end offset of each log, the records to truncate, the files to delete, and why. `check` changes nothing; `repair`
runs the recovery. Stop the node of the directory first.

examples:
  ottla log check ottla-data
  ottla log check -o json /var/lib/kafka
  ottla log repair --dry-run ottla-data
  ottla log repair ottla-data
Status: 0 no problem, 1 recovery would lose data or a file cannot be read, 2 not a data directory, or in use.
"""


def _check(disk: RealDisk, where: str, *, deep: bool, output: str) -> int:
    rows, bad, notes = [], False, []
    for verdict in check(disk, where, BlockingEnv().now_ms(), deep=deep):
        bad |= bool(
            verdict.truncated_bytes or verdict.problem or any(n.endswith(".log") for n in verdict.removed_files)
        )
        notes += verdict.recovery_notes
        rows.append(
            {
                "partition": f"{verdict.topic}-{verdict.partition}",
                "start": verdict.log_start_offset,
                "end": verdict.log_end_offset,
                "cut_bytes": verdict.truncated_bytes,
                "removed": verdict.removed_files,
                "problem": verdict.problem or "",
            }
        )
        if output == "json":
            rows[-1]["why"] = verdict.recovery_notes
    print_output(rows, output)
    if output == "text":
        if not bad and not notes:
            print(f"{len(rows)} partitions checked, nothing wrong", file=sys.stderr)
        for note in notes:
            print(note)
    return int(bad)


def _repair(disk: RealDisk, where: str) -> int:
    notes = list(repair(disk, where, BlockingEnv().now_ms()))
    for note in notes:
        print(note)
    if not notes:
        print("nothing to repair", file=sys.stderr)
    return int(bool(notes))


def run(arguments: list[str]) -> int:
    """Run ``ottla log check`` or ``ottla log repair`` with the arguments after ``log`` and return the exit status.

    Returns:
        0 if nothing is wrong; 1 if records or batches would be or were removed, or cannot be read, and after ``repair``
        also if recovery reports another change; 2 if the directory is no data directory, cannot be read or written, or
        a node uses it.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    parser = command_parser("log", TEXT)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verb = verbs.add_parser("check", help="report what recovery would do", description="report what recovery would do")
    verb.add_argument("directory", help="a data directory")
    verb.add_argument("--headers", action="store_true", help="check batches without their records")
    verb.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="format of the output (default: text)"
    )
    deed = verbs.add_parser("repair", help="run the recovery", description="truncate damaged logs and rebuild indexes")
    deed.add_argument("directory", help="a data directory")
    deed.add_argument("--dry-run", action="store_true", help="change nothing, as check does")
    options = parser.parse_args(arguments)
    disk, where = RealDisk(), options.directory.rstrip("/")
    try:
        lock = disk.lock(f"{where}/.lock") if disk.exists(f"{where}/.lock") else None
        if lock is None and disk.exists(f"{where}/.lock"):
            print(f"ottla log: {where} is in use by a node", file=sys.stderr)
            return 2
        if options.verb == "repair" and not options.dry_run:
            return _repair(disk, where)
        if options.verb == "repair":
            return _check(disk, where, deep=True, output="text")
        return _check(disk, where, deep=not options.headers, output=options.output)
    except (CorruptFile, OSError) as error:
        print(f"ottla log: {failure_text(error)}", file=sys.stderr)
        return 2
