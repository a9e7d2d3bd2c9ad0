"""Simulation of a quorum: one to five voters without brokers, with faults and checks of committed records.

A writer submits numbered settings to the active controller; acknowledged ones stay, and no older one follows them.
Violations: ``no-leader`` (no acknowledgement within 15 s after the faults), ``behind`` (a voter lacks an acknowledged
setting 15 s after the faults), ``copies-differ`` (metadata logs differ), and those of `ClusterInvariants`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.broker.node import AllLogDirsFailed
from ottla.client.channel import read_exactly
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine.quorum_timeouts import QuorumTimeouts
from ottla.env.env import FOREVER_S, AcceptedStream, Env
from ottla.log.directory.log_directory import METADATA_TOPIC, LogDirectory
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.codec import compiler
from ottla.wire.errors import ProtocolError, WireError
from ottla.wire.framing import encode_response, parse_frame_size, parse_request
from ottla.wire.messages import api_versions, incremental_alter_configs
from sim.checkers.cluster_invariants import ClusterInvariants
from sim.checkers.replica_comparison import find_replica_differences, read_replica
from sim.engine.simulation import Simulation
from sim.faults.fault_plan import FaultInjector, FaultPlan
from sim.faults.node_lifecycle import NodeLifecycle, StopPolicy, run_with_faults
from sim.faults.scripted_faults import ScriptedFaults, uses_scripted_faults
from sim.scenarios.cluster import CONTROLLER_PORT, format_host
from sim.scenarios.single_node import SimulationResult
from sim.scenarios.voter_changes import DynamicVoters, StaticVoters

if TYPE_CHECKING:
    from sim.engine.processes import SimProcess

SUPPORTED_VERSIONS = {
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
KRAFT = api_versions.SupportedFeatureKey("kraft.version", 0, 1)
KEY = "log.retention.ms"
LISTENER = "CONTROLLER"
QUIESCENCE_TIMEOUT_S = 15.0
ALL_POWER_CUT_SHARE = 0.5
"""Share of runs with a power cut of all nodes right after votes, and of the votes in such a run."""
ALL_POWER_CUT_DELAY_S = 0.12
FIRST_VALUE = 100_000
DYNAMIC_SHARE = 0.5
"""Share of quorums with dynamic voters."""


class QuorumComponents:
    """Controller of a controller-only node in the form that `ClusterInvariants` reads: without partitions."""

    def __init__(self, controller: QuorumController) -> None:
        self.controller = controller
        self.replica_manager = ()
        self.lifecycle = None


class QuorumNode:
    """Node with a Raft controller and a listener for its requests, without a broker."""

    def __init__(
        self, env: Env, quorum: QuorumConfig, settings: dict[str, str], voted: Callable[[], None] = lambda: None
    ) -> None:
        self.env = env
        self._voted = voted
        self._quorum = quorum
        self._settings = settings
        self._failure: OSError | None = None
        self._scope = trio.CancelScope()
        self.components: Any = None

    async def run(self, ready: None, stop: trio.Event) -> None:
        """Run the controller until ``stop`` is set, then resign and close; ``ready`` is not used.

        Raises:
            AllLogDirsFailed: the metadata log failed.
        """
        env = self.env
        directory = LogDirectory(env.disk, "/data")
        directory.lock()
        identity = directory.read_meta_properties()
        assert identity is not None
        controller = QuorumController(
            env, directory, identity, ControllerDefaults(static_config=self._settings), self._fail, self._quorum
        )
        controller.load()
        self.components = QuorumComponents(controller)
        with self._scope:
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
        self._scope.cancel()

    async def _serve(self, controller: QuorumController, nursery: trio.Nursery) -> None:
        listener = await self.env.net.listen("", CONTROLLER_PORT)
        while True:
            nursery.start_soon(self._answer, controller, await listener.accept())

    async def _answer(self, controller: QuorumController, stream: AcceptedStream) -> None:
        """Serve the requests of a connection one after the other."""
        try:
            while True:
                size = parse_frame_size(await read_exactly(stream, 4, FOREVER_S))
                frame = memoryview(bytes(await read_exactly(stream, size, FOREVER_S)))
                request = parse_request(frame)
                body = compiler.decode(request_class(request.key), request.version, frame, request.body_position)[0]
                if request.key is ApiKey.API_VERSIONS:
                    keys = [api_versions.ApiVersion(k, 0, high) for k, high in SUPPORTED_VERSIONS.items()]
                    answer: Any = api_versions.ApiVersionsResponse(0, keys, supported_features=[KRAFT])
                else:
                    answer = await controller.handle_raft_request(body, request.version, LISTENER)
                await stream.send(encode_response(request.key, request.version, request.correlation_id, answer))
                if request.key is ApiKey.VOTE and is_vote_granted(body, answer):
                    self._voted()
        except (OSError, WireError):
            stream.close()


def is_vote_granted(request: Any, answer: Any) -> bool:
    """Return True if a Vote response grants a vote that is not a pre-vote."""
    requests = (p for topic in request.topics for p in topic.partitions)
    responses = (p for topic in answer.topics for p in topic.partitions)
    return any(t.vote_granted and not a.pre_vote for a, t in zip(requests, responses, strict=False))


class UnrestrictedStopPolicy(StopPolicy):
    """Policy for a quorum, which syncs before it responds: any power cut is allowed, and none excuses lost records.

    `StopPolicy` allows the same, but records the recovery points, above which records may be lost.
    """

    def power_cut(self, host: str, node: Any) -> bool:
        """Return True: any power cut is allowed."""
        return True


class ControllerLifecycle(NodeLifecycle):
    """Repeated runs of one controller-only node, with faults of a plan."""

    def __init__(
        self,
        simulation: Simulation,
        fault_plan: FaultPlan,
        number: int,
        quorum: QuorumConfig,
        guard: StopPolicy,
        voted: Callable[[], None],
        voters: DynamicVoters | StaticVoters,
    ) -> None:
        super().__init__(simulation, fault_plan, number, f"n{number}", guard=guard)
        self._quorum = quorum
        self._voted = voted
        self._voters = voters
        self._number = number

    def create_node(self, process: SimProcess) -> Any:
        """Create the node of a new run; before that, its disk may be wiped (`maybe_wipe` of the voters)."""
        self._voters.maybe_wipe(process.host, self._number)
        return QuorumNode(process.env, self._quorum, self._settings, self._voted)


class QuorumScenario:
    """Simulated run of a quorum of controllers with faults, and its verification."""

    def __init__(self, seed: int, nodes: int | None = None, run_s: float = 40.0) -> None:
        self.simulation = simulation = Simulation(seed)
        self.fault_plan = FaultPlan.generate_for_cluster(simulation.rng)
        self.fault_plan.dirs = "/data"
        self.fault_plan.settings.pop("metadata.log.dir", None)
        nodes = nodes or 1 + int(simulation.rng.random() * 5)
        self.names = [f"n{i}" for i in range(1, nodes + 1)]
        voters = tuple((i, ListenerEndpoint(LISTENER, f"n{i}", CONTROLLER_PORT)) for i in range(1, nodes + 1))
        guard = UnrestrictedStopPolicy(simulation, self.fault_plan)
        self._rng = random.Random(f"dark {seed}")
        self._cuts_all_power = len(self.names) > 1 and self._rng.random() < ALL_POWER_CUT_SHARE
        self._invariants = ClusterInvariants(simulation, self.live_nodes)
        dynamic = len(self.names) > 1 and self._rng.random() < DYNAMIC_SHARE
        hosts = {number: simulation.host(f"n{number}") for number, _ in voters}
        fixed = StaticVoters(simulation, seed, hosts, self.live_nodes)
        staged = uses_scripted_faults(seed, len(self.names))
        self.voters = (
            DynamicVoters(simulation, seed, len(self.names), LISTENER, self.live_nodes, stay=staged)
            if dynamic
            else None
        )
        self._fixed = fixed
        self.lifecycles = []
        for number, end in voters:
            host = hosts[number]
            host.disk.holes, host.slow_s = self.fault_plan.holes, self.fault_plan.max_initial_sync_s
            if self.voters is not None:
                self.voters.format(host, number, votes=number in self.voters.initial_voters)
                quorum = self.voters.config(number)
            else:
                format_host(host, number, self.fault_plan)
                quorum = QuorumConfig(LISTENER, (end,), voters)
            if staged:
                quorum = quorum._replace(timeouts=QuorumTimeouts(fetch_bytes=1))  # a batch at a time
            of = self.voters or fixed
            self.lifecycles.append(
                ControllerLifecycle(simulation, self.fault_plan, number, quorum, guard, self._on_vote, of)
            )
        self._run_s = run_s
        self.scripted_faults: ScriptedFaults | None = None
        if staged:
            lifecycles = dict(enumerate(self.lifecycles, 1))
            self.scripted_faults = ScriptedFaults(simulation, seed, self.voters, lifecycles, self.live_nodes, run_s)
        self.attempted_value = self.acknowledged_value = FIRST_VALUE
        self.count = 0

    def live_nodes(self) -> dict[int, Any]:
        """Return the components of the running controllers by node id."""
        return {
            i: lifecycle.node.components
            for i, lifecycle in enumerate(self.lifecycles, 1)
            if lifecycle.node is not None and lifecycle.node.components is not None
        }

    async def run(self) -> None:
        """Run with faults, then the stable phase, then verify."""
        simulation = self.simulation
        disturber = FaultInjector(simulation, self.fault_plan, self.names)
        async with trio.open_nursery() as everything:
            everything.start_soon(self._write)
            everything.start_soon(self._invariants.run)
            async with trio.open_nursery() as changes:
                if self.voters is not None:
                    changes.start_soon(self.voters.run)
                if self.scripted_faults is not None:
                    changes.start_soon(self.scripted_faults.run)
                await run_with_faults(disturber, self.lifecycles, self._run_s, everything, disturbs=len(self.names) > 1)
                changes.cancel_scope.cancel()
            simulation.network.close_half_open()
            simulation.trace_event("peace")
            await self._wait_until_quiescent()
            everything.cancel_scope.cancel()

    def _on_vote(self) -> None:
        """Start a power cut of all nodes after a granted vote, which must be durable; at random, not in all runs."""
        if self._cuts_all_power and self._rng.random() < ALL_POWER_CUT_SHARE:
            self.simulation.start_soon(self._cut_all_power)

    async def _cut_all_power(self) -> None:
        """Cut the power of all hosts after a random delay below `ALL_POWER_CUT_DELAY_S`, unless the faults are over."""
        await trio.sleep(self._rng.random() * ALL_POWER_CUT_DELAY_S)
        if self.simulation.now_s() >= self._run_s:
            return  # some nodes may already be in their last run
        self._invariants.check_once()
        self.simulation.trace_event("dark")
        self.fault_plan.counts["dark"] += 1
        for name in self.names:
            if self.simulation.host(name).up:
                self.simulation.host(name).lose_power()

    async def _write(self) -> None:
        while True:
            await trio.sleep(self.simulation.rng.random() * 0.3)
            for parts in self.live_nodes().values():
                if parts.controller.is_active:
                    self.simulation.start_soon(lambda c=parts.controller: self._write_once(c))  # type: ignore[misc]
                    break

    async def _write_once(self, controller: QuorumController) -> None:
        self.attempted_value += 1
        value = self.attempted_value
        config = incremental_alter_configs.AlterableConfig(KEY, 0, str(value))
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(RESOURCE_BROKER, "", [config])]
        )
        try:
            with trio.move_on_after(60) as scope:
                answer = await controller.submit(request, 1)
        except (ProtocolError, OSError):
            return
        if not scope.cancelled_caught and answer.responses[0].error_code == 0:
            self.acknowledged_value = max(self.acknowledged_value, value)
            self.count += 1
            self.simulation.trace_event(f"acked {value}")

    async def _wait_until_quiescent(self) -> None:
        simulation, before = self.simulation, self.count
        until = simulation.now_s() + QUIESCENCE_TIMEOUT_S
        while self.count < before + 3:
            if simulation.now_s() > until:
                simulation.ledger.report_violation("no-leader", f"15 s after peace {self._describe()}")
                return
            await trio.sleep(0.2)
        acked = self.acknowledged_value
        while any(self._value(parts) < acked for parts in self.live_nodes().values()) or len(self.live_nodes()) < len(
            self.names
        ):
            if simulation.now_s() > until:
                simulation.ledger.report_violation("behind", f"{acked}: {self._describe()}")
                return
            await trio.sleep(0.2)
        logs = {name: read_replica(simulation.host(name).disk, METADATA_TOPIC, 0) for name in self.names}
        end = min(parts.controller.image.offset for parts in self.live_nodes().values())
        for detail in find_replica_differences(logs, end)[:5]:
            simulation.ledger.report_violation("copies-differ", detail)

    def _value(self, parts: Any) -> int:
        return int(parts.controller.image.config(RESOURCE_BROKER, "").get(KEY, "0"))

    def _describe(self) -> str:
        made = ((i, p.controller, self._value(p)) for i, p in self.live_nodes().items())
        return ", ".join(f"{i}: epoch {c.epoch} leader {c.leader_id} at {c.image.offset}: {v}" for i, c, v in made)

    def result(self) -> SimulationResult:
        """Add the final counts to the trace, and return the result of the run; call it once, at the end."""
        simulation = self.simulation
        calls = {name: host.disk.calls for name, host in sorted(simulation.hosts.items())}
        simulation.trace.add(repr((sorted(self.fault_plan.counts.items()), simulation.ledger.violations, calls)))
        counted = {**self.fault_plan.counts, "nodes": len(self.names)}
        if self.voters is not None:
            counted |= {"voters": self.voters.changed, "wiped": self.voters.wiped}
        elif self._fixed.wiped:
            counted["wiped"] = self._fixed.wiped
        if self.scripted_faults is not None:
            counted["scenes"] = self.scripted_faults.played
        return SimulationResult(
            simulation.seed,
            simulation.trace.digest(),
            counted,
            simulation.now_s(),
            simulation.ledger.violations,
            self.count,
            0,
        )


def simulate_quorum(
    seed: int, nodes: int | None = None, run_s: float = 40.0, listen: Callable[[str], None] | None = None
) -> SimulationResult:
    """Simulate a quorum of controllers with one seed and return the result.

    Args:
        seed: Seed of all random choices.
        nodes: Number of controllers; None: one to five, by the seed.
        run_s: Simulated seconds with faults.
        listen: Called with each event of the trace.
    """
    scenario = QuorumScenario(seed, nodes, run_s)
    scenario.simulation.trace.listen = listen
    scenario.simulation.run(scenario.run)
    return scenario.result()
