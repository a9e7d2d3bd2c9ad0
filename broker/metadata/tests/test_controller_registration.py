"""Registration of a controller until the metadata contains this process (R-282)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio

from ottla.broker.metadata.controller_registration import MAX_BACKOFF_S, ControllerRegistration
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.controller.control.broker_registration import SUPPORTED_FEATURES
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Listener,
)
from ottla.wire.messages.metadata_records import RegisterControllerRecord

ME, MINE, OTHER = 4, b"m" * 16, b"o" * 16
NEW = {"metadata.version": 30}


class FakeActiveController:
    """Active controller that refuses a number of requests, then accepts."""

    def __init__(self, refusals: list[Any]) -> None:
        self.requested: list[tuple[float, ControllerRegistrationRequest]] = []
        self.refusals = refusals

    async def submit(self, request: Any, version: int = 0) -> Any:
        await trio.lowlevel.checkpoint()
        self.requested.append((trio.current_time(), request))
        refusal = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        if isinstance(refusal, Exception):
            raise refusal
        return ControllerRegistrationResponse(error_code=refusal)


def image(incarnation: bytes | None, features: dict[str, int] = NEW) -> MetadataImage:
    known = {} if incarnation is None else {ME: RegisterControllerRecord(ME, incarnation, False, [], [])}
    return MetadataImage(features=features, controllers=known)


def controller_after(
    changes: list[tuple[MetadataImage, MetadataDelta]], refusals: list[Any] | None = None, for_s: float = 1000.0
) -> FakeActiveController:
    """Return the controller after these metadata changes, one every second."""
    active = FakeActiveController(refusals or [])
    env: Any = VirtualEnv()
    registration = ControllerRegistration(
        env, ME, MINE, (ListenerEndpoint("C", "h", 9), ListenerEndpoint("D", "i", 8)), active
    )

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(registration.run)
            for one in changes:
                registration.publish(*one)
                await trio.sleep(1)
            await trio.sleep(for_s)
            nursery.cancel_scope.cancel()

    run_virtual(main)
    return active


FEATURES, OWN, OTHERS = (
    MetadataDelta(features=True),
    MetadataDelta(controllers=frozenset({ME})),
    MetadataDelta(controllers=frozenset({9})),
)


@pytest.mark.parametrize(
    ("changes", "requested"),
    [
        ([(image(None), FEATURES)], 1),
        ([(image(None, {"metadata.version": 14}), FEATURES)], 0),
        ([(image(None, {"metadata.version": 15}), FEATURES)], 1),
        ([(image(None, {}), FEATURES)], 0),
        ([(image(MINE), FEATURES)], 0),
        ([(image(OTHER), FEATURES)], 1),
        ([(image(OTHER), OWN)], 1),
        ([(image(None), OTHERS)], 0),
        ([(image(None), FEATURES), (image(MINE), OWN)], 1),
        ([(image(MINE), FEATURES), (image(None), OWN)], 2 - 1),  # the registration was removed
        ([(image(None), FEATURES), (image(MINE), OWN), (image(OTHER), OWN)], 2),
    ],
)
def test_controller_registers_whenever_metadata_lacks_it(
    changes: list[tuple[MetadataImage, MetadataDelta]], requested: int
) -> None:
    assert len(controller_after(changes).requested) == requested


def test_controller_registration_contains_endpoints_and_features() -> None:
    ((_, request),) = controller_after([(image(None), FEATURES)]).requested
    assert (request.controller_id, request.incarnation_id, request.zk_migration_ready) == (ME, MINE, False)
    assert request.listeners == [Listener("C", "h", 9, 0), Listener("D", "i", 8, 0)]
    features = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    assert features == SUPPORTED_FEATURES


def test_refused_controller_registration_backs_off_up_to_two_minutes() -> None:
    refusals: list[Any] = [ProtocolError(ErrorCode.REQUEST_TIMED_OUT), *[ErrorCode.NOT_CONTROLLER] * 12]
    active = controller_after([(image(None), FEATURES)], refusals)
    times = [at for at, _ in active.requested]
    pauses = [b - a for a, b in itertools.pairwise(times)]
    assert pauses == pytest.approx([min(0.1 * 2**n, MAX_BACKOFF_S) for n in range(13)])
    assert MAX_BACKOFF_S == 120.0
