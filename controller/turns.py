"""The active controller's turns: what waits is decided, appended, committed, published, and only then answered.

Each request is decided on the latest image, which holds what was decided before it, committed or not; its batch goes
to the log at once. When the high watermark has passed the whole turn, listeners hear of the new image and what changed
in it, and only then the answers go out.

Source: ``QuorumController.java``, ``OffsetControlManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

from ottla.controller import features
from ottla.controller.decision import Decision
from ottla.controller.loader import Loader
from ottla.controller.machine import ControllerMachine
from ottla.controller.pacing import paced, slowly
from ottla.controller.raft.events import RaiseVersion, VoterAnswer
from ottla.controller.raft.shell import Raft
from ottla.controller.records import KRAFT_VERSION, METADATA_VERSION, NEWEST_METADATA_VERSION, BatchWriter
from ottla.controller.ticket import Ticket
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import metadata_records as m
from ottla.wire.messages import update_features as uf
from ottla.wire.schema import Message
from ottla.world.env import Env


class Turns:
    """What the leader of one epoch does, one turn after the other."""

    def __init__(
        self,
        env: Env,
        machine: ControllerMachine,
        raft: Raft,
        loader: Loader,
        publish: Callable[[], Awaitable[None]],
    ) -> None:
        self._env = env
        self._machine = machine
        self._raft = raft
        self._loader = loader
        self._publish = publish
        self.epoch = -1
        """The epoch this node leads."""
        self._end = -1

    async def take(self, waiting: list[Ticket]) -> None:
        """One turn: every ticket gets its answer, or its error.

        Raises:
            ProtocolError: NOT_CONTROLLER; OSError: the disk failed. Whoever waits was told.
        """
        answers: list[tuple[Ticket, Any]] = []
        try:
            for ticket in waiting:
                try:
                    decision = await self._decide(ticket)
                except Exception as error:
                    ticket.fail(error)
                    continue
                answers.append((ticket, decision.response))
                if decision.records:
                    await self.append(decision.records)
            await self.commit()
        except (ProtocolError, OSError) as error:
            for ticket in waiting:
                ticket.fail(error)
            raise
        for ticket, answer in answers:
            ticket.give(answer)

    async def _decide(self, ticket: Ticket) -> Decision:
        end, now_ms = self._raft.machine.chain.end, self._env.monotonic_ms()
        self._machine.spend = ticket.spend
        decided = self._machine.decide(ticket.request, ticket.version, end, now_ms, self._env.now_ms())
        decision = await paced(decided) if isinstance(decided, Generator) else decided
        if isinstance(ticket.request, uf.UpdateFeaturesRequest):
            return await self._raise_kraft_version(ticket.request, decision)
        return decision

    async def _raise_kraft_version(self, request: uf.UpdateFeaturesRequest, decision: Decision) -> Decision:
        """kraft.version lies in the quorum's own records: the raft machine raises it, once all else is right (R244)."""
        if decision.response.error_code:
            return decision
        wanted: list[int] = []
        async for update in slowly(request.feature_updates):
            if update.feature == KRAFT_VERSION:
                wanted = [update.max_version_level]
        if not wanted or wanted[-1] <= self._machine.kraft_version:
            return decision
        answer = (await self._raft.ask(RaiseVersion(wanted[-1], request.validate_only))).answer
        assert isinstance(answer, VoterAnswer)
        if answer.error != ErrorCode.NONE:
            return features.refused(answer.error, answer.message or "")
        if request.validate_only:
            return decision
        self._machine.kraft_version = wanted[-1]
        return Decision(decision.response, [m.NoOpRecord(), *decision.records])

    async def append(self, records: list[Message]) -> None:
        """Append records as one batch, so that all of them count or none, and go on from what they make.

        Raises:
            ProtocolError: NOT_CONTROLLER; OSError: the disk failed.
        """
        level = self._machine.latest.features.get(METADATA_VERSION, NEWEST_METADATA_VERSION)
        writer = BatchWriter(self._env.now_ms())
        async for record in slowly(records):
            writer.add_message(record, level)
        offset = await self._raft.propose(self.epoch, writer.done(), writer.count)
        self._end = offset + writer.count
        async for record in slowly(records):
            self._machine.replay(offset, record)
        await paced(self._machine.appending(self._end - 1, self.epoch))

    async def commit(self) -> None:
        """Once the high watermark has passed what was appended, let everybody see it.

        Raises:
            ProtocolError: NOT_CONTROLLER; OSError: the disk failed.
        """
        machine = self._machine
        if machine.latest is machine.image:
            return
        await self._raft.committed(self.epoch, self._end)
        self._loader.position = self._end
        await self._publish()
