import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.compute import runs as runs_module
from balajoin.compute import store as store_module
from balajoin.compute.cache_folder import PrivateFolder
from balajoin.compute.index import matches
from balajoin.compute.runs import RunFiles, StoredRun
from balajoin.compute.store import BlockStore
from balajoin.core.blocks import checked_rows, concat, encode
from balajoin.core.sides import SIDES, Side
from balajoin.core.spec import Window
from oracle import Row
from strategies import KEYS, SECOND, Memory, row_lists, rows_of, table

SLICE = 10 * SECOND
EVER = (1 << 62) - 1
EACH_KEY = table(Row(key, 0, b"", 0, 0) for key in KEYS)


class Stored:
    """A store that is opened again for each batch, as in Spark's workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "node"
        self.durable = Memory()
        self.seal = "batch-0"
        self.next_number = 0
        self.batches = 0

    def open(self) -> BlockStore:
        store = BlockStore(self.durable, PrivateFolder(self.folder), SLICE)
        store.open(self.next_number, self.seal)
        return store

    def close(self, store: BlockStore) -> None:
        self.batches += 1
        self.seal, self.next_number = f"batch-{self.batches}", store.next_number
        store.close(self.seal)

    def batch(self, side: Side, *pieces: list[Row], expire: int | None = None) -> BlockStore:
        store = self.open()
        for rows in pieces:
            store.add(side, table(rows))
        if expire is not None:
            store.expire(side, expire)
        self.close(store)
        return store

    @property
    def catalog(self) -> Path:
        return self.folder / f"{self.seal}.catalog"

    def run_files(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if path.suffix in (".rows", ".index"))


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def content(store: BlockStore, side: Side) -> Counter[Row]:
    """The rows found in the runs. Asserts that the index of each run finds the same rows."""
    walked, found = Counter[Row](), Counter[Row]()
    for run in store.runs(side, -EVER, EVER):
        rows = rows_of(run.rows)
        walked.update(rows)
        assert run.info.rows == len(rows)
        assert (run.info.earliest, run.info.latest) == (min(r.time_us for r in rows), max(r.time_us for r in rows))
        for _, theirs in matches(EACH_KEY, run.index, run.rows, Window(-EVER, EVER)):
            found.update(rows[i] for i in theirs)
    assert found == walked
    assert store.rows_of(side) == walked.total()
    return walked


def some_rows(first: int, count: int, time: int = 0, step: int = 1000) -> list[Row]:
    numbers = range(first, first + count)
    return [Row(KEYS[i % len(KEYS)], time + (i - first) * step, b"value %d" % i, 0, i) for i in numbers]


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_batch_writes_its_own_rows_and_nothing_else(stored):
    """`Memory` refuses to write a number twice."""
    written = []
    for batch in range(40):
        before = stored.durable.bytes_put
        stored.batch("probe", some_rows(batch * 50, 50))
        written.append(stored.durable.bytes_put - before)
    assert len(stored.durable) == 40
    assert max(written) <= 1.1 * min(written)  # the 40th batch, after 39 merged ones, writes no more than the first


def test_an_empty_batch_writes_nothing(stored):
    stored.batch("probe", some_rows(0, 10))
    before = dict(stored.durable)
    stored.batch("probe")
    assert dict(stored.durable) == before


def test_files_that_did_not_change_are_not_written_again(stored):
    stored.batch("probe", some_rows(0, 100))
    files = stored.run_files()
    stored.batch("build", some_rows(0, 5))
    assert set(files) < set(stored.run_files())


def test_sides_do_not_mix(stored):
    stored.batch("probe", some_rows(0, 10))
    stored.batch("build", some_rows(100, 20))
    store = stored.open()
    assert content(store, "probe") == Counter(some_rows(0, 10))
    assert content(store, "build") == Counter(some_rows(100, 20))
    assert store.rebuilt_blocks == 0
    assert store.bytes > 0


@pytest.mark.parametrize("span", [3 * 365 * 86_400 * SECOND, 17 * SLICE, EVER])
def test_a_catch_up_that_spans_years_makes_few_blocks(stored, span):
    rows = some_rows(0, 2000, -span // 2, span // 2000)
    store = stored.batch("probe", rows)
    assert 8 <= len(stored.durable) <= 16
    assert content(store, "probe") == Counter(rows)


def test_rows_of_different_slices_go_to_different_blocks(stored):
    store = stored.batch("probe", some_rows(0, 50, -2 * SLICE, SLICE // 10))
    spans = sorted((run.info.earliest, run.info.latest) for run in store.runs("probe", -EVER, EVER))
    assert len(spans) == len(stored.durable) == 5
    assert all(earliest // SLICE == latest // SLICE for earliest, latest in spans)


# --- expiry -----------------------------------------------------------------------------------------------------------


def test_expired_blocks_are_gone_from_the_state_and_from_the_folder(stored):
    for batch in range(12):
        stored.batch("probe", some_rows(batch * 10, 10, batch * SLICE))
    stored.batch("build", some_rows(0, 10))
    assert stored.batch("probe", expire=20 * SLICE).rows_of("probe") == 0
    assert len(stored.durable) == 1
    store = stored.open()
    assert len(stored.run_files()) == 2
    assert content(store, "build") == Counter(some_rows(0, 10))
    store.expire("build", 20 * SLICE)
    stored.close(store)
    assert stored.durable == {}
    stored.open()
    assert list(stored.folder.iterdir()) == [stored.catalog]


def test_a_row_at_the_very_edge_stays(stored):
    stored.batch("probe", some_rows(0, 1, time=77))
    store = stored.open()
    assert store.expire("build", EVER) == 0
    assert store.expire("probe", 77) == 0
    assert store.expire("probe", 78) == 1
    assert stored.durable == {}


@given(st.lists(row_lists(st.integers(0, 12 * SLICE), min_size=1, max_size=8), max_size=12), st.integers(0, 14 * SLICE))
def test_expiry_drops_only_old_rows_and_leaves_none_much_older(batches, before):
    with tempfile.TemporaryDirectory() as folder:
        stored = Stored(Path(folder))
        stored.batch("probe", *batches)
        left = content(stored.batch("probe", expire=before), "probe")
    added = Counter(row for rows in batches for row in rows)
    assert left <= added
    assert not [row for row in added - left if row.time_us >= before]
    assert not [row for row in left if row.time_us < before - SLICE]


def test_new_blocks_are_spared_however_old_their_rows_are(stored):
    stored.batch("build", some_rows(0, 5))
    store = stored.open()
    first_new = store.next_number
    store.add("build", table(some_rows(100, 3)))
    assert store.expire("build", EVER, spared=first_new) == 5
    assert content(store, "build") == Counter(some_rows(100, 3))


def test_a_row_far_in_the_future_keeps_no_old_rows_alive(stored):
    """Both came together, but each was merged with rows of its own time."""
    future = Row(b"a", 1000 * 365 * 86_400 * SECOND, b"", 0, 0)
    for batch in range(20):
        stored.batch("probe", [future, *some_rows(1 + batch * 10, 10)])
    store = stored.batch("probe", expire=SLICE)
    assert content(store, "probe") == Counter({future: 20})
    assert all(row == future for block in stored.durable.values() for row in _rows_in(block))


def test_a_wide_block_of_a_catch_up_keeps_no_narrow_ones_alive(stored):
    """The blocks start at the same time and have the same size, but expire at very different times."""
    wide = [some_rows(batch * 100, 48, 0, 50 * SLICE) for batch in range(4)]
    narrow = [some_rows(2000 + batch * 10, 3) for batch in range(4)]
    for rows in (*wide, *narrow):
        stored.batch("probe", rows)
    left = content(stored.batch("probe", expire=SLICE), "probe")
    assert left == Counter(row for rows in wide for row in rows)


def _rows_in(block: bytes) -> list[Row]:
    return rows_of(store_module.with_shelf(block)[0])


# --- merging ----------------------------------------------------------------------------------------------------------


def test_merging_keeps_rows_findable_and_runs_few(stored):
    rows: list[Row] = []
    for batch in range(200):
        new = some_rows(batch * 3, 3, batch % 3 * SLICE)
        rows += new
        store = stored.batch("build", new)
        # three slices with three tiers up to 600 rows, and at most 7 runs in each tier
        assert len(list(store.runs("build", -EVER, EVER))) <= 3 * 3 * 7
    assert content(stored.open(), "build") == Counter(rows)
    assert len(stored.durable) == 200


def test_a_rebuild_merges_too(stored):
    rows: list[Row] = []
    for batch in range(50):
        rows += (new := some_rows(batch * 3, 3))
        stored.batch("build", new)
    shutil.rmtree(stored.folder)
    store = stored.open()
    assert len(list(store.runs("build", -EVER, EVER))) <= 7
    assert content(store, "build") == Counter(rows)


def test_a_rebuild_of_more_than_is_merged_at_once_merges_too(stored, monkeypatch):
    """After the loss of the local folder, the blocks of hours come back as one tier, far above the limit."""
    merged = stored.batch("build", *(some_rows(number, 1) for number in range(512)))
    shutil.rmtree(stored.folder)
    monkeypatch.setattr(store_module, "_MAX_MERGED_BYTES", merged.bytes // 8)
    store = stored.open()
    assert len(list(store.runs("build", -EVER, EVER))) <= 64


def test_runs_above_the_limit_stay_as_they_are(stored, monkeypatch):
    monkeypatch.setattr(store_module, "_MAX_MERGED_BYTES", 100)
    batches = [some_rows(batch * 10, 10) for batch in range(10)]
    for rows in batches:
        store = stored.batch("build", rows)
    assert len(list(store.runs("build", -EVER, EVER))) == 10
    assert content(store, "build") == Counter(row for rows in batches for row in rows)


def test_runs_are_narrowed_by_side_and_time(stored):
    store = stored.batch("build", some_rows(0, 5, 0, 1), some_rows(5, 5, 3 * SLICE, 1))
    assert len(list(store.runs("build", 4, 3 * SLICE))) == 2
    assert len(list(store.runs("build", 5, 3 * SLICE - 1))) == 0
    assert len(list(store.runs("build", 0, 0))) == 1
    assert len(list(store.runs("build", 3 * SLICE + 4, EVER))) == 1
    assert len(list(store.runs("probe", -EVER, EVER))) == 0


# --- the local folder is only a cache ---------------------------------------------------------------------------------


def _overwrite(path: Path) -> None:
    old = path.read_bytes()
    path.write_bytes(bytes(len(old)))
    # The kernel's clock ticks every few ms: within one tick, both writes would have the same time.
    os.utime(path, ns=(1, 1))


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _replace(path: Path) -> None:
    """Replaces the file by another one of the same size and times, as restoring a backup does."""
    times = path.stat()
    copy = path.with_suffix(".copy")
    copy.write_bytes(bytes(times.st_size))
    os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
    copy.rename(path)


def _alter(path: Path) -> None:
    """Changes the text so that it is still valid."""
    path.write_text(path.read_text().replace("probe", "build"))


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


@pytest.fixture
def filled(stored: Stored) -> Stored:
    """A store with both sides, merged and unmerged runs in several slices, and some expired rows."""
    for batch in range(12):
        stored.batch(SIDES[batch % 2], some_rows(batch * 10, 10, batch // 6 * SLICE))
    for batch in range(12, 30):
        stored.batch("probe", some_rows(batch * 10, 10, 2 * SLICE))
    stored.batch("build", expire=SLICE)
    return stored


def _contents(stored: Stored) -> dict[Side, Counter[Row]]:
    store = stored.open()
    return {side: content(store, side) for side in SIDES}


@pytest.mark.parametrize("damage", [_overwrite, _truncate, _replace, _append, os.unlink])
@pytest.mark.parametrize("suffix", [".rows", ".index"])
@pytest.mark.parametrize("which", [0, -1, slice(None)], ids=["first", "last", "all"])
def test_a_damaged_run_is_rebuilt_equal(filled, damage, suffix, which):
    expected = _contents(filled)
    paths = [path for path in filled.run_files() if path.suffix == suffix]
    for path in paths[which] if isinstance(which, slice) else [paths[which]]:
        damage(path)
    store = filled.open()
    assert 0 < store.rebuilt_blocks <= len(filled.durable)
    assert {side: content(store, side) for side in SIDES} == expected
    filled.close(store)
    after = filled.open()
    assert after.rebuilt_blocks == 0
    assert {side: content(after, side) for side in SIDES} == expected


@pytest.mark.parametrize("damage", [_overwrite, _truncate, _append, _alter, os.unlink])
def test_without_its_catalog_everything_is_rebuilt_equal(filled, damage):
    expected = _contents(filled)
    damage(filled.catalog)
    store = filled.open()
    assert store.rebuilt_blocks == len(filled.durable)
    assert {side: content(store, side) for side in SIDES} == expected


@pytest.mark.parametrize(
    ("shelf", "name"), [("unmatched_probe", "lonely_probe"), ("unmatched_build", "lonely_build"), ("build", "build")]
)
def test_catalogs_keep_the_names_that_shelves_had_at_first(tmp_path, shelf, name):
    """After a downgrade an older balajoin reads the cache folder, and it knows only the old names of shelves."""
    stored = Stored(tmp_path)
    store = stored.open()
    store.add(shelf, EACH_KEY)
    stored.close(store)
    (run,) = json.loads(stored.catalog.read_bytes().partition(b"\n")[2])["runs"]
    assert run["info"]["shelf"] == name
    again = stored.open()
    assert again.rebuilt_blocks == 0
    assert again.rows_of(shelf) == EACH_KEY.num_rows


def test_the_catalog_of_another_seal_is_not_believed(filled):
    """A batch may be repeated elsewhere while this folder holds the files of the failed attempt."""
    expected = _contents(filled)
    attempt = BlockStore(filled.durable.copy(), PrivateFolder(filled.folder), SLICE)
    attempt.open(filled.next_number, filled.seal)
    attempt.add("probe", table(some_rows(9000, 10)))
    attempt.expire("build", EVER)
    filled.catalog.unlink()
    attempt.close("the failed attempt")
    store = filled.open()
    assert store.rebuilt_blocks == len(filled.durable)
    assert {side: content(store, side) for side in SIDES} == expected
    assert not (filled.folder / "the failed attempt.catalog").exists()


def test_a_failed_attempt_leaves_the_runs_of_the_state_before_in_place(filled):
    expected = _contents(filled)
    attempt = BlockStore(filled.durable.copy(), PrivateFolder(filled.folder), SLICE)
    attempt.open(filled.next_number, filled.seal)
    attempt.add("probe", table(some_rows(9000, 10)))
    attempt.expire("build", EVER)
    attempt.close("the failed attempt")
    store = filled.open()
    assert store.rebuilt_blocks == 0
    assert {side: content(store, side) for side in SIDES} == expected


# --- files are checked before they are used ---------------------------------------------------------------------------


def _edit_catalog(stored: Stored, edit: Callable[[dict[str, Any]], None]) -> None:
    """Writes the edited catalog with a correct checksum."""
    catalog = json.loads(stored.catalog.read_bytes().partition(b"\n")[2])
    edit(catalog)
    body = json.dumps(catalog).encode()
    stored.catalog.write_bytes(b"%d\n%b" % (zlib.crc32(body), body))


def _sign_again(stored: Stored, checksums: bool) -> None:
    """Writes the current inode, size and times of the files into the catalog, as if no file had changed."""

    def sign(catalog: dict[str, Any]) -> None:
        for files in (entry["files"] for entry in catalog["runs"]):
            paths = [stored.folder / f"{files['name']}{suffix}" for suffix in (".rows", ".index")]
            found = [path.stat() for path in paths]
            files["signature"] = [[f.st_ino, f.st_size, f.st_mtime_ns, f.st_ctime_ns] for f in found]
            if checksums:
                files["checksums"] = [zlib.crc32(path.read_bytes()) for path in paths]

    _edit_catalog(stored, sign)


def _assert_rebuilt_equal(stored: Stored, expected: dict[Side, Counter[Row]], caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    store = stored.open()
    assert {side: content(store, side) for side in SIDES} == expected
    assert 0 < store.rebuilt_blocks < len(stored.durable)
    assert "rebuilding a local run" in caplog.text
    stored.close(store)
    after = stored.open()
    assert {side: content(after, side) for side in SIDES} == expected
    assert after.rebuilt_blocks == 0


@pytest.mark.parametrize("suffix", [".rows", ".index"])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.5, 0.7, 1.0])
def test_a_bit_that_changes_on_the_disk_is_noticed(filled, caplog, suffix, part):
    """The disk changes the bit without a write: the catalog has the file's inode, size and times."""
    expected = _contents(filled)
    path = next(path for path in filled.run_files() if path.suffix == suffix)
    damaged = bytearray(path.read_bytes())
    damaged[int(part * (len(damaged) - 1))] ^= 4
    path.write_bytes(damaged)
    _sign_again(filled, checksums=False)
    _assert_rebuilt_equal(filled, expected, caplog)


