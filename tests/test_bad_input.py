"""Whatever stands in a file, on a topic or in a checkpoint: it is used, or refused in words, and nothing worse.

`make fuzz` tries the same with many more examples.
"""

import ast
import json
import pickle
import struct
import tempfile
import tomllib
import tracemalloc
import zlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import balajoin
from balajoin import blocks, codec, durations
from balajoin.blocks import EARLIEST_US, LATEST_US, ROWS, decode, encode
from balajoin.compute.batch import Inputs
from balajoin.compute.guest import Guest
from balajoin.compute.join import Arrival, Node
from balajoin.compute.spec import JoinSpec
from balajoin.config import Config, lines_in, load
from balajoin.control.records import Grant, Part, Shipment, Signal, Stamp, read_part, shipment_records, signal_record
from balajoin.control.tail import _line, describe_part, describe_signal
from balajoin.errors import BlockError, ConfigError, StateError
from balajoin.hashing import home
from balajoin.routing import policies
from balajoin.routing.rule import PolicyName, SkewRule
from balajoin.routing.source import Source
from balajoin.toml_lines import locate
from oracle import Row
from strategies import SECOND, Memory, hash_of, table

PACKAGE = Path(balajoin.__file__).parent
NODES = 3
STAMP = Stamp("6f1e", 41)
NOW = Stamp("6f1e", 42)

longs = st.integers(-(1 << 63), (1 << 63) - 1)
odd_texts = st.text(st.characters(), max_size=8) | st.sampled_from(["\ud800", "\0", "\x1b[2J", "../..", "nan", "1e999"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | longs | st.floats() | odd_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_texts, inner, max_size=3),
    max_leaves=5,
)
arrays = st.sampled_from(
    [
        np.zeros(0, np.int64),
        np.full((3, 4), 1 << 62),
        np.full((3, 2), -1),
        np.full(NODES, -(1 << 63)),
        np.arange(6.0),
        np.array([True]),
        np.arange(12, dtype=np.int64).reshape(3, 4),
    ]
)


@st.composite
def changed(draw: st.DrawFn, value: Any, others: st.SearchStrategy[Any] = json_values) -> Any:
    """The same with one part, at any depth, exchanged or left out."""
    if isinstance(value, dict | list) and len(value) and draw(st.integers(0, 5)):
        parts = dict(value) if isinstance(value, dict) else list(value)
        at = draw(st.sampled_from(sorted(parts) if isinstance(parts, dict) else range(len(parts))))
        if draw(st.integers(0, 9)):
            parts[at] = draw(changed(parts[at], others))
        else:
            del parts[at]
        return parts
    return draw(others)


# --- files ------------------------------------------------------------------------------------------------------------

EXAMPLE = (Path(__file__).parents[1] / "examples" / "join.toml").read_text()
toml_scalars = (
    st.sampled_from(
        [
            "1e999",
            "nan",
            "-inf",
            "0x" + "f" * 5000,
            "9" * 400,
            "1979-05-27T07:32:00Z",
            "07:32:00",
            "true",
            '""',
            "[]",
            "{}",
            '"${X}"',
            '"${"',
            '"${file:/dev/zero}"',
            '"${file:\\u0000}"',
            '"5 min"',
            "[[1], {a = 1}]",
            "'''\n'''",
        ]
    )
    | st.integers().map(str)
    | st.text(max_size=6).map(lambda text: json.dumps(text, ensure_ascii=True))
)
settings_names = st.sampled_from(sorted(locate(EXAMPLE))) | st.sampled_from(
    ["kafka.options.a.b", "kafka.java", "join.skew.keys", "join.nodes", "spark", "topics.partitions", "run.trigger"]
)


def loaded(text: str | bytes) -> Config | ConfigError:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "join.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "replace"))
        try:
            return load(path, {"X": "x"})
        except ConfigError as error:
            assert error.problems
            for problem in error.problems:
                assert len(str(problem)) < 2000
                assert problem.message
            return error


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_file_is_read_or_refused(text):
    assert isinstance(loaded(text), ConfigError)


