"""Modules loaded by a standalone node before its first request: those for other setups must not cost it memory."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import sys
from ottla.cli.main import main
main(["serve", "--data-dir", sys.argv[1], "--listen", "127.0.0.1:0"])
for name, module in sorted(sys.modules.items()):
    print(name, getattr(module, "__file__", None) or "-")
"""
MOST_MODULES = 202
"""Limit without packages, which have modules of one line."""
MOST_CODE_CHARS = 1_460_000
"""Each kilobyte of code is about three of memory. Comments and attribute descriptions take none."""
NOT_BEFORE_USE = (
    "ottla.broker.groups.consumer",
    "ottla.broker.groups.deletion",
    "ottla.broker.groups.streams",
    "ottla.broker.handlers.",
    "ottla.broker.interbroker.broker_liveness_probe",
    "ottla.broker.interbroker.credentials",
    "ottla.broker.observability.metrics_endpoint",
    "ottla.broker.quotas.",
    "ottla.broker.replication.alter_partition_messages",
    "ottla.broker.replication.fetcher.replica_fetcher",
    "ottla.broker.security.",
    "ottla.broker.transactions.",
    "ottla.controller.request_routing",
    "ottla.controller.config.broker_config_validation",
    "ottla.controller.control.elect_leaders",
    "ottla.controller.control.fast_fencing",
    "ottla.controller.control.replica_recovery",
    "ottla.controller.config.pluggable_classes",
    "ottla.controller.partitions.reassignment_plan",
    "ottla.controller.raft.state_machine.rpc_handlers",
    "ottla.controller.control.alter_partition_reassignments",
    "ottla.controller.control.create_and_delete_topics",
    "ottla.log.cleaner.compaction",
    "ottla.client.",
    "ottla.tools.",
    "ottla.runtime.ssl_contexts",
    "ottla.env.tls",
    "cramjam.",
    "crc32c.",
    "email.",
    "importlib.metadata.",
    "lz4.",
    "zstandard.",
)
"""Prefixes of names: a module and its submodules."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the modules with their files that a node has loaded when it was started and stopped."""
    where = tmp_path_factory.mktemp("alone") / "data"
    command = [sys.executable, "-c", CHILD, str(where)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        ready = child.stdout.readline()
        assert "Kafka Server started" in ready, child.stderr.read()
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=30)
    return dict(line.split(" ", 1) for line in out.splitlines())


def count_code_chars(path: Path) -> int:
    """Return the length of a module's source without comments and attribute descriptions."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            explanations = [x for x in node.body[1:] if isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant)]
            node.body = [x for x in node.body if x not in explanations]
    return len(ast.unparse(tree))


def test_standalone_node_loads_no_optional_module(loaded: dict[str, str]) -> None:
    found = [name for name in loaded if f"{name}.".startswith(tuple(x.rstrip(".") + "." for x in NOT_BEFORE_USE))]
    assert not found, "import these in the function that needs them, and run python -m devtools.lazy_imports --write"
    assert "ottla.broker.node" in loaded


def test_standalone_node_stays_within_module_and_code_limits(loaded: dict[str, str]) -> None:
    """On failure, load the new module where it is first used. Only code that every node needs may raise the limits."""
    ours = {name: Path(file) for name, file in loaded.items() if name.split(".")[0] == "ottla" and file != "-"}
    code_chars = sum(count_code_chars(path) for path in ours.values())
    modules = sorted(name for name, path in ours.items() if path.name != "__init__.py")
    assert len(modules) <= MOST_MODULES, f"{len(modules)} modules: {modules}"
    assert code_chars <= MOST_CODE_CHARS, f"{code_chars} characters of code"
