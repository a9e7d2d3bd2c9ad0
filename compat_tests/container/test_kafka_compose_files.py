"""Compose files for Apache Kafka's image start Ottla: the image's entry point as plain processes, in namespaces."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compat_tests.cluster.network_namespaces import unavailable_reason
from compat_tests.container.compose_network import ComposeNetwork, load_services, published_ports
from ottla.log.java_properties import load_settings

ENTRY = [sys.executable, "-m", "ottla.cli.main", "container"]
"""``ENTRYPOINT`` of packaging/Dockerfile, from the source tree."""
HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "packaging" / "compose"
WITHIN_S = 180
CONSOLE_PORT = 8090

pytestmark = [
    pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason()),
    pytest.mark.xdist_group("namespaces"),
]


def _wait_until_ready(network: ComposeNetwork, *names: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not all(network.is_ready(name) for name in names):
        assert time.monotonic() < deadline, "\n".join(network.log(name)[-1000:] for name in names)
        time.sleep(0.05)


def _start_all(network: ComposeNetwork) -> None:
    for name in network.services:
        network.start(name)
    _wait_until_ready(network, *network.services)


def _write_and_read(network: ComposeNetwork, count: int, **settings: str) -> int:
    """Write records through the published ports and return the number of records in the topic."""
    module, more = "compat_tests.container.published_ports", json.dumps(settings)
    ports = [port for port in published_ports(network.services) if port.inside != CONSOLE_PORT]
    return int(network.run_on_host(module, "events", str(count), ports=ports, CLIENT_SETTINGS=more))


def _read_pages(network: ComposeNetwork, path: str) -> list[str]:
    """Return a page of each console through its published port."""
    module = "compat_tests.container.published_pages"
    ports = [port for port in published_ports(network.services) if port.inside == CONSOLE_PORT]
    pages: list[str] = json.loads(network.run_on_host(module, path, ports=ports))
    return pages


def test_combined_nodes_of_kafkas_example_start_and_restart(tmp_path: Path) -> None:
    with ComposeNetwork(load_services(HERE / "combined.yml"), tmp_path, ENTRY) as network:
        _start_all(network)
        assert _write_and_read(network, 100) == 100
        files = [network.data(name) / "meta.properties" for name in network.services]
        assert {load_settings(file.read_bytes())["cluster.id"] for file in files} == {"4L6g3nShT-eMCtK--X86sw"}
        assert network.stop("kafka-1") == 0
        network.stop("kafka-2", signal.SIGKILL)
        for name in ("kafka-1", "kafka-2"):
            (tmp_path / f"{name}.log").write_text("")
            network.start(name)
        _wait_until_ready(network, "kafka-1", "kafka-2")
        assert "formatting" not in network.log("kafka-1"), "the directory was formatted already"
        assert _write_and_read(network, 1) == 101
        assert not [name for name in network.services if "Traceback" in network.log(name)]


def test_controllers_and_brokers_of_kafkas_example_start(tmp_path: Path) -> None:
    with ComposeNetwork(load_services(HERE / "isolated.yml"), tmp_path, ENTRY) as network:
        _start_all(network)
        assert _write_and_read(network, 100) == 100
        assert not [name for name in network.services if "Traceback" in network.log(name)]


@pytest.mark.parametrize("file", ["one-node.yml", "three-nodes.yml"])
def test_compose_file_of_ottla_starts(file: str, tmp_path: Path) -> None:
    with ComposeNetwork(load_services(EXAMPLES / file), tmp_path, ENTRY) as network:
        _start_all(network)
        assert _write_and_read(network, 100) == 100
        pages = _read_pages(network, "/topics")
        assert len(pages) == (3 if file == "three-nodes.yml" else 0)
        assert all("name=events" in page for page in pages), pages
        assert not [name for name in network.services if "Traceback" in network.log(name)]


def _make_stores(folder: Path) -> dict[str, str]:
    """Create the files of the example's volume of secrets; return the settings of a client with the same key."""
    folder.mkdir()
    store, trusted, password = folder / "kafka01.keystore.jks", folder / "kafka.truststore.jks", "abcdefgh"
    keytool = ("keytool", "-noprompt", "-storepass", password, "-alias", "kafka")
    key = ("-genkeypair", "-keyalg", "RSA", "-dname", "CN=localhost", "-ext", "san=dns:localhost", "-storetype", "JKS")
    to_pkcs12 = ("-srckeystore", str(store), "-destkeystore", str(folder / "client.p12"), "-deststoretype", "PKCS12")
    for options in (
        (*keytool, *key, "-keypass", password, "-keystore", str(store)),
        (*keytool, "-exportcert", "-rfc", "-keystore", str(store), "-file", str(folder / "ca.pem")),
        (*keytool, "-importcert", "-file", str(folder / "ca.pem"), "-storetype", "JKS", "-keystore", str(trusted)),
        ("keytool", "-importkeystore", "-noprompt", *to_pkcs12, "-srcstorepass", password, "-deststorepass", password),
    ):
        subprocess.run(options, check=True, capture_output=True)
    for name in ("kafka_keystore_creds", "kafka_ssl_key_creds", "kafka_truststore_creds"):
        (folder / name).write_text(f"{password}\n")
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.keystore.location": str(folder / "client.p12"),
        "ssl.keystore.password": password,
    }


@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is not installed")
def test_nodes_of_kafkas_tls_example_start(tmp_path: Path) -> None:
    with ComposeNetwork(load_services(HERE / "combined-ssl.yml"), tmp_path, ENTRY) as network:
        client = _make_stores(network.secrets)
        _start_all(network)
        assert _write_and_read(network, 10, **client) == 10
        assert not [name for name in network.services if "Traceback" in network.log(name)]
