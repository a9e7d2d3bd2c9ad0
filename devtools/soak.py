"""Long campaigns, and the page of their last results: `python -m devtools.soak` runs all, `... NAME` one of them.

A campaign of the simulator is divided into pieces of some seeds for all processes; one of pytest has its own. Findings
are printed, and the later campaigns run all the same; the status is 1 then.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "campaigns.md"
PIECE = 20
HEAD = """# Campaigns

This page has the results of the test runs that take too long for every change, for contributors who judge how well a
part is tested. `make soak` runs all campaigns, `python -m devtools.soak NAME` one of them (`--seeds` limits the seeds,
`--from` selects the first one), and `--write` updates this page. The test suite contains a short sample of each.
Each row is the last complete run, with its commit.

| campaign | subject | run | findings | duration | commit |
|---|---|---|---|---|---|
"""


class Campaign(NamedTuple):
    """Long test run: of the simulator if it has ``seeds``, else of pytest with environment variables ``settings``."""

    name: str
    description: str
    arguments: str
    seeds: int = 0
    settings: str = ""
    expected_violations: str = ""
    """Names of violations, separated by spaces, that seeds may find, at least one of them: Kafka has them, too."""


DELAY_VIOLATIONS = (
    "G1a precommitted-read torn-txn unseen lost-write poll-skip int-poll-skip copy-twice copy-lost copy-ghost "
    + ("lso-stuck txn-refused undecided-read")
)
"""Known effect of a delayed request on transactions of version 1, the reason for version 2 (KIP-890)."""
SEEDED_FAULTS = "sim/scenarios/tests/test_single_node.py sim/scenarios/tests/test_cluster.py"
SEEDED_FAULTS += " sim/checkers/tests/test_group_checkers.py -k planted"
SEPARATE_CONTROLLERS = "--cluster --nodes 4 --apart 3 --moves --transactions 2"
KILLS = "OTTLA_KILLS=40 OTTLA_STOPS=12 OTTLA_PAUSES=10"
GROUP_KILLS, NEW_CLIENTS = "compat_tests/groups/test_coordinator_kills.py", "OTTLA_NEW_CLIENTS=both"
MIXED = "compat_tests/cluster/test_mixed_cluster.py compat_tests/cluster/test_mixed_quorum.py"
WORKLOADS = "compat_tests/workloads/test_workloads.py -k on_kafka"
PLANTED_WORKLOADS = "compat_tests/workloads/test_workloads.py -k planted_fault"
SETTINGS = "compat_tests/vs_kafka/test_settings.py -k drawn"
MANY_SETTINGS = "OTTLA_SETTINGS=9,1000 OTTLA_SETTINGS_CHANGES=2000"
STARTS = "compat_tests/vs_kafka/test_settings.py -k starts_with_settings"
DELAYS = "--cluster --transactions 2 --late"
TIERED_KILLS, ALL_SUITES = "compat_tests/storage/test_tiered_kills.py", "OTTLA_CONNECTOR_SUITES=all"
CLIENT_FAULTS = "compat_tests/faults/test_client_faults.py -k random"
CAMPAIGNS = (
    Campaign("one-node", "single node: faults of disk, clock, network and clients", "", 2000),
    Campaign("synced", "single node: power cuts with a sync before each acknowledgement", "--synced", 200),
    Campaign("cluster", "three nodes: 60 s of faults, then recovery", "--cluster --seconds 60", 300),
    Campaign("transactions", "three nodes with transactions of version 2", "--cluster --transactions 2", 500),
    Campaign("late", "three nodes: delayed requests of transactional clients, version 2", DELAYS, 100),
    Campaign(
        "late-classic",
        "three nodes: delayed requests of transactional clients, version 1",
        "--cluster --transactions 1 --late",
        100,
        expected_violations=DELAY_VIOLATIONS,
    ),
    Campaign(
        "deaths",
        "transaction coordinator killed at each step",
        "sim/scenarios/tests/test_coordinator_crash.py",
        0,
        "OTTLA_DEATHS=20",
    ),
    Campaign("tiered", "three nodes with tiered storage: a faulty remote store, kills", "--tiered", 300),
    Campaign("tiered-kills", "node killed while it copies segments", TIERED_KILLS, 0, "OTTLA_TIERED_KILLS=20"),
    Campaign("moves", "reassignments between five nodes", "--cluster --nodes 5 --moves", 100),
    Campaign(
        "apart", "reassignments between four brokers with separate controllers, transactions", SEPARATE_CONTROLLERS, 100
    ),
    Campaign("quorum", "one to five controllers: voters added, removed, wiped", "--quorum", 5000),
    Campaign("groups", "single node: consumer, share and streams groups", "--groups", 500),
    Campaign("groups-moved", "three nodes: consumer, share and streams groups", "--cluster --groups", 100),
    Campaign("coordinators", "group coordinators killed, 20 for each seed", "--kills 20", 20),
    Campaign("planted", "detection of planted bugs in one node and between nodes", SEEDED_FAULTS, 0, "OTTLA_PLANTS=1"),
    Campaign(
        "compaction", "compaction of random logs", "log/cleaner/tests/test_compaction.py", 0, "OTTLA_HISTORIES=10000"
    ),
    Campaign(
        "damage",
        "recovery of log files with changed bytes",
        "log/recovery/tests/test_corrupted_files.py",
        0,
        "OTTLA_MUTATIONS=10000",
    ),
    Campaign("faults", "each disk call fails once", "sim/tests/test_disk_fault_sweep.py", 0, "OTTLA_FAULTS=1"),
    Campaign(
        "power", "power cuts under a real node", "compat_tests/storage/test_power_cuts.py", 0, "OTTLA_POWER_CUTS=200"
    ),
    Campaign(
        "invalid-records",
        "invalid records in every internal topic",
        "tests/test_invalid_records.py compat_tests/robustness/test_invalid_records.py",
        0,
        "OTTLA_INVALID_RECORDS=20000 OTTLA_INVALID_NODES=10",
    ),
    Campaign(
        "odd", "random well-formed requests", "compat_tests/robustness/test_random_requests.py", 0, "OTTLA_ODD=600"
    ),
    Campaign("settings", "values, pairs and changes of settings, compared with Kafka", SETTINGS, 0, MANY_SETTINGS),
    Campaign(
        "settings-starts",
        "starts with settings for every rule, compared with Kafka",
        STARTS,
        0,
        "OTTLA_SETTINGS_STARTS=all",
    ),
    Campaign(
        "kafka-tools",
        "tools under Kafka's names, all calls compared with Kafka's",
        "compat_tests/tools/test_kafka_tools.py",
        0,
        "OTTLA_KAFKA_TOOLS=all",
    ),
    Campaign(
        "tiered-kafka",
        "requests about tiered storage, compared with a running Kafka",
        "compat_tests/storage/test_tiered_vs_kafka.py",
        0,
        "OTTLA_TIERED_KAFKA=1",
    ),
    Campaign("client-faults", "five clients under random faults", CLIENT_FAULTS, 0, "OTTLA_FAULT_SEEDS=100"),
    Campaign(
        "embedded",
        "starts and stops of embedded brokers",
        "compat_tests/tools/test_embedded.py",
        0,
        "OTTLA_CYCLES=1000",
    ),
    Campaign(
        "kills",
        "leaders killed, stopped and paused under stock producers",
        "compat_tests/cluster/test_leader_failures.py",
        0,
        KILLS,
    ),
    Campaign("group-kills", "group coordinators killed under stock members", GROUP_KILLS, 0, "OTTLA_GROUP_KILLS=20"),
    Campaign(
        "new-clients",
        "stock clients in consumer and share groups",
        "compat_tests/clients/test_group_protocol_clients.py",
        0,
        NEW_CLIENTS,
    ),
    Campaign(
        "group-members",
        "random group members, compared with Kafka",
        "compat_tests/groups/test_random_members.py",
        0,
        "OTTLA_RANDOM_MEMBERS=200",
    ),
    Campaign(
        "mixed", "mixed clusters of Kafka and Ottla: kills and elections, 5 min each", MIXED, 0, "OTTLA_MIXED_S=300"
    ),
    Campaign(
        "cuts",
        "network partitions between real nodes",
        "compat_tests/cluster/test_network_partitions.py",
        0,
        "OTTLA_CUTS=3",
    ),
    Campaign(
        "streams",
        "Kafka Streams with killed processors",
        "compat_tests/groups/test_streams_smoke.py",
        0,
        "OTTLA_STREAMS=60",
    ),
    Campaign(
        "connect",
        "Kafka Connect with killed exactly-once workers",
        "compat_tests/clients/test_connect.py",
        0,
        "OTTLA_CONNECT=8",
    ),
    Campaign(
        "steps",
        "transaction coordinator of real nodes killed at each step",
        "compat_tests/transactions/test_coordinator_steps.py",
        0,
        "OTTLA_STEPS=all",
    ),
    Campaign(
        "ottla-log",
        "Spark data source for log directories beside the connector",
        "spark_it/ottla_log/test_beside_connector.py",
        0,
        "OTTLA_LOG_SOURCE=1",
    ),
    Campaign("ottla-log-s3", "ottla-log on S3", "spark_it/ottla_log/test_s3_store.py", 0, "OTTLA_LOG_SOURCE_S3=1"),
    Campaign("spark", "Spark with read_committed", "spark_it/test_spark_transactions.py", 0, "OTTLA_SPARK_TXNS=2000"),
    Campaign(
        "pipelines",
        "Spark pipelines: kills on a Spark cluster, Kafka, ten million records",
        "spark_it/pipelines",
        0,
        "OTTLA_PIPELINES=all OTTLA_ACTIVITY=10000000",
    ),
    Campaign("connector-suites", "suites of Spark's Kafka connector", "spark_it/connector_suites", 0, ALL_SUITES),
    Campaign(
        "spark-tokens",
        "Spark with Kerberos and delegation tokens",
        "spark_it/test_spark_tokens.py",
        0,
        "OTTLA_SPARK_TOKENS=1",
    ),
    Campaign(
        "copier",
        "transactional copiers and brokers killed",
        "compat_tests/transactions/test_transactional_copier.py",
        0,
        "OTTLA_COPIES=20",
    ),
    Campaign(
        "rules", "ACLs, compared with Kafka", "compat_tests/security/test_acls_vs_kafka.py", 0, "OTTLA_ACL_CELLS=all"
    ),
    Campaign(
        "apps",
        "Kafka Streams and Connect with minimal ACLs",
        "compat_tests/security/test_apps_under_acls.py",
        0,
        "OTTLA_APPS=all",
    ),
    Campaign(
        "audit",
        "audit log of ACL decisions, compared with Kafka",
        "compat_tests/security/test_audit_log.py",
        0,
        "OTTLA_ACL_CELLS=all",
    ),
    Campaign("quotas", "quotas, compared with Kafka", "compat_tests/vs_kafka/test_quotas.py", 0, "OTTLA_QUOTAS=all"),
    Campaign(
        "kerberos",
        "Kerberos logins, compared with Kafka",
        "compat_tests/security/test_kerberos.py",
        0,
        "OTTLA_KERBEROS=all",
    ),
    Campaign(
        "tokens",
        "OAUTHBEARER tokens, compared with Kafka",
        "compat_tests/security/test_oauthbearer.py",
        0,
        "OTTLA_TOKENS=all",
    ),
    Campaign("workloads", "random workloads, compared with Kafka", WORKLOADS, 0, "OTTLA_WORKLOADS=1-200"),
    Campaign(
        "workloads-planted",
        "detection of planted faults by random workloads",
        PLANTED_WORKLOADS,
        0,
        "OTTLA_WORKLOADS_PLANTED=1",
    ),
    Campaign(
        "mechanisms",
        "SASL logins of stock clients, compared with Kafka",
        "compat_tests/security/test_sasl_matrix.py",
        0,
        "OTTLA_MECHANISMS=all",
    ),
)


class CampaignOutcome(NamedTuple):
    """Result of a campaign: what was run, a line of text for each finding, and the duration in seconds."""

    summary: str
    failures: list[str]
    took_s: float


def run_simulator(campaign: Campaign, first: int, seeds: int, jobs: int) -> CampaignOutcome:
    """Run ``seeds`` seeds of the simulator from ``first`` on, in ``jobs`` processes; print and return the findings."""
    began = time.monotonic()
    pieces = [(seed, min(PIECE, first + seeds - seed)) for seed in range(first, first + seeds, PIECE)]

    def piece(of: tuple[int, int]) -> list[str]:
        command = [sys.executable, "-m", "sim", "--quiet", f"--seed={of[0]}", f"--seeds={of[1]}"]
        command += campaign.arguments.split()
        hashed = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, check=False, env=hashed, cwd=ROOT, capture_output=True, text=True)
        ended = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
        bad = [line for line in ended if not line.endswith(" ok")]
        if len(ended) != of[1]:
            bad.append(f"seed {of[0] + len(ended)} ended the simulator: {done.stderr.strip()[-2000:]}")
        for line in bad:
            print(line, flush=True)
        return bad

    with ThreadPoolExecutor(jobs) as processes:
        found = [line for lines in processes.map(piece, pieces) for line in lines]
    return CampaignOutcome(f"seeds {first} to {first + seeds - 1}", found, time.monotonic() - began)


def evaluate_outcome(campaign: Campaign, outcome: CampaignOutcome) -> CampaignOutcome:
    """Return the outcome with expected violations counted in the summary, not as failures; a lack of them is one."""
    if not campaign.expected_violations:
        return outcome
    counted: Counter[str] = Counter()
    bad = []
    for line in outcome.failures:
        names = set(line.partition("VIOLATION ")[2].split(","))
        if names <= set(campaign.expected_violations.split()):
            counted.update(names)
        else:
            bad.append(line)
    counts = ", ".join(f"{name} in {count}" for name, count in sorted(counted.items()))
    if not counted:
        bad.append("no expected violation found")
    return outcome._replace(summary=f"{outcome.summary}, expected: {counts or 'none'}", failures=bad)


def run_pytest(campaign: Campaign) -> CampaignOutcome:
    """Run a campaign of pytest in a child process, print its output, and return the outcome."""
    began = time.monotonic()
    settings = dict(each.split("=") for each in campaign.settings.split())
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *campaign.arguments.split()]
    with subprocess.Popen(command, env={**os.environ, **settings}, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        last = ""
        for line in run.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    counted = re.findall(r"\d+ (?:passed|skipped)", last)
    ran = f"`{campaign.settings}`: {', '.join(counted) or 'no test'}"
    return CampaignOutcome(ran, [] if run.returncode == 0 else [last], time.monotonic() - began)


def read_results() -> Iterator[tuple[str, str]]:
    """Yield name and Markdown row of each campaign on the page `PAGE`; also the head row, with name ``campaign``."""
    for line in PAGE.read_text().splitlines() if PAGE.exists() else ():
        if match := re.match(r"\| ([a-z0-9-]+) \| ", line):
            yield match[1], line


def write(campaign: Campaign, outcome: CampaignOutcome) -> None:
    """Write the result of a campaign to the page `PAGE`, with the commit, in place of its last result."""
    others = ["--", ".", f":!{PAGE.relative_to(ROOT)}"]
    requests = (["git", "describe", "--always"], ["git", "status", "--porcelain", "-uno", *others])
    commit, changed = (subprocess.run(x, check=True, cwd=ROOT, capture_output=True, text=True).stdout for x in requests)
    at = commit.strip() + ("-dirty" if changed else "")  # the page itself changes with each row
    found = "none" if not outcome.failures else "; ".join(outcome.failures)[:300].replace("|", "/")
    took = f"{outcome.took_s / 60:.0f} min" if outcome.took_s >= 90 else f"{outcome.took_s:.0f} s"
    kept = dict(read_results())
    kept[campaign.name] = f"| {campaign.name} | {campaign.description} | {outcome.summary} | {found} | {took} | {at} |"
    PAGE.write_text(HEAD + "".join(kept[each.name] + "\n" for each in CAMPAIGNS if each.name in kept))


def main() -> int:
    """Run the given campaigns, or all, print results, and with ``--write`` update the page; return 1 for findings."""
    parser = argparse.ArgumentParser("python -m devtools.soak", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(each.name for each in CAMPAIGNS))
    parser.add_argument("--seeds", type=int, help="so many of the simulator's")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="SEED", help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes of the simulator")
    parser.add_argument("--write", action="store_true", help=f"put the results into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - {each.name for each in CAMPAIGNS}:
        parser.error(f"no such campaign: {', '.join(sorted(unknown))}")
    bad = 0
    for campaign in CAMPAIGNS:
        if arguments.names and campaign.name not in arguments.names:
            continue
        print(f"--- {campaign.name}: {campaign.description}", flush=True)
        seeds = arguments.seeds or campaign.seeds
        outcome = (
            run_simulator(campaign, arguments.first, seeds, arguments.jobs) if campaign.seeds else run_pytest(campaign)
        )
        outcome = evaluate_outcome(campaign, outcome)
        print(f"{campaign.name}: {outcome.summary}, {len(outcome.failures)} bad, {outcome.took_s:.0f} s", flush=True)
        bad += bool(outcome.failures)
        if arguments.write:
            write(campaign, outcome)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
