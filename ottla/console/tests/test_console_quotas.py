"""Quotas of the user of a session: delays, and no missing records."""

from __future__ import annotations

import pytest

from ottla.broker.quotas.request_timer import RequestTimer
from ottla.broker.requests.peer import Peer
from ottla.client.cluster_client import ClusterClient
from ottla.console.in_process import CLIENT_ID
from ottla.console.tests.console_fixture import console
from ottla.runtime.blocking_env import BlockingEnv, run_blocking
from ottla.wire.messages import alter_client_quotas as acq

pytestmark = pytest.mark.xdist_group(__name__)


async def set_quota(bootstrap_servers: str, key: str, value: float) -> None:
    client = ClusterClient(BlockingEnv(), bootstrap_servers)
    entry = acq.AlterClientQuotasRequestEntryData(
        [acq.AlterClientQuotasRequestEntityData("client-id", CLIENT_ID)], [acq.OpData(key, value, False)]
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
