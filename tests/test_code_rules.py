"""Code rules, checked by tools: layering, types, style, sizes."""

from __future__ import annotations

import ast
import random
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

from ottla.env.memory_disk import MemoryDisk
from ottla.log.log_config import LogConfig
from ottla.log.recovery.log_loader import create_log

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
# Longer than the limit, with the reason.
LONG_FILES = {
    "broker/dispatch/api_registry.py": "one table: a row for each of Kafka's 89 APIs",
    "broker/replication/hosted_partition.py": "a hosted partition and the change of its ISR refer to each other",
    "log/partition_log.py": "one class: appends, truncation and flushes move the same offsets in one order",
}
# Below each field of a message class stands its explanation, which the compiler drops: such a module is as long as the
# message has fields, and no code in it grows with that.
MESSAGE_MODULES = "wire/messages/"
# Only these modules may use clock, random numbers or threads of the machine; all others use `Env`.
ENV_MODULES = {
    "ottla/runtime/system_env.py",
    "ottla/runtime/real_env.py",
    "ottla/runtime/real_stream.py",
    "ottla/runtime/tls_stream.py",
    "ottla/runtime/blocking_env.py",
    "ottla/pytest_plugin.py",
}
PACKAGES = ("wire", "log", "controller", "broker", "ottla", "sim")
FORBIDDEN_IMPORTS = re.compile(r"^\s*(?:import|from) (time|random|uuid|secrets|datetime)\b", re.M)
ALLOWED_IMPORTS = {
    "broker/storage/tiered/cloud_store.py": {"datetime"},  # states durations; reads no clock
    "log/checkpoints/checkpoint_files.py": {"datetime"},  # formats a given instant; reads no clock
    "ottla/console/rendering.py": {"datetime"},  # formats a given instant; reads no clock
    "ottla/cli/times.py": {"datetime"},  # parses a time in a text; reads no clock
    "ottla/cli/commands/token.py": {"datetime"},  # the same
    "ottla/cli/commands/health.py": {"time"},  # a process of its own, that loads as little as it can
}


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).is_file()]


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_linter_reports_no_broken_contract() -> None:
    run(str(BIN / "lint-imports"))


def test_mypy_reports_no_error() -> None:
    run(str(BIN / "mypy"))


def test_ruff_reports_no_error() -> None:
    run(str(BIN / "ruff"), "check", ".")


def test_ruff_format_changes_no_file() -> None:
    run(str(BIN / "ruff"), "format", "--check", ".")


def test_files_and_functions_are_below_size_limits() -> None:
    over = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        text = path.read_text()
        is_exempt = name in LONG_FILES or name.startswith(MESSAGE_MODULES)
        length = text.count("\n")
        if length > MAX_FILE_LINES and not is_exempt:
            over.append(f"{name}: {length} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    over.append(f"{name}:{node.lineno} {node.name}: {lines} lines")
    assert not over, "\n".join(over)


@pytest.mark.parametrize("folder", PACKAGES)
def test_modules_outside_env_import_no_clock_or_random(folder: str) -> None:
    found = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        if not name.startswith(folder + "/") or "/tests/" in name or name in ENV_MODULES or folder == "sim":
            continue
        for match in FORBIDDEN_IMPORTS.finditer(path.read_text()):
            if match[1] not in ALLOWED_IMPORTS.get(name, set()):
                found.append(f"{name}: {match[0].strip()}")
    assert not found, "\n".join(found)


# Waits, deadlines and threads go through `Env`, or the simulator cannot order them.
WAITS = re.compile(
    r"sleep|sleep_until|sleep_forever|move_on_(at|after)|fail_(at|after)|current_time|to_thread|from_thread"
)
ALLOWED_WAITS = {
    "ottla/tools/async_calls.py": {"to_thread"},  # in the user's own loop, not the node's
}


def test_waits_go_through_env() -> None:
    """Waits in the packages, users' entry points included: only `ottla/runtime/` uses time and threads of trio."""
    found = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        if not name.startswith(("wire/", "log/", "controller/", "broker/", "ottla/")) or "/tests/" in name:
            continue
        if name.startswith("ottla/runtime/"):
            continue
        allowed = ALLOWED_WAITS.get(name, set())
        for node in ast.walk(ast.parse(path.read_text())):
            requested = []
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("trio", "trio.lowlevel", "trio._core"):
                requested = [node.attr]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "trio":
                requested = [alias.name for alias in node.names]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "trio.CancelScope":
                requested = ["sleep"] if any(k.arg in ("deadline", "relative_deadline") for k in node.keywords) else []
            found += [f"{name}:{node.lineno} {x}" for x in requested if WAITS.fullmatch(x) and x not in allowed]
    assert not found, "\n".join(found)


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(p.relative_to(ROOT)) for p in sources() if p.read_text() and not ast.get_docstring(ast.parse(p.read_text()))
    ]
    assert not silent, "\n".join(silent)


