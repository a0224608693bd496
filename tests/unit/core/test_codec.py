import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from balajoin.core import codec
from balajoin.errors import StateError

contents = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)
SOME = codec.encode("node", 3, {"rows": [1, -(1 << 62)], "text": "naïve"})


@given(contents)
def test_what_was_written_is_read(content):
    assert codec.decode("node", 3, codec.encode("node", 3, content)) == content


def test_equal_content_is_equal_bytes():
    assert codec.encode("node", 1, {"a": 1, "b": [2]}) == codec.encode("node", 1, {"a": 1, "b": [2]})


@given(st.integers(0, 8 * len(SOME) - 1))
def test_a_flipped_bit_is_noticed(bit):
    damaged = bytearray(SOME)
    damaged[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(StateError, match="the node state is damaged: restore"):
        codec.decode("node", 3, bytes(damaged))


@pytest.mark.parametrize("length", range(len(SOME)))
def test_a_truncated_state_is_noticed(length):
    with pytest.raises(StateError, match="damaged"):
        codec.decode("node", 3, SOME[:length])


@given(st.binary(max_size=40))
@example(b"bala")
@example(b"bala\0\0\0\0")
def test_foreign_bytes_are_refused(data):
    with pytest.raises(StateError, match="damaged"):
        codec.decode("node", 3, data)


def test_state_of_another_kind_is_refused():
    with pytest.raises(StateError, match="found source state instead of node state"):
        codec.decode("node", 3, codec.encode("source", 3, {}))


@pytest.mark.parametrize("written", [2, 4])
def test_another_version_is_refused(written):
    with pytest.raises(StateError, match=f"has version {written}, this balajoin reads version 3"):
        codec.decode("node", 3, codec.encode("node", written, {}))


UPGRADES = {
    2: lambda content: {**content, "steps": [*content["steps"], 2]},
    3: lambda content: {**content, "steps": [*content["steps"], 3]},
}


@pytest.mark.parametrize(("written", "steps"), [(2, [2, 3]), (3, [3]), (4, [])])
def test_an_older_version_goes_through_all_steps_since(written, steps):
    old = codec.encode("node", written, {"steps": [], "rows": np.arange(2)})
    content = codec.decode("node", 4, old, UPGRADES)
    assert content["steps"] == steps
    assert content["rows"].tolist() == [0, 1]


@pytest.mark.parametrize("written", [1, 5])
def test_a_version_without_a_way_here_is_refused(written):
    with pytest.raises(StateError, match=f"has version {written}, this balajoin reads versions 2 to 4: run the"):
        codec.decode("node", 4, codec.encode("node", written, {"steps": []}), UPGRADES)


def test_a_gap_between_versions_is_not_jumped():
    with pytest.raises(StateError, match="has version 1, this balajoin reads versions 3 to 4"):
        codec.decode("node", 4, codec.encode("node", 1, {"steps": []}), {1: UPGRADES[2], 3: UPGRADES[3]})


ARRAYS = [
    np.array([], np.int64),
    np.array([1, -(1 << 63), (1 << 63) - 1], np.int64),
    np.arange(6, dtype=np.int32).reshape(2, 3),
    np.arange(6, dtype=np.int32).reshape(2, 3).T,
    np.array([True, False]),
    np.array([0.1, np.nan, np.inf]),
    np.frombuffer(b"\n\n\x00{}", np.uint8),
    np.array([258], ">i4"),
]


@given(contents, st.lists(st.sampled_from(ARRAYS) | st.binary(max_size=9), max_size=4))
def test_arrays_and_bytes_are_read_as_they_were_written(content, raw):
    written = {"json": content, "raw": {str(at): value for at, value in enumerate(raw)}, "more": {"\n": {"": b"\n"}}}
    read = codec.decode("node", 3, codec.encode("node", 3, written))
    assert read["json"] == content
    assert read["more"] == {"\n": {"": b"\n"}}
    for before, after in zip(raw, read["raw"].values(), strict=True):
        if isinstance(before, bytes):
            assert after == before
        else:
            assert (after.dtype, after.shape) == (before.dtype.newbyteorder("<"), before.shape)
            assert after.astype(before.dtype).tobytes() == before.tobytes()
            after[...] = 0


def test_an_array_costs_its_bytes():
    assert len(codec.encode("node", 1, {"rows": np.arange(1000)})) < 8000 + 120


def test_arrays_that_are_no_numbers_are_not_written():
    with pytest.raises(TypeError, match="plain numbers, not arrays of object"):
        codec.encode("node", 1, {"rows": np.array([{}])})


@given(st.integers(0))
def test_a_flipped_bit_in_an_array_is_noticed(bit):
    damaged = bytearray(codec.encode("node", 3, {"rows": np.arange(20)}))
    damaged[bit // 8 % len(damaged)] ^= 1 << (bit % 8)
    with pytest.raises(StateError, match="damaged"):
        codec.decode("node", 3, bytes(damaged))


def test_state_without_arrays_is_written_as_it_always_was():
    """Existing checkpoints hold this format."""
    assert codec.encode("node", 1, {"a": [1]})[8:] == b'{"kind":"node","version":1,"content":{"a":[1]}}'
