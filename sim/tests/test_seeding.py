"""What is said of a bug that was planted: found, not found, or never even reached."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sim.tests.seeded_faults import (
    controller_faults,
    group_faults,
    node_faults,
    quorum_faults,
    replica_faults,
    transaction_faults,
)
from sim.tests.seeded_faults.seeding import FOUND, NOT_FOUND, NOT_REACHED, SeededFault, patch, run_until_detected

PLANT = SeededFault(lambda: None, "lost ghost")


def shows(*kinds: str) -> Any:
    return SimpleNamespace(violations=[(kind, "somewhere") for kind in kinds])


def calls_it() -> Any:
    controller_faults._nothing()
    return shows()


def ends() -> Any:
    raise BaseExceptionGroup("a node ended", [KeyError("x")])


@pytest.mark.parametrize(
    ("second", "status", "runs"),
    [
        (lambda: shows("stuck", "ghost"), FOUND, 2),
        (ends, FOUND, 2),
        (lambda: shows("stuck"), NOT_REACHED, 3 + 1),
        (calls_it, NOT_REACHED, 3 + 1),
    ],
    ids=["shown", "ended", "shown as something else", "called in another seed"],
)
def test_a_bug_is_found_by_a_violation_of_its_names(second: Any, status: int, runs: int) -> None:
    asked: list[int] = []

    def run(seed: int) -> Any:
        asked.append(seed)
        return second() if seed == 2 else shows()

    assert run_until_detected(PLANT, run, 3) == status
    assert asked == [1, 2, 3, 1][:runs]


def test_a_bug_that_is_not_found_was_reached_or_else_it_proves_nothing() -> None:
    assert run_until_detected(PLANT, lambda seed: calls_it(), 2) == NOT_FOUND
    assert run_until_detected(PLANT, lambda seed: shows(), 2) == NOT_REACHED


FAULT_MODULES = (controller_faults, group_faults, node_faults, quorum_faults, replica_faults, transaction_faults)


def replaced_names(module: ModuleType) -> Iterator[tuple[object, str]]:
    """What the functions of a module replace: of which class or module, and its name there."""

    def of(where: ast.expr) -> object:
        return eval(ast.unparse(where), vars(module))

    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == patch.__name__:
            yield of(node.args[0]), ast.literal_eval(node.args[1])
        for target in node.targets if isinstance(node, ast.Assign) else ():
            root = target
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(target, ast.Attribute) and isinstance(root, ast.Name) and hasattr(module, root.id):
                yield of(target.value), target.attr


@pytest.mark.parametrize("module", FAULT_MODULES)
def test_what_a_bug_replaces_exists(module: ModuleType) -> None:
    replaced = list(replaced_names(module))
    assert replaced
    assert [(where, name) for where, name in replaced if not hasattr(where, name)] == []


def test_a_bug_that_would_replace_nothing_is_refused() -> None:
    with pytest.raises(AttributeError):
        patch(controller_faults, "no_such_name", lambda real: real)
