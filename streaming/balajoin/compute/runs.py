"""Runs: rows and their index as memory-mapped Arrow files in a folder that all workers of an executor share.

Spark hands a task to any idle Python worker, so a cache inside one process misses most of the time. Files are named
once and never changed; whatever is missing or was touched by anyone else is rebuilt from the state store.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from balajoin.blocks import ROWS, longs
from balajoin.compute.index import Index, build
from balajoin.sides import Shelf

_INDEX_COLUMNS = ("slots", "hashes", "starts", "rows")

Signature = list[list[int]]


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run without opening it. `blocks` are the numbers of the state store's blocks it holds."""

    shelf: Shelf
    slice: int
    blocks: tuple[int, ...]
    rows: int
    bytes: int
    earliest: int
    latest: int


class Run:
    """Rows that are looked up together. Opened when first looked at."""

    def __init__(self, info: RunInfo, rows: pa.Table | None = None, files: "RunFiles | None" = None) -> None:
        self.info = info
        self.files = files
        self._built = rows

    @cached_property
    def rows(self) -> pa.Table:
        if self._built is not None:
            return self._built
        assert self.files is not None
        return self.files.read_rows()

    @cached_property
    def index(self) -> Index:
        if self._built is None and self.files is not None:
            return self.files.read_index()
        return build(longs(self.rows, "hash"), longs(self.rows, "time"))


class RunFiles:
    """The two files of a run. Their signature changes with any write to them, so a damaged file is noticed unread."""

    def __init__(self, folder: Path, name: str, signature: Signature | None = None) -> None:
        self.folder = folder
        self.name = name
        self.signature = signature or []

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.folder / f"{self.name}.rows", self.folder / f"{self.name}.index"

    def intact(self) -> bool:
        try:
            return self._signature() == self.signature
        except OSError:
            return False

    def _signature(self) -> Signature:
        return [[s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for s in map(os.stat, self.paths)]

    @classmethod
    def write(cls, folder: Path, run: Run) -> "RunFiles":
        files = cls(folder, uuid4().hex)
        rows_path, index_path = files.paths
        with pa.OSFile(str(rows_path), "wb") as sink, pa.ipc.new_file(sink, ROWS) as writer:
            writer.write_table(run.rows)
        arrays = [pa.array(getattr(run.index, column)) for column in _INDEX_COLUMNS]
        with pa.OSFile(str(index_path), "wb") as sink:
            for array in arrays:
                with pa.ipc.new_stream(sink, pa.schema([("values", array.type)])) as writer:
                    writer.write_batch(pa.record_batch([array], names=["values"]))
        files.signature = files._signature()
        return files

    def read_rows(self) -> pa.Table:
        return pa.ipc.open_file(pa.memory_map(str(self.paths[0]))).read_all()

    def read_index(self) -> Index:
        source = pa.memory_map(str(self.paths[1]))
        arrays: list[Any] = []
        for _ in _INDEX_COLUMNS:
            values = pa.ipc.open_stream(source).read_all().column("values")
            arrays.append(values.chunk(0).to_numpy() if values.num_chunks else np.empty(0, np.int32))
        return Index(*arrays)
