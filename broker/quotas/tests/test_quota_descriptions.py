"""Quotas of a client for operators: limits and rates."""

from __future__ import annotations

from ottla.broker.quotas.tests.test_client_quotas import QuotaFixture


def test_describe_returns_the_limits_of_a_client_with_its_rates() -> None:
    made = QuotaFixture()
    assert made.quotas.describe("User:u", "c") == []
    made.set(100.0, client_id="c")
    made.set(50.0, "consumer_byte_rate", user="u")
    made.set(3.0, "controller_mutation_rate", client_id=None)
    assert made.produce(500) == 0
    produce, fetch, mutations = made.quotas.describe("User:u", "c")
    assert produce == ("producer_byte_rate", 100.0, 50.0)
    assert fetch == ("consumer_byte_rate", 50.0, 0.0)
    assert mutations == ("controller_mutation_rate", 3.0, None)
    assert [usage.key for usage in made.quotas.describe("User:v", "d")] == ["controller_mutation_rate"]
    assert made.produce(500) == 0, "describing a rate records nothing"
    assert made.produce(1) > 0