@given(st.data())
def test_a_changed_file_is_read_or_refused(data):
    start = data.draw(st.integers(0, len(EXAMPLE)))
    end = data.draw(st.integers(start, min(start + 40, len(EXAMPLE))))
    loaded(EXAMPLE[:start] + data.draw(st.text(max_size=10) | toml_scalars) + EXAMPLE[end:])


@given(st.dictionaries(settings_names, toml_scalars, max_size=4))
@example({"kafka.options.a.b": "0x" + "f" * 5000})
@example({"join.skew.keys": '["${file:/dev/zero}"]'})
def test_any_value_of_any_setting_is_taken_or_refused(values):
    table_of_all = tomllib.loads(EXAMPLE)
    lines = [f"{name} = {value}" for name, value in values.items()]
    for section, settings in table_of_all.items():
        if not isinstance(settings, dict):
            lines.append(f"{section} = {json.dumps(settings)}")
            continue
        for name, value in settings.items():
            if not isinstance(value, dict) and not any(f"{section}.{name}".startswith(given_) for given_ in values):
                lines.append(f"{section}.{name} = {json.dumps(value)}")
    loaded("\n".join(lines))


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "a = " + "9" * 10_000, "a" + ".a" * 5000 + " = 1", "[a" + ".a" * 5000 + "]", "a = " + "{a=" * 5000,
     "kafka.options = " + "[" * 40 + "]" * 40, '"' + "\\u0000" * 3 + '" = 1', "#" * (1 << 20) + "#"],
    ids=["brackets", "digits", "dots", "dotted table", "braces", "lists", "zeros", "length"],
)  # fmt: skip
def test_files_that_no_person_writes_are_refused(text):
    assert isinstance(loaded(text), ConfigError)


def test_files_that_never_end_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="/dev/zero: cannot be read: it is larger than 1 MiB"):
        load(Path("/dev/zero"), {})
    path = tmp_path / "join.toml"
    path.write_text('name = "${file:/dev/zero}"')
    with pytest.raises(ConfigError, match="the file /dev/zero cannot be read: it is larger than 1 MiB"):
        load(path, {})
    with pytest.raises(ConfigError, match="cannot be read"):
        lines_in(tmp_path)


toml_keys = st.text(max_size=4).map(json.dumps) | st.sampled_from(["a", "b-1", "'x.y'", "3", '"[="'])
toml_values = st.recursive(
    st.sampled_from(["1", "true", '"a#]"', "'b\"'", '"""\n]"#"""', "'''\n=[''''", "1979-05-27 07:32:00", "nan"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: "[ # ]\n" + ", # [\n".join(values) + "\n]")
        | st.dictionaries(toml_keys, inner, max_size=3).map(
            lambda table: "{ " + ", ".join(f"{key} = {value}" for key, value in table.items()) + " }"
        )
    ),
    max_leaves=6,
)


def paths(settings: dict[str, Any], above: str = "") -> list[str]:
    found = []
    for name, value in settings.items():
        found += [above + name, *(paths(value, f"{above}{name}.") if isinstance(value, dict) else ())]
    return found


@given(st.lists(st.tuples(st.lists(toml_keys, min_size=1, max_size=3).map(".".join), toml_values), max_size=6))
def test_every_setting_that_toml_knows_has_a_line(pairs):
    text = "\n".join(f"{key} = {value} # x" if n % 3 else f"{key} = {value}" for n, (key, value) in enumerate(pairs))
    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)
    lines = locate(text)
    assert set(paths(settings)) <= lines.keys()
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


@given(st.text() | st.integers() | st.floats() | st.none() | st.from_regex(r"\s*[+-]?\d+(\.\d+)?\s*[a-zµ]*\s*"))
@example("9" * 100_000 + " s")
@example("0." + "0" * 100_000 + "1 s")
@example(1 << 100_000)
@example(" " * 100_000 + "x")
def test_any_duration_is_milliseconds_or_refused(written):
    try:
        found = durations.parse_ms(written)
    except durations.DurationError as error:
        assert len(error.suggestion) < 200
        return
    assert durations.parse_ms(durations.format_ms(found)) == found


