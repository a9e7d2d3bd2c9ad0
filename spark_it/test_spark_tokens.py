"""Test of Spark with Hadoop's security: it fetches delegation tokens by Kerberos, and uses them over SASL_SSL.

It runs with ``OTTLA_SPARK_TOKENS=1`` and needs the packages of `compat_tests.security.kdc`: half a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compat_tests.security.kdc import MISSING_PROGRAMS, KerberosRealm
from compat_tests.security.test_kerberos import MODULE
from compat_tests.support.jars import jars
from compat_tests.support.processes import OTTLA, OttlaProcess, free_port
from compat_tests.support.raw_client import RawClient
from ottla.runtime.tests.certificate_authority import CertificateAuthority
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, fetch
from ottla.wire.record_batch import records

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif("OTTLA_SPARK_TOKENS" not in os.environ, reason="takes half a minute: OTTLA_SPARK_TOKENS=1"),
    pytest.mark.skipif(bool(MISSING_PROGRAMS), reason=f"not on this machine: {', '.join(MISSING_PROGRAMS)}"),
]
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURITY = "<name>hadoop.security.authentication</name><value>kerberos</value>"


class SparkTokenIssuingNode(OttlaProcess):
    """Node that accepts Kerberos tickets and delegation tokens over TLS, and issues tokens to clients with tickets."""

    def __init__(self, realm: KerberosRealm, where: Path) -> None:
        super().__init__(where / "data")
        self._realm = realm
        authority = CertificateAuthority(where / "ca")
        self.trusted = authority.truststore.location
        ports = {"PLAINTEXT": self.port, "IN": free_port(), "CONTROLLER": free_port()}
        self.secured = f"localhost:{ports['IN']}"
        keytab = realm.add_principals("kafka.keytab", "kafka/localhost")
        own = f'keyTab="{keytab}" principal="kafka/localhost@{realm.name}"'
        settings = {
            "listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-512",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.in.gssapi.sasl.jaas.config": f"{MODULE} {own} isInitiator=false;",
            "listener.name.in.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.issue("server", "/CN=localhost", alt="DNS:localhost").location,
            "delegation.token.secret.key": "the-tokens-secret",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS;User:alice",
            "ottla.audit.log": "DEBUG",
        }
        self._file = where / "issuing.properties"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def command(self) -> list[str]:
        env = [f"KRB5_CONFIG={self._realm.server_config}", f"KRB5RCACHEDIR={self.data_dir.parent}"]
        return ["env", *env, OTTLA, "serve", "--config", str(self._file), "--data-dir", str(self.data_dir)]


def settings(node: SparkTokenIssuingNode, realm: KerberosRealm, keytab: str, where: Path) -> str:
    """Return the settings for `spark_it.token_job` as JSON: those of Spark and those of its Kafka clients.

    They have no credentials but the path of ``keytab``; Spark fetches tokens.
    """
    trusts = {"ssl.truststore.type": "PEM", "ssl.truststore.location": node.trusted}
    cluster = {
        "auth.bootstrap.servers": node.secured,
        "security.protocol": "SASL_SSL",
        "sasl.kerberos.service.name": "kafka",
        "sasl.token.mechanism": "SCRAM-SHA-512",
        **trusts,
    }
    spark = {
        "spark.jars": ",".join(map(str, jars("spark"))),
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": f"-Djava.security.krb5.conf={realm.config}",
        "spark.kerberos.principal": f"alice@{realm.name}",
        "spark.kerberos.keytab": keytab,
        "spark.security.credentials.hadoopfs.enabled": "false",
        "spark.sql.warehouse.dir": str(where / "warehouse"),
        "spark.ui.enabled": "false",
        **{f"spark.kafka.clusters.here.{key}": value for key, value in cluster.items()},
    }
    kafka = {"bootstrap.servers": node.secured, "security.protocol": "SASL_SSL", **trusts}
    return json.dumps({"spark": spark, "kafka": kafka})


def kept(client: RawClient) -> bytes:
    """Return the raw batches of partition 0 of topic t, up to 1 MiB."""
    part = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    answer = client.call(ApiKey.FETCH, 12, fetch.FetchRequest(topics=[fetch.FetchTopic("t", partitions=[part])]))
    return bytes(answer.responses[0].partitions[0].records)


def test_spark_with_kerberos_fetches_tokens_and_tasks_log_in_with_them(tmp_path: Path) -> None:
    conf = tmp_path / "hadoop"
    conf.mkdir()
    (conf / "core-site.xml").write_text(f"<configuration><property>{SECURITY}</property></configuration>")
    with KerberosRealm(tmp_path / "realm") as realm, SparkTokenIssuingNode(realm, tmp_path) as node:
        keytab = realm.add_principals("clients.keytab", "alice")
        client = RawClient(node.port)
        client.call(
            ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", 1, 1)], 9_000)
        )
        now_ms = int(time.time() * 1000)
        client.produce(
            "t", 0, bytes(records.build_batch([records.NewRecord(None, b"v%d" % i, now_ms) for i in range(3)]))
        )
        command = [sys.executable, "-m", "spark_it.token_job", settings(node, realm, keytab, tmp_path)]
        environ = {**os.environ, "HADOOP_CONF_DIR": str(conf), "KRB5_CONFIG": realm.config}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4000:] + node.log.read_text()[-2000:]
        output = json.loads(done.stdout.strip().splitlines()[-1])
        assert output == {"tokens": 1, "read": ["V0", "V1", "V2"]}
        assert [value in kept(client) for value in (b"v2", b"V2")] == [True, True]
    log = node.log.read_text()
    assert "Traceback" not in log, log
    identity = "Principal = User:alice is Authenticated from host = 127.0.0.1 at listener = IN by"
    assert (f"{identity} GSSAPI" in log, f"{identity} a delegation token" in log) == (True, True), (
        "it fetched one, and used it"
    )
