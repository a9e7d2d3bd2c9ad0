"""Share sessions: epochs, connections and notifications (C-215 to C-217)."""

from __future__ import annotations

import pytest

from ottla.broker.requests.peer import Peer
from ottla.broker.share_partitions.share_sessions import FINAL_EPOCH, ShareSessionCache, TopicIdPartition
from ottla.wire.errors import ErrorCode, ProtocolError

P, Q = TopicIdPartition(bytes(16), 0), TopicIdPartition(bytes(16), 1)


class ShareSessionFixture:
    def __init__(self, most: int = 9) -> None:
        self.received: list[tuple[str, ...]] = []
        self.sessions = ShareSessionCache(
            most, lambda group, member, places: self.received.append((group, member, str(len(places))))
        )
        self.sessions.group_closed_listeners.append(lambda group: self.received.append((group,)))

    def open(self, member: str, group: str = "g") -> Peer:
        peer = Peer("h", ("h", 1))
        self.sessions.open(peer, group, member, [P])
        return peer

    def code(self, member: str, epoch: int, group: str = "g") -> ErrorCode | None:
        try:
            self.sessions.continue_session(group, member, epoch)
        except ProtocolError as error:
            return error.code
        return None


def test_session_epoch_increments_and_wraps_to_one() -> None:
    fixture = ShareSessionFixture()
    fixture.open("a")
    assert [fixture.code("a", epoch) for epoch in (2, 1, 1, 2)] == [
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        None,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        None,
    ]
    session = fixture.sessions.continue_session("g", "a", 3)
    session.epoch = 2**31 - 1
    assert fixture.code("a", 2**31 - 1) is None
    assert session.epoch == 1
    assert fixture.code("a", FINAL_EPOCH) is None
    assert session.epoch == 1, "who closes may do so at any time"
    assert fixture.code("b", 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert fixture.code("a", 1, "other") is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_disconnect_releases_records_of_member_and_last_closes_group() -> None:
    fixture = ShareSessionFixture()
    first, second = fixture.open("a"), fixture.open("b")
    first.mark_disconnected()
    assert fixture.received == [("g", "a", "1")]
    second.mark_disconnected()
    assert fixture.received[1:] == [("g", "b", "1"), ("g",)]
    assert len(fixture.sessions) == 0


def test_session_on_new_connection_survives_disconnect_of_old() -> None:
    fixture = ShareSessionFixture()
    old = fixture.open("a")
    fixture.open("a")
    old.mark_disconnected()
    assert fixture.received == []
    assert fixture.code("a", 1) is None


def test_session_close_releases_records_once() -> None:
    fixture = ShareSessionFixture()
    peer = fixture.open("a")
    fixture.sessions.close("g", "a")
    peer.mark_disconnected()
    assert fixture.received == [("g", "a", "1"), ("g",)]


def test_session_limit_refuses_new_members_and_allows_reopening() -> None:
    fixture = ShareSessionFixture(most=2)
    fixture.open("a")
    fixture.open("b")
    with pytest.raises(ProtocolError) as caught:
        fixture.open("c")
    assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    fixture.open("b")


def test_total_cached_share_partitions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may name any partitions, also nonexistent ones, again and again."""
    monkeypatch.setattr("ottla.broker.share_partitions.share_sessions.MAX_CACHED_SHARE_PARTITIONS", 3)
    fixture = ShareSessionFixture()
    fixture.open("a")
    session = fixture.sessions.continue_session("g", "a", 1)
    more = [TopicIdPartition(bytes(16), number) for number in range(4)]
    for places in (more, more[1:]):
        with pytest.raises(ProtocolError) as caught:
            fixture.sessions.update(session, places, [])
        assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        fixture.sessions.update(session, more[1:2], more[1:2])
    fixture.sessions.update(session, more[:3], [])
    with pytest.raises(ProtocolError):
        fixture.open("b")
    with pytest.raises(ProtocolError):
        fixture.sessions.open(Peer("h", ("h", 1)), "g", "a", more)
    assert fixture.received == [("g", "a", "3"), ("g",)], "what it held goes with the session it had"
    fixture.open("b")


def test_session_partitions_are_limited_and_replaceable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.share_partitions.share_sessions.MAX_SHARE_SESSION_PARTITIONS", 2)
    fixture = ShareSessionFixture()
    fixture.open("a")
    session = fixture.sessions.continue_session("g", "a", 1)
    more = [TopicIdPartition(bytes(16), number) for number in range(4)]
    fixture.sessions.update(session, more[1:2], [])
    fixture.sessions.update(session, more[2:3], more[:1])
    assert list(session.partitions) == more[1:3]
    for places, forgotten in ((more[3:], []), (more[:3], more[:2]), ([], more[:3])):
        with pytest.raises(ProtocolError) as caught:
            fixture.sessions.update(session, places, forgotten)
        assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert list(session.partitions) == more[1:3]
    with pytest.raises(ProtocolError):
        fixture.sessions.open(Peer("h", ("h", 1)), "g", "b", more[:3])


def test_must_include_new_partitions_records_and_errors() -> None:
    fixture = ShareSessionFixture()
    fixture.open("a")
    session = fixture.sessions.continue_session("g", "a", 1)
    assert not session.must_include(P, brings=False, failed=False), "the first answer named it"
    session.update([Q], [])
    assert session.must_include(Q, brings=False, failed=False)
    assert not session.must_include(Q, brings=False, failed=False)
    assert session.must_include(P, brings=True, failed=False)
    assert list(session.partitions) == [Q, P], "what brought records is read last next time"
    assert session.must_include(Q, brings=False, failed=True)
    assert session.must_include(Q, brings=False, failed=False), "that it is over is news too"
    session.update([], [Q])
    assert list(session.partitions) == [P]