# --- topics -----------------------------------------------------------------------------------------------------------

HASHES = [hash_of(b"%d" % n) for n in range(20)]
ROWS_OF_0 = table(
    [row for row in (Row(b"%d" % n, n, b"v", 0, n) for n in range(20)) if home(hash_of(row.key), NODES) == 0]
)
A_SIGNAL = json.loads(signal_record(STAMP, 0, Signal(HASHES[0], 1, 5 * SECOND, key=b"k")).value)
(A_RECORD,) = shipment_records(STAMP, Shipment(0, 1, [ROWS_OF_0], [Grant(HASHES[0], 7)], [HASHES[0]]))
A_HEADER = json.loads(A_RECORD.headers[0][1])
EMPTY_ROW = {"section": "probe", "source": 0, "watermark": 0, "now_ms": 0, "note": None, "block": None}


def spec() -> JoinSpec:
    return JoinSpec(NODES, 10 * SECOND, 5 * SECOND, 0, 60_000, {"probe": 1, "build": 1}, {})


def sealed(content: bytes) -> bytes:
    """As an attacker would: with a checksum that is right."""
    return zlib.crc32(content).to_bytes(8, "little") + content


@st.composite
def hostile_blocks(draw: st.DrawFn) -> bytes:
    compression = draw(st.sampled_from([None, "lz4", "zstd"]))
    content = bytearray(
        encode(draw(st.sampled_from([ROWS_OF_0, ROWS_OF_0.slice(0, 1), ROWS.empty_table()])), compression)[8:]
    )
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content) - 1))
        width = draw(st.sampled_from([1, 1, 2, 4, 8]))
        value = draw(st.sampled_from([0, 1, -1, 1 << 62, -(1 << 63), 1 << 31]) | longs)
        new = struct.pack("<q", value)[:width]
        content[at : at + draw(st.sampled_from([width, width, 0]))] = new
    return sealed(bytes(content[: draw(st.just(len(content)) | st.integers(0, len(content)))]))


@given(hostile_blocks())
def test_a_hostile_block_is_rows_or_refused(block):
    try:
        rows = decode(block)
    except BlockError as error:
        assert len(str(error)) < 1000
        return
    assert rows.schema == ROWS
    assert rows.to_pylist() is not None
    assert not any(row[name] is None for row in rows.to_pylist() for name in ROWS.names if name != "value")


