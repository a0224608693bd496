"""The block store of one node: what it holds of both streams, durable in Spark's state, looked up in local runs.

The state store gets each block once, under a running number, and loses it when it expires: a batch writes what it
brought and nothing else. For look-ups, blocks of the same shelf and time slice are merged, in tiers, into few runs;
that happens in the executor-local folder only and can be done again from the state store at any time.
"""

import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.blocks import Compression, concat, decode, encode, longs, partition_by
from balajoin.compute.index import rows_with
from balajoin.compute.runs import Run, RunFiles, RunInfo
from balajoin.sides import SHELVES, Shelf

_log = logging.getLogger(__name__)

# A tier holds runs within this factor of each other in size; that many of them become one of the next tier. So a row is
# merged log_8(rows) times, in local files, and a look-up meets at most 7 runs a tier.
_FANOUT = 8
# Taking blocks over was 0.7 of the 1.7 s of a node with 275k rows. LZ4 halves their bytes for 0.03 µs of CPU a row.
_COMPRESSION: Compression = "lz4"
_TAG_BYTES = 8  # the shelf; as many as keep the block behind it aligned
# A batch that spans many slices, as in a catch-up, is stored by wider ones: its blocks shall not become tiny.
_MAX_SLICES_A_PIECE = 16
# Merging beyond this would pause a batch for longer than the look-ups it saves.
_MAX_MERGED_BYTES = 256 << 20


class Durable(Protocol):
    """Where blocks survive a crash: a map from running number to bytes. `items` are those with numbers from 0 on."""

    def get(self, number: int) -> bytes | None: ...
    def put(self, number: int, block: bytes) -> None: ...
    def remove(self, number: int) -> None: ...
    def items(self) -> Iterable[tuple[int, bytes]]: ...


