"""Console of one of three nodes with a login: partitions and groups of the other nodes, and their permissions."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Collection, Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from compat_tests.support.processes import free_port
from ottla.client.cluster_client import ClusterClient
from ottla.client.scram import ScramCredential, derive_credential, salted_password
from ottla.client.security_config import parse_connection_security
from ottla.console.tests.console_fixture import TIMEOUT_S, Browser, console, next_event
from ottla.runtime.blocking_env import BlockingEnv, run_blocking
from ottla.runtime.tests.certificate_authority import CertificateAuthority
from ottla.tools.blocking_client import BlockingClient
from ottla.wire.messages import alter_partition_reassignments
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.xdist_group(__name__)
MECHANISM, ITERATIONS, SALT = "SCRAM-SHA-512", 4096, b"salt of the test"
GROUPS = [f"group-{n}" for n in range(6)]


class ClusterFixture(NamedTuple):
    cluster: ottla.Cluster
    port: int
    password: str

    def client(self) -> ClusterClient:
        access = parse_connection_security(self.cluster.client_config("java"))
        return ClusterClient(BlockingEnv(), self.cluster.bootstrap_servers, access=access)

    def admin(self) -> Browser:
        browser = Browser(self.port)
        assert browser.log_in("admin", self.password).status == 303
        return browser


def credential(password: str) -> ScramCredential:
    return derive_credential(MECHANISM, salted_password(MECHANISM, password, SALT, ITERATIONS), SALT, ITERATIONS)


async def add_watcher(running: ClusterFixture) -> None:
    """Create a user that may describe all groups, but no topic."""
    client = running.client()
    salted = salted_password(MECHANISM, "watcher-secret", SALT, ITERATIONS)
    upsertion = ScramCredentialUpsertion("watcher", 2, ITERATIONS, SALT, salted)
    response = await client.call(AlterUserScramCredentialsRequest([], [upsertion]))
    assert [row.error_code for row in response.results] == [0]
    response = await client.call(CreateAclsRequest([AclCreation(3, "*", 3, "User:watcher", "*", 8, 3)]))
    assert [row.error_code for row in response.results] == [0]
    client.close()


async def add_reader(running: ClusterFixture) -> None:
    """Create a user that may describe topic ``open``, and nothing else."""
    client = running.client()
    salted = salted_password(MECHANISM, "reader-secret", SALT, ITERATIONS)
    upsertion = ScramCredentialUpsertion("reader", 2, ITERATIONS, SALT, salted)
    response = await client.call(AlterUserScramCredentialsRequest([], [upsertion]))
    assert [row.error_code for row in response.results] == [0]
    acl = AclCreation(2, "open", 3, "User:reader", "*", 8, 3)
    response = await client.call(CreateAclsRequest([acl]))
    assert [row.error_code for row in response.results] == [0]
    client.close()


def occupied_second_port() -> tuple[int, socket.socket]:
    """Return a free port whose successor is occupied by the returned socket; the port after that is free, too."""
    while True:
        port = free_port()
        try:
            with socket.create_server(("127.0.0.1", port + 2)):
                return port, socket.create_server(("127.0.0.1", port + 1))
        except OSError:
            continue  # used by another test


@pytest.fixture(scope="module")
def running() -> Iterator[ClusterFixture]:
    port, occupied = occupied_second_port()
    settings = {
        "ottla.console.listener": f"127.0.0.1:{port}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with ottla.Cluster(3, settings=settings, sasl=MECHANISM) as cluster:
        config = cluster.client_config("confluent")
        made = ClusterFixture(cluster, port, config["sasl.password"])
        client = BlockingClient(cluster.bootstrap_servers, parse_connection_security(cluster.client_config("java")))
        for topic in ("open", "closed"):
            client.create_topic(topic, 6, replication_factor=1)
        producer = Producer(config)  # it retries while a leader does not know its new topic
        for topic in ("open", "closed"):
            for number in range(6):
                for _ in range(5):
                    producer.produce(topic, f"{topic} {number}", partition=number)
        assert producer.flush(60) == 0
        for group in GROUPS:
            consumer = Consumer({**config, "group.id": group})
            consumer.commit(offsets=[TopicPartition("closed", n, 2) for n in range(6)], asynchronous=False)
            consumer.close()
        run_blocking(add_reader(made))
        run_blocking(add_watcher(made))
        yield made
    occupied.close()


def test_console_at_an_occupied_port_is_one_line_and_the_node_starts(running: ClusterFixture) -> None:
    logs = [Path(node.log).read_text() for node in running.cluster.nodes]
    lines = [line for log in logs for line in log.splitlines() if "ottla.console" in line and "setting" not in line]
    problem = f"Console is not available: cannot bind to 127.0.0.1:{running.port + 1}: Address already in use"
    assert sum(problem in line for line in lines) == 1, lines
    for port in (running.port, running.port + 2):
        assert sum(f"Console: http://127.0.0.1:{port}/" in line for line in lines) == 1


def test_pages_show_partitions_and_groups_of_all_nodes(running: ClusterFixture) -> None:
    browser = running.admin()
    assert browser.get("/").text.count("alive") == 3
    page = browser.get("/topic?name=closed")
    assert page.html.count('<td class="number">5</td>') == 12, "end offset and records of each partition"
    records = browser.get("/records?name=closed&from=start&limit=100")
    assert "30 records" in records.text
    text = browser.get("/groups").text
    assert all(f"{group} classic Empty 0 18" in text for group in GROUPS), text
    for group in GROUPS:
        assert "Lag 18" in browser.get(f"/group?id={group}").text
    assert "Quorum Leader node" in browser.get("/cluster").text


def test_offsets_in_hidden_topics_are_left_out_whichever_node_coordinates(running: ClusterFixture) -> None:
    browser = Browser(running.port)
    assert browser.log_in("watcher", "watcher-secret").status == 303
    coordinators = set()
    for group in GROUPS:
        page = browser.get(f"/group?id={group}")
        coordinators.add(page.text.partition("Coordinator node ")[2][:1])
        assert (page.status, "closed" in page.text, "No offsets." in page.text) == (200, False, True), page.text
        assert f"{group} classic Empty 0 –" in browser.get("/groups").text  # noqa: RUF001 - unknown lag
    assert len(coordinators) > 1


def test_changes_reach_partitions_and_groups_of_other_nodes(running: ClusterFixture) -> None:
    browser = running.admin()
    for number in range(6):
        form = browser.get(f"/topic/delete-records?name=open&partition={number}").form("/topic/delete-records")
        assert f"open-{number} starts at offset 3." in browser.change(form, before="3")[1].text
        form = browser.get("/records/produce?name=open").form("/records/produce")
        assert f"offset 5 in open-{number}" in browser.change(form, value="more", partition=str(number))[1].text
    for group in GROUPS:
        form = browser.get(f"/group/offsets?id={group}").form("/group/offsets")
        browser.change(form, target="latest")
        page = browser.get(f"/group?id={group}")
        assert "Lag 0" in page.text
        browser.change(page.form("/group/delete"))
    assert "No groups." in browser.get("/groups").text


def test_tail_shows_each_record_of_a_replicated_topic_whichever_node_leads(running: ClusterFixture) -> None:
    """A follower on the node of the console knows the high watermark later than the leader."""
    access = parse_connection_security(running.cluster.client_config("java"))
    client = BlockingClient(running.cluster.bootstrap_servers, access)
    client.create_topic("copied", 3, replication_factor=3)
    browser = running.admin()
    connection = HTTPConnection("127.0.0.1", running.port, timeout=120)
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    connection.request("GET", "/live/records?name=copied", headers={"Cookie": cookies})
    response = connection.getresponse()
    assert "0 records" in next_event(response, "live")
    producer = Producer(running.cluster.client_config("confluent"))
    for number in range(12):
        producer.produce("copied", f"record {number}.", partition=number % 3)
        assert producer.flush(60) == 0
        while f"record {number}." not in (html := next_event(response, "live")):
            pass
    assert "12 records; 12 looked at." in html
    connection.close()


def test_permissions_hold_for_partitions_and_groups_of_other_nodes(running: ClusterFixture) -> None:
    browser = Browser(running.port)
    assert browser.log_in("reader", "reader-secret").status == 303
    text = browser.get("/topics").text
    assert ("open" in text, "closed" in text) == (True, False)
    assert "No groups." in browser.get("/groups").text
    assert "need DESCRIBE on the cluster" in browser.get("/connections").text
    page = browser.get("/topic?name=open")
    assert page.html.count("Delete records<") == 6
    for number in range(6):
        page = browser.get(f"/records?name=open&from=start&partition={number}")
        assert (page.status, "more" in page.text) == (403, False), page.text
        assert browser.request("GET", f"/records/export?name=open&partition={number}").status == 403
        token = browser.get("/topic/new").form("/topic/new").fields["csrf"]
        for action, fields in (
            ("/topic/delete-records", {"before": "1"}),
            ("/records/produce", {"value": "x"}),
        ):
            sent = {"csrf": token, "name": "open", "partition": str(number), "confirmed": "yes", **fields}
            assert browser.send(action, sent).status == 403, action
    for group in GROUPS:
        assert browser.get(f"/group?id={group}").status == 403


def test_session_ends_when_the_credential_of_its_user_is_removed(running: ClusterFixture) -> None:
    async def remove() -> None:
        client = running.client()
        response = await client.call(AlterUserScramCredentialsRequest([ScramCredentialDeletion("reader", 2)], []))
        assert [row.error_code for row in response.results] == [0]
        client.close()

    browser = Browser(running.port)
    browser.log_in("reader", "reader-secret")
    assert browser.get("/topics").status == 200
    run_blocking(remove())
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        if browser.get("/topics").status == 303:
            return
    pytest.fail("the session is still valid")


def test_https_console_uses_the_certificate_of_the_node() -> None:
    port = free_port()
    settings = {"ottla.console.listener": f"https://127.0.0.1:{port}"}
    with console(settings, tls=True, sasl="PLAIN") as made:
        config = made.broker.client_config("confluent")
        context = ssl.create_default_context(cafile=config["ssl.ca.location"])
        connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=300)
        connection.request("GET", "/login")
        response = connection.getresponse()
        assert response.status == 200
        assert "; Secure" in response.headers["Set-Cookie"]
        connection.close()


def test_client_certificate_is_the_user_of_the_session(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "authority")
    own, alice, other = (authority.issue(name, f"/CN={name}") for name in ("node", "alice", "other"))
    port = free_port()
    prefix = "listener.name.console.ssl"
    settings = {
        "ottla.console.listener": f"https://127.0.0.1:{port}",
        f"{prefix}.client.auth": "required",
        f"{prefix}.keystore.location": own.location,
        f"{prefix}.keystore.type": "PEM",
        f"{prefix}.truststore.location": authority.truststore.location,
        f"{prefix}.truststore.type": "PEM",
        f"{prefix}.principal.mapping.rules": "RULE:^CN=(alice)$/$1-of-the-shop/",
    }

    def get(certificate: str) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=authority.truststore.location)
        context.load_cert_chain(certificate)
        connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=300)
        connection.request("GET", "/topics")
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    with console(settings):
        status, text = get(alice.location)
        assert (status, "User:alice-of-the-shop" in text) == (200, True)
        status, text = get(other.location)
        assert (status, "no rule of ssl.principal.mapping.rules applies" in text) == (403, True)


async def create_unbalanced_topic(running: ClusterFixture) -> None:
    """Create a topic whose replicas are all on the first node."""
    client = running.client()
    first = running.cluster.nodes[0].id
    rows = [CreatableReplicaAssignment(number, [first]) for number in range(6)]
    response = await client.call(CreateTopicsRequest([CreatableTopic("uneven", -1, -1, rows)], 10_000))
    assert [row.error_code for row in response.topics] == [0]
    client.close()


async def replicas_of(
    running: ClusterFixture, partitions: Collection[tuple[str, int]]
) -> dict[tuple[str, int], list[int]]:
    """Return the replicas of partitions."""
    client = running.client()
    topics = (await client.metadata(sorted({topic for topic, _ in partitions}))).topics
    client.close()
    rows = {(topic.name or "", row.partition_index): row.replica_nodes for topic in topics for row in topic.partitions}
    return {at: list(rows.get(at, ())) for at in partitions}


def wait_for_replicas(
    running: ClusterFixture, wanted: dict[tuple[str, int], list[int]]
) -> dict[tuple[str, int], list[int]]:
    """Wait until the partitions have the replicas of a plan; return their last ones."""
    deadline_s = time.monotonic() + 120
    while (found := run_blocking(replicas_of(running, wanted))) != wanted and time.monotonic() < deadline_s:
        pass
    return found


def test_rebalance_plan_is_shown_saved_and_applied_after_a_confirmation(running: ClusterFixture) -> None:
    run_blocking(create_unbalanced_topic(running))
    browser = running.admin()
    page, deadline_s = browser.get("/cluster/rebalance"), time.monotonic() + TIMEOUT_S
    while "uneven" not in page.text and time.monotonic() < deadline_s:  # until this node knows the topic
        page = browser.get("/cluster/rebalance")
    assert (page.status, "Planned moves" in page.text) == (200, True), page.text
    plan = json.loads(browser.request("GET", "/cluster/rebalance/file").body)
    current = json.loads(browser.request("GET", "/cluster/rebalance/file?state=current").body)
    wanted = {(row["topic"], row["partition"]): row["replicas"] for row in plan["partitions"]}
    before = {(row["topic"], row["partition"]): row["replicas"] for row in current["partitions"]}
    assert wanted.keys() == before.keys()
    assert len(wanted) >= 2, "the broker with all replicas of a topic has too many"
    assert all(before[at] != wanted[at] for at in wanted)
    form = page.form("/cluster/rebalance")
    confirmation, done = browser.change(form)
    for (topic, number), replicas in wanted.items():
        old, new = (", ".join(map(str, ids)) for ids in (before[topic, number], replicas))
        assert f"{topic}-{number}: brokers {old} become {new}." in confirmation.text
    assert f"The reassignment of {len(wanted)} partitions has begun." in done.text
    assert wait_for_replicas(running, wanted) == wanted
    out_of_date = browser.submit(form)
    assert (out_of_date.status, "has other replicas now: open the plan again" in out_of_date.text) == (400, True)


def test_rebalance_needs_the_permissions_of_its_requests(running: ClusterFixture) -> None:
    browser = Browser(running.port)
    assert browser.log_in("watcher", "watcher-secret").status == 303
    assert browser.get("/cluster/rebalance").status == 403
    assert browser.request("GET", "/cluster/rebalance/file").status == 403


def test_rebalance_needs_the_permission_to_alter_the_cluster(running: ClusterFixture) -> None:
    run_blocking(add_reader(running))  # another test deletes the user
    browser = Browser(running.port)
    deadline_s = time.monotonic() + 60
    while browser.log_in("reader", "reader-secret").status != 303:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    before = run_blocking(replicas_of(running, [("open", 0)]))
    (old,) = before["open", 0]
    new = next(node.id for node in running.cluster.nodes if node.id != old)
    sent = {"csrf": "wrong", "moves": f"open:0={old}>{new}", "confirmed": "yes"}
    assert browser.send("/cluster/rebalance", sent).status == 403
    sent["csrf"] = browser.get("/topic/new").form("/topic/new").fields["csrf"]
    page = browser.send("/cluster/rebalance", sent)
    assert (page.status, "ALTER_PARTITION_REASSIGNMENTS needs ALTER permission" in page.text) == (403, True), page.text
    assert run_blocking(replicas_of(running, [("open", 0)])) == before
    unseen = browser.send("/cluster/rebalance", {**sent, "moves": f"closed:0={old}>{new}"})
    assert (unseen.status, "closed-0 has other replicas now" in unseen.text) == (400, True)


async def create_topic_with_another_leader(running: ClusterFixture) -> None:
    """Create a topic with two replicas, the first of which is not the leader."""
    client = running.client()
    first, second = (node.id for node in running.cluster.nodes[:2])
    topic = CreatableTopic("elected", -1, -1, [CreatableReplicaAssignment(0, [first, second])])
    response = await client.call(CreateTopicsRequest([topic], 10_000))
    assert [row.error_code for row in response.topics] == [0]
    rows = [alter_partition_reassignments.ReassignablePartition(0, [second, first])]
    wanted = alter_partition_reassignments.ReassignableTopic("elected", rows)
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        await client.call(alter_partition_reassignments.AlterPartitionReassignmentsRequest(10_000, topics=[wanted]), 0)
        found = (await client.metadata(["elected"])).topics[0].partitions[0]
        if found.replica_nodes == [second, first] and len(found.isr_nodes) == 2:
            break
    client.close()


def test_preferred_leader_is_elected_after_a_confirmation(running: ClusterFixture) -> None:
    run_blocking(create_topic_with_another_leader(running))
    browser = running.admin()
    form = browser.get("/cluster").form("/cluster/elect")
    deadline_s = time.monotonic() + 120
    while "elected-0: broker" not in (confirmation := browser.submit(form)).text:  # the node reads the metadata later
        assert time.monotonic() < deadline_s, confirmation.text
    done = browser.submit(confirmation.form("/cluster/elect"))
    assert "leaders of 1 partitions were elected" in done.text, done.text
    while (again := browser.submit(form)).status != 400:
        assert time.monotonic() < deadline_s, again.text
    assert "Each partition has its preferred leader" in again.text
    reader = Browser(running.port)
    assert reader.log_in("watcher", "watcher-secret").status == 303
    assert reader.submit(reader.get("/cluster").form("/cluster/elect"), confirmed="yes").status in (400, 403)
