"""Cycles among operations of a history, by Tarjan's algorithm for strongly connected components.

An edge leads from an operation to one that read its writes or wrote after it. Further edges are the order of each
client's operations (``-process``) and that of all operations in time (``-realtime``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.checkers.history import Operation, OperationOutcome

Edges = Mapping[int, Mapping[int, None]]
"""Numbers of the operations that follow each operation."""


def find_cycles(ops: list[Operation], edges: Edges) -> Iterator[tuple[str, list[int]]]:
    """Yield each set of operations on cycles once, as suffix and sorted operation numbers.

    A set that contains one that was yielded before is left out.

    ``edges`` lead from operations to those that depend on them, by index in ``ops``. The suffix names the additional
    order that closes the cycle: empty, ``-process`` or ``-realtime``.
    """
    found: list[set[int]] = []
    for suffix, more in (("", {}), ("-process", process_order(ops)), ("-realtime", real_time_order(ops))):
        both = {x: {**edges.get(x, {}), **more.get(x, {})} for x in range(len(ops))}
        for group in strongly_connected_components(both):
            if not any(known <= set(group) for known in found):
                found.append(set(group))
                yield suffix, sorted(group)


def process_order(ops: list[Operation]) -> dict[int, dict[int, None]]:
    """Return edges from each operation to the next one of the same client."""
    out: dict[int, dict[int, None]] = {}
    before: dict[str, int] = {}
    for number in sorted(range(len(ops)), key=lambda x: ops[x].began):
        if ops[number].process in before:
            out[before[ops[number].process]] = {number: None}
        before[ops[number].process] = number
    return out


def real_time_order(ops: list[Operation]) -> dict[int, dict[int, None]]:
    """Return edges from each operation to those started after its end, without those that follow from others.

    An operation with unknown outcome may happen at any later time, and precedes none.
    """
    out: dict[int, dict[int, None]] = {}
    newest: dict[int, None] = {}
    events = [(op.began, 0, number) for number, op in enumerate(ops)]
    events += [(op.ended, 1, number) for number, op in enumerate(ops) if op.outcome is not OperationOutcome.INFO]
    for _, is_end, number in sorted(events):
        if is_end:
            newest = {x: None for x in newest if ops[x].ended >= ops[number].began}
            newest[number] = None
        else:
            for before in newest:
                out.setdefault(before, {})[number] = None
    return out


def strongly_connected_components(edges: Edges) -> list[list[int]]:
    """Return the strongly connected components with more than one operation, as operation numbers."""
    out: list[list[int]] = []
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: dict[int, None] = {}
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack[root] = None
        while work:
            node, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack[other] = None
                    work.append((other, iter(edges.get(other, {}))))
                    break
                if other in stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    out.append(_pop_through(stack, node))
    return [x for x in out if len(x) > 1]


def _pop_through(stack: dict[int, None], node: int) -> list[int]:
    """Remove the topmost entries of the stack down to ``node`` and return them."""
    group = []
    while True:
        top = next(reversed(stack))
        del stack[top]
        group.append(top)
        if top == node:
            return group