def test_files_are_read_for_their_checksums_once_in_a_start(filled, monkeypatch, caplog):
    read: list[int] = []
    monkeypatch.setattr(runs_module, "checked_rows", lambda content: read.append(1) or checked_rows(content))

    def use() -> int:
        read.clear()
        store = filled.open()
        expected = {side: content(store, side) for side in SIDES}
        filled.close(store)
        assert expected == before
        return len(read)

    before = _contents(filled)
    number = len(filled.run_files()) // 2
    assert use() == number
    assert use() == 0
    monkeypatch.setattr(runs_module, "_START", "the next")
    assert use() == number
    assert use() == 0
    assert filled.open().rebuilt_blocks == 0


def _hang(index: dict[str, Any]) -> None:
    index["slots"][index["slots"] < 0] = 0


@pytest.mark.parametrize(
    "forge",
    [
        lambda index: index["slots"].fill(1 << 30),
        lambda index: index["slots"].fill(-2),
        _hang,
        lambda index: index.update(slots=index["slots"][:-1]),
        lambda index: index.update(slots=index["slots"][:0]),
        lambda index: index["starts"].__setitem__(-1, 1 << 30),
        lambda index: index["starts"].__setitem__(0, -(1 << 30)),
        lambda index: index["starts"].__setitem__(1, 1 << 30),
        lambda index: index.update(starts=index["starts"][:-1]),
        lambda index: index.update(hashes=index["hashes"][:-1]),
        lambda index: index["rows"].__setitem__(0, 1 << 30),
        lambda index: index["rows"].__setitem__(0, -1),
        lambda index: index.update(rows=index["rows"][:-1]),
    ],
    ids=[
        "slots far away", "negative slots", "no empty slot", "slots not a power of two", "no slots", "end far away",
        "negative start", "starts not in order", "no end", "a hash too few", "rows far away", "negative rows",
        "a row too few",
    ],
)  # fmt: skip
def test_a_forged_index_reaches_no_kernel(filled, caplog, forge):
    expected = _contents(filled)
    path = next(path for path in filled.run_files() if path.suffix == ".index")
    index = {name: array.copy() for name, array in vars(runs_module._index_in(pa.py_buffer(path.read_bytes()))).items()}
    forge(index)
    columns = [index[name] for name, _ in runs_module._INDEX_COLUMNS]
    path.write_bytes(b"".join(map(bytes, (np.array([len(c) for c in columns], np.int64), *columns))))
    _sign_again(filled, checksums=True)
    _assert_rebuilt_equal(filled, expected, caplog)


