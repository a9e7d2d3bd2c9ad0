"""Log of a node: level, JSON, summary at the start, lines at the stop."""

from __future__ import annotations

import argparse
import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.cli.node_setup.json_log import JsonFormatter
from ottla.cli.node_setup.log_options import FORMAT_VARIABLE, LEVEL_VARIABLE
from ottla.cli.node_setup.log_output import (
    changed_settings,
    configure_logging,
    ready_address,
    start_summary,
)

MAP = "INTERNAL:PLAINTEXT,PUBLIC:SASL_SSL,CONTROLLER:PLAINTEXT"


def node_config(listeners: str, **values: str) -> NodeConfig:
    config = NodeConfig({"listeners": listeners, "listener.security.protocol.map": MAP, **values})
    config.host, config.port = config.first_listener
    return config


def test_json_formatter_writes_one_object_per_entry() -> None:
    try:
        raise ValueError("what\nfailed")
    except ValueError:
        entry = logging.LogRecord("ottla.x", logging.WARNING, "f", 1, "two %s\nlines", ("long",), sys.exc_info())
    text = JsonFormatter().format(entry)
    assert "\n" not in text
    row = json.loads(text)
    assert (row["level"], row["logger"], row["message"]) == ("WARNING", "ottla.x", "two long\nlines")
    assert "ValueError: what\nfailed" in row["exception"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", row["time"])


@pytest.mark.parametrize("variable", [LEVEL_VARIABLE, FORMAT_VARIABLE])
def test_configure_logging_unknown_value_raises_config_exception(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "tekst")
    with pytest.raises(ConfigException, match=f"{variable}: unknown: tekst"):
        configure_logging(argparse.Namespace(log_level=None, log_format=None))


def test_changed_settings_omit_defaults_and_hide_passwords() -> None:
    values = {"num.partitions": "1", "num.io.threads": "3", "ssl.key.password": "zz", "my.plugin.secret": "zz"}
    values["listener.name.public.scram-sha-512.sasl.jaas.config"] = "zz"
    assert changed_settings(values) == {
        "listener.name.public.scram-sha-512.sasl.jaas.config": "[hidden]",
        "my.plugin.secret": "[hidden]",
        "num.io.threads": "3",
        "ssl.key.password": "[hidden]",
    }


@pytest.mark.parametrize(
    ("listeners", "ports", "address"),
    [
        ("PLAINTEXT://h:9", {}, "h:9"),
        ("INTERNAL://h:1,PUBLIC://p:9092", {}, "p:9092"),
        ("PUBLIC://p:9092,INTERNAL://h:1", {}, "p:9092"),
        ("PUBLIC://:0,INTERNAL://h:1", {"INTERNAL": 1, "PUBLIC": 7}, "0.0.0.0:7"),
    ],
)
def test_ready_address_is_a_client_listener(listeners: str, ports: dict[str, int], address: str) -> None:
    inner = {"inter.broker.listener.name": "INTERNAL"} if "INTERNAL" in listeners else {}
    assert ready_address(node_config(listeners, **inner), ports) == address


def test_start_summary_contains_version_cluster_listeners_and_configs() -> None:
    inner = {"inter.broker.listener.name": "INTERNAL", "advertised.listeners": "PUBLIC://out:1,INTERNAL://h:9"}
    config = node_config("INTERNAL://h:9,PUBLIC://:0", **inner)
    first, internal, public, changed = start_summary(config, "CLUSTERID", {"PUBLIC": 5, "INTERNAL": 9})
    assert re.fullmatch(
        r"Ottla \S+ \(Apache Kafka 4\.3\.1\): node 1, roles broker,controller, cluster CLUSTERID", first
    )
    assert internal == "Listener INTERNAL: h:9, PLAINTEXT, between brokers, advertised: h:9"
    assert public == "Listener PUBLIC: 0.0.0.0:5, SASL_SSL, advertised: out:1"
    assert "inter.broker.listener.name=INTERNAL, " in changed


def test_serve_logs_start_and_stop_as_json_at_log_level(tmp_path: Path) -> None:
    def serve(*options: str) -> list[str]:
        command = [sys.executable, "-m", "ottla.cli.main", "serve", "--data-dir", f"{tmp_path}/d", *options]
        with subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            assert "Kafka Server started: 127.0.0.1:" in child.stdout.readline()
            child.send_signal(signal.SIGTERM)
            errors = child.communicate()[1]
        assert child.returncode == 0
        return errors.splitlines()

    messages = [json.loads(text)["message"] for text in serve("--log-format", "json")]
    assert any(text.startswith("Ottla ") for text in messages)
    assert "Settings that differ from the defaults: none" in messages
    assert messages[-2:] == ["Stopping node 1: SIGTERM", "Stopped node 1"]
    assert serve("--log-level", "warning") == []
