"""Error codes of responses that the request metrics count."""

from __future__ import annotations

from collections import Counter

from ottla.broker.observability.request_metrics import error_codes
from ottla.wire.codec.compiler import response_array
from ottla.wire.codec.response_array import PENDING_ROWS
from ottla.wire.messages.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult


def test_error_codes_of_pending_rows_are_counted_and_those_of_encoded_rows_are_not() -> None:
    rows = response_array(ElectLeadersResponse, 2)
    response = ElectLeadersResponse(error_code=41, replica_election_results=rows)
    rows.append(ReplicaElectionResult("first", [PartitionResult(0, 84)]))
    assert Counter(error_codes(response)) == {41: 1, 84: 1}
    for number in range(PENDING_ROWS):
        rows.append(ReplicaElectionResult(f"t{number}", []))
    assert Counter(error_codes(response)) == {41: 1}
