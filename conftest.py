"""What holds in every test: coordinators do not fail, and the responses of every node in this process are checked."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator import errors
from sim.checkers.coordinator_failures import raise_coordinator_failure
from sim.checkers.response_checks import install

install()


@pytest.fixture(autouse=True)
def failed_coordinators(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a test in which a coordinator fails, unless it is marked ``invalid_state``."""
    if request.node.get_closest_marker("invalid_state") is None:
        monkeypatch.setattr(errors, "report_failure", raise_coordinator_failure)
