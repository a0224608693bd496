"""The sketch against exact counts, against a plain Space Saving, and against Apache DataSketches."""

from collections import Counter

import datasketches
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import routing_oracle as oracle
from balajoin.core import codec
from balajoin.embedded.workload import zipf_keys
from balajoin.routing.rule import LEAST_SKEWED_ROWS
from balajoin.routing.sketch import Sketch

longs = st.integers(-(1 << 63), (1 << 63) - 1)
streams = st.lists(st.integers(0, 12) | longs, max_size=400)
sizes = st.integers(1, 20)


def counted(keys, counters):
    sketch = Sketch(counters)
    sketch.count(np.array(keys, np.int64))
    return sketch


def held(sketch):
    return {hash_: (count, error) for hash_, count, error in sketch.held.T.tolist()}


def assert_whole(sketch):
    """Asserts that counters are in order, each key has one, and their sum is the number of rows."""
    hashes, counts, _ = sketch.held
    assert (np.diff(counts) <= 0).all()
    assert len(set(hashes.tolist())) == len(hashes) <= sketch.counters
    assert counts.sum() == sketch.total


def assert_guarantees(sketch, truth):
    total = sum(truth.values())
    assert sketch.total == total
    found = held(sketch)
    for key, rows in truth.items():
        assert key in found or rows * sketch.counters <= total
    for key, (count, error) in found.items():
        assert count - error <= truth[key] <= count
        assert (count - truth[key]) * sketch.counters <= total
        assert sketch.surely_each(np.array([key], np.int64)).tolist() == [count - error]


@given(streams, sizes)
def test_guarantees(keys, counters):
    sketch = counted(keys, counters)
    assert_whole(sketch)
    assert_guarantees(sketch, Counter(keys))


@pytest.mark.parametrize("exponent", [0, 0.8, 1.25, 2])
@pytest.mark.parametrize("counters", [1, 2, 100, 1024])
def test_guarantees_on_long_streams(exponent, counters):
    keys = zipf_keys(50_000, 5_000, exponent, seed=1)
    sketch = counted(keys, counters)
    assert_whole(sketch)
    assert_guarantees(sketch, Counter(keys.tolist()))


@given(streams)
def test_counts_are_exact_where_every_key_has_a_counter(keys):
    assert held(counted(keys, max(len(set(keys)), 1))) == {key: (rows, 0) for key, rows in Counter(keys).items()}


@given(streams, streams, sizes)
def test_state_goes_on_where_it_stopped(before, after, counters):
    whole = counted(before + after, counters)
    state = codec.encode("sketch", 1, counted(before, counters).state())
    restored = Sketch.restore(counters, codec.decode("sketch", 1, state))
    restored.count(np.array(after, np.int64))
    assert restored.held.tolist() == whole.held.tolist()
    assert restored.total == whole.total


@given(streams, streams, sizes, sizes)
def test_state_of_another_size_keeps_the_most_frequent(before, after, counters, others):
    old = counted(before, counters)
    restored = Sketch.restore(others, old.state())
    assert restored.held.tolist() == old.held[:, :others].tolist()
    restored.count(np.array(after, np.int64))
    assert restored.total == len(before) + len(after)
    assert len(restored.held.T) <= others


@given(streams, streams, sizes, st.integers(0, 70))
def test_halving(before, after, counters, times):
    sketch = counted(before, counters)
    expected = {key: (count >> times, (count - error) >> times) for key, (count, error) in held(sketch).items()}
    sketch.halve(times)
    assert {key: (count, count - error) for key, (count, error) in held(sketch).items()} == {
        key: (count, surely) for key, (count, surely) in expected.items() if count
    }
    assert sketch.total == len(before) >> times
    sketch.count(np.array(after, np.int64))
    hashes, counts, _ = sketch.held
    assert (np.diff(counts) <= 0).all()
    assert counts.sum() <= sketch.total
    assert len(set(hashes.tolist())) == len(hashes)


@given(streams, sizes)
def test_halving_many_times_is_halving_often(keys, counters):
    at_once, often = counted(keys, counters), counted(keys, counters)
    at_once.halve(3)
    for _ in range(3):
        often.halve(1)
    assert at_once.held.tolist() == often.held.tolist()


@given(st.lists(streams, max_size=6), st.integers(1, 8))
def test_rare_keys_of_a_batch_may_be_left_out(batches, counters):
    sketch = Sketch(counters)
    for batch in batches:
        sketch.count_frequent(np.array(batch, np.int64))
    truth = Counter(key for batch in batches for key in batch)
    assert_frequent(sketch, truth)


@pytest.mark.parametrize("exponent", [0, 0.8, 1.25, 2])
def test_rare_keys_of_long_batches_are_left_out(exponent):
    keys = zipf_keys(200_000, 50_000, exponent, seed=3)
    sketch, whole = Sketch(1024), counted(keys, 1024)
    for batch in np.split(keys, 10):
        sketch.count_frequent(batch)
    assert_frequent(sketch, Counter(keys.tolist()))
    assert sketch.all_skewed(0.01)[0].tolist() == whole.all_skewed(0.01)[0].tolist()
    assert len(sketch.held.T) <= len(whole.held.T)
    if exponent == 0:
        assert len(sketch.held.T) < 100


