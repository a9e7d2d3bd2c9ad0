"""Controllers alone: one to five voters without a broker, what happens to them, and what they have committed.

A writer hands numbered settings to whoever is active; what was acknowledged stays, and nothing older comes after it.
Violations of its own: ``no-leader`` (nothing is acknowledged within 15 s of peace), ``lost`` (an acknowledged setting
is not there in the end), ``behind`` (a voter has not caught up with the others within 15 s of peace).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.broker.node import AllLogDirsFailed
from ottla.controller.decision import ControllerDefaults
from ottla.controller.driver import QuorumController
from ottla.controller.image import RESOURCE_BROKER
from ottla.controller.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.node import QuorumTimeouts
from ottla.log.directory import METADATA_TOPIC, LogDirectory
from ottla.peers.client import read_exactly
from ottla.wire import compiler
from ottla.wire.apis import ApiKey, request_class
from ottla.wire.errors import ProtocolError, WireError
from ottla.wire.framing import encode_response, parse_frame_size, parse_request
from ottla.wire.messages import api_versions as av
from ottla.wire.messages import incremental_alter_configs as ac
from ottla.world.env import FOREVER_S, Accepted, Env
from sim.cluster import CONTROLLER_PORT, format_host
from sim.copies import copy_on, differences
from sim.faults import Disturber, Swarm
from sim.invariants import Invariants
from sim.lives import Guard, Lives, until_peace
from sim.scenario import Result
from sim.scenes import Scenes, are_played
from sim.voters import FixedVoters, Voters
from sim.world import World

if TYPE_CHECKING:
    from sim.processes import Process

SPOKEN = {
    ApiKey.FETCH: 18,
    ApiKey.FETCH_SNAPSHOT: 1,
    ApiKey.VOTE: 2,
    ApiKey.BEGIN_QUORUM_EPOCH: 1,
    ApiKey.END_QUORUM_EPOCH: 1,
    ApiKey.API_VERSIONS: 4,
    ApiKey.ADD_RAFT_VOTER: 1,
    ApiKey.REMOVE_RAFT_VOTER: 0,
    ApiKey.UPDATE_RAFT_VOTER: 0,
}
KRAFT = av.SupportedFeatureKey("kraft.version", 0, 1)
KEY = "log.retention.ms"
LISTENER = "CONTROLLER"
SETTLED_WITHIN_S = 15.0
DARK_SHARE = 0.5
"""Of the runs in which the power of all fails right after votes, and of the votes in such a run."""
DARK_AFTER_S = 0.12
FIRST_VALUE = 100_000
DYNAMIC_SHARE = 0.5
"""Of the quorums of several whose voters are records, and change."""


class QuorumParts:
    """What there is of a node."""

    def __init__(self, controller: QuorumController) -> None:
        self.controller = controller
        self.replica_manager = ()
        self.lifecycle = None


class QuorumNode:
    """A controller, and the listener the others reach it at."""

    def __init__(
        self, env: Env, quorum: QuorumConfig, settings: dict[str, str], voted: Callable[[], None] = lambda: None
    ) -> None:
        self.env = env
        self._voted = voted
        self._quorum = quorum
        self._settings = settings
        self._failure: OSError | None = None
        self._ground = trio.CancelScope()
        self.components: Any = None

    async def run(self, ready: None, stop: trio.Event) -> None:
        """Until told to stop."""
        env = self.env
        directory = LogDirectory(env.disk, "/data")
        directory.lock()
        identity = directory.read_meta_properties()
        assert identity is not None
        controller = QuorumController(
            env, directory, identity, ControllerDefaults(static_config=self._settings), self._fail, self._quorum
        )
        controller.load()
        self.components = QuorumParts(controller)
        with self._ground:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(controller.run)
                nursery.start_soon(self._serve, controller, nursery)
                await stop.wait()
                await controller.resign()
                nursery.cancel_scope.cancel()
        if self._failure is not None:
            raise AllLogDirsFailed(str(self._failure))
        controller.close()
        directory.unlock()

    def _fail(self, error: OSError) -> None:
        self._failure = error
        self._ground.cancel()

    async def _serve(self, controller: QuorumController, nursery: trio.Nursery) -> None:
        listener = await self.env.net.listen("", CONTROLLER_PORT)
        while True:
            nursery.start_soon(self._answer, controller, await listener.accept())

    async def _answer(self, controller: QuorumController, stream: Accepted) -> None:
        """One request after the other."""
        try:
            while True:
                size = parse_frame_size(await read_exactly(stream, 4, FOREVER_S))
                frame = memoryview(bytes(await read_exactly(stream, size, FOREVER_S)))
                request = parse_request(frame)
                body = compiler.decode(request_class(request.key), request.version, frame, request.body_position)[0]
                if request.key is ApiKey.API_VERSIONS:
                    keys = [av.ApiVersion(k, 0, high) for k, high in SPOKEN.items()]
                    answer: Any = av.ApiVersionsResponse(0, keys, supported_features=[KRAFT])
                else:
                    answer = await controller.handle_raft_request(body, request.version, LISTENER)
                await stream.send(encode_response(request.key, request.version, request.correlation_id, answer))
                if request.key is ApiKey.VOTE and gives_a_vote(body, answer):
                    self._voted()
        except (OSError, WireError):
            stream.close()


def gives_a_vote(request: Any, answer: Any) -> bool:
    """Whether a candidate got this voter's vote: more than the promise that it would."""
    asked = (p for topic in request.topics for p in topic.partitions)
    told = (p for topic in answer.topics for p in topic.partitions)
    return any(t.vote_granted and not a.pre_vote for a, t in zip(asked, told, strict=False))


