"""Common fixtures: coordinators must not fail, and the responses of every node in this process are checked.

The core packages lie at the root and are imported as `ottla.wire` and so on, through links in ``ottla/``. A path such
as ``wire/tests`` is collected through its link, so that each file is one module.
"""

from __future__ import annotations

import os
import sys

import pytest

from ottla.broker.coordinator import errors
from sim.checkers.coordinator_failures import raise_coordinator_failure
from sim.checkers.response_checks import install

CORE = ("wire", "log", "controller", "broker")

install()


def pytest_configure(config: pytest.Config) -> None:
    """Collect the core packages through their links."""
    root = str(config.rootpath)
    for number, argument in enumerate(config.args):
        name = os.path.relpath(argument, root) if os.path.isabs(argument) else os.path.normpath(argument)
        if name.split(os.sep)[0].partition("::")[0] in CORE:
            config.args[number] = os.path.join(root, "ottla", name)


def pytest_collection_finish() -> None:
    """Refuse a second identity of a module of the core packages."""
    twice = sorted(name for name in sys.modules if name.partition(".")[0] in CORE)
    if twice:
        raise pytest.UsageError(f"imported without the prefix ottla: {', '.join(twice)}")


@pytest.fixture(autouse=True)
def failed_coordinators(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a test in which a coordinator fails, unless it is marked ``invalid_state``."""
    if request.node.get_closest_marker("invalid_state") is None:
        monkeypatch.setattr(errors, "report_failure", raise_coordinator_failure)
