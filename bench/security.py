"""Cost of security: TLS and SASL compared with Kafka, ACLs and quotas compared with a node without.

``python -m bench.security``: Kafka's load tools produce and consume records of 1,000 bytes over SASL_SSL, after a login
by SCRAM-SHA-512, at Kafka and at Ottla in turn; the first round warms both up. On few cores the tool is most of the
load: the cost of the broker itself is printed beside the rate. ``--checked`` sends the smallest possible requests to
two nodes of Ottla, and runs the producer tool without TLS: one without an authorizer, and one with an authorizer, five
hundred ACLs for topics of other principals and byte rate quotas above the load.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.build_comparison import BuildUnderTest, fetch_frame, measure_requests, produce_frame
from bench.produce import cpu_s, run_load_tool
from compat_tests.security.test_authentication import SecuredKafka, SecuredOttla, SecurityFiles, add_alice, login
from compat_tests.support.processes import NodeProcess, free_port, java_tool

SIZE_BYTES = 1000
RULES = 500
LISTENER = "BOTH"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
Figures = dict[str, dict[str, list[float]]]


def add_figure(figures: Figures, label: str, name: str, value: float) -> None:
    """Append ``value`` to the figures of a label for the node ``name``."""
    figures.setdefault(label, {}).setdefault(name, []).append(value)


def print_medians(figures: Figures, first: str, second: str) -> None:
    """Print the medians of the nodes ``first`` and ``second`` for each label, and the ratio second / first."""
    for label, values in figures.items():
        one, other = (statistics.median(values[name]) for name in (first, second))
        print(f"{label:36} {first} {one:12,.2f}   {second} {other:12,.2f}   ratio {other / one:.3f}")


class SecureLoadTools:
    """Kafka's load tools with the client settings of a file, at one listener of a node."""

    def __init__(self, node: NodeProcess, port: int, settings: Path) -> None:
        self._node, self._settings = node, settings
        self._where = ("--bootstrap-server", f"localhost:{port}", "--topic", "secured")

    def produce(self, records: int) -> tuple[float, float]:
        """Run the producer tool; return records per second, and seconds of broker CPU per million records."""
        before = cpu_s(self._node.pid)
        text = java_tool(
            "ProducerPerformance",
            *(*self._where, "--num-records", str(records), "--record-size", str(SIZE_BYTES), "--throughput", "-1"),
            *("--command-config", str(self._settings)),
            timeout_s=300,
        )
        rate = float(text.strip().split("\n")[-1].split(" records/sec")[0].rpartition(" ")[2])
        return rate, (cpu_s(self._node.pid) - before) / records * 1e6

    def consume(self, records: int) -> tuple[float, float]:
        """Run the consumer tool; return records per second, and seconds of broker CPU per million records."""
        before = cpu_s(self._node.pid)
        text = java_tool(
            "ConsumerPerformance",
            *(*self._where, "--num-records", str(records), "--hide-header", "--command-config", str(self._settings)),
            timeout_s=300,
        )
        row = text.strip().split("\n")[-1].split(", ")
        return float(row[-1]), (cpu_s(self._node.pid) - before) / float(row[4]) * 1e6


def compare_with_kafka(records: int, rounds: int, where: Path) -> None:
    """Run the load tools over TLS and SASL against Kafka and Ottla in rounds, and print rounds, medians and ratios."""
    files = SecurityFiles(where)
    figures: Figures = {}
    nodes = {"kafka": SecuredKafka(files, where / "k" / "data"), "ottla": SecuredOttla(files, where / "o" / "data")}
    tools = {}
    for name, node in nodes.items():
        node.start()
        add_alice(node.bootstrap)
        java_tool("TopicCommand", "--bootstrap-server", node.bootstrap, "--create", "--topic", "secured")
        own = login(files, LISTENER, "SCRAM-SHA-512")
        settings = where / f"{name}.client"
        settings.write_text("".join(f"{k}={v}\n" for k, v in own.items() if k not in ("host", "listener")))
        tools[name] = SecureLoadTools(node, node.ports[LISTENER], settings)
    for number in range(-1, rounds):
        for name, tool in tools.items():
            work: dict[str, Callable[[int], tuple[float, float]]] = {"produce": tool.produce, "consume": tool.consume}
            for kind, run in work.items():
                rate, cost = run(records)
                print(f"{name} round {number}: {kind} {rate:,.0f} records/s, {cost:.2f} s of CPU a million", flush=True)
                if number >= 0:
                    add_figure(figures, f"{kind}: records/s", name, rate)
                    add_figure(figures, f"{kind}: s of CPU a million", name, cost)
    for node in nodes.values():
        node.stop()
    print_medians(figures, "kafka", "ottla")


