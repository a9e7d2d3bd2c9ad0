"""What holds in every test."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator import errors
from sim.strict import raise_failure


@pytest.fixture(autouse=True)
def failed_coordinators(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a test in which a coordinator fails, unless it is marked ``invalid_state``."""
    if request.node.get_closest_marker("invalid_state") is None:
        monkeypatch.setattr(errors, "report", raise_failure)
