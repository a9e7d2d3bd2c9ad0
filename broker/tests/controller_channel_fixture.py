"""Active controller in this process and elsewhere, and a channel to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.api_spec import ApiSpec, Endpoint
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch import dispatcher
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.interbroker.controller_channel import FORWARDING_TIMEOUT_S, ControllerChannel
from ottla.broker.network.acceptor import Acceptor
from ottla.broker.requests.peer import Peer
from ottla.broker.services import QuotaHolder
from ottla.broker.tests.connection_fixture import job_of
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.broker.tests.memory_net import MemoryNet
from ottla.wire.api_keys import ApiKey, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.framing import encode_request, parse_request
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.messages.headers import ResponseHeader

NODE_ID, LISTENER = 7, "CONTROLLER"


class FakeLocalController:
    """Controller in this process: active or not, with scripted responses."""

    def __init__(self) -> None:
        self.is_active = False
        self.node_id = NODE_ID
        self.leader_id = NODE_ID + 1
        self.address: tuple[str, int] | None = None
        self.requests: list[tuple[Any, int]] = []
        self.responses: list[Any] = []
        self.heartbeats: list[tuple[int, int]] = []
        self.on_change: Callable[[], None] = lambda: None

    def record_heartbeat(self, broker_id: int, broker_epoch: int) -> None:
        self.heartbeats.append((broker_id, broker_epoch))

    def leader_address(self) -> tuple[str, int] | None:
        return self.address

    async def submit(self, request: Any, version: int = 0) -> Any:
        await trio.lowlevel.checkpoint()
        self.requests.append((request, version))
        answer = self.responses.pop(0)
        if not self.responses:
            self.on_change()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def handle_raft_request(self, message: Any, version: int, listener: str) -> Any:
        return await self.submit((message, listener), version)


def no_mutation_quota() -> None:
    """Return no quota of mutations."""


class FakeRemoteController:
    """Remote controller: its responses are scripted, except ApiVersions."""

    def __init__(self, env: Any, net: MemoryNet, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
        self.net, self.port = net, port
        self.requests: list[tuple[ApiKey, int, str, Any]] = []
        self.responses: list[Any] = []
        self.versions = {ApiKey.API_VERSIONS: (0, 4), ApiKey.BROKER_HEARTBEAT: (0, 2), ApiKey.ENVELOPE: (0, 0)}
        self.versions[ApiKey.ALTER_PARTITION] = (2, 3)
        apis = {key: ApiSpec(key, 0, 9, controller=Endpoint(f"remote-{port}")) for key in self.versions}
        services: Any = SimpleNamespace(
            env=env, config=NodeConfig(), log_creator=(), authorizer=None, quota_holder=QuotaHolder()
        )
        self.dispatcher = Dispatcher(services, apis)
        before = dispatcher.load_handler
        found = {f"remote-{port}": self._handle}
        monkeypatch.setattr(dispatcher, "load_handler", lambda module: found.get(module) or before(module))

    def _handle(self, context: Any, request: Any) -> Any:
        if context.key is ApiKey.API_VERSIONS:
            return ApiVersionsResponse(0, [ApiVersion(key, *range_) for key, range_ in self.versions.items()])
        self.requests.append((context.key, context.version, context.client_id, request))
        answer = self.responses.pop(0)
        answer = answer(request) if callable(answer) else answer
        return job_of(answer) if isinstance(answer, Awaitable) else answer

    async def serve(self) -> None:
        listener = await self.net.listen("h", self.port)
        try:
            await Acceptor(self.dispatcher).run(listener)
        finally:
            listener.close()


class ControllerChannelFixture:
    """Channel, local controller, and remote controllers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit_s: float = FORWARDING_TIMEOUT_S) -> None:
        self.env: Any = VirtualEnv()
        self.env.net = self.net = MemoryNet()
        self.local_controller = FakeLocalController()
        self.monkeypatch = monkeypatch
        self.channel = ControllerChannel(self.env, NODE_ID, self.local_controller, LISTENER, limit_s)

    def add_remote(self, port: int) -> FakeRemoteController:
        return FakeRemoteController(self.env, self.net, self.monkeypatch, port)

    def run(self, scenario: Callable[[], Awaitable[None]], *remotes: FakeRemoteController) -> None:
        async def main() -> None:
            async with trio.open_nursery() as nursery:
                for remote in remotes:
                    nursery.start_soon(remote.serve)
                await trio.testing.wait_all_tasks_blocked()
                with trio.fail_after(1000):
                    await scenario()
                nursery.cancel_scope.cancel()

        run_virtual(main)

    def forwardable_request(
        self, request: Any, version: int, host: str = "192.168.1.2", principal: str = "User:bob"
    ) -> Any:
        frame = encode_request(ApiKey(request.SPEC.key), version, 77, "the client", request)[4:]
        peer = Peer(host, ("here", 1))
        peer.principal = principal
        return SimpleNamespace(
            version=version,
            spec=BROKER_APIS[ApiKey(request.SPEC.key)],
            peer=peer,
            frame=frame,
            has_authorizer=False,
            mutation_quota=no_mutation_quota,
        )


def sealed_response(answer: Any, version: int) -> Callable[[EnvelopeRequest], EnvelopeResponse]:
    """Return a response in an envelope, with the header for the version of the inner request."""

    def seal(envelope: EnvelopeRequest) -> EnvelopeResponse:
        inner = parse_request(memoryview(envelope.request_data))
        header = compiler.encode(
            ResponseHeader(inner.correlation_id), response_header_version(inner.key, inner.version)
        )
        return EnvelopeResponse(header + compiler.encode(answer, version))

    return seal
