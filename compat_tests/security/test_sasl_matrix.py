"""Stock clients by every mechanism, in plain text and on TLS: the results equal those of Kafka.

A sample in each run; ``OTTLA_MECHANISMS=all`` runs all logins of all clients.
"""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from compat_tests.clients.client_matrix import ToolchainMissing
from compat_tests.security.sasl_matrix import (
    CLIENTS,
    EXPECTED_REFUSALS,
    PASSWORD,
    PROTOCOLS,
    SAMPLE,
    UNSUPPORTED,
    SaslClientProgram,
    SaslFixture,
    is_supported,
    run_client,
    with_ports,
)
from compat_tests.security.secure_listeners import KafkaWithListeners, OttlaWithListeners
from compat_tests.security.test_oauthbearer import ALLOWED
from ottla.broker.security.authn.tests.token_issuer import EC, RSA, build_jwks

pytestmark = [
    pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl"),
    pytest.mark.xdist_group(__name__),
]
ALL = os.environ.get("OTTLA_MECHANISMS") == "all"
SAMPLED = [client for client in CLIENTS if ALL or client.is_sampled]
DOCS = Path(__file__).parent.parent.parent / "docs" / "reference" / "clients.md"
RIGHT = ("on TLS", "in plain text", "TLS", "TLS: host names not looked at", "TLS: a certificate")
ClientOutcomes = dict[str, dict[str, str] | str]


class SaslOttla(OttlaWithListeners):
    """``ottla serve`` with a listener for each kind of login."""

    def __init__(self, place: SaslFixture, data_dir: Path) -> None:
        super().__init__(data_dir, PROTOCOLS, place.settings)


class SaslKafka(KafkaWithListeners):
    """Apache Kafka with the same settings."""

    def __init__(self, place: SaslFixture, data_dir: Path) -> None:
        self.keys = place.keys
        super().__init__(data_dir, PROTOCOLS, place.settings)

    def command(self) -> list[str]:
        java, *rest = super().command()
        return [java, f"{ALLOWED}file://{self.keys}", *rest]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> SaslFixture:
    return SaslFixture(tmp_path_factory.mktemp("place"), build_jwks(("rsa", RSA), ("ec", EC)))


def add_alice(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion("alice", info, PASSWORD.encode())
        admin.alter_user_scram_credentials([change])["alice"].result(120)


def client_outcomes(place: SaslFixture, node: SaslOttla | SaslKafka, where: Path) -> ClientOutcomes:
    """Return the results of each client, or the reason why it was left out; three run at a time, mostly waiting."""
    add_alice(node.bootstrap)
    cells = [cell for cell in with_ports(list(place.cells()), node.ports) if ALL or cell["name"] in SAMPLE]

    def one(client: SaslClientProgram) -> dict[str, str] | str:
        try:
            return run_client(
                client, [cell for cell in cells if is_supported(client, cell)], where / re.sub(r"\W+", "-", client.name)
            )
        except ToolchainMissing as missing:
            return str(missing)

    where.mkdir()
    with ThreadPoolExecutor(3) as pool:
        return dict(zip((x.name for x in SAMPLED), pool.map(one, SAMPLED), strict=True))


@pytest.fixture(scope="module")
def ours(place: SaslFixture, tmp_path_factory: pytest.TempPathFactory) -> ClientOutcomes:
    where = tmp_path_factory.mktemp("ours")
    node = SaslOttla(place, where / "data")
    with node:
        results = client_outcomes(place, node, where / "clients")
    log = node.log.read_text()
    assert "Traceback" not in log, log
    assert PASSWORD not in log
    assert "eyJ" not in log, "a token in the log"
    return results


@pytest.fixture(scope="module")
def theirs(place: SaslFixture, tmp_path_factory: pytest.TempPathFactory) -> ClientOutcomes:
    where = tmp_path_factory.mktemp("theirs")
    with SaslKafka(place, where / "data") as node:
        return client_outcomes(place, node, where / "clients")


@pytest.mark.parametrize("client", SAMPLED, ids=lambda client: client.name)
def test_sasl_login_results_of_client_equal_kafka(
    client: SaslClientProgram, ours: ClientOutcomes, theirs: ClientOutcomes
) -> None:
    here, there = ours[client.name], theirs[client.name]
    if isinstance(here, str):
        pytest.skip(here)
    assert here == there
    expected = {
        name for name in here if name.endswith(RIGHT) and (client.name, name.split(" ")[0]) not in EXPECTED_REFUSALS
    }
    assert {name for name, result in here.items() if result == "in"} == expected
    assert "timeout" not in here.values()


def test_sasl_table_in_documentation_equals_measured_table() -> None:
    documented = DOCS.read_text()
    for line in table().splitlines():
        assert line in documented, line


def table() -> str:
    """Return the table of clients by mechanisms, in Markdown."""
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    lines = [f"| client | version | {' | '.join(mechanisms)} | TLS |", "|---" * (len(mechanisms) + 3) + "|"]
    for client in CLIENTS:
        none = {at: f"- ({why})" for at, why in UNSUPPORTED.items()} | {
            at: f"no ({why})" for at, why in EXPECTED_REFUSALS.items()
        }
        cells = [none.get((client.name, x), "yes") for x in mechanisms]
        lines.append(f"| {client.name} | {client.version} | {' | '.join(cells)} | yes |")
    return "\n".join(lines)