def assert_frequent(sketch, truth):
    """Asserts what `count_frequent` promises."""
    total = sum(truth.values())
    assert sketch.total == total
    found = held(sketch)
    for key, rows in truth.items():
        assert key in found or 2 * rows * sketch.counters <= 3 * total
    for key, (count, error) in found.items():
        assert count - error <= truth[key]
        assert 2 * (truth[key] - count) * sketch.counters <= total


@given(streams, streams, sizes)
def test_a_copy_stays_as_it_is(before, after, counters):
    sketch = counted(before, counters)
    copy, then = sketch.copy(), held(sketch)
    sketch.count(np.array(after, np.int64))
    assert held(copy) == then
    assert copy.surely_each(np.array([*then, 77], np.int64)).tolist() == [
        *(count - error for count, error in then.values()),
        then.get(77, (0, 0))[0] - then.get(77, (0, 0))[1],
    ]


@given(st.lists(st.integers(0, 5), max_size=400), st.floats(0.01, 1))
def test_a_row_is_judged_when_it_is_counted(keys, threshold):
    plain = oracle.SpaceSaving(6)
    expected = []
    for key in keys:
        plain.row(key)
        expected.append(plain.skewed(key, threshold, LEAST_SKEWED_ROWS))
    sketch = Sketch(6)
    assert sketch.judge(np.array(keys, np.int64), threshold).tolist() == expected
    skewed = {key for key in set(keys) if plain.skewed(key, threshold, LEAST_SKEWED_ROWS)}
    assert {key for key in set(keys) if sketch.skewed(key, threshold)} == skewed
    found = sketch.all_skewed(threshold).T.tolist()
    assert dict(found) == {key: plain.counts[key] for key in skewed}
    assert found == sorted(found, key=lambda pair: -pair[1])


def test_a_share_must_exceed_the_threshold():
    """Two keys come in turn. When judged, the second has exactly half the rows, and the first a little more."""
    skewed = Sketch(4).judge(np.tile([1, 2], 100), 0.5)
    assert not skewed[1::2].any()
    assert skewed[::2].tolist() == [rows >= LEAST_SKEWED_ROWS for rows in range(1, 101)]


@pytest.mark.parametrize("keys", [200, 1_000, 5_000, 100_000])
@pytest.mark.parametrize("seed", range(3))
def test_uniform_rows_raise_no_alarm(keys, seed):
    assert not Sketch(1024).judge(zipf_keys(200_000, keys, 0, seed), 0.01).any()


@pytest.mark.parametrize("exponent", [0.8, 1, 1.25, 1.5, 2])
def test_heavy_hitters_are_those_of_datasketches(exponent):
    """A key that one sketch is sure of is possible in the other. The bounds overlap, as both hold the true count."""
    keys = zipf_keys(100_000, 20_000, exponent, seed=2)
    theirs = datasketches.frequent_strings_sketch(11)
    for key in keys.tolist():
        theirs.update(str(key))
    ours = held(counted(keys, 1024))
    threshold = len(keys) // 200
    kinds = datasketches.frequent_items_error_type
    sure, possible = (
        {int(key): (lower, upper) for key, _, lower, upper in theirs.get_frequent_items(kind, threshold)}
        for kind in (kinds.NO_FALSE_POSITIVES, kinds.NO_FALSE_NEGATIVES)
    )
    assert sure.keys() <= {key for key, (count, _) in ours.items() if count > threshold}
    assert {key for key, (count, error) in ours.items() if count - error > threshold} <= possible.keys()
    assert sure
    for key, (lower, upper) in sure.items():
        count, error = ours[key]
        assert lower <= count
        assert count - error <= upper


@pytest.mark.parametrize("counters", [1, 2, 3, 8])
@pytest.mark.parametrize("held", [[[5, 6, 5], [3, 2, 1], [0, 0, 0]], [[5, 6, 7], [3, 1, 2], [0, 0, 0]]])
def test_a_damaged_state_is_refused_whatever_part_of_it_stays(held, counters):
    with pytest.raises(ValueError, match=r"two counters of one key|out of order"):
        Sketch.restore(counters, {"held": np.array(held), "total": 6})


def test_read_only_rows_are_taken():
    keys = np.arange(10)
    keys.flags.writeable = False
    sketch = counted(keys, 4)
    sketch.count(np.arange(20)[::2])
    assert sketch.total == 20


def test_wrong_input_is_refused():
    sketch = Sketch(2)
    with pytest.raises(TypeError, match="int64, not 1 dimensions of float64"):
        sketch.count(np.zeros(2))
    with pytest.raises(ValueError, match="at least one counter"):
        Sketch(0)
