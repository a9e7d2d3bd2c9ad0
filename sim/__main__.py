"""``python -m sim --seed 7``: replay one run. ``--seeds 300``: run many. Exit status 1 if a run has a violation."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time

from sim.scenarios.cluster import simulate_cluster
from sim.scenarios.coordinator_kills import simulate_coordinator_kills
from sim.scenarios.quorum import simulate_quorum
from sim.scenarios.single_node import SimulationResult, simulate_node
from sim.scenarios.tiered_cluster import simulate_tiered_cluster


def result_text(result: SimulationResult) -> str:
    """Return the output of a run as one row of text: seed, digest, faults, virtual seconds, ``ok`` or violations."""
    faults = ",".join(f"{name}={count}" for name, count in sorted(result.faults.items()))
    names = sorted({name for name, _ in result.violations})
    verdict = f"VIOLATION {','.join(names)}" if names else "ok"
    return f"seed {result.seed} digest {result.digest} faults {faults} virtual_s {result.virtual_s:.1f} {verdict}"


def parse_arguments() -> argparse.Namespace:
    """Parse the command line of ``python -m sim``."""
    parser = argparse.ArgumentParser("sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the (first) seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument(
        "--synced", action="store_true", help="every acknowledgement waits for the disk; only power cuts"
    )
    parser.add_argument("--cluster", action="store_true", help="several nodes, each broker and controller")
    parser.add_argument("--tiered", action="store_true", help="three nodes with tiered storage and a faulty store")
    parser.add_argument("--quorum", action="store_true", help="one to five controllers without brokers")
    parser.add_argument("--nodes", type=int, help="number of nodes; by default 3 in a cluster, 1 to 5 in a quorum")
    parser.add_argument(
        "--transactions", type=int, default=0, metavar="VERSION", help="in a cluster: transactional clients as well"
    )
    parser.add_argument("--moves", action="store_true", help="in a cluster: replicas are reassigned during the run")
    parser.add_argument(
        "--apart", type=int, default=0, metavar="N", help="in a cluster: N controllers, and the nodes are brokers only"
    )
    parser.add_argument("--groups", action="store_true", help="members of consumer, share and streams groups as well")
    parser.add_argument(
        "--kills", type=int, default=0, metavar="N", help="kill N nodes that coordinate groups; no other faults"
    )
    parser.add_argument("--late", action="store_true", help="in a cluster: the only faults are late client requests")
    parser.add_argument("--seconds", type=float, default=40.0, help="simulated seconds with faults, of several nodes")
    parser.add_argument("--trace", action="store_true", help="print every event of the trace")
    parser.add_argument("--quiet", action="store_true", help="do not print the rate of the simulation")
    return parser.parse_args()


def main() -> int:
    """Run the simulations of the command line and print each result; return 1 if a run has a violation, else 0.

    Without ``PYTHONHASHSEED=0`` the process first replaces itself by one that has it.
    """
    options = parse_arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-m", "sim", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    logging.disable(logging.CRITICAL)
    bad = 0
    virtual, began = 0.0, time.perf_counter()
    for seed in range(options.seed, options.seed + options.seeds):
        listen = print if options.trace else None
        if options.quorum:
            result = simulate_quorum(seed, options.nodes, options.seconds, listen)
        elif options.tiered:
            result = simulate_tiered_cluster(seed, options.seconds, listen)
        elif options.kills:
            result = simulate_coordinator_kills(seed, options.kills, listen)
        elif options.cluster:
            result = simulate_cluster(
                seed,
                options.nodes or 3,
                options.seconds,
                listen,
                options.transactions,
                only_late=options.late,
                moves=options.moves,
                apart=options.apart,
                groups=options.groups,
            )
        else:
            result = simulate_node(seed, synced=options.synced, groups=options.groups, listen=listen)
        virtual += result.virtual_s
        for name, detail in result.violations[:5]:
            print(f"  {name}: {detail}")
        bad += bool(result.violations)
        text = result_text(result)
        if not options.quiet and seed == options.seed + options.seeds - 1:
            real = time.perf_counter() - began
            print(
                f"{options.seeds} seeds, {bad} bad, {virtual:.0f} virtual s in {real:.1f} s: {virtual / real:.0f} to 1"
            )
        print(text, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