@pytest.mark.parametrize("lengths", [[1 << 62, 8, 1, 0], [-1, 8, 1, 0], [1 << 40, 1 << 40, 1, 1], []])
def test_a_forged_index_of_impossible_lengths_reaches_no_kernel(filled, caplog, lengths):
    expected = _contents(filled)
    path = next(path for path in filled.run_files() if path.suffix == ".index")
    path.write_bytes(bytes(np.array([*lengths, 0], np.int64)))
    _sign_again(filled, checksums=True)
    _assert_rebuilt_equal(filled, expected, caplog)


def _offsets_far_away(rows: pa.Table) -> bytes:
    content = encode(rows, None)[8:]
    offsets = rows.column("key").chunk(0).buffers()[1].to_pybytes()
    return content.replace(offsets, offsets[:-4] + (1 << 30).to_bytes(4, "little"))


@pytest.mark.parametrize(
    "forge",
    [
        lambda rows: encode(rows.slice(1), None)[8:],
        lambda rows: encode(pa.concat_tables([rows.slice(0, 1), rows.slice(1)]), None)[8:],
        lambda rows: encode(rows.select(["hash", "time"]), None)[8:],
        _offsets_far_away,
        lambda rows: b"no Arrow",
        lambda rows: b"",
    ],
    ids=["a row too few", "in pieces", "columns missing", "keys far away", "no Arrow", "empty"],
)
def test_forged_rows_reach_no_kernel(filled, caplog, forge):
    expected = _contents(filled)
    path = next(path for path in filled.run_files() if path.suffix == ".rows")
    rows = checked_rows(pa.py_buffer(path.read_bytes()))
    forged = forge(concat([rows]))
    assert forged != path.read_bytes()
    path.write_bytes(forged)
    _sign_again(filled, checksums=True)
    _assert_rebuilt_equal(filled, expected, caplog)