def stream(rows: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("batches", [1, 8])
def test_a_block_that_would_unpack_to_gigabytes_is_refused_before_it_does(compression, batches):
    size = 2 * blocks.MAX_BLOCK_BYTES // batches
    one = table([Row(b"k", 0, bytes(size), 0, 0)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for _ in range(batches):
            writer.write_table(one)
    bomb = sealed(sink.getvalue().to_pybytes())
    assert len(bomb) < 2 << 20
    del one
    before = pa.total_allocated_bytes()
    with pytest.raises(BlockError, match="would unpack to 6710"):
        decode(bomb)
    assert pa.total_allocated_bytes() == before


def test_what_is_written_can_always_be_read_whatever_its_size():
    large = table([Row(b"k", 0, bytes(2 * blocks.MAX_BLOCK_BYTES), 0, 0)])
    assert decode(encode(large, "lz4")).equals(large)
    just = table([Row(b"k", 0, bytes(blocks.MAX_BLOCK_BYTES - 4096), 0, 0)])
    packed = encode(just, "lz4")
    assert len(packed) < 1 << 20
    assert decode(packed).equals(just)
    (record,) = shipment_records(STAMP, Shipment(0, 1, [large]))
    assert decode(read_part(record.headers[0][1].decode(), record.value).block).equals(large)


def test_rows_that_lack_what_a_row_has_are_refused():
    for name in ROWS.names:
        nulls = ROWS_OF_0.set_column(
            ROWS.names.index(name), ROWS.field(name), pa.nulls(ROWS_OF_0.num_rows, ROWS.field(name).type)
        )
        if name == "value":
            assert decode(sealed(stream(nulls))).equals(nulls)
        else:
            with pytest.raises(BlockError, match="lack"):
                decode(sealed(stream(nulls)))


@given(
    st.sampled_from(["signal", "replica", "foreign"]),
    json_values.map(json.dumps)
    | changed(A_SIGNAL).map(json.dumps)
    | changed(A_HEADER).map(json.dumps)
    | odd_texts
    | st.none(),
    st.none() | st.binary(max_size=20) | hostile_blocks() | st.just(A_RECORD.value),
)
def test_any_record_is_taken_or_counted(section, note, block):
    inputs = Inputs.read(NOW, [SimpleNamespace(**{**EMPTY_ROW, "section": section, "note": note, "block": block})])
    assert len(inputs.signals) + len(inputs.parts) + inputs.foreign + inputs.stale == 1


@given(
    st.lists(changed(A_SIGNAL, longs | st.integers(-1, NODES) | st.booleans()).map(json.dumps), max_size=3),
    st.lists(
        st.tuples(
            changed(A_HEADER, longs | st.integers(-1, NODES) | st.booleans() | st.sampled_from(HASHES)).map(json.dumps),
            hostile_blocks() | st.just(A_RECORD.value) | st.just(b""),
        ),
        max_size=3,
    ),
)
def test_a_node_survives_whatever_passes_for_a_record(signals, parts):
    rows = [SimpleNamespace(**{**EMPTY_ROW, "section": "signal", "note": note}) for note in signals]
    rows += [SimpleNamespace(**{**EMPTY_ROW, "section": "replica", "note": n, "block": b}) for n, b in parts]
    inputs = Inputs.read(NOW, rows)
    probe = table([Row(b"%d" % n, n, b"v", 0, n) for n in range(20)])
    with tempfile.TemporaryDirectory() as folder:
        for number in (0, 1):
            durable = Memory()
            node = Node(spec(), None, durable, Path(folder), number)
            arrival = Arrival("probe", 0, 0, 1, [probe])
            list(node.process(NOW.batch, [arrival], inputs.signals, inputs.parts))
            again = Node(spec(), node.state(), durable, Path(folder), number)
            list(again.process(NOW.batch + 1, [arrival]))


def test_a_shipment_that_claims_a_billion_parts_costs_nothing():
    part = read_part(json.dumps({**A_HEADER, "parts": 10**9}), A_RECORD.value)
    guest = Guest(1, NODES)
    tracemalloc.start()
    try:
        assert guest.accept([part], NOW.batch) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert guest.foreign_parts == 1


@pytest.mark.parametrize(
    "change",
    [{"node": 2}, {"home": 1}, {"home": 7}, {"home": -1}, {"home": 2}, {"grants": [[h, 1, False] for h in HASHES]}],
    ids=str,
)
def test_a_shipment_that_its_home_could_not_have_sent_is_counted(change):
    part = read_part(json.dumps({**A_HEADER, **change}), A_RECORD.value)
    guest = Guest(1, NODES)
    assert guest.accept([part], NOW.batch) == []
    assert (guest.foreign_parts, guest.channels) == (1, {})


@pytest.mark.parametrize("time", [EARLIEST_US - 1, LATEST_US + 1, (1 << 63) - 1, -(1 << 63)])
def test_replicas_with_times_that_no_edge_lets_in_are_counted(time):
    key = next(b"%d" % n for n in range(20) if home(hash_of(b"%d" % n), NODES) == 0)
    (record,) = shipment_records(STAMP, Shipment(0, 1, [table([Row(key, time, b"v", 0, 0)])]))
    guest = Guest(1, NODES)
    assert guest.accept([read_part(record.headers[0][1].decode(), record.value)], NOW.batch) == []
    assert guest.foreign_parts == 1


@given(
    json_values.map(json.dumps) | changed(A_SIGNAL).map(json.dumps) | odd_texts,
    json_values.map(json.dumps) | changed(A_HEADER).map(json.dumps) | odd_texts,
    hostile_blocks() | st.just(A_RECORD.value),
    longs,
)
@example(json.dumps({**A_SIGNAL, "until": (1 << 63) - 1}), "{}", b"", 1 << 62)
@example(json.dumps({**A_SIGNAL, "key": "\x1b[2J\u202e"}), "{}", b"", -1)
def test_the_tail_has_a_line_for_whatever_is_there(value, header, block, timestamp):
    class Message(SimpleNamespace):
        topic = lambda self: self.name  # noqa: E731
        partition = offset = lambda self: 0
        timestamp = lambda self: (1, timestamp)  # noqa: E731
        value = lambda self: self.content  # noqa: E731
        headers = lambda self: [("balajoin", header.encode("utf-8", "surrogatepass"))]  # noqa: E731

    describe = {"control": describe_signal, "replicas": describe_part}
    for message in (
        Message(name="control", content=value.encode("utf-8", "surrogatepass")),
        Message(name="replicas", content=block),
    ):
        line = _line(message, describe)
        line.encode()
        assert line.isprintable()


# --- state ------------------------------------------------------------------------------------------------------------


def recoded(kind: str, data: bytes, change: Any) -> bytes:
    """State after `change`, with a checksum that is right."""
    content = codec.decode(kind, json.loads(data[8:].partition(b"\n")[0])["version"], data)
    try:
        return codec.encode(kind, json.loads(data[8:].partition(b"\n")[0])["version"], change(content))
    except (TypeError, ValueError, AttributeError):
        assume(False)
        raise


@given(st.data())
def test_state_with_a_hostile_head_is_refused_or_read(data):
    whole = codec.encode("node", 3, {"rows": np.arange(6), "more": {"b": b"xy"}, "n": [1]})
    text, _, raw = whole[8:].partition(b"\n")
    head = data.draw(
        changed(json.loads(text), json_values | st.sampled_from(["O", "<i8,<i8", "<M8[s]", "|V9", "<U9", "<c16"]))
    )
    body = json.dumps(head).encode() + b"\n" + data.draw(st.just(raw) | st.binary(max_size=60))
    try:
        content = codec.decode("node", 3, b"bala" + zlib.crc32(body).to_bytes(4, "big") + body)
    except StateError as refused:
        assert "\n" not in str(refused)[:200]
        return
    assert type(content) is dict


@pytest.mark.parametrize("shape", [[1 << 40, 1 << 40], [1 << 62], [-1], [10**30], [0, 1 << 62], [1.0], ["1"], 3])
@pytest.mark.parametrize("form", ["<i8", "bytes"])
def test_an_array_of_any_shape_costs_no_more_than_its_bytes(shape, form):
    head = {"kind": "node", "version": 1, "content": {"a": None}, "raw": [[["a"], form, shape]]}
    body = json.dumps(head).encode() + b"\n12345678"
    with pytest.raises(StateError, match="damaged"):
        codec.decode("node", 1, b"bala" + zlib.crc32(body).to_bytes(4, "big") + body)


def a_source(policy: PolicyName, state: bytes | None) -> Source:
    rule = SkewRule(counters=16, keys=(HASHES[0],) if policy == "bppr" else (), first_pass_rows=30)
    return Source.restore(0, NODES, SECOND, SECOND, partial(policies.make, policy, NODES, 0, rule), state)


def route(source: Source) -> None:
    rows = table([Row(b"%d" % (n % 7 if n % 3 else 0), n, b"v", 0, n) for n in range(60)])
    source.route(1000, {"probe": [rows], "build": [rows]})


@pytest.mark.parametrize("policy", get_args(PolicyName))
@given(data=st.data())
def test_a_router_takes_its_state_or_refuses_it(policy, data):
    first = a_source(policy, None)
    route(first)

    def change(content: dict[str, Any]) -> Any:
        inner = codec.decode("policy", 1, content["policy"])
        if data.draw(st.booleans()):
            return {**content, "policy": codec.encode("policy", 1, data.draw(changed(inner, json_values | arrays)))}
        return data.draw(changed(content, json_values | arrays))

    try:
        source = a_source(policy, recoded("source", first.state(), change))
    except StateError:
        return
    route(source)


@given(data=st.data())
def test_a_node_takes_its_state_or_refuses_it(data):
    from balajoin.codec import refusing_damage

    rows = table([Row(b"%d" % n, n, b"v", 0, n) for n in range(20)])
    arrival = Arrival("probe", 0, 0, 1, [rows])
    with tempfile.TemporaryDirectory() as folder:
        durable = Memory()
        node = Node(spec(), None, durable, Path(folder), 0)
        list(node.process(0, [arrival]))
        state = recoded("node", node.state(), lambda content: data.draw(changed(content, json_values | arrays)))
        if data.draw(st.booleans()):
            number = data.draw(st.sampled_from(sorted(durable)))
            durable[number] = data.draw(st.binary(max_size=40) | hostile_blocks().map(lambda b: bytes(8) + b))
        outside = Path(folder) / "node-0"
        outside.mkdir()
        (outside / "precious").touch()
        try:
            with refusing_damage("node"):
                restored = Node(spec(), state, durable, Path(folder) / "cache", 0)
        except StateError:
            return
        finally:
            assert (outside / "precious").exists()
        list(restored.process(1, [arrival], [Signal(HASHES[0], 1, 5)]))
        restored.state()


# --- nothing of it is ever run ----------------------------------------------------------------------------------------

_RUNS_CODE = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "yaml", "ctypes", "runpy", "code"}
_BUILT_IN = {"eval", "exec", "compile", "__import__"}


def test_the_package_has_nothing_that_could_run_what_it_reads():
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if path.name != "_die_with_parent.py":  # it calls prctl, and reads nothing
                assert not {module.partition(".")[0] for module in modules} & _RUNS_CODE, where
            if isinstance(node, ast.Call):
                assert not (isinstance(node.func, ast.Name) and node.func.id in _BUILT_IN), where
                assert not any(keyword.arg == "allow_pickle" for keyword in node.keywords), where
                named = node.func.attr if isinstance(node.func, ast.Attribute) else ""
                assert named not in {"read_pickle", "to_pickle", "deserialize", "loads_pickle"}, where
                assert not (named == "load" and ast.unparse(node.func) in {"np.load", "numpy.load"}), where


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_stays_shut_wherever_it_is_put(tmp_path):
    fuse = tmp_path / "went-off"
    pickled = pickle.dumps(Bomb(fuse))
    extension = ROWS.set(4, pa.field("key", pa.binary(), metadata={
        "ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickled
    }))  # fmt: skip
    pandas = ROWS.with_metadata({"pandas": pickled, "ARROW:extension:metadata": pickled})
    for schema in (extension, pandas):
        rows = pa.Table.from_arrays([column.combine_chunks() for column in ROWS_OF_0.columns], schema=schema)
        try:
            decode(sealed(stream(rows))).to_pandas()
        except BlockError:
            continue
    for state in (pickled, b"bala" + zlib.crc32(pickled).to_bytes(4, "big") + pickled):
        with pytest.raises(StateError):
            codec.decode("node", 1, state)
    text = pickled.decode("latin-1")
    rows = [
        SimpleNamespace(**{**EMPTY_ROW, "section": kind, "note": text, "block": pickled})
        for kind in ("signal", "replica")
    ]
    assert Inputs.read(NOW, rows).foreign == 2
    assert Guest(1, NODES).accept([Part(STAMP, 0, 1, "a", 0, 1, (), (), pickled)], NOW.batch) == []
    assert not fuse.exists()
    pickle.loads(pickled)
    assert fuse.exists(), "the test's bomb is a dud"
