"""Faults of a node: rules, environment with faults, and factory of dispatchers that apply them."""

from __future__ import annotations

from typing import Any, cast

from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.faults.fault_env import FaultClock, FaultDisk, FaultEnv, FaultNetwork, NetworkGate
from ottla.broker.faults.fault_rule import FaultRules
from ottla.broker.faults.faulty_dispatcher import FaultyDispatcher
from ottla.env.disk import Disk
from ottla.env.env import Env


class NodeFaults:
    """Faults of one node, in memory only: they end with the node."""

    def __init__(self, env: Env) -> None:
        self.base_env = env
        """Environment without faults."""
        self.rules = FaultRules()
        self.clock = FaultClock(env)
        self.gate = NetworkGate()
        disk, net = cast("Disk", FaultDisk(env.disk, self.rules)), FaultNetwork(env.net, self.gate)
        self.env: Env = FaultEnv(env, self.clock, disk, net, FaultEnv(env, FaultClock(env), disk, net))

    def create_dispatcher(self, *arguments: Any, **options: Any) -> Dispatcher:
        """Return a dispatcher that applies the faults, with the arguments of `Dispatcher`."""
        return FaultyDispatcher(self.rules, *arguments, **options)
