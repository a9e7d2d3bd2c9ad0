"""Environment of Kafka's container image, completed as by its scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import settings_from_environment
from ottla.cli.commands import container as command
from ottla.cli.node_setup.container import container_environment, unknown_variables, variable_name
from ottla.cli.tests.command_runs import run_command
from ottla.log.java_properties import load_settings

JAAS = """
// of the brokers
KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin" password="a;}\\\\b" user_admin="a;}\\\\b";  /* one more */
  org.apache.kafka.common.security.scram.ScramLoginModule required;
};
internal.KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required user_x="y"; };
KafkaClient { org.apache.kafka.common.security.plain.PlainLoginModule required username="z" password="z"; };
"""


def _complete(given: dict[str, str], files: dict[str, str] | None = None, *, mounted: bool = False) -> dict[str, str]:
    def read_file(path: str) -> str:
        try:
            return (files or {})[path]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory", path) from None

    return settings_from_environment({**given, **container_environment(given, read_file, mounted=mounted)})


def test_container_environment_without_listeners_uses_default_listeners() -> None:
    assert _complete({"KAFKA_NUM_PARTITIONS": "3"}) == {
        "num.partitions": "3",
        "listeners": "PLAINTEXT://:9092",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "log.dirs": "/var/lib/kafka/data",
    }


def test_container_environment_mounted_file_adds_no_defaults() -> None:
    assert _complete({"KAFKA_NODE_ID": "2"}, mounted=True) == {"node.id": "2"}


@pytest.mark.parametrize(
    ("given", "listeners"),
    [
        ({"KAFKA_ADVERTISED_LISTENERS": "A://one:1,B://two:22"}, "A://0.0.0.0:1,B://0.0.0.0:22"),
        ({"KAFKA_ADVERTISED_LISTENERS": "A://one:1", "KAFKA_LISTENERS": "A://:9"}, "A://:9"),
        ({"KAFKA_PROCESS_ROLES": "broker"}, None),
        ({"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ADVERTISED_LISTENERS": ""}, None),
    ],
)
def test_container_environment_derives_listeners_from_advertised_listeners(
    given: dict[str, str], listeners: str | None
) -> None:
    assert _complete({"KAFKA_LOG_DIRS": "/x", **given}).get("listeners") == listeners


def test_container_environment_advertised_listeners_of_controller_raise() -> None:
    with pytest.raises(ConfigException, match="not supported on a KRaft controller"):
        _complete({"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ADVERTISED_LISTENERS": "A://one:1"})


TLS = {
    "KAFKA_LISTENERS": "SSL://:9093",
    "KAFKA_ADVERTISED_LISTENERS": "SSL://localhost:9093",
    "KAFKA_SSL_KEYSTORE_FILENAME": "keys.jks",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "keystore_creds",
    "KAFKA_SSL_KEY_CREDENTIALS": "key_creds",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "trust.jks",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "trust_creds",
}
SECRETS = {
    "/etc/kafka/secrets/keystore_creds": "one\n",
    "/etc/kafka/secrets/key_creds": "two",
    "/etc/kafka/secrets/trust_creds": "three\n",
}


def test_container_environment_reads_tls_passwords_from_files() -> None:
    found = _complete(TLS, SECRETS)
    assert {key: value for key, value in found.items() if key.startswith("ssl.")} == {
        "ssl.keystore.location": "/etc/kafka/secrets/keys.jks",
        "ssl.keystore.password": "one",
        "ssl.key.password": "two",
    }
    found = _complete({**TLS, "KAFKA_SSL_CLIENT_AUTH": "required"}, SECRETS)
    assert (found["ssl.truststore.location"], found["ssl.truststore.password"]) == (
        "/etc/kafka/secrets/trust.jks",
        "three",
    )


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({"KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN"}, "warning"),
        ({"KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN", "OTTLA_LOG_LEVEL": "debug"}, None),
        ({"KAFKA_LOG4J_ROOT_LOGLEVEL": "nope"}, None),
        ({}, None),
    ],
)
def test_container_environment_uses_root_log_level_of_log4j(given: dict[str, str], level: str | None) -> None:
    assert container_environment(given, str, mounted=True).get("OTTLA_LOG_LEVEL") == level


def test_container_environment_missing_tls_variable_or_file_raises_config_exception() -> None:
    with pytest.raises(ConfigException, match=r"^KAFKA_SSL_KEY_CREDENTIALS environment variable not set$"):
        _complete({key: value for key, value in TLS.items() if key != "KAFKA_SSL_KEY_CREDENTIALS"}, SECRETS)
    with pytest.raises(ConfigException, match=r"^/etc/kafka/secrets/key_creds: No such file or directory$"):
        _complete(TLS)


def test_container_environment_key_in_variables_needs_no_files() -> None:
    given = {"KAFKA_ADVERTISED_LISTENERS": "SSL://localhost:9093", "KAFKA_SSL_KEYSTORE_KEY": "PEM"}
    assert _complete(given)["ssl.keystore.key"] == "PEM"


def test_container_environment_passes_modules_of_jaas_file_to_listeners() -> None:
    given = {
        "KAFKA_ADVERTISED_LISTENERS": "SASL_PLAINTEXT://one:1,INTERNAL://two:2",
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256",
        "KAFKA_OPTS": "-Dx=y -Djava.security.auth.login.config=/etc/kafka/secrets/jaas.conf",
    }
    found = _complete(given, {"/etc/kafka/secrets/jaas.conf": JAAS})
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    assert {key: value for key, value in found.items() if key.endswith("jaas.config")} == {
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{plain} username="admin" password="a;}}\\\\b" user_admin="a;}}\\\\b";'
        ),
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.internal.plain.sasl.jaas.config": f'{plain} user_x="y";',
    }
    with pytest.raises(ConfigException, match="no section KafkaServer"):
        _complete(given, {"/etc/kafka/secrets/jaas.conf": "KafkaClient { };"})


@pytest.mark.parametrize("key", ["a.b", "a_b", "a-b", "listener.name.x_y-z.plain.sasl.jaas.config"])
def test_variable_name_survives_round_trip(key: str) -> None:
    name = f"listener.name.{key}"
    assert settings_from_environment({variable_name(name): "v"}) == {name: "v"}


def test_unknown_variables_suggest_nearest_config() -> None:
    given = {
        "KAFKA_NUM_PARTITONS": "3",
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_OTTLA_METRICS_LISTENER": "x",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_LISTENER_NAME_X_SSL_CLIENT_AUTH": "none",
        "PATH": "/bin",
    }
    assert list(unknown_variables(given)) == [
        "KAFKA_NUM_PARTITONS matches no setting and has no effect; did you mean KAFKA_NUM_PARTITIONS?"
    ]


def test_container_formats_directories_and_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, mounted = tmp_path / "data", tmp_path / "server.properties"
    mounted.write_text(f"node.id=1\nprocess.roles=broker\nlog.dirs={data}\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    for name, value in {
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:1",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:1",
        "KAFKA_NODE_ID": "2",
    }.items():
        monkeypatch.setenv(name, value)
    served: list[list[str]] = []
    monkeypatch.setattr(command.serve, "run", lambda arguments: served.append(arguments) or 0)
    arguments = ("container", "--config", str(mounted), "KAFKA_NODE_ID=1", "CLUSTER_ID=4L6g3nShT-eMCtK--X86sw")
    monkeypatch.setenv("CLUSTER_ID", "replaced by the argument")
    assert run_command(*arguments).status == 0
    properties = load_settings((data / "meta.properties").read_bytes())
    assert (properties["cluster.id"], properties["node.id"]) == ("4L6g3nShT-eMCtK--X86sw", "1")
    again = run_command(*arguments)
    assert (again.status, again.out) == (0, b"")
    assert served == [["--config", str(mounted)]] * 2


def test_container_of_single_node_uses_cluster_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_LOG_DIRS", str(tmp_path / "data"))
    monkeypatch.delenv("CLUSTER_ID", raising=False)
    monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://:0")
    served: list[list[str]] = []
    monkeypatch.setattr(command.serve, "run", lambda arguments: served.append(arguments) or 0)
    assert run_command("container").status == 0
    assert served == [["--cluster-id", "5L6g3nShT-eMCtK--X86sw"]]


def test_container_unreadable_secret_prints_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TLS.items():
        monkeypatch.setenv(name, value)
    done = run_command("container")
    assert (done.status, done.err) == (
        2,
        "ottla container: /etc/kafka/secrets/key_creds: No such file or directory\n",
    )


@pytest.mark.parametrize("variable", ["KAFKA_NODE_ID", "=x", ""])
def test_container_refuses_arguments_that_are_no_variables(variable: str) -> None:
    done = run_command("container", variable)
    assert done.status == 2
    assert f"{variable}: write NAME=VALUE" in done.err


def test_container_with_config_that_does_not_exist_ends_with_one_line() -> None:
    done = run_command("container", "--config", "/none/server.properties")
    assert (done.status, done.err) == (2, "ottla container: /none/server.properties: No such file or directory\n")


def test_container_environment_names_secret_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff")
    with pytest.raises(ConfigException, match=r"^/etc/kafka/secrets/key_creds: not UTF-8 text$"):
        container_environment(TLS, lambda path: (tmp_path / "key").read_text("utf-8"), mounted=True)


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("KAFKA_SUPER_USERS", "super.users"),
        ("KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND", "allow.everyone.if.no.acl.found"),
        ("KAFKA_UNSTABLE_API_VERSIONS_ENABLE", "unstable.api.versions.enable"),
        ("KAFKA_LISTENER_NAME_A__B_SCRAM___SHA___256_X", "listener.name.a_b.scram-sha-256.x"),
        ("KAFKA_LISTENER_NAME_A_____B_X", "listener.name.a-_b.x"),
        ("KAFKA_HOME", None),
        ("KAFKA_PORT_9092_TCP", None),
        ("kafka_num_partitions", None),
        ("KAFKA_", None),
    ],
)
def test_variable_is_the_setting_that_kafkas_image_takes_it_for(variable: str, setting: str | None) -> None:
    assert settings_from_environment({variable: "v"}) == ({} if setting is None else {setting: "v"})
    if setting is not None:
        assert list(unknown_variables({variable: "v"})) == []
