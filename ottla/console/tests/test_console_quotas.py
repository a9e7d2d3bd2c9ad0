"""Quotas of the user of a session: delays, and no missing records."""

from __future__ import annotations

import re

import pytest

from compat_tests.support.raw_client import RawClient
from ottla.broker.quotas.request_timer import RequestTimer
from ottla.broker.requests.peer import Peer
from ottla.client.cluster_client import ClusterClient
from ottla.console.in_process import CLIENT_ID
from ottla.console.tests.console_fixture import console
from ottla.runtime.blocking_env import BlockingEnv, run_blocking
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import alter_client_quotas as acq
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

pytestmark = pytest.mark.xdist_group(__name__)


async def set_quota(bootstrap_servers: str, key: str, value: float, client_id: str = CLIENT_ID) -> None:
    client = ClusterClient(BlockingEnv(), bootstrap_servers)
    entry = acq.AlterClientQuotasRequestEntryData(
        [acq.AlterClientQuotasRequestEntityData("client-id", client_id)], [acq.OpData(key, value, False)]
    )
    response = await client.call(acq.AlterClientQuotasRequest([entry]))
    assert [row.error_code for row in response.entries] == [0]
    client.close()


def test_export_of_a_throttled_user_has_all_records() -> None:
    with console({"quota.window.num": "2", "quota.window.size.seconds": "1"}) as made:
        made.broker.client.create_topic("orders", 5)
        for number in range(5):
            made.broker.produce("orders", *[b"x" * 100_000] * 3, partition=number)
        run_blocking(set_quota(made.broker.bootstrap_servers, "consumer_byte_rate", 200_000.0))
        page = made.browser().request("GET", "/records/export?name=orders&from=start")
        assert (page.status, len(page.body.splitlines())) == (200, 15), page.body[:200]
        assert made.browser().get("/records?name=orders&from=start").status == 200


def test_time_of_requests_counts_for_the_request_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []
    stop = RequestTimer.stop

    def count(self: RequestTimer, peer: Peer) -> None:
        timed.append(self.client_id)
        stop(self, peer)

    monkeypatch.setattr(RequestTimer, "stop", count)
    with console() as made:
        made.broker.client.create_topic("orders", 5)
        assert made.browser().get("/topic?name=orders").status == 200
        assert timed == [], "no timer without a quota"
        run_blocking(set_quota(made.broker.bootstrap_servers, "request_percentage", 1000))
        assert made.browser().get("/topic?name=orders").status == 200
        assert CLIENT_ID in timed


def test_connections_show_the_quotas_of_a_client_and_its_last_error() -> None:
    with console() as made:
        made.broker.client.create_topic("orders", 1)
        for key, value in (("producer_byte_rate", 2048.0), ("request_percentage", 150.0)):
            run_blocking(set_quota(made.broker.bootstrap_servers, key, value, "till"))
        raw = RawClient(made.broker.port)
        raw.client_id = "till"
        topic = FetchTopic("orders", partitions=[FetchPartition(0, fetch_offset=7, partition_max_bytes=100)])
        response = raw.call(ApiKey.FETCH, 12, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]))
        assert response.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        text = made.browser().get("/connections?q=till").text
        assert "produce 2.0 KiB/s (now 0 B/s) request time 150 % of a thread (now " in text
        assert re.search(r"Fetch: OFFSET_OUT_OF_RANGE, \d+ s ago", text), text
        assert "Fetch: OFFSET_OUT_OF_RANGE" in made.browser().get("/connections?q=out_of_range").text
        raw.sock.close()
