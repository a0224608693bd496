"""The block store of one node: rows of both streams, durable in Spark's state and looked up in local runs.

Each block is written once to the state store, under a running number, and removed when it expires: a batch writes only
its own rows. For look-ups, blocks of the same shelf and time slice are merged, in tiers, into few runs. Runs are only
in the executor's local folder and can be rebuilt from the state store at any time. A merged run is written at once, so
that a rebuild needs the same memory however large the state is. Without a folder, or on a full disk, runs stay in
memory.
"""

import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.compute.cache_folder import PrivateFolder
from balajoin.compute.index import rows_with
from balajoin.compute.runs import RunFiles, RunInfo, StoredRun
from balajoin.core.blocks import concat, decode, encode, longs, partition_by
from balajoin.core.sides import SHELVES, Shelf
from balajoin.errors import StateError

_log = logging.getLogger(__name__)

# The sizes of a tier's runs differ by less than this factor, and this many runs are merged into one of the next tier.
# So a row is merged log_8(rows) times, in local files, and a look-up searches at most 7 runs a tier.
_FANOUT = 8
# Runs of fewer rows are one tier: to open one costs more than to merge it once more. With a tier for every factor of 8,
# from one row on, a node with batches of eight rows had 32 runs, not 20, and took 14.1 ms a batch, not 11.8.
_FEW_ROWS = 512
_TAG_BYTES = 8  # the shelf's number, padded so that the block behind it is aligned
# A batch that spans many slices, as in a catch-up, is stored in wider ones, so that its blocks do not become tiny.
_MAX_SLICES_A_PIECE = 16
# Merging beyond this would pause a batch for longer than the look-ups it saves.
_MAX_MERGED_BYTES = 256 << 20
# A rebuild collects this much in memory before it writes: blocks may be tiny, and a file for each would be slow. The
# limit is small enough that eight of the runs it writes can still be merged.
_REBUILT_AT_ONCE_BYTES = 16 << 20
_CATALOG_VERSION = 2


class Durable(Protocol):
    """A map from running number to bytes that survives a crash. `items` has the entries with numbers from 0 on."""

    def get(self, number: int) -> bytes | None: ...
    def put(self, number: int, block: bytes) -> None: ...
    def remove(self, number: int) -> None: ...
    def items(self) -> Iterable[tuple[int, bytes]]: ...


def stored_block(durable: Durable, number: int) -> bytes:
    block = durable.get(number)
    if block is None:
        raise _damaged(f"block {number} is missing")
    return block


def _damaged(what: str) -> StateError:
    return StateError(f"the node state is damaged, {what}: restore the checkpoint from a copy, or start with a new one")