@pytest.mark.parametrize(
    "edit",
    [
        lambda catalog: catalog["runs"][0]["files"].update(name="../../precious"),
        lambda catalog: catalog["runs"][0]["files"].pop("signature"),
        lambda catalog: catalog["runs"][0]["info"].update(more=1),
        lambda catalog: catalog["runs"].append(None),
        lambda catalog: catalog.update(version=1),
        lambda catalog: catalog.pop("runs"),
    ],
    ids=["name", "no signature", "field", "no run", "version", "no runs"],
)
def test_a_catalog_of_another_form_is_not_believed(filled, edit):
    expected = _contents(filled)
    precious = filled.folder.parent.parent / "precious.rows"
    precious.touch()
    _edit_catalog(filled, edit)
    store = filled.open()
    assert store.rebuilt_blocks == len(filled.durable)
    assert {side: content(store, side) for side in SIDES} == expected
    assert precious.exists()


def test_a_file_that_vanishes_after_the_start_of_a_batch_is_rebuilt(filled):
    """Another query on a copy of the checkpoint may clear the folder."""
    expected = _contents(filled)
    store = filled.open()
    for path in filled.run_files()[::3]:
        path.unlink()
    assert {side: content(store, side) for side in SIDES} == expected
    assert store.rebuilt_blocks > 0