def short_import_aliases(tree: ast.Module) -> list[str]:
    """Return the imports whose alias has one or two letters."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    aliases = [alias for node in imports for alias in node.names if alias.asname not in (None, alias.name)]
    return [f"{x.name} as {x.asname}" for x in aliases if len(str(x.asname).strip("_")) <= 2]


def test_import_aliases_have_more_than_two_letters() -> None:
    planted = "import numpy as np\nfrom a import b as b, c as word\ndef f():\n    from typing import Annotated as A"
    assert short_import_aliases(ast.parse(planted)) == ["numpy as np", "Annotated as A"]
    found = [
        f"{path.relative_to(ROOT)}: {x}"
        for path in sources()
        for x in short_import_aliases(ast.parse(path.read_text()))
    ]
    assert not found, "\n".join(found)


def log_attributes() -> set[str]:
    disk = MemoryDisk(random.Random(0), lambda: 0).session()
    log = create_log(disk, "/t-0", "t", 0, bytes(16), LogConfig(), 0)
    return {*vars(log), *vars(log.segments), *log.flush_state.__slots__}


def subclasses_of_collections(tree: ast.Module) -> list[str]:
    """Return the classes of a module that inherit from a mutable collection, since they would change its contract."""
    names = {"list", "dict", "set", "UserList", "UserDict"}
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if re.split(r"[\[.]", ast.unparse(base).replace("collections.", ""))[0] in names
    ]


def test_no_class_inherits_from_a_mutable_collection() -> None:
    assert subclasses_of_collections(ast.parse("class A(list[int]): ...\nclass B(Generic[T]): ...")) == ["A"]
    found = {
        str(path.relative_to(ROOT)): classes
        for path in sources()
        if "tests" not in path.parts and (classes := subclasses_of_collections(ast.parse(path.read_text())))
    }
    assert found == {"sim/engine/trio_patches.py": ["OrderedSet"]}, "it takes the place of a set of trio's"


def assigned_to_logs(tree: ast.Module, attributes: set[str]) -> list[int]:
    """Return lines that assign an attribute of a log, change one in place, or assign one that only logs have."""
    common = {"config", "topic_id", "topic", "partition", "disk", "directory", "closed"}
    common |= {"log_start_offset", "log_end_offset", "segments", "epochs", "producers"}
    changing = {"append", "assign", "clear", "pop", "insert", "extend", "remove", "sort", "update", "expire"}

    def of_a_log(node: ast.expr) -> bool:
        if not isinstance(node, ast.Attribute) or node.attr not in attributes:
            return False
        owner = ast.unparse(node.value)
        return owner != "self" and (re.search(r"(^|[._])log$", owner) is not None or node.attr not in common)

    lines = []
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [t for target in node.targets for t in ast.walk(target) if isinstance(t, ast.expr)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = [t for target in node.targets for t in ast.walk(target) if isinstance(t, ast.expr)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changes = node.func.attr in changing or node.func.attr.startswith("truncate")
            targets = [node.func.value] if changes else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            name = node.args[1]
            if isinstance(name, ast.Constant) and name.value in attributes:
                lines.append(node.lineno)
        lines += [node.lineno for target in targets if of_a_log(target)]
    return sorted(set(lines))


def test_only_the_log_assigns_a_logs_attributes() -> None:
    attributes = log_attributes()
    assert {"log_start_offset", "high_watermark", "recovery_point"} <= attributes
    planted = ("log.closed = True", "replica.log.high_watermark = 3", "log.segments.base_offsets[0] = 1")
    planted += ("x.recovery_point += 1",)
    for line in (*planted, "log.epochs.assign(1, 2)", "a, log.topic_id = 1, 2", "setattr(log, 'closed', True)"):
        assert assigned_to_logs(ast.parse(line), attributes) == [1], line
    for line in ("self.closed = True", "log.config.copy()", "end = log.log_end_offset", "peer.closed = 1"):
        assert assigned_to_logs(ast.parse(line), attributes) == [], line
    found = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        if not name.startswith("log/"):
            found += [f"{name}:{line}" for line in assigned_to_logs(ast.parse(path.read_text()), attributes)]
    assert not found, "\n".join(found)


def assignments_to_other_objects(tree: ast.Module) -> list[tuple[int, str]]:
    """Return line and target of each assignment to an attribute (or to an item of one) not reached from `self`."""
    found = []
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = [t for target in node.targets for t in ast.walk(target) if isinstance(t, ast.expr)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
            targets = [t for t in ast.walk(node.target) if isinstance(t, ast.expr)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            found.append((node.lineno, f"{ast.unparse(node.args[0])}.{ast.unparse(node.args[1])}"))
        for target in targets:
            if not isinstance(target, ast.Attribute | ast.Subscript) or not isinstance(target.ctx, ast.Store | ast.Del):
                continue
            owner: ast.expr = target
            while isinstance(owner, ast.Attribute | ast.Subscript | ast.Call):
                owner = owner.func if isinstance(owner, ast.Call) else owner.value
            is_item_of_local = isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)
            if not is_item_of_local and ast.unparse(owner) != "self":
                found.append((node.lineno, ast.unparse(target)))
    return found


@pytest.mark.parametrize("package", ["state_machine", "driver", "store"])
def test_only_its_owner_assigns_raft_state(package: str) -> None:
    planted = ("raft.state = x", "raft.state.deadline_ms = 1", "raft.requests.next_request_ms[2] = 0", "x, a.b = 1, 2")
    planted += ("leader.fetched_voters &= {1}", "del leader.replicas[key]", "for raft.epoch in x: pass")
    planted += ("f(raft).state = 1", "raft.epoch: int = 3", "setattr(raft, 'epoch', 3)")
    for line in planted:
        assert assignments_to_other_objects(ast.parse(line)), line
    for line in ("self.state = 1", "self.state.deadline_ms += 1", "votes[3] = True", "x = raft.epoch", "del votes[3]"):
        assert not assignments_to_other_objects(ast.parse(line)), line
    exceptions = {
        ("raft_channel.py", "peer"): "a queue of requests, which belongs to the channel",
        ("describe_quorum.py", "out"): "a response that is being built",
    }
    found = []
    for path in sorted((ROOT / "controller" / "raft" / package).glob("*.py")):
        for line, target in assignments_to_other_objects(ast.parse(path.read_text())):
            if (path.name, target.partition(".")[0]) not in exceptions:
                found.append(f"{path.relative_to(ROOT)}:{line}: {target}")
    assert not found, "\n".join(found)


LOG_OWNERS = {
    "log/partition_log.py": "PartitionLog",
    "log/log_flush.py": "FlushState",
    "log/segment/log_segments.py": "LogSegments",
    "log/segment/log_segment.py": "LogSegment",
    "log/producers/producer_state_manager.py": "ProducerStateManager",
    "log/checkpoints/leader_epoch_cache.py": "LeaderEpochFileCache",
    "log/checkpoints/log_start_offset_checkpoint.py": "LogStartOffsetCheckpoint",
    "log/checkpoints/cleaner_offset_checkpoint.py": "CleanerOffsetCheckpoint",
    "log/directory/checkpoint_store.py": "CheckpointStore",
}


def assigned_fields(tree: ast.AST) -> list[tuple[str, str, int]]:
    """Return (owner, field, line) of each assignment to an attribute."""
    targets = [node.targets for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    targets += [[node.target] for node in ast.walk(tree) if isinstance(node, ast.AugAssign | ast.AnnAssign)]
    nodes = [node for some in targets for target in some for node in ast.walk(target)]
    return [
        (ast.unparse(node.value), node.attr, node.lineno)
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]


def test_only_the_owner_of_log_state_assigns_its_fields() -> None:
    fields = {}
    for name, owner in LOG_OWNERS.items():
        classes = [node for node in ast.walk(ast.parse((ROOT / name).read_text())) if isinstance(node, ast.ClassDef)]
        (cls,) = [node for node in classes if node.name == owner]
        fields[name] = {field for target, field, _ in assigned_fields(cls) if target == "self"}
    assert "recovery_point" in fields["log/log_flush.py"]
    found = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        if name.startswith("log/") and "/tests/" not in name:
            assigned = assigned_fields(ast.parse(path.read_text()))
            own = {field for target, field, _ in assigned if target == "self"}
            foreign = set().union(*(some for owner, some in fields.items() if owner != name)) - own
            found += [f"{name}:{line} {target}.{field}" for target, field, line in assigned if field in foreign]
    assert not found, "\n".join(found)


def find_import_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the modules in import cycles: those that remain when modules without imports among them are removed."""
    left = {module: set(others) for module, others in graph.items()}
    while ends := [module for module, others in left.items() if not others & left.keys()]:
        for module in ends:
            del left[module]
    return [sorted(left)] if left else []


