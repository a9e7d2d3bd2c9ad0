"""Run workloads: ``--seed N`` one of them, ``--seeds 1-200 --resume FILE`` a campaign that can be continued."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from compat_tests.workloads.campaign import WorkloadCampaign, run_campaign
from compat_tests.workloads.seeded_faults import WORKLOAD_FAULTS, is_detected
from compat_tests.workloads.workload_generator import generate_workload


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> int:
    """Run the given seeds; return 1 when a seed showed a difference."""
    parser = argparse.ArgumentParser("python -m compat_tests.workloads", description=__doc__)
    parser.add_argument("--seed", type=int, help="run one seed and print its outcomes")
    parser.add_argument("--seeds", type=_seeds, default=range(1, 201), metavar="FIRST-LAST")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="append results; seeds it holds are left out")
    parser.add_argument("--against", choices=("kafka", "ottla"), help="run on one broker only and print the outcomes")
    parser.add_argument("--draw", action="store_true", help="print the workload and run nothing")
    parser.add_argument(
        "--plant", default="", choices=("", *WORKLOAD_FAULTS), help="run Ottla with a fault, until it is found"
    )
    arguments = parser.parse_args()
    if arguments.draw:
        print(json.dumps(_shortened(generate_workload(arguments.seed)), indent=1))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # all processes end with this one
    sides = (arguments.against,) if arguments.against else ("ottla", "kafka")
    seeds = [arguments.seed] if arguments.seed is not None else arguments.seeds
    bad = 0
    with WorkloadCampaign(sides, arguments.plant) as stage:
        for result in run_campaign(stage, seeds, arguments.resume):
            bad += bool(result.differences)
            print(f"seed {result.seed}: {len(result.differences)} differences, {result.took_s:.1f} s", flush=True)
            if result.differences:
                print(f"  {json.dumps(_shortened(generate_workload(result.seed)))}")
            for line in result.differences:
                print(f"  {line}", flush=True)
            for line in result.unconfirmed_differences:
                print(f"  in one of two runs: {line}", flush=True)
            if arguments.plant and is_detected(arguments.plant, result.differences):
                return 0
            if arguments.seed is not None:
                for name, outcomes in result.outcomes.items():
                    for number, outcome in enumerate(outcomes):
                        print(f"  {name} {number}: {json.dumps(_shortened(outcome))[:600]}")
    return 1 if bad or arguments.plant else 0


def _shortened(value: object) -> object:
    """Return a workload or an outcome with long lists cut to their length and first elements."""
    if isinstance(value, dict):
        return {name: _shortened(each) for name, each in value.items()}
    if isinstance(value, list) and len(value) > 12:
        return [f"{len(value)} elements", *value[:3]]
    return [_shortened(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
