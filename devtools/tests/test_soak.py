"""Evaluation of campaigns with expected findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.soak import CAMPAIGNS, Campaign, CampaignOutcome, evaluate_outcome, read_results

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


def test_read_results_keeps_the_row_of_each_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {each.name: f"| {each.name} | subject | run | none | 1 min | 0 |" for each in CAMPAIGNS}
    page = tmp_path / "campaigns.md"
    page.write_text("# Campaigns\n\n" + "\n".join(rows.values()) + "\n")
    monkeypatch.setattr("devtools.soak.PAGE", page)
    assert dict(read_results()) == rows
