"""Mutation testing of a package. `python -m devtools.mutate log` tests 100 mutants of it.

Each mutant runs in a process forked from one that has loaded pytest and the packages below; there the changed module is
compiled from the changed source, and of the package's own tests (and the golden peer file) those run that pass through
the changed line, the fastest first, until one fails. A mutant without a failing test survives. Equivalent mutants stand
in `equivalent_mutants.txt`, each with its reason, and are not tested.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.machinery import SourceFileLoader
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from devtools.fork_pool import ForkPool
from devtools.mutation_scores import PAGE, MutantResult, report, write
from devtools.mutations import KINDS, Mutant, find_mutants, statement_spans

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "devtools" / "equivalent_mutants.txt"
GOLDEN = ROOT / "tests" / "test_golden_answers.py"
BROKER_UNITS = ("groups", "coordinator", "replication", "storage", "metadata", "interbroker")
BROKER_UNITS += ("network", "dispatch", "requests", "fetch_sessions", "quotas", "observability")
UNITS = ("wire", "log", "controller", *(f"broker/{name}" for name in BROKER_UNITS))
# Packages below a package: loaded once, before the forks.
LOWER_UNITS = {"wire": (), "log": ("wire",), "controller": ("wire", "log"), "broker": ("wire", "log", "controller")}
PRELOADED_MODULES = (
    "pytest",
    "_pytest.pytester",
    "hypothesis",
    "trio",
    "trio.testing",
    "msgspec",
    "crc32c",
    "zstandard",
)
PRELOADED_MODULES += (
    "lz4.frame",
    "snappy",
    "prometheus_client",
    "logging.config",
    "asyncio",
    "ssl",
    "hypothesis.extra.pytestplugin",
)
# Results of these are cached until the process ends (compiled codecs): later tests use them without executing the
# line.
CACHING_MODULES = (
    "wire/codec/codegen.py",
    "wire/codec/codegen_decoder.py",
    "wire/codec/codegen_encoder.py",
    "wire/codec/compiler.py",
    "wire/codec/schema.py",
    "wire/codec/interpreter.py",
)
PYTEST = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler", "--hypothesis-seed=0"]
PYTEST += ["--assert=plain"]  # pytest would load our modules with its own loader instead of ours


class BaselineRun(NamedTuple):
    """Results of the tests without a mutant: tests by file and executed line, durations in s, and failing tests."""

    covering_tests: dict[str, dict[int, set[str]]]
    seconds: dict[str, float]
    failing: list[str]


def unit_files(unit: str) -> list[str]:
    """Return the paths of the modules of a unit (package or file), without tests, relative to the repository's root."""
    start = ROOT / unit
    found = [start] if start.is_file() else sorted(start.rglob("*.py"))
    return [str(p.relative_to(ROOT)) for p in found if "tests" not in p.relative_to(ROOT).parts]


def unit_tests(unit: str) -> list[str]:
    """Return the test files of the unit's top package, and that of the golden answers, relative to the root."""
    capacity = ROOT / unit.split("/", maxsplit=1)[0]
    found = sorted(p for p in capacity.rglob("test_*.py") if p.parent.name == "tests")
    return [str(p.relative_to(ROOT)) for p in [*found, GOLDEN] if p.exists()]


def load_equivalent_mutants() -> dict[tuple[str, str, str], str]:
    """Return the reason of each equivalent mutant by (path, old line, new line), from the file `EQUIVALENT`."""
    out = {}
    for block in EQUIVALENT.read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if lines:
            path, old, new, why = lines
            out[path, old.removeprefix("- "), new.removeprefix("+ ")] = why
    return out


def all_mutants(unit: str) -> list[Mutant]:
    """Return all mutants of a unit without the equivalent ones."""
    listed, out = load_equivalent_mutants(), []
    for path in unit_files(unit):
        source = (ROOT / path).read_bytes()
        out += [c for c in find_mutants(path, source) if (path, *c.source_diff(source)) not in listed]
    return out


def choose_mutants(unit: str, count: int, seed: int) -> list[Mutant]:
    """Return ``count`` mutants drawn by the seed, or all if there are fewer; kinds are drawn equally often at first."""
    rng = random.Random(f"{seed} {unit}")
    by_kind = {kind: [c for c in all_mutants(unit) if c.kind == kind] for kind in KINDS}
    for pool in by_kind.values():
        rng.shuffle(pool)
    out: list[Mutant] = []
    while len(out) < count and any(by_kind.values()):
        out += [pool.pop() for pool in by_kind.values() if pool]
    return out[:count]


# What runs in the forks


def _pytest(arguments: list[str], folder: Path, plugins: list[Any] | None = None) -> int:
    import hypothesis
    import pytest

    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutate", phases=phases, database=None, deadline=None)
    hypothesis.settings.load_profile("mutate")
    return int(pytest.main([*PYTEST, f"--basetemp={folder}", *arguments], plugins=plugins))


