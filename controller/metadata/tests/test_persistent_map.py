"""Persistent maps that share unchanged parts."""

from __future__ import annotations

import random

from immutables import Map

from ottla.controller.metadata.persistent_map import PersistentIntMap, to_hash_trie


def test_persistent_int_map_is_an_ordered_mapping() -> None:
    numbers = PersistentIntMap((n, f"v{n}") for n in range(200))
    assert list(numbers) == list(range(200))
    assert len(numbers) == 200
    assert numbers[63] == "v63"
    assert numbers[64] == "v64"
    assert 199 in numbers
    assert 200 not in numbers
    assert "x" not in numbers
    assert numbers.get(1000) is None
    assert list(numbers.items())[64:66] == [(64, "v64"), (65, "v65")]
    assert numbers == {n: f"v{n}" for n in range(200)}
    assert repr(PersistentIntMap([(1, 2)])) == "Numbered({1: 2})"


def test_persistent_int_map_duplicate_key_counts_once() -> None:
    assert len(PersistentIntMap([(1, "a"), (1, "b")])) == 1


def test_persistent_int_map_change_copies_one_shard() -> None:
    old = PersistentIntMap((n, n) for n in range(5000))
    seen = dict(old)
    draft = old.builder()
    draft[4999] = -1
    middle = draft.build()
    draft[4999] = -2
    draft[5000] = -3
    new = draft.build()
    assert (old[4999], middle[4999], new[4999]) == (4999, -1, -2)
    assert (len(old), len(middle), len(new)) == (5000, 5000, 5001)
    assert dict(old) == seen
    shared = [at for at, shard in old._shards.items() if new._shards[at] is shard]
    assert len(shared) == len(old._shards) - 1, "only the last shard is copied"


def test_persistent_int_map_random_changes_equal_dict() -> None:
    rng = random.Random(7)
    numbers: PersistentIntMap[int] = PersistentIntMap()
    plain: dict[int, int] = {}
    for _ in range(300):
        draft = numbers.builder()
        for _ in range(rng.randrange(4)):
            at, value = rng.randrange(400), rng.random()
            before = dict(numbers)
            draft[at] = plain[at] = int(value * 1000)
            assert draft.get(at) == plain[at]
            assert numbers == before
        numbers = draft.build()
        assert numbers == plain
        assert len(numbers) == len(plain)
    assert numbers.builder().get(9999) is None


def test_to_hash_trie_returns_existing_trie() -> None:
    trie = Map({1: 2})
    assert to_hash_trie(trie) is trie
    assert to_hash_trie({1: 2}) == trie
