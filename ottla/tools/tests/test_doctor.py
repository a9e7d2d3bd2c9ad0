"""``ottla doctor``: mistakes in a broker configuration, each with its line."""

from __future__ import annotations

import pytest

from ottla.tools.doctor import DOUBTFUL, WRONG, diagnose, parse_settings, unsupported_settings

GOOD = """
# a node as Kafka's own sample has it
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://broker.example.org:9092,CONTROLLER://broker.example.org:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/var/lib/kafka
num.partitions=1
offsets.topic.replication.factor=1
log.retention.hours=168
log.segment.bytes=1073741824
"""

# (name: line, part of the finding, severity)
MISTAKES = {
    "an address that is none": ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "no address", WRONG),
    "localhost for everybody": ("advertised.listeners=PLAINTEXT://localhost:9092", "cannot connect", DOUBTFUL),
    "an unknown listener": ("advertised.listeners=EXTERNAL://h:9092", "not among the listeners", WRONG),
    "one port twice": ("listeners=PLAINTEXT://:9092,EXTERNAL://:9092,CONTROLLER://:9093", "both use port 9092", WRONG),
    "no protocol": ("listeners=PLAINTEXT://:9092,OUTSIDE://:9094,CONTROLLER://:9093", "add OUTSIDE:PLAINTEXT", WRONG),
    "copies without nodes": ("offsets.topic.replication.factor=3", "set 1", WRONG),
    "ZooKeeper": ("zookeeper.connect=localhost:2181", "ZooKeeper mode", WRONG),
    "a misspelt name": ("log.retension.hours=24", "did you mean log.retention.hours", DOUBTFUL),
    "a unit": ("log.retention.ms=7d", "units such as 'd'", WRONG),
    "a value out of range": ("num.partitions=0", "Value must be at least 1", WRONG),
    "a node that is nothing": ("process.roles=leader", "Unknown process role 'leader'", WRONG),
    "a large message": ("message.max.bytes=200000000", "socket.request.max.bytes only 104857600", DOUBTFUL),
    "data under /tmp": ("log.dirs=/tmp/kafka-logs", "lost when the machine restarts", DOUBTFUL),
    "two retentions": ("log.retention.minutes=5", "log.retention.minutes takes precedence", DOUBTFUL),
    "TLS": ("security.inter.broker.protocol=TLS", "unknown security protocol: TLS", WRONG),
    "no port": ("listeners=PLAINTEXT://localhost", "HOST:PORT or NAME://HOST:PORT expected", WRONG),
    "in-sync copies of one": ("min.insync.replicas=2", "requires 2 in-sync replicas", DOUBTFUL),
    "two inter-broker settings": ("security.inter.broker.protocol=PLAINTEXT", "remove it", WRONG),
    "a voter that is none": ("controller.quorum.voters=1:localhost:9093", "ID@HOST:PORT", WRONG),
}


def test_diagnose_valid_configuration_returns_no_finding() -> None:
    assert diagnose(parse_settings(GOOD.encode())) == []


@pytest.mark.parametrize(
    "text",
    [
        "process.roles=controller\nlisteners=CONTROLLER://h:1\nadvertised.listeners=PLAINTEXT://h:2,CONTROLLER://h:1",
        "process.roles=broker\nlisteners=PLAINTEXT://h:2\nadvertised.listeners=PLAINTEXT://h:2,CONTROLLER://h:1",
    ],
)
def test_diagnose_listener_of_other_role_returns_no_finding(text: str) -> None:
    lines = parse_settings(f"{text}\ncontroller.listener.names=CONTROLLER".encode())
    assert [x for x in diagnose(lines) if x.key == "advertised.listeners"] == []


@pytest.mark.parametrize("mistake", MISTAKES)
def test_diagnose_mistake_returns_finding_with_its_line(mistake: str) -> None:
    text, message, severity = MISTAKES[mistake]
    key = text.partition("=")[0]
    lines = [text if line.startswith(key + "=") else line for line in GOOD.splitlines()]
    if text not in lines:
        lines.insert(6, text)
    number = lines.index(text) + 1
    findings = diagnose(parse_settings("\n".join(lines).encode()))
    mine = [f for f in findings if message in f.text]
    assert mine, findings
    assert mine[0].severity == severity
    if mistake != "two retentions":
        assert mine[0].lineno == number


def test_diagnose_replication_factor_requires_other_nodes() -> None:
    text = GOOD.replace("servers=localhost:9093", "servers=localhost:9093,other:9093").replace("factor=1", "factor=3")
    assert diagnose(parse_settings(text.encode())) == []
    assert any("set 1" in f.text for f in diagnose(parse_settings(GOOD.replace("factor=1", "factor=3").encode())))


def test_parse_settings_reads_java_properties() -> None:
    text = "# a\n! b\n a.b : 1\nc.d=2\ne f g\nlong=one,\\\n   two\nlast ="
    assert [(x.number, x.key, x.value) for x in parse_settings(text.encode())] == [
        (3, "a.b", "1"),
        (4, "c.d", "2"),
        (5, "e", "f g"),
        (6, "long", "one,two"),
        (8, "last", ""),
    ]


def test_unsupported_settings_returns_settings_that_prevent_start() -> None:
    assert unsupported_settings({"authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer"})
    assert not unsupported_settings(
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    )
    assert unsupported_settings({"listeners": "SASL_SSL://:9092"})
    assert unsupported_settings({"controller.quorum.voters": "1@a:9093,2@b"})
    assert not unsupported_settings({"controller.quorum.voters": "1@a:9093,2@b:9093"})
    assert not unsupported_settings({line.key: line.value for line in parse_settings(GOOD.encode())})


@pytest.mark.parametrize("name", ["node.id", "broker.id"])
@pytest.mark.parametrize("value", ["x", "1.5", "", "-", "\u00b2", "9" * 5_000])
def test_diagnose_invalid_node_id_returns_finding(name: str, value: str) -> None:
    found = diagnose(parse_settings(f"{name}={value}\nlisteners=SSL://:1".encode()))
    assert (name, WRONG) in [(x.key, x.severity) for x in found]
