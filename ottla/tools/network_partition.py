"""Addresses that nodes must not reach while the network between groups of them is partitioned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def blocked_addresses(
    addresses: Mapping[int, Sequence[str]], groups: Sequence[Collection[int]]
) -> dict[int, list[str]]:
    """Return for each node the addresses of the nodes in other groups; none for a node in no group.

    Args:
        addresses: ``HOST:PORT`` of the listeners of each node, by node id.
        groups: node ids of each group.

    Raises:
        ValueError: a node is unknown, or in two groups.
    """
    named = [node_id for group in groups for node_id in group]
    if len({*named} & addresses.keys()) < len(named):
        raise ValueError(f"each node in one group expected, of {sorted(addresses)}: {[[*group] for group in groups]}")
    blocked = {}
    for node_id in addresses:
        own = next((group for group in groups if node_id in group), named)
        blocked[node_id] = [each for other in named if other not in own for each in addresses[other]]
    return blocked
