"""Evaluation of campaigns with expected findings."""

from __future__ import annotations

import pytest

from devtools.soak import Campaign, CampaignOutcome, evaluate_outcome

PLAIN = Campaign("plain", "", "", 9)
FINDS = PLAIN._replace(expected_violations="torn-txn G1a")
TORN, READ = "seed 2 digest ab VIOLATION G1a,torn-txn", "seed 4 digest cd VIOLATION G1a"
LOST, ENDED = "seed 5 digest ef VIOLATION G1a,lost", "seed 6 ended the simulator: why"
MISSING = "no expected violation found"


@pytest.mark.parametrize(
    ("campaign", "found", "ran", "bad"),
    [
        (PLAIN, [], "seeds", []),
        (PLAIN, [TORN], "seeds", [TORN]),
        (FINDS, [TORN, READ], "seeds, expected: G1a in 2, torn-txn in 1", []),
        (FINDS, [], "seeds, expected: none", [MISSING]),
        (FINDS, [TORN, LOST], "seeds, expected: G1a in 1, torn-txn in 1", [LOST]),
        (FINDS, [ENDED], "seeds, expected: none", [ENDED, MISSING]),
    ],
)
def test_evaluate_outcome_counts_expected_findings_and_reports_others(
    campaign: Campaign, found: list[str], ran: str, bad: list[str]
) -> None:
    assert evaluate_outcome(campaign, CampaignOutcome("seeds", found, 1.0)) == CampaignOutcome(ran, bad, 1.0)
