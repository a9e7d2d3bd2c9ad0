"""Scores of mutation testing: the report of a unit, and the page with the last scores of all units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from devtools.mutations import Mutant

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "mutation.md"


class MutantResult(NamedTuple):
    """Result of the tests of a mutant: ``killed`` is True if one failed or the time was up; ``why`` is the reason."""

    mutant: Mutant
    killed: bool
    why: str


def report(unit: str, results: list[MutantResult]) -> str:
    """Return a report: the surviving mutants as differences, then killed/total of each module and of the unit."""
    out = []
    for result in sorted(results):
        if not result.killed:
            old, new = result.mutant.source_diff((ROOT / result.mutant.path).read_bytes())
            out.append(
                f"{result.mutant.path}:{result.mutant.lineno} {result.mutant.kind} ({result.why})\n- {old}\n+ {new}"
            )
    out += [f"{path}: {killed}/{total}" for path, killed, total in by_module(results)]
    killed = sum(r.killed for r in results)
    out.append(
        f"{unit}: {killed} of {len(results)} wrong changes noticed ({100 * killed / max(len(results), 1):.0f} %)"
    )
    return "\n".join(out)


def by_module(results: list[MutantResult]) -> list[tuple[str, int, int]]:
    """Return (path, number of killed mutants, number of mutants) of each file, sorted by path."""
    made, killed = Counter(r.mutant.path for r in results), Counter(r.mutant.path for r in results if r.killed)
    return [(path, killed[path], made[path]) for path in sorted(made)]


def write(unit: str, results: list[MutantResult], seed: int, units: Sequence[str]) -> None:
    """Replace or add the unit's section of the page `PAGE`; sections are in the order of ``units``, others go."""
    killed = sum(r.killed for r in results)
    part = (
        f"## {unit}\n\n{killed} of {len(results)} noticed (seed {seed}).\n\n| file | noticed | made |\n|---|---|---|\n"
    )
    part += "".join(f"| `{path}` | {k} | {n} |\n" for path, k, n in by_module(results))
    head, *parts = PAGE.read_text().split("\n## ")
    kept = {p.split("\n")[0]: f"## {p.rstrip()}\n" for p in parts}
    kept[unit] = part
    PAGE.write_text("\n".join([head.rstrip() + "\n", *(kept[u] for u in units if u in kept)]))