class AuthorizedBuild(BuildUnderTest):
    """Node of this source tree with an authorizer, and a listener of its own for the administrator."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(Path(__file__).resolve().parent.parent, data_dir)
        ports = {"PLAINTEXT": self.port, "ADMIN": free_port(), "CONTROLLER": free_port()}
        self.admin = f"localhost:{ports['ADMIN']}"
        listeners = ",".join(f"{name}://localhost:{port}" for name, port in ports.items())
        self.file = data_dir.parent / "checked.properties"
        self.file.write_text(
            f"listeners={listeners}\ncontroller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            "listener.name.admin.sasl.enabled.mechanisms=PLAIN\n"
            f'listener.name.admin.plain.sasl.jaas.config={PLAIN} user_admin="a-secret";\n'
            f"authorizer.class.name={AUTHORIZER}\nsuper.users=User:admin\n"
        )
        self._settings = data_dir.parent / "admin.client"
        self._settings.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN} username="admin" password="a-secret";\n'
        )

    def command(self) -> list[str]:
        """Return the command of the process, with its properties file."""
        *tree, _ottla, _serve = super().command()[:4]
        return [*tree, _ottla, _serve, "--config", str(self.file), "--data-dir", str(self.data_dir)]

    def add_rules_and_quotas(self) -> None:
        """Create the topics ``small`` and ``load``, the ACLs that clients need, many more, and high quotas."""
        identity = ("--bootstrap-server", self.admin, "--command-config", str(self._settings))
        for topic in ("small", "load"):
            java_tool("TopicCommand", *identity, "--create", "--topic", topic)
        add = ("AclCommand", *identity, "--add", "--allow-principal")
        rates = "producer_byte_rate=1000000000000,consumer_byte_rate=1000000000000"
        everybody = ("--operation", "Read", "--operation", "Write", "--operation", "Describe")
        java_tool(*add, "User:ANONYMOUS", *everybody, "--topic", "small", "--topic", "load")
        java_tool(*add, "User:ANONYMOUS", "--operation", "IdempotentWrite", "--cluster")
        others = [part for number in range(RULES) for part in ("--topic", f"other-{number}")]
        java_tool(*add, "User:somebody", "--operation", "Read", *others)
        java_tool(
            "kafka.admin.ConfigCommand",
            *(*identity, "--alter", "--entity-type", "clients", "--entity-default", "--add-config", rates),
        )


def compare_with_unsecured(requests: int, records: int, rounds: int, where: Path) -> None:
    """Measure a node of Ottla with ACLs and quotas and one without in rounds, and print medians and ratios."""
    figures: Figures = {}
    checked = AuthorizedBuild(where / "c" / "data")
    plain = BuildUnderTest(Path(__file__).resolve().parent.parent, where / "p" / "data")
    nodes: dict[str, BuildUnderTest] = {"plain": plain, "checked": checked}
    for node in nodes.values():
        node.start()
    for topic in ("small", "load"):
        java_tool("TopicCommand", "--bootstrap-server", plain.bootstrap, "--create", "--topic", topic)
    checked.add_rules_and_quotas()
    kinds: dict[str, Callable[[], bytes]] = {"produce": produce_frame, "fetch": fetch_frame}
    for number in range(-1, rounds):
        for name, node in nodes.items():
            for kind, frame in kinds.items():
                cost, rate = measure_requests(node, frame(), requests)
                if number >= 0:
                    add_figure(figures, f"{kind}: us of CPU a request", name, cost)
                    add_figure(figures, f"{kind}: requests/s", name, rate)
            done = run_load_tool(node, records, SIZE_BYTES)
            if number >= 0:
                add_figure(figures, "load tool: s of CPU", name, done.broker_cpu_s)
    for node in nodes.values():
        node.stop()
    print_medians(figures, "plain", "checked")


def main() -> None:
    """Compare with Kafka, or with ``--checked`` a node with ACLs and quotas with one without; print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=500_000, help="by the load tools, each time")
    parser.add_argument("--requests", type=int, default=40_000, help="the smallest, with --checked")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--checked", action="store_true", help="rules and quotas, instead of TLS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        for part in "kocp":
            (where / part).mkdir()
        if options.checked:
            compare_with_unsecured(options.requests, options.records, options.rounds, where)
        else:
            compare_with_kafka(options.records, options.rounds, where)


if __name__ == "__main__":
    main()