def _with(change: Mutant) -> None:
    """Make later imports in this process compile the mutant instead of its file; other modules are unchanged."""
    target, real = ROOT / change.path, SourceFileLoader.get_code
    source = change.apply_to(target.read_bytes())

    def get_code(loader: SourceFileLoader, name: str) -> Any:
        if Path(loader.path).resolve() == target:
            return compile(source, loader.path, "exec", dont_inherit=True)
        return real(loader, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _watched(test_file: str, paths: list[str], folder: Path) -> BaselineRun:
    """Run one test file in this process; return the lines of ``paths`` that each test executes, and its duration."""
    import coverage

    measured = [str(ROOT / path) for path in paths]
    watch = coverage.Coverage(data_file=None, include=measured, config_file=False, messages=False)
    seconds, red = dict[str, float](), list[str]()

    class Recorder:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            seconds[nodeid] = time.perf_counter()
            watch.switch_context(nodeid)

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                red.append(report.nodeid)

        def pytest_runtest_logfinish(self, nodeid: str) -> None:
            watch.switch_context("")
            seconds[nodeid] = time.perf_counter() - seconds[nodeid]

    watch.start()
    code = _pytest(["--maxfail=1000", test_file], folder, [Recorder()])
    watch.stop()
    if code not in (0, 1, 5):
        red.append(test_file)
    data, lines = watch.get_data(), dict[str, dict[int, set[str]]]()
    for path in data.measured_files():
        contexts = data.contexts_by_lineno(path)
        lines[str(Path(path).relative_to(ROOT))] = {line: set(tests) for line, tests in contexts.items()}
    return BaselineRun(lines, seconds, red)


# The parent


def run_baseline(paths: list[str], test_files: list[str], pool: ForkPool, folder: Path) -> BaselineRun:
    """Run the tests without a mutant, each file in a fork, so that caches are separate; return the results.

    Tests that fail, and files that pytest cannot run, are printed and get no duration. If a fork itself fails or is
    killed, the program ends (SystemExit).
    """
    all_seen = BaselineRun({}, {}, [])
    for number, test_file in enumerate(test_files):
        kept = folder / f"seen-{number}"

        def work(test_file: str = test_file, kept: Path = kept) -> int:
            seen = _watched(test_file, paths, kept.with_suffix(".tmp"))
            kept.write_bytes(pickle.dumps(tuple(seen)))
            return 0

        def done(status: int | None, test_file: str = test_file, kept: Path = kept) -> None:
            if status != 0:
                raise SystemExit(f"{test_file} does not run:\n{kept.with_suffix('.out').read_text()[-2000:]}")
            lines, seconds, red = pickle.loads(kept.read_bytes())
            for path, by_line in lines.items():
                mine = all_seen.covering_tests.setdefault(path, {})
                for line, tests in by_line.items():
                    mine.setdefault(line, set()).update(tests)
            all_seen.seconds.update(seconds)
            all_seen.failing.extend(red)

        pool.start(work, 600, done, str(kept.with_suffix(".out")))
    pool.finish()
    for name in all_seen.failing:
        print(f"red before any change, left out: {name}")
        all_seen.seconds.pop(name, None)
    return all_seen


def tests_for(change: Mutant, seen: BaselineRun, spans: dict[int, range]) -> list[str]:
    """Return the tests that execute the changed statement, the fastest first; empty if none does.

    For a module in `CACHING_MODULES` these are the tests that execute any line of it. If an import executes the
    statement, all other tests follow them.
    """
    by_line = seen.covering_tests.get(change.path, {})
    passing = set[str]()
    for line in spans.get(change.lineno, range(change.lineno, change.lineno + 1)):
        passing |= by_line.get(line, set())
    everywhere = "" in passing  # though some test may have been the first to load it in its file
    if everywhere or (passing and change.path in CACHING_MODULES):
        near = {test for tests in by_line.values() for test in tests}
        rest = set(seen.seconds) if everywhere else near
        return _fastest_first(seen, near) + _fastest_first(seen, rest - near)
    return _fastest_first(seen, passing)


def _fastest_first(seen: BaselineRun, tests: set[str]) -> list[str]:
    known = [t for t in tests if t in seen.seconds]
    return sorted(known, key=lambda t: (t.startswith("tests/"), seen.seconds[t], t))


def _pass_unchanged(seen: BaselineRun, path: str, pool: ForkPool, folder: Path) -> None:
    """Run all tests that passed in the baseline in one fork that loads module ``path`` as a mutant, but unchanged.

    A test that fails there would count as a killed mutant: SystemExit if one does, or if the fork does not end in time.
    ``folder``: for the output and the files of the tests.
    """
    nothing, output = Mutant(path, "nothing", 1, 0, 0, ""), folder / "unchanged.out"

    def work() -> int:
        _with(nothing)
        return _pytest(_fastest_first(seen, set(seen.seconds)), folder / "unchanged")

    def done(status: int | None) -> None:
        if status != 0:
            raise SystemExit(f"tests fail here though nothing was changed:\n{output.read_text()[-3000:]}")

    pool.start(work, 600, done, str(output))
    pool.finish()


def run_mutants(
    paths: list[str], which: list[Mutant], test_files: list[str], pool: ForkPool, folder: Path
) -> Iterator[MutantResult]:
    """Run the baseline, then the tests of each mutant of `which`; yield the results in the order of their ends.

    ``paths``: all sources that have mutants.
    """
    seen = run_baseline(paths, test_files, pool, folder)
    _pass_unchanged(seen, which[0].path, pool, folder)
    spans = {path: statement_spans((ROOT / path).read_bytes()) for path in {c.path for c in which}}
    results: list[MutantResult] = []
    for number, change in enumerate(which):
        tests = tests_for(change, seen, spans[change.path])
        if not tests:
            results.append(MutantResult(change, False, "no test passes here"))
            continue
        where = folder / f"change-{number}"

        def work(change: Mutant = change, tests: list[str] = tests, where: Path = where) -> int:
            _with(change)
            return _pytest(tests, where)

        def done(status: int | None, change: Mutant = change, where: Path = where) -> None:
            shutil.rmtree(where, ignore_errors=True)
            assert status != 5, f"pytest ran nothing for {change}"  # 4: a module could not be loaded any more
            results.append(MutantResult(change, status != 0, "no time" if status is None else f"status {status}"))

        pool.start(work, 5 + 4 * sum(seen.seconds[t] for t in tests), done)
        yield from results
        results.clear()
    pool.finish()
    yield from results


def load(package: str, paths: list[str]) -> None:
    """Import the modules that a fork needs and no mutant of ``paths`` changes: libraries, and the lower packages."""
    for name in PRELOADED_MODULES:
        import_module(name)
    for capacity in LOWER_UNITS.get(package, ()):
        for path in unit_files(capacity):
            if not path.endswith("__main__.py"):
                import_module(_name(path))
    early = {_name(path) for path in paths} & set(sys.modules)
    assert not early, f"loaded before they were changed: {early}"


def _name(path: str) -> str:
    """Return the import name of a source file, such as ``ottla.log.segment``."""
    return "ottla." + path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def run(
    units: Sequence[str], which: list[Mutant], jobs: int, test_files: list[str] | None = None
) -> list[MutantResult]:
    """Test the mutants of units of one package in forks of this process, at most `jobs` at a time; return the results.

    The baseline of the tests runs once for all units. ``test_files``: None stands for `unit_tests` of the first unit.
    """
    paths = [path for unit in units for path in unit_files(unit)]
    load(_package_of(units[0]), paths)
    folder = Path(tempfile.mkdtemp(prefix="mutate-"))
    results: list[MutantResult] = []
    try:
        for result in run_mutants(paths, which, test_files or unit_tests(units[0]), ForkPool(jobs), folder):
            results.append(result)
            print(f"\r{', '.join(units)}: {len(results)}/{len(which)}", end="", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(file=sys.stderr)
    return results


def _package_of(unit: str) -> str:
    return unit.split("/", maxsplit=1)[0]


def main() -> None:
    """Test mutants of the given units or files, or of all units; print reports, and update the page on ``--write``."""
    parser = argparse.ArgumentParser(prog="python -m devtools.mutate", description=__doc__)
    parser.add_argument(
        "units", nargs="*", default=UNITS, help="a package, a subpackage of broker, or one file; all units if none"
    )
    parser.add_argument(
        "--changes", type=int, default=100, help="number of changes for each unit; 0: all possible ones"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help=f"put the scores into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    options = [f"--{name}={getattr(arguments, name)}" for name in ("changes", "seed", "jobs")]
    options += ["--write"] * arguments.write
    units = [unit.rstrip("/") for unit in arguments.units]
    packages = [list(group) for _, group in groupby(units, _package_of)]
    if len(packages) > 1 or os.environ.get("PYTHONHASHSEED") != "0":
        # Each package starts a new process, so that none of its modules is loaded before it is changed.
        for group in packages:
            command = [sys.executable, "-m", "devtools.mutate", *group, *options]
            subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, cwd=ROOT, check=True)
        return
    os.nice(10)
    started = time.monotonic()
    chosen = {
        unit: choose_mutants(unit, arguments.changes, arguments.seed) if arguments.changes else all_mutants(unit)
        for unit in units
    }
    results = run(units, [mutant for mutants in chosen.values() for mutant in mutants], arguments.jobs)
    for unit, mutants in chosen.items():
        own = [result for result in results if result.mutant in mutants]
        print(report(unit, own), flush=True)
        if arguments.write and unit in UNITS:
            write(unit, own, arguments.seed, UNITS)
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