# --- memory -----------------------------------------------------------------------------------------------------------

_REBUILD = """
import resource, sys
from pathlib import Path
import numpy as np, pyarrow as pa
from balajoin.core.blocks import ROWS
from balajoin.compute import store
from balajoin.compute.cache_folder import PrivateFolder
from balajoin.spark.warm_up import load_kernels

blocks, spare = int(sys.argv[2]), int(sys.argv[3])
store._REBUILT_AT_ONCE_BYTES, store._MAX_MERGED_BYTES = 2 << 20, 24 << 20
rows, numbers = 10_000, np.random.default_rng(1)
columns = [numbers.integers(-(1 << 62), 1 << 62, rows), numbers.integers(0, 10**9, rows), np.zeros(rows, np.int32),
           np.arange(rows), [b"key %d" % n for n in range(rows)], [b"v" * 70] * rows]
block = store.tagged("build", pa.table([pa.array(c, f.type) for c, f in zip(columns, ROWS)], schema=ROWS))

class Durable:
    def items(self):
        return ((number, block) for number in range(blocks))

load_kernels()
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (used + spare, resource.RLIM_INFINITY))
opened = store.BlockStore(Durable(), PrivateFolder(Path(sys.argv[1])), 10**9)
opened.open(blocks, "seal")
assert opened.rows_of("build") == blocks * rows
print(opened.bytes, pa.default_memory_pool().max_memory(), sum(1 for _ in opened.runs("build", 0, 10**9)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory that a process has written to")
def test_a_rebuild_needs_no_more_memory_for_more_rows(tmp_path):
    """The limit is far below the size of the state. Arrow's own allocator would reserve memory in advance."""

    def rebuild(blocks: int) -> tuple[int, int, int]:
        command = [sys.executable, "-c", _REBUILD, str(tmp_path / str(blocks)), str(blocks), str(100 << 20)]
        environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        size, peak, runs = map(int, done.stdout.split())
        return size, peak, runs

    small_size, small_peak, _ = rebuild(60)
    size, peak, runs = rebuild(240)
    assert size == 4 * small_size > 250 << 20
    assert peak < 1.1 * small_peak < 48 << 20
    assert runs < 30


