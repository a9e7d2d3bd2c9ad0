"""kraft.version and voters records of the log: the last ones apply, and truncation restores earlier ones."""

from __future__ import annotations

import pytest

from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.controller.raft.state_machine.events import ReplicaKey
from ottla.controller.raft.store.quorum_records import BOOTSTRAP_OFFSET, QuorumRecords
from ottla.wire.messages.control_records import Endpoint, KRaftVersionRecord, VotersRecord, VotersRecordVoter

HERE = ListenerEndpoint("CONTROLLER", "host1", 9093)


def voters(*ids: int, port: int = 9093) -> VotersRecord:
    return VotersRecord(
        0, [VotersRecordVoter(i, bytes([i] * 16), [Endpoint("CONTROLLER", f"host{i}", port)]) for i in ids]
    )


def ids(records: QuorumRecords) -> list[int]:
    assert records.voters is not None
    return [v.voter_id for v in records.voters.voters]


@pytest.mark.behaviour("R-201")
@pytest.mark.behaviour("R-224")
def test_quorum_records_last_record_applies_and_truncation_restores_previous() -> None:
    records = QuorumRecords(1, voters(1))
    records.replay(5, voters(1, 2))
    records.replay(9, voters(1, 2, 3))
    assert ids(records) == [1, 2, 3]
    assert [v.id for v in records.voter_history([]).current] == [1, 2, 3]
    records.truncate(9)
    assert ids(records) == [1, 2]
    records.truncate(0)
    assert ids(records) == [1], "initial voters are kept"


@pytest.mark.behaviour("R-231")
def test_quorum_records_as_of_offset_returns_records_below_it() -> None:
    records = QuorumRecords(0, None)
    records.replay(4, KRaftVersionRecord(0, 1))
    records.replay(5, voters(1, 2))
    assert [(level, v is not None) for level, v in map(records.as_of, (4, 5, 6))] == [(0, False), (1, False), (1, True)]


@pytest.mark.behaviour("R-237")
def test_voter_history_uses_static_voters_until_a_record_exists() -> None:
    records = QuorumRecords(0, None)
    fixed = [ReplicaKey(1), ReplicaKey(2)]
    assert records.voter_history(fixed).current == tuple(fixed)
    records.replay(3, voters(7))
    history = records.voter_history(fixed)
    assert [v.id for v in history.current] == [7]
    history.truncate(0)
    assert history.current == tuple(fixed)


@pytest.mark.behaviour("R-243")
@pytest.mark.parametrize(
    ("level", "record", "offset", "endpoints", "expected"),
    [
        (1, voters(1, 2), BOOTSTRAP_OFFSET, (HERE,), voters(1, 2)),
        (1, voters(1, 2), 7, (HERE,), None),
        (1, voters(1, 2, port=1), 7, (HERE,), "moved"),
        (1, voters(1, 2, port=1), 7, (), None),
        (1, voters(2, 3), 7, (HERE,), None),
        (0, voters(1, 2), BOOTSTRAP_OFFSET, (HERE,), None),
        (0, None, BOOTSTRAP_OFFSET, (HERE,), None),
    ],
)
def test_records_for_new_leader_contain_bootstrap_voters_and_current_endpoint(
    level: int, record: VotersRecord | None, offset: int, endpoints: tuple[ListenerEndpoint, ...], expected: object
) -> None:
    records = QuorumRecords(level, record, offset)
    found = records.records_for_new_leader(ReplicaKey(1, bytes([1] * 16)), endpoints)
    if expected is None:
        assert found == ()
        return
    version, new = found
    assert version == KRaftVersionRecord(0, 1)
    assert isinstance(new, VotersRecord)
    ports = [(v.voter_id, v.endpoints[0].port) for v in new.voters]
    assert ports == ([(1, 9093), (2, 1)] if expected == "moved" else [(1, 9093), (2, 9093)])
