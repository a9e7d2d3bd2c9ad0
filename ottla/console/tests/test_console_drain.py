"""Drain of a broker on the console of a cluster of three nodes with a login."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import ottla
from compat_tests.support.processes import free_port
from ottla.console.tests.console_fixture import Browser, Page
from ottla.console.tests.test_console_cluster import (
    MECHANISM,
    ClusterFixture,
    add_reader,
    add_watcher,
    replicas_of,
    wait_for_replicas,
)
from ottla.runtime.blocking_env import run_blocking
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.xdist_group(__name__)


async def create_topics(running: ClusterFixture, assignments: dict[str, list[list[int]]]) -> None:
    """Create topics with the given replicas of their partitions."""
    topics = [
        CreatableTopic(name, -1, -1, [CreatableReplicaAssignment(number, ids) for number, ids in enumerate(rows)])
        for name, rows in assignments.items()
    ]
    client = running.client()
    response = await client.call(CreateTopicsRequest(topics, 10_000))
    assert {row.error_code for row in response.topics} == {0}
    client.close()


@pytest.fixture(scope="module")
def running() -> Iterator[ClusterFixture]:
    port = free_port()
    settings = {
        "ottla.console.listener": f"127.0.0.1:{port}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with ottla.Cluster(3, settings=settings, sasl=MECHANISM) as cluster:
        made = ClusterFixture(cluster, port, cluster.client_config("confluent")["sasl.password"])
        run_blocking(create_topics(made, {"open": [[cluster.nodes[0].id]]}))
        run_blocking(add_reader(made))
        run_blocking(add_watcher(made))
        yield made


def log_in(running: ClusterFixture, user: str) -> Browser:
    """Return a browser with a session of ``user``, as soon as the node knows its credential."""
    browser = Browser(running.port)
    deadline_s = time.monotonic() + 60
    while browser.log_in(user, f"{user}-secret").status != 303:
        assert time.monotonic() < deadline_s
    return browser


def wait_for_page(browser: Browser, path: str, text: str) -> Page:
    """Return the page, as soon as it contains ``text``: the node reads the metadata later than the controller."""
    deadline_s = time.monotonic() + 120
    while text not in (page := browser.get(path)).text:
        assert time.monotonic() < deadline_s, page.text
    return page


def test_drain_is_planned_and_applied_after_a_confirmation(running: ClusterFixture) -> None:
    first, second, third = (node.id for node in running.cluster.nodes)
    two = [[second, first], [first, second]]
    run_blocking(create_topics(running, {"one": [[second]] * 3, "two": two, "all": [[first, second, third]]}))
    browser = running.admin()
    cluster = browser.get("/cluster")
    assert all(f"Drain broker {node}…" in cluster.text for node in (first, second, third))
    assert cluster.form("/cluster/drain").method == "get"

    path = f"/cluster/drain?broker={second}"
    partitions = [("one", 0), ("one", 1), ("one", 2), ("two", 0), ("two", 1)]
    wait_for_page(browser, path, "all-0")
    page = wait_for_page(browser, path, "5 partitions, of which 4 get another leader.")
    assert "Partitions that cannot move: 1" in page.text
    assert f"two 1 {first}, {second} {first}, {third} {first} {first}" in page.text
    assert f"two 0 {second}, {first} {third}, {first} {second} {third}" in page.text
    form = page.form("/cluster/drain")
    before = run_blocking(replicas_of(running, partitions))
    confirmation = browser.submit(form)
    assert f"two-1: brokers {first}, {second} become {first}, {third}." in confirmation.text
    assert "all-0" not in confirmation.text
    assert run_blocking(replicas_of(running, partitions)) == before

    done = browser.submit(confirmation.form("/cluster/drain"))
    assert "The reassignment of 5 partitions has begun." in done.text, done.text
    assert f'href="{path}"' in done.html
    wanted = {("two", 0): [third, first], ("two", 1): [first, third]}
    assert wait_for_replicas(running, wanted) == wanted
    deadline_s = time.monotonic() + 120
    while second in {broker for ids in run_blocking(replicas_of(running, partitions)).values() for broker in ids}:
        assert time.monotonic() < deadline_s
    drained = wait_for_page(browser, path, "Nothing else to move.")
    assert "all-0" in drained.text, "it stays on the broker"
    after = run_blocking(replicas_of(running, partitions))
    assert {at: len(replicas) for at, replicas in after.items()} == {at: len(ids) for at, ids in before.items()}
    out_of_date = browser.submit(form)
    assert (out_of_date.status, "has other replicas now: open the plan again" in out_of_date.text) == (400, True)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "broker: a value is missing"),
        ("?broker=99", "broker 99 does not exist (brokers: "),
        ("?broker=-1", "broker: -1 is not between 0 and 2147483647"),
        ("?broker=<b>", "broker: <b> is not a number"),
    ],
)
def test_drain_of_a_broker_that_does_not_exist_is_refused(running: ClusterFixture, query: str, problem: str) -> None:
    page = running.admin().get(f"/cluster/drain{query.replace('<b>', '%3Cb%3E')}")
    assert (page.status, problem in page.text) == (400, True), page.text


def test_move_that_takes_no_replica_off_the_broker_is_refused(running: ClusterFixture) -> None:
    browser = running.admin()
    (old,) = run_blocking(replicas_of(running, [("open", 0)]))["open", 0]
    new, other = (node.id for node in running.cluster.nodes if node.id != old)
    sent = {"csrf": browser.get("/topic/new").form("/topic/new").fields["csrf"], "confirmed": "yes"}
    for broker, moves in ((new, f"open:0={old},{new}>{new}"), (other, f"open:0={old}>{new}")):
        page = browser.send("/cluster/drain", {**sent, "broker": str(broker), "moves": moves})
        problem = f"moves: a move off broker {broker} expected: {moves}"
        assert (page.status, problem in page.text) == (400, True), page.text
    assert run_blocking(replicas_of(running, [("open", 0)])) == {("open", 0): [old]}


def test_drain_plan_needs_the_permission_to_describe_the_cluster(running: ClusterFixture) -> None:
    assert log_in(running, "watcher").get(f"/cluster/drain?broker={running.cluster.nodes[0].id}").status == 403


def test_drain_needs_the_permission_to_alter_the_cluster(running: ClusterFixture) -> None:
    browser = log_in(running, "reader")
    (old,) = run_blocking(replicas_of(running, [("open", 0)]))["open", 0]
    new = next(node.id for node in running.cluster.nodes if node.id != old)
    sent = {"csrf": "wrong", "broker": str(old), "moves": f"open:0={old}>{new}", "confirmed": "yes"}
    assert browser.send("/cluster/drain", sent).status == 403
    sent["csrf"] = browser.get("/topic/new").form("/topic/new").fields["csrf"]
    page = browser.send("/cluster/drain", sent)
    assert (page.status, "ALTER_PARTITION_REASSIGNMENTS needs ALTER permission" in page.text) == (403, True), page.text
    assert run_blocking(replicas_of(running, [("open", 0)])) == {("open", 0): [old]}


def test_drain_in_progress_is_shown_and_not_planned_again(running: ClusterFixture) -> None:
    first, _, third = (node.id for node in running.cluster.nodes)
    run_blocking(create_topics(running, {"held": [[first]]}))
    browser = running.admin()
    path = f"/cluster/drain?broker={first}"
    wait_for_page(browser, path, "held")
    running.cluster.kill(third)
    sent = {"csrf": browser.get("/topic/new").form("/topic/new").fields["csrf"], "confirmed": "yes"}
    deadline_s = time.monotonic() + 120
    while "Moves in progress: 1" not in (page := browser.get(path)).text:
        assert time.monotonic() < deadline_s, page.text
        browser.send("/cluster/drain", {**sent, "broker": str(first), "moves": f"held:0={first}>{third}"})
    assert f"Adding Removing held 0 {third} {first}" in page.text
    assert "/topic?name=held" not in page.html, "it is not among the planned moves"
    running.cluster.restart(third)
    assert wait_for_replicas(running, {("held", 0): [third]}) == {("held", 0): [third]}