SECRET = re.compile(r"password|proof|signature|digest|_key\b|keys\b|secret|hmac", re.IGNORECASE)


NO_SECRET = re.compile(r"^len\(|\.type$|_BYTES$")
PACKAGES_WITH_SECRETS = ("broker/security", "broker/quotas", "broker/interbroker", "controller")
PACKAGES_WITH_SECRETS += ("ottla/client", "ottla/env", "ottla/runtime")


@pytest.mark.parametrize("folder", PACKAGES_WITH_SECRETS)
def test_cve_2021_38153_secrets_are_compared_in_constant_time(folder: str) -> None:
    paths = [p for p in sorted((ROOT / folder).rglob("*.py")) if "tests" not in p.parts]
    assert paths
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and any(isinstance(x, ast.Eq | ast.NotEq) for x in node.ops):
                compared = [ast.unparse(x) for x in (node.left, *node.comparators)]
                reported = [x for x in compared if SECRET.search(x) and not NO_SECRET.search(x)]
                assert not reported, f"{path.name}: {compared}"


def test_modules_have_no_import_cycles() -> None:
    graph = grimp.build_graph("ottla", cache_dir=None)
    modules = {m for m in graph.modules if ".tests" not in m} - {"ottla"}  # public names, for type checkers only
    assert not find_import_cycles({m: graph.find_modules_directly_imported_by(m) & modules for m in modules})
    assert find_import_cycles({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()}) == [["a", "b", "c"]]


def test_all_test_modules_are_below_the_paths_that_pytest_collects() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    collected = [(ROOT / name).resolve() for name in settings["testpaths"]]
    modules = [path for path in sources() if path.name.startswith("test_")]
    assert modules
    assert not [path for path in modules if not any(path.resolve().is_relative_to(each) for each in collected)]
