"""Processing of requests by the active controller: decide, append, commit, publish, then respond.

Each request is decided on the latest image, which contains earlier decisions, committed or not; its batch is appended
at once. When the high watermark has passed all batches of the round, the new image and its delta are published, and
then the responses are sent.

Source: ``QuorumController.java``, ``OffsetControlManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

from ottla.controller.control.controller_result import ControllerResult
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.record_serde import (
    KRAFT_VERSION,
    METADATA_VERSION,
    NEWEST_METADATA_VERSION,
    MetadataBatchWriter,
)
from ottla.controller.metadata_loader import MetadataLoader
from ottla.controller.raft.driver.raft_driver import RaftDriver
from ottla.controller.raft.state_machine.events import UpgradeKRaftVersion, VoterChangeResponse
from ottla.env.env import Env
from ottla.jobs.job import Job, as_job
from ottla.jobs.pending_request import PendingRequest
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.metadata_records import NoOpRecord

if TYPE_CHECKING:
    from ottla.wire.messages.update_features import UpdateFeaturesRequest


def _is_feature_update(request: Any) -> TypeGuard[UpdateFeaturesRequest]:
    """Return True for UpdateFeatures, whose class is imported with its first request."""
    return isinstance(request, Message) and spec_of(type(request)).key == ApiKey.UPDATE_FEATURES


class RequestProcessor:
    """Processor of the requests to the active controller, in rounds: each has all requests that wait at its start."""

    def __init__(
        self,
        env: Env,
        machine: ControllerStateMachine,
        raft: RaftDriver,
        loader: MetadataLoader,
        publish: Callable[[], Job[None]],
    ) -> None:
        self._env = env
        self._machine = machine
        self._raft = raft
        self._loader = loader
        self._publish = publish
        self.epoch = -1
        """Epoch that this node leads; set at activation."""
        self._end_offset = -1

    def process(self, waiting: list[PendingRequest]) -> Job[None]:
        """Process the pending requests ``waiting`` as one round, as a job: each future gets its response or error.

        A request that is rejected fails alone. Responses follow the commit of the whole round.

        Raises:
            ProtocolError: NOT_CONTROLLER; all requests of the round fail, but their records may still be committed.
            OSError: the disk failed; as for NOT_CONTROLLER.
        """
        answers: list[tuple[PendingRequest, Any]] = []
        try:
            for pending in waiting:
                try:
                    decision = yield from self._decide(pending)
                except Exception as error:
                    pending.fail(error)
                    continue
                answers.append((pending, decision.response))
                if decision.records:
                    yield from self.append(decision.records)
            yield from self.commit()
        except (ProtocolError, OSError) as error:
            for pending in waiting:
                pending.fail(error)
            raise
        for pending, answer in answers:
            pending.complete(answer)

    def _decide(self, pending: PendingRequest) -> Job[ControllerResult]:
        end, now_ms = self._raft.machine.log_summary.end_offset, self._env.monotonic_ms()
        self._machine.charge_quota = pending.charge_quota
        decision = yield from as_job(
            self._machine.decide(pending.request, pending.version, end, now_ms, self._env.now_ms())
        )
        if _is_feature_update(pending.request):
            return (yield from self._raise_kraft_version(pending.request, decision))
        return decision

    def _raise_kraft_version(self, request: UpdateFeaturesRequest, decision: ControllerResult) -> Job[ControllerResult]:
        """Raise kraft.version, a control record of the log, after all other checks of UpdateFeatures, as a job (R-244).

        Returns:
            The decision to apply; an error response if not all voters support the version.
        """
        if decision.response.error_code:
            return decision
        wanted: list[int] = []
        for update in request.feature_updates:
            if update.feature == KRAFT_VERSION:
                wanted = [update.max_version_level]
            yield None
        if not wanted or wanted[-1] <= self._machine.kraft_version:
            return decision
        answer = (yield self._raft.handle_request(UpgradeKRaftVersion(wanted[-1], request.validate_only))).response
        assert isinstance(answer, VoterChangeResponse)
        if answer.error != ErrorCode.NONE:
            # lazy: 1.7 ms, 47 kB
            from ottla.controller.control.update_features import reject_update

            return reject_update(answer.error, answer.message or "")
        if request.validate_only:
            return decision
        self._machine.kraft_version = wanted[-1]
        return ControllerResult(decision.response, [NoOpRecord(), *decision.records])

    def append(self, records: list[Message]) -> Job[None]:
        """Append records as one atomic batch as leader of ``epoch``, and replay them into the latest image, as a job.

        It does not wait for the commit.

        Raises:
            ProtocolError: NOT_CONTROLLER.
            OSError: the disk failed.
        """
        level = self._machine.latest_image.features.get(METADATA_VERSION, NEWEST_METADATA_VERSION)
        writer = MetadataBatchWriter(self._env.now_ms())
        for record in records:
            writer.add_message(record, level)
            yield None
        offset = yield self._raft.propose(self.epoch, writer.build(), writer.count)
        self._end_offset = offset + writer.count
        for record in records:
            self._machine.replay(offset, record)
            yield None
        yield from self._machine.complete_append(self._end_offset - 1, self.epoch)

    def commit(self) -> Job[None]:
        """Wait until the records appended so far are committed, then publish the image, as a job.

        Raises:
            ProtocolError: NOT_CONTROLLER: leadership was lost before; the records may still be committed.
            OSError: the disk failed.
        """
        machine = self._machine
        if machine.latest_image is machine.image:
            return
        yield self._raft.wait_committed(self.epoch, self._end_offset)
        self._loader.position = self._end_offset
        yield from self._publish()
