"""Page of a plan that moves all replicas off a broker, and its execution after a confirmation.

The plan is that of ``ottla cluster drain``.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.console.page import InvalidInput, PageRequest, View, check
from ottla.console.pages.reassignments import (
    MAX_INT32,
    BrokerShare,
    Move,
    ReplicaState,
    confirm_and_move,
    count_shares,
    describe_ongoing,
    fetch_replicas,
    list_moves,
    parse_moves,
)
from ottla.console.paging import PAGE_ROWS, paginate
from ottla.console.rendering import url
from ottla.controller.partitions.reassignment_plan import PlannedPartition, drain
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.messages import describe_cluster


class DrainMove(NamedTuple):
    """Planned move of a partition, with its leader before and after; -1 for none."""

    move: Move
    leader_before: int
    leader_after: int


class DrainPlan(NamedTuple):
    """Moves that take all replicas off a broker, partitions without another broker to move to, and brokers' shares."""

    moves: list[DrainMove]
    stuck: list[PlannedPartition]
    shares: list[BrokerShare]
    new_leaders: int
    """Number of moves that change the leader."""


def plan_drain(state: ReplicaState, broker: int) -> Job[DrainPlan]:
    """Return the plan that moves all replicas off ``broker``, as a job.

    A leader on another broker keeps the partition; else the first of the new replicas leads it.
    """
    planned, stuck = yield from drain(state.racks, state.partitions, [broker])
    shares = yield from count_shares({broker: None, **state.racks}, state.partitions, planned)
    moves: list[DrainMove] = []
    new_leaders = 0
    for move in (yield from list_moves(state.partitions, planned)):
        before = state.leaders[move.topic, move.partition]
        after = before if before in move.after else move.after[0]
        moves.append(DrainMove(move, before, after))
        new_leaders += before != after
        yield None
    return DrainPlan(moves, stuck, shares, new_leaders)


async def _require_registered(page: PageRequest, wanted: int) -> None:
    """Check that broker ``wanted`` is registered, fenced or not.

    Raises:
        InvalidInput: it is not.
    """
    response = await page.client.call(describe_cluster.DescribeClusterRequest(include_fenced_brokers=True))
    check(response.error_code, response.error_message, "the cluster")
    known = sorted(broker.broker_id for broker in response.brokers)
    if wanted not in known:
        raise InvalidInput(f"broker {wanted} does not exist (brokers: {', '.join(map(str, known))})")


def _read_broker(page: PageRequest) -> int:
    page.text("broker")
    return page.number("broker", 0, 0, MAX_INT32)


async def get_drain(page: PageRequest) -> View:
    """Return the page of the plan: shares of the brokers, moves, partitions that cannot move, and moves in progress.

    Raises:
        InvalidInput: the broker of the query is malformed or does not exist.
        ProtocolError: the session may not describe the cluster.
    """
    broker, state = _read_broker(page), await fetch_replicas(page)
    plan = await run_in_background(page.node.local.env, plan_drain(state, broker))
    if not (broker in state.racks or plan.moves or plan.stuck):
        await _require_registered(page, broker)
    shown, paging = paginate(page, plan.moves)
    values = {
        "title": f"Drain broker {broker}",
        "broker": broker,
        "moves": shown,
        "text": "\n".join(each.move.text for each in shown),
        "new_leaders": plan.new_leaders,
        "paging": paging,
        "shares": plan.shares,
        "stuck": [f"{topic}-{number}" for topic, number in plan.stuck[:PAGE_ROWS]],
        "stuck_count": len(plan.stuck),
        **describe_ongoing(state.ongoing),
    }
    return View("drain.html", values)


async def apply_drain(page: PageRequest) -> View:
    """Begin the reassignments of the form, if it is confirmed; else return the confirmation page.

    Raises:
        InvalidInput: the form is malformed, a move takes no replica off the broker, or the plan is out of date.
        ProtocolError: a reassignment was refused; others may have begun.
    """
    broker, moves = _read_broker(page), parse_moves(page.text("moves"))
    for move in moves:
        if broker not in move.before or broker in move.after:
            raise InvalidInput(f"moves: a move off broker {broker} expected: {move.text[:100]}")
    return await confirm_and_move(page, moves, f"Drain broker {broker}", url("/cluster/drain", broker=broker))