class BlockStore:
    def __init__(self, durable: Durable, folder: Path, slice_us: int) -> None:
        self._durable = durable
        self._folder = folder
        self._slice_us = slice_us
        self._runs: list[Run] = []
        self.next_number = 0
        self._told = False
        self.rebuilt_blocks = 0  # read back from the state store because the local folder did not have them

    # --- opening: the local catalog if it belongs to this very state, otherwise the state store -----------------------

    def open(self, next_number: int, seal: str) -> None:
        """Restores the runs of the state sealed as `seal`, and clears the folder of whatever they do not use."""
        self.next_number = next_number
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
        catalog = self._read_catalog(seal)
        if catalog is None:
            self._rebuild_all()
        else:
            self._runs = [run if intact else self._rebuild(run.info) for run, intact in catalog]
        self._clear_folder(seal)

    def _read_catalog(self, seal: str) -> list[tuple[Run, bool]] | None:
        try:
            checksum, _, body = self._catalog_path(seal).read_text().partition("\n")
            if int(checksum) != zlib.crc32(body.encode()):
                return None
            entries: list[dict[str, Any]] = json.loads(body)
        except (OSError, ValueError):
            return None
        runs = []
        for entry in entries:
            info = RunInfo(**{**entry["info"], "blocks": tuple(entry["info"]["blocks"])})
            files = RunFiles(self._folder, entry["name"], entry["signature"])
            runs.append((Run(info, files=files), files.intact()))
        return runs

    def _rebuild_all(self) -> None:
        for number, block in self._durable.items():
            self.rebuilt_blocks += 1
            rows, shelf = with_shelf(block)
            if shelf != "overdue_build":
                self._add_run(shelf, (number,), rows)
        self._merge()

    def _rebuild(self, info: RunInfo) -> Run:
        _log.warning("rebuilding %d blocks of node folder %s", len(info.blocks), self._folder.name)
        tables = []
        for number in info.blocks:
            block = self._durable.get(number)
            assert block is not None, f"block {number} is listed but not in the state store"
            tables.append(with_shelf(block)[0])
        self.rebuilt_blocks += len(info.blocks)
        return self._written(Run(info, rows=concat(tables)))

    def _clear_folder(self, seal: str) -> None:
        used = {self._catalog_path(seal)}
        for run in self._runs:
            used.update(run.files.paths if run.files else ())
        with suppress(OSError):
            for path in self._folder.iterdir():
                if path not in used:
                    path.unlink(missing_ok=True)

    # --- a batch -----------------------------------------------------------------------------------------------------

    def add(self, shelf: Shelf, rows: pa.Table) -> None:
        """Stores a single-chunk table; afterwards look-ups find it."""
        for single in sliced(rows, self._slice_us):
            self._durable.put(self.next_number, tagged(shelf, single))
            self._add_run(shelf, (self.next_number,), single)
            self.next_number += 1

    def lay_aside(self, shelf: Shelf, rows: pa.Table) -> int:
        """Stores a single-chunk table where no look-up finds it; the number takes it back."""
        self._durable.put(self.next_number, tagged(shelf, rows))
        self.next_number += 1
        return self.next_number - 1

    def take_back(self, number: int) -> pa.Table:
        block = self._durable.get(number)
        assert block is not None, f"block {number} was laid aside but is not in the state store"
        self._durable.remove(number)
        return with_shelf(block)[0]

    def runs(self, shelf: Shelf, earliest: int, latest: int) -> Iterator[Run]:
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
        """Drops the runs all of whose rows are older than `before`; returns their number of rows.

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
        """Makes the runs findable for the batch that will read the state sealed as `seal`.

        Nothing here has to succeed: a full disk costs the next batch a rebuild.
        """
        self._merge()
        try:
            self._runs = [run if run.files else self._written(run) for run in self._runs]
            entries = [
                {"info": asdict(run.info), "name": run.files.name, "signature": run.files.signature}
                for run in self._runs
                if run.files
            ]
            if len(entries) == len(self._runs):
                body = json.dumps(entries)
                self._catalog_path(seal).write_text(f"{zlib.crc32(body.encode())}\n{body}")
        except OSError as full:
            self._tell_once(full)

    def rows_of(self, shelf: Shelf) -> int:
        return sum(run.info.rows for run in self._runs if run.info.shelf == shelf)

    def _tell_once(self, full: OSError) -> None:
        if not self._told:
            _log.warning("the local cache %s cannot be written, which costs time: %s", self._folder, full)
            self._told = True

    @property
    def bytes(self) -> int:
        return sum(run.info.bytes for run in self._runs)

    # --- runs --------------------------------------------------------------------------------------------------------

    def _catalog_path(self, seal: str) -> Path:
        return self._folder / f"{seal}.catalog"

    def _add_run(self, shelf: Shelf, blocks: tuple[int, ...], rows: pa.Table) -> None:
        times = longs(rows, "time")
        earliest, latest = int(times.min()), int(times.max())
        info = RunInfo(shelf, latest // self._slice_us, blocks, rows.num_rows, rows.nbytes, earliest, latest)
        self._runs.append(Run(info, rows=rows))

    def _written(self, run: Run) -> Run:
        try:
            return Run(run.info, files=RunFiles.write(self._folder, run))
        except OSError as full:
            self._tell_once(full)
            return run

    def _merge(self) -> None:
        merged = True
        while merged:
            merged = False
            tiers: dict[tuple[Shelf, int, int], list[Run]] = {}
            for run in self._runs:
                tier = (max(run.info.rows, 1).bit_length() - 1) // (_FANOUT.bit_length() - 1)
                tiers.setdefault((run.info.shelf, run.info.slice, tier), []).append(run)
            for (shelf, _, _), alike in tiers.items():
                for runs in _mergeable(alike):
                    self._runs = [run for run in self._runs if run not in runs]
                    blocks = tuple(number for run in runs for number in run.info.blocks)
                    self._add_run(shelf, blocks, concat([run.rows for run in runs]))
                    merged = True


def _mergeable(alike: Sequence[Run]) -> Iterator[list[Run]]:
    """Groups of a tier's runs that are worth merging and not too large to."""
    together: list[Run] = []
    size = 0
    for run in alike:
        if size + run.info.bytes > _MAX_MERGED_BYTES:
            if len(together) >= _FANOUT:
                yield together
            together, size = [], 0
        together.append(run)
        size += run.info.bytes
    if len(together) >= _FANOUT:
        yield together


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
    return SHELVES.index(shelf).to_bytes(_TAG_BYTES, "little") + encode(rows, _COMPRESSION)


def with_shelf(block: bytes) -> tuple[pa.Table, Shelf]:
    return concat([decode(pa.py_buffer(block).slice(_TAG_BYTES))]), shelf_of(block)


def shelf_of(block: bytes) -> Shelf:
    return SHELVES[block[0]]
