from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.compute.index import build, matches
from balajoin.core.blocks import ROWS, longs
from balajoin.core.spec import Window
from oracle import Row, interval_join
from strategies import KEYS, row_lists, table

few_times = st.integers(-6, 6)
chunks = st.sampled_from([1, 2, 3, 5, 1 << 16])


def joined(probe: list[Row], stored: list[Row], window: Window, chunk: int = 1 << 16, hashes: int = 1 << 32) -> Counter:
    """Pairs of `probe` and `stored`, with the count of each."""
    rows = table(stored, hashes)
    index = build(longs(rows, "hash"), longs(rows, "time"))
    found: Counter = Counter()
    for mine, theirs in matches(table(probe, hashes), index, rows, window, chunk):
        assert 0 < len(mine) == len(theirs) <= chunk
        found.update((probe[i], stored[j]) for i, j in zip(mine, theirs, strict=True))
    return found


@given(
    probe=row_lists(few_times),
    stored=row_lists(few_times, partition=1),
    before=st.integers(-3, 5),
    width=st.integers(0, 8),
    chunk=chunks,
    hashes=st.sampled_from([1, 2, 3, 1 << 32]),
)
def test_all_matches_are_found_once(probe, stored, before, width, chunk, hashes):
    after = width - before
    expected = interval_join(probe, stored, before, after)
    assert joined(probe, stored, Window(-before, after), chunk, hashes) == Counter(expected)


@pytest.mark.parametrize("chunk", [1, 2, 3])
@pytest.mark.parametrize("hashes", [1, 1 << 32])
def test_a_row_with_many_matches_is_resumed_where_it_stopped(chunk, hashes):
    stored = [Row(KEYS[i % 3], i // 6, b"", 1, i) for i in range(60)]
    probe = [Row(KEYS[i % 4], 5, b"", 0, i) for i in range(8)]
    found = joined(probe, stored, Window(-3, 4), chunk, hashes)
    assert found == Counter(interval_join(probe, stored, 3, 4))
    assert len(found) == 6 * 2 * 8


@pytest.mark.parametrize(("time", "found"), [(6, False), (7, True), (15, True), (16, False)])
def test_both_ends_of_the_interval_belong_to_it(time, found):
    probe, stored = Row(b"k", 10, b"", 0, 0), Row(b"k", time, b"", 1, 0)
    assert bool(joined([probe], [stored], Window(-3, 5))) is found


def test_an_interval_that_excludes_the_rows_own_time():
    stored = [Row(b"k", time, b"", 1, time) for time in range(20)]
    found = joined([Row(b"k", 10, b"", 0, 0)], stored, Window(3, 5))
    assert sorted(other.time_us for _, other in found) == [13, 14, 15]


def test_nothing_to_look_up_and_nothing_to_find():
    rows = [Row(b"k", 1, b"", 0, 0)]
    assert not joined([], rows, Window(0, 0))
    assert not joined(rows, [], Window(0, 0))
    assert not joined([], [], Window(0, 0))


@given(row_lists(few_times, min_size=1), st.data())
def test_slices_of_tables_match_as_their_copies(rows, data):
    start = data.draw(st.integers(0, len(rows) - 1))
    looking, stored = table(rows).slice(start), table(rows[:1] + rows).slice(1)
    index = build(longs(stored, "hash"), longs(stored, "time"))
    found = [
        (rows[start + i], rows[j])
        for mine, theirs in matches(looking, index, stored, Window(-2, 2))
        for i, j in zip(mine, theirs, strict=True)
    ]
    assert Counter(found) == Counter(interval_join(rows[start:], rows, 2, 2))


@given(st.integers(0, 300), st.integers(1, 40))
def test_an_index_holds_every_row_once_and_has_room(rows, keys):
    hashes = np.arange(rows, dtype=np.int64) % keys * 7919
    times = -np.arange(rows, dtype=np.int64)
    index = build(hashes, times)
    assert sorted(index.rows) == list(range(rows))
    assert sorted(index.hashes) == sorted(set(hashes))
    assert 2 * len(index.hashes) <= len(index.slots) <= 32 * max(1, len(index.hashes))
    for group, hash_ in enumerate(index.hashes):
        members = index.rows[index.starts[group] : index.starts[group + 1]]
        assert set(hashes[members]) == {hash_}
        assert list(times[members]) == sorted(times[members])


def test_an_index_of_unequal_columns_is_refused():
    with pytest.raises(ValueError, match="2 hashes but 1 times"):
        build(np.zeros(2, np.int64), np.zeros(1, np.int64))


def test_matching_against_an_empty_table_with_columns_without_chunks():
    index = build(np.empty(0, np.int64), np.empty(0, np.int64))
    assert list(matches(table([Row(b"k", 1, b"", 0, 0)]), index, ROWS.empty_table(), Window(0, 0))) == []