class BlockStore:
    def __init__(self, durable: Durable, folder: PrivateFolder | None, slice_us: int) -> None:
        self._durable = durable
        self._folder = folder
        self._slice_us = slice_us
        self._runs: list[StoredRun] = []
        self.next_number = 0
        self._told = False
        self._lost = _LostRuns(durable)

    # --- opening: the local catalog if it belongs to this very state, otherwise the state store -----------------------

    def open(self, next_number: int, seal: str) -> None:
        """Restores the runs of the state sealed as `seal`, and removes all other files from the folder."""
        self.next_number = next_number
        catalog = self._read_catalog(seal)
        if catalog is None:
            self._clear_folder(seal)
            self._rebuild_all(seal)
        else:
            self._runs = [run if intact else self._rebuild(run.info) for run, intact in catalog]
        self._clear_folder(seal)

    def _read_catalog(self, seal: str) -> list[tuple[StoredRun, bool]] | None:
        if self._folder is None:
            return None
        try:
            with self._folder.open(_catalog_name(seal)) as file:
                checksum, _, body = file.read().partition(b"\n")
            if int(checksum) != zlib.crc32(body):
                return None
            catalog = json.loads(body)
            if catalog["version"] != _CATALOG_VERSION:
                return None
            runs = []
            for entry in catalog["runs"]:
                info = RunInfo.from_entry(entry["info"])
                files = RunFiles.from_entry(self._folder, entry["files"])
                runs.append((StoredRun(info, files=files, recover=self._lost.rows), files.intact()))
            return runs
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _rebuild_all(self, seal: str) -> None:
        new: list[StoredRun] = []
        size = 0
        for number, block in self._durable.items():
            if number >= self.next_number:  # another block would get the same number
                raise _damaged(f"block {number} has a number that was not given yet")
            self._lost.rebuilt_blocks += 1
            rows, shelf = with_shelf(block)
            if shelf == "overdue_build":
                continue
            new.append(self._run(shelf, (number,), rows))
            size += rows.nbytes
            if size >= _REBUILT_AT_ONCE_BYTES:
                self._put_away(new, seal)
                new, size = [], 0
        self._put_away(new, seal)

    def _put_away(self, new: Sequence[StoredRun], seal: str) -> None:
        """Writes these runs, as one for each shelf and slice, and merges written runs."""
        alike: dict[tuple[Shelf, int], list[StoredRun]] = {}
        for run in new:
            alike.setdefault((run.info.shelf, run.info.slice), []).append(run)
        self._runs += [self._merged(runs) for runs in alike.values()]
        self._merge()
        self._clear_folder(seal)

    def _rebuild(self, info: RunInfo) -> StoredRun:
        return self._written(StoredRun(info, rows=self._lost.rows(info, "its files are gone, or were changed")))

    def _clear_folder(self, seal: str) -> None:
        if self._folder is None:
            return
        used = {_catalog_name(seal)}
        for run in self._runs:
            used.update(run.files.names if run.files else ())
        with suppress(OSError):
            for name in self._folder.names():
                if name not in used:
                    self._folder.remove(name)

    # --- a batch -----------------------------------------------------------------------------------------------------

    def add(self, shelf: Shelf, rows: pa.Table) -> None:
        """Stores a single-chunk table. Look-ups find its rows from now on."""
        for single in sliced(rows, self._slice_us):
            self._durable.put(self.next_number, tagged(shelf, single))
            self._runs.append(self._run(shelf, (self.next_number,), single))
            self.next_number += 1

    def lay_aside(self, shelf: Shelf, rows: pa.Table) -> int:
        """Stores a single-chunk table where no look-up finds it. Returns its number, for `take_back`."""
        self._durable.put(self.next_number, tagged(shelf, rows))
        self.next_number += 1
        return self.next_number - 1

    def take_back(self, number: int) -> pa.Table:
        block = stored_block(self._durable, number)
        self._durable.remove(number)
        return with_shelf(block)[0]

    def runs(self, shelf: Shelf, earliest: int, latest: int) -> Iterator[StoredRun]:
        """Runs that may hold rows of `shelf` within these times."""
        for run in self._runs:
            if run.info.shelf == shelf and run.info.earliest <= latest and run.info.latest >= earliest:
                yield run

    def rows_with(self, shelf: Shelf, hashes: NDArray[np.int64]) -> Iterator[pa.Table]:
        """All rows of `shelf` with one of these distinct hashes."""
        for run in self._runs:
            if run.info.shelf == shelf:
                found = rows_with(run.index, hashes)
                if len(found):
                    yield concat([run.rows.take(pa.array(found))])

    def expire(self, shelf: Shelf, before: int, spared: int | None = None) -> int:
        """Drops runs whose rows are all older than `before`. Returns the number of dropped rows.

        Blocks numbered from `spared` on stay, however old.
        """
        expired = [
            run
            for run in self._runs
            if run.info.shelf == shelf
            and run.info.latest < before
            and (spared is None or max(run.info.blocks) < spared)
        ]
        for run in expired:
            for number in run.info.blocks:
                self._durable.remove(number)
            self._runs.remove(run)
        return sum(run.info.rows for run in expired)

    def close(self, seal: str) -> None:
        """Writes a catalog of the runs, for the batch that will read the state sealed as `seal`.

        This may fail without harm: after a full disk the next batch rebuilds the runs.
        """
        self._merge()
        self._runs = [run if run.files else self._written(run) for run in self._runs]
        if self._folder is None or not all(run.files for run in self._runs):
            return
        entries = [{"info": run.info.to_entry(), "files": run.files.to_entry()} for run in self._runs if run.files]
        body = json.dumps({"version": _CATALOG_VERSION, "runs": entries}).encode()
        try:
            self._folder.remove(_catalog_name(seal))
            with self._folder.create(_catalog_name(seal)) as file:
                file.write(b"%d\n%b" % (zlib.crc32(body), body))
        except OSError as full:
            self._tell_once(full)

    def rows_of(self, shelf: Shelf) -> int:
        return sum(run.info.rows for run in self._runs if run.info.shelf == shelf)

    def _tell_once(self, full: OSError) -> None:
        if not self._told and self._folder is not None:
            _log.warning(
                "local files in %s cannot be written: %s. The state is held in memory and read from the checkpoint in "
                "every batch. Make room, or set run.cache_dir to a folder on another disk",
                self._folder.path,
                full,
            )
            self._told = True

    @property
    def rebuilt_blocks(self) -> int:
        """The number of blocks read from the state store because the local folder did not have them."""
        return self._lost.rebuilt_blocks

    @property
    def bytes(self) -> int:
        return sum(run.info.bytes for run in self._runs)

    # --- runs --------------------------------------------------------------------------------------------------------

    def _run(self, shelf: Shelf, blocks: tuple[int, ...], rows: pa.Table) -> StoredRun:
        times = longs(rows, "time")
        earliest, latest = int(times.min()), int(times.max())
        info = RunInfo(shelf, latest // self._slice_us, blocks, rows.num_rows, rows.nbytes, earliest, latest)
        return StoredRun(info, rows=rows)

    def _written(self, run: StoredRun) -> StoredRun:
        if self._folder is None:
            return run
        try:
            return StoredRun(run.info, files=RunFiles.write(self._folder, run), recover=self._lost.rows)
        except OSError as full:
            self._tell_once(full)
            return run

    def _merged(self, runs: Sequence[StoredRun]) -> StoredRun:
        blocks = tuple(number for run in runs for number in run.info.blocks)
        return self._written(self._run(runs[0].info.shelf, blocks, concat([run.rows for run in runs])))

    def _merge(self) -> None:
        for runs in merges(self._runs):
            merged = self._merged(runs)
            self._runs = [run for run in self._runs if run not in runs]
            self._runs.append(merged)


class _LostRuns:
    """Reads runs from the state store. It is its own class, so that runs do not keep a closed `BlockStore` alive."""

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self.rebuilt_blocks = 0

    def rows(self, info: RunInfo, cause: object) -> pa.Table:
        _log.warning("rebuilding a local run of %d rows from the state store: %s", info.rows, cause)
        tables = [with_shelf(stored_block(self._durable, number))[0] for number in info.blocks]
        self.rebuilt_blocks += len(info.blocks)
        return concat(tables)


@dataclass(frozen=True)
class _Merge:
    """Runs that are to become one."""

    runs: tuple[StoredRun, ...]
    rows: int
    bytes: int

    @property
    def tier(self) -> int:
        return (max(self.rows, _FEW_ROWS).bit_length() - 1) // (_FANOUT.bit_length() - 1)


def merges(runs: Iterable[StoredRun]) -> Iterator[tuple[StoredRun, ...]]:
    """Groups of runs to merge into one: the result of merging tier after tier, but each row is written only once."""
    alike: dict[tuple[Shelf, int], list[_Merge]] = {}
    for run in runs:
        single = _Merge((run,), run.info.rows, run.info.bytes)
        alike.setdefault((run.info.shelf, run.info.slice), []).append(single)
    for planned in alike.values():
        while groups := [group for tier in _tiers(planned) for group in _mergeable(tier)]:
            for group in groups:
                planned = [merge for merge in planned if merge not in group]
                together = tuple(run for merge in group for run in merge.runs)
                planned.append(_Merge(together, sum(m.rows for m in group), sum(m.bytes for m in group)))
        yield from (merge.runs for merge in planned if len(merge.runs) > 1)


def _tiers(planned: Iterable[_Merge]) -> Iterable[list[_Merge]]:
    tiers: dict[int, list[_Merge]] = {}
    for merge in planned:
        tiers.setdefault(merge.tier, []).append(merge)
    return tiers.values()


def _mergeable(alike: Sequence[_Merge]) -> Iterator[list[_Merge]]:
    """Groups of a tier that are worth merging and not too large for it."""
    together: list[_Merge] = []
    size = 0
    for merge in alike:
        if size + merge.bytes > _MAX_MERGED_BYTES:
            if len(together) >= _FANOUT:
                yield together
            together, size = [], 0
        together.append(merge)
        size += merge.bytes
    if len(together) >= _FANOUT:
        yield together


def _catalog_name(seal: str) -> str:
    return f"{seal}.catalog"


def sliced(rows: pa.Table, slice_us: int) -> Iterator[pa.Table]:
    """The rows by slices of time, each as a single-chunk table."""
    times = longs(rows, "time")
    width = slice_us
    while int(times.max()) // width - int(times.min()) // width >= _MAX_SLICES_A_PIECE:
        width *= 2
    numbers, members = np.unique(times // width, return_inverse=True)
    for part in partition_by(rows, members.astype(np.int32), len(numbers)):
        yield concat([part])


def tagged(shelf: Shelf, rows: pa.Table) -> bytes:
    return SHELVES.index(shelf).to_bytes(_TAG_BYTES, "little") + encode(rows)


def with_shelf(block: bytes) -> tuple[pa.Table, Shelf]:
    return concat([decode(pa.py_buffer(block).slice(_TAG_BYTES))]), shelf_of(block)


def shelf_of(block: bytes) -> Shelf:
    return SHELVES[block[0]]
