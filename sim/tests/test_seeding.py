"""Results of planted bugs: found, not found, or never reached."""

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
def test_run_until_detected_with_expected_violation_returns_found(second: Any, status: int, runs: int) -> None:
    requested: list[int] = []

    def run(seed: int) -> Any:
        requested.append(seed)
        return second() if seed == 2 else shows()

    assert run_until_detected(PLANT, run, 3) == status
    assert requested == [1, 2, 3, 1][:runs]


def test_run_until_detected_without_violation_returns_not_found_or_not_reached() -> None:
    assert run_until_detected(PLANT, lambda seed: calls_it(), 2) == NOT_FOUND
    assert run_until_detected(PLANT, lambda seed: shows(), 2) == NOT_REACHED


FAULT_MODULES = (controller_faults, group_faults, node_faults, quorum_faults, replica_faults, transaction_faults)


def replaced_names(module: ModuleType) -> Iterator[tuple[object, str]]:
    """Yield what the functions of a module replace: class or module, and name there."""

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
def test_members_replaced_by_faults_exist(module: ModuleType) -> None:
    replaced = list(replaced_names(module))
    assert replaced
    assert [(where, name) for where, name in replaced if not hasattr(where, name)] == []


def test_patch_of_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError):
        patch(controller_faults, "no_such_name", lambda real: real)
