"""Expected matches: right in a steady stream, whatever window and batches are, and not forgotten in silence."""

import numpy as np
import pytest

from balajoin.routing.expected import ExpectedMatches

HOT = 5


def steady(expected, batches, batch_us, rows=1_000, share=0.2):
    """Each batch has `rows` build rows over `batch_us`, and `share` of them have one key."""
    random = np.random.default_rng(0)
    for batch in range(batches):
        hashes = np.where(random.random(rows) < share, HOT, random.integers(100, 300, rows))
        expected.note(hashes, batch * batch_us + np.arange(rows) * batch_us // rows)


@pytest.mark.parametrize("sources", [1, 4])
@pytest.mark.parametrize("window_us", [50, 1_000, 10_000, 37_000])
def test_a_steady_stream(window_us, sources):
    """200 rows of the key come in 1000 µs, at each source."""
    expected = ExpectedMatches(1024, window_us, sources)
    steady(expected, 200, 1_000)
    (found,) = expected.matches(np.array([HOT]))
    assert found == pytest.approx(0.2 * window_us * sources, rel=0.15)
    (rows,) = expected.batch_rows(np.array([HOT]))
    assert rows == pytest.approx(200, rel=0.1)


def test_rows_that_come_once_stay_known():
    expected = ExpectedMatches(1024, 1_000_000, 1)
    steady(expected, 1, 1_000)
    before = expected.matches(np.array([HOT]))[0]
    for _ in range(50):
        expected = ExpectedMatches(1024, 1_000_000, 1, expected.state())
        expected.note(np.empty(0, np.int64), np.empty(0, np.int64))
    assert expected.matches(np.array([HOT]))[0] == before > 150
    assert expected.batch_rows(np.array([HOT]))[0] == 0


def test_a_key_that_has_gone_is_forgotten():
    expected = ExpectedMatches(1024, 2_000, 1)
    steady(expected, 5, 1_000)
    before = expected.matches(np.array([HOT]))[0]
    expected.note(np.full(1_000, 9), 100_000 + np.arange(1_000))
    for batch in range(40):
        expected.note(np.full(1_000, 9), 101_000 + batch * 1_000 + np.arange(1_000))
    assert expected.matches(np.array([HOT]))[0] < before / 100


def test_an_unknown_key_has_no_matches():
    assert ExpectedMatches(16, 10, 3).matches(np.array([HOT])).tolist() == [0.0]
