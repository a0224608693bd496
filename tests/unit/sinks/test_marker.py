"""Markers without a broker."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.config.models import JoinSettings, Skew
from balajoin.errors import StateError
from balajoin.sinks import marker
from balajoin.sinks.marker import Marker, deciding

TOPICS = {"dead_letter_topic": "d", "late_topic": "l", "control_topic": "c", "replica_topic": "r"}
numbers = st.integers(0, 2**63 - 1)
markers = st.builds(
    Marker, st.text(), numbers, numbers, numbers, numbers, settings=st.dictionaries(st.text(), st.text(), max_size=3)
)
WRONG_TYPE = Marker("q", 0, 0, 0).to_json().replace(b'"batch":0', b'"batch":"0"')


@given(markers)
def test_markers_survive_being_written(marker: Marker) -> None:
    assert Marker.from_json(marker.to_json()) == marker


@given(
    st.one_of(
        st.none(),
        st.binary(),
        st.sampled_from([b"1", b"[]", b"{}", b'{"version":1}', b'{"version":1,"x":1}', WRONG_TYPE]),
    )
)
def test_what_is_no_marker_is_told_as_such(value: bytes | None) -> None:
    with pytest.raises(StateError, match="damaged"):
        Marker.from_json(value)


def test_a_marker_of_another_format_is_not_guessed_at() -> None:
    with pytest.raises(StateError, match="markers of format 2: run the balajoin that wrote them"):
        Marker.from_json(json.dumps({"version": 2, "anything": "else"}).encode())


@given(batch=st.integers(0, 9), planned=st.integers(0, 2), last=st.integers(0, 9), last_planned=st.integers(0, 2))
def test_a_batch_is_new_repeated_or_refused(batch: int, planned: int, last: int, last_planned: int) -> None:
    written, now = Marker("q", 0, last, last_planned), Marker("q", 0, batch, planned)
    if batch > last:
        assert not written.is_repeated_by(now)
    elif (batch, planned) == (last, last_planned):
        assert written.is_repeated_by(now)
    else:
        with pytest.raises(StateError, match="older than the results"):
            written.is_repeated_by(now)


def settings(**changed: object) -> JoinSettings:
    return JoinSettings(**{"before": "5 min", "after": "0 s", **TOPICS, **changed})


@pytest.mark.parametrize(
    "changed", [{"policy": "hash"}, {"before": "6 min"}, {"lateness": "1 s"}, {"skew": {"balance": 0.1}}, {"nodes": 8}]
)
def test_settings_that_move_results_are_named(changed: dict[str, object]) -> None:
    written = Marker("q", 0, 7, 0, settings=deciding(settings()))
    written.require_settings(deciding(settings()))
    with pytest.raises(StateError, match=rf"batch 7 was cut short when join\.{next(iter(changed))}"):
        written.require_settings(deciding(settings(**changed)))


def test_a_batch_that_another_version_has_begun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Marker("q", 0, 7, 0, settings=deciding(settings()))
    monkeypatch.setattr(marker, "ROUTING_VERSION", 0)
    with pytest.raises(StateError, match=r"another version of balajoin.* Start once with that version, or set a new"):
        written.is_repeated_by(Marker("q", 0, 7, 0, settings=deciding(settings())))


def test_settings_that_move_no_result_may_change() -> None:
    renamed = {name: f"other-{topic}" for name, topic in TOPICS.items()}
    assert deciding(settings(**renamed, max_rows_per_batch=10)) == deciding(settings())


def test_a_marker_stays_small_however_many_keys_are_named() -> None:
    keys = [deciding(settings(skew=Skew(keys=[f"{prefix}{n}" for n in range(9999)])))["skew.keys"] for prefix in "ab"]
    assert keys[0] != keys[1]
    assert max(map(len, keys)) < 64