class AnyTime(Guard):
    """Everything a quorum promises was synced: power may go anywhere at any time, and nothing is excused."""

    def power_cut(self, host: str, node: Any) -> bool:
        """Yes."""
        return True


class QuorumLives(Lives):
    """The lives of one controller."""

    def __init__(
        self,
        world: World,
        swarm: Swarm,
        number: int,
        quorum: QuorumConfig,
        guard: Guard,
        voted: Callable[[], None],
        voters: Voters | FixedVoters,
    ) -> None:
        super().__init__(world, swarm, number, f"n{number}", guard=guard)
        self._quorum = quorum
        self._voted = voted
        self._voters = voters
        self._number = number

    def born(self, process: Process) -> Any:
        """A controller instead of a node."""
        self._voters.wipe(process.host, self._number)
        return QuorumNode(process.env, self._quorum, self._settings, self._voted)


class QuorumScenario:
    """A run under way."""

    def __init__(self, seed: int, nodes: int | None = None, run_s: float = 40.0) -> None:
        self.world = world = World(seed)
        self.swarm = Swarm.of_cluster(world.rng)
        self.swarm.dirs = "/data"
        self.swarm.settings.pop("metadata.log.dir", None)
        nodes = nodes or 1 + int(world.rng.random() * 5)
        self.names = [f"n{i}" for i in range(1, nodes + 1)]
        voters = tuple((i, ListenerEndpoint(LISTENER, f"n{i}", CONTROLLER_PORT)) for i in range(1, nodes + 1))
        guard = AnyTime(world, self.swarm)
        self._chance = random.Random(f"dark {seed}")
        self._grows_dark = len(self.names) > 1 and self._chance.random() < DARK_SHARE
        self._invariants = Invariants(world, self.living)
        dynamic = len(self.names) > 1 and self._chance.random() < DYNAMIC_SHARE
        hosts = {number: world.host(f"n{number}") for number, _ in voters}
        fixed = FixedVoters(world, seed, hosts, self.living)
        staged = are_played(seed, len(self.names))
        self.voters = Voters(world, seed, len(self.names), LISTENER, self.living, stay=staged) if dynamic else None
        self._fixed = fixed
        self.lives = []
        for number, end in voters:
            host = hosts[number]
            host.disk.holes, host.slow_s = self.swarm.holes, self.swarm.slow_s
            if self.voters is not None:
                self.voters.format(host, number, votes=number in self.voters.first)
                quorum = self.voters.config(number)
            else:
                format_host(host, number, self.swarm)
                quorum = QuorumConfig(LISTENER, (end,), voters)
            if staged:
                quorum = quorum._replace(timeouts=QuorumTimeouts(fetch_bytes=1))  # a batch at a time
            of = self.voters or fixed
            self.lives.append(QuorumLives(world, self.swarm, number, quorum, guard, self._voted, of))
        self._run_s = run_s
        self.scenes: Scenes | None = None
        if staged:
            lives = dict(enumerate(self.lives, 1))
            self.scenes = Scenes(world, seed, self.voters, lives, self.living, run_s)
        self.tried = self.acked = FIRST_VALUE
        self.count = 0

    def living(self) -> dict[int, Any]:
        """The parts of the nodes that are up."""
        return {
            i: lives.node.components
            for i, lives in enumerate(self.lives, 1)
            if lives.node is not None and lives.node.components is not None
        }

    async def run(self) -> None:
        """Faults for a while, then peace and the reckoning."""
        world = self.world
        disturber = Disturber(world, self.swarm, self.names)
        async with trio.open_nursery() as everything:
            everything.start_soon(self._write)
            everything.start_soon(self._invariants.run)
            async with trio.open_nursery() as changes:
                if self.voters is not None:
                    changes.start_soon(self.voters.run)
                if self.scenes is not None:
                    changes.start_soon(self.scenes.run)
                await until_peace(disturber, self.lives, self._run_s, everything, disturbs=len(self.names) > 1)
                changes.cancel_scope.cancel()
            world.network.mend()
            world.note("peace")
            await self._settle()
            everything.cancel_scope.cancel()

    def _voted(self) -> None:
        """A vote was given: what it rests on must be on disk by now."""
        if self._grows_dark and self._chance.random() < DARK_SHARE:
            self.world.start_soon(self._go_dark)

    async def _go_dark(self) -> None:
        """The power of all machines fails, when the vote may have made a leader that nobody has a record of."""
        await trio.sleep(self._chance.random() * DARK_AFTER_S)
        if self.world.now_s() >= self._run_s:
            return  # some live their last life by now
        self._invariants.look()
        self.world.note("dark")
        self.swarm.counted["dark"] += 1
        for name in self.names:
            if self.world.host(name).up:
                self.world.host(name).lose_power()

    async def _write(self) -> None:
        while True:
            await trio.sleep(self.world.rng.random() * 0.3)
            for parts in self.living().values():
                if parts.controller.is_active:
                    self.world.start_soon(lambda c=parts.controller: self._once(c))  # type: ignore[misc]
                    break

    async def _once(self, controller: QuorumController) -> None:
        self.tried += 1
        value = self.tried
        config = ac.AlterableConfig(KEY, 0, str(value))
        request = ac.IncrementalAlterConfigsRequest([ac.AlterConfigsResource(RESOURCE_BROKER, "", [config])])
        try:
            with trio.move_on_after(60) as scope:
                answer = await controller.submit(request, 1)
        except (ProtocolError, OSError):
            return
        if not scope.cancelled_caught and answer.responses[0].error_code == 0:
            self.acked = max(self.acked, value)
            self.count += 1
            self.world.note(f"acked {value}")

    async def _settle(self) -> None:
        world, before = self.world, self.count
        until = world.now_s() + SETTLED_WITHIN_S
        while self.count < before + 3:
            if world.now_s() > until:
                world.ledger.violation("no-leader", f"15 s after peace {self._told()}")
                return
            await trio.sleep(0.2)
        acked = self.acked
        while any(self._value(parts) < acked for parts in self.living().values()) or len(self.living()) < len(
            self.names
        ):
            if world.now_s() > until:
                world.ledger.violation("behind", f"{acked}: {self._told()}")
                return
            await trio.sleep(0.2)
        logs = {name: copy_on(world.host(name).disk, METADATA_TOPIC, 0) for name in self.names}
        end = min(parts.controller.image.offset for parts in self.living().values())
        for detail in differences(logs, end)[:5]:
            world.ledger.violation("copies-differ", detail)

    def _value(self, parts: Any) -> int:
        return int(parts.controller.image.config(RESOURCE_BROKER, "").get(KEY, "0"))

    def _told(self) -> str:
        made = ((i, p.controller, self._value(p)) for i, p in self.living().items())
        return ", ".join(f"{i}: epoch {c.epoch} leader {c.leader_id} at {c.image.offset}: {v}" for i, c, v in made)

    def result(self) -> Result:
        """The run in one line's worth of facts."""
        world = self.world
        calls = {name: host.disk.calls for name, host in sorted(world.hosts.items())}
        world.trace.add(repr((sorted(self.swarm.counted.items()), world.ledger.violations, calls)))
        counted = {**self.swarm.counted, "nodes": len(self.names)}
        if self.voters is not None:
            counted |= {"voters": self.voters.changed, "wiped": self.voters.wiped}
        elif self._fixed.wiped:
            counted["wiped"] = self._fixed.wiped
        if self.scenes is not None:
            counted["scenes"] = self.scenes.played
        return Result(world.seed, world.trace.digest(), counted, world.now_s(), world.ledger.violations, self.count, 0)


def simulate_quorum(
    seed: int, nodes: int | None = None, run_s: float = 40.0, listen: Callable[[str], None] | None = None
) -> Result:
    """Run one seed; ``listen`` is told each event."""
    scenario = QuorumScenario(seed, nodes, run_s)
    scenario.world.trace.listen = listen
    scenario.world.run(scenario.run)
    return scenario.result()