def test_the_folder_holds_only_what_is_used(filled):
    (filled.folder / "left-over.rows").write_bytes(b"half a file")
    filled.open()
    assert not (filled.folder / "left-over.rows").exists()
    runs = sum(len(list(filled.open().runs(side, -EVER, EVER))) for side in SIDES)
    assert len(filled.run_files()) == 2 * runs
    assert len(list(filled.folder.iterdir())) == 2 * runs + 1


@pytest.mark.parametrize("fails", [lambda _: True, lambda number: number % 3 == 0], ids=["always", "sometimes"])
def test_on_a_full_disk_it_is_only_slower(stored, monkeypatch, caplog, fails):
    write = RunFiles.write
    attempts = iter(range(10_000))

    def full(folder: PrivateFolder, run: StoredRun) -> RunFiles:
        if fails(next(attempts)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(folder, run)

    monkeypatch.setattr(RunFiles, "write", full)
    rows: list[Row] = []
    for batch in range(30):
        rows += (new := some_rows(batch * 10, 10, batch // 10 * SLICE))
        caplog.clear()
        store = stored.batch("probe", new)
        assert len([record for record in caplog.records if "cannot be written" in record.message]) <= 1
        assert store.rows_of("probe") == len(rows)
    store = stored.batch("probe", expire=SLICE)
    assert content(store, "probe") == Counter(rows[100:])
    assert "cannot be written" in caplog.text
    monkeypatch.undo()
    assert content(stored.batch("probe"), "probe") == Counter(rows[100:])
    assert stored.open().rebuilt_blocks == 0


def test_a_catalog_that_cannot_be_written_is_only_slower(stored, monkeypatch):
    create = PrivateFolder.create

    def full(folder: PrivateFolder, name: str) -> BinaryIO:
        if name.endswith(".catalog"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return create(folder, name)

    monkeypatch.setattr(PrivateFolder, "create", full)
    for batch in range(3):
        stored.batch("probe", some_rows(batch * 10, 10))
    store = stored.open()
    assert store.rebuilt_blocks == 3
    assert content(store, "probe") == Counter(some_rows(0, 10) + some_rows(10, 10) + some_rows(20, 10))


def test_a_disk_that_fills_up_within_a_file_is_only_slower(stored, caplog):
    """The system itself refuses to write the second half of each file."""
    rows = some_rows(0, 2000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        store = stored.batch("probe", rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot be written" in caplog.text
    assert content(store, "probe") == Counter(rows)
    assert list(stored.folder.iterdir()) == []  # incomplete files would only take up space
    assert content(stored.batch("probe"), "probe") == Counter(rows)
    assert stored.open().rebuilt_blocks == 0


def test_without_a_folder_it_is_only_slower():
    durable = Memory()
    for batch in range(20):
        store = BlockStore(durable, None, SLICE)
        store.open(batch, "seal")
        assert store.rebuilt_blocks == batch
        store.add("probe", table(some_rows(batch * 10, 10)))
        store.close("seal")
    expected = Counter(row for batch in range(20) for row in some_rows(batch * 10, 10))
    assert content(store, "probe") == expected


def test_numbers_go_on_where_they_stopped(stored):
    numbers = []
    for batch in range(5):
        stored.batch("probe", some_rows(batch * 10, 10))
        numbers.append(stored.next_number)
    assert all(earlier < later for earlier, later in pairwise(numbers))
    assert sorted(stored.durable) == list(range(5))
