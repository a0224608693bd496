"""Runs: rows and their index as memory-mapped files in a folder that all workers of an executor share.

Spark hands a task to any idle Python worker, so a cache inside one process misses most of the time. Files are never
renamed or changed; a run that is missing, changed or damaged is rebuilt from the state store.
"""

import os
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa

from balajoin.compute.cache_folder import PrivateFolder
from balajoin.compute.index import Index, build, check
from balajoin.core.blocks import ROWS, checked_rows, longs
from balajoin.core.sides import SHELVES, Shelf
from balajoin.errors import BlockError

# The widest type comes first, so that all columns are aligned.
_INDEX_COLUMNS = (("hashes", np.int64), ("slots", np.int32), ("starts", np.int32), ("rows", np.int32))
_SUFFIXES = ("rows", "index")
# Shelves whose names in the catalogs of all versions differ from those in the code.
_NAME_OF_SHELF: Mapping[Shelf, str] = {"unmatched_probe": "lonely_probe", "unmatched_build": "lonely_build"}
_SHELF_OF_NAME: Mapping[str, Shelf] = {_NAME_OF_SHELF.get(shelf, shelf): shelf for shelf in SHELVES}
_NAME = re.compile(r"[0-9a-f]{32}")

# Names this start of an executor's Python processes. Balajoin's daemon imports this module before it forks workers, so
# all workers share the name; under Spark's own daemon each worker has its own.
_START = uuid4().hex[:8]
_MAX_STARTS = 16

Content = TypeVar("Content")


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run without opening it. `blocks` are the numbers of its blocks in the state store."""

    shelf: Shelf
    slice: int
    blocks: tuple[int, ...]
    rows: int
    bytes: int
    earliest: int
    latest: int

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> "RunInfo":
        return cls(**{**entry, "shelf": _SHELF_OF_NAME[entry["shelf"]], "blocks": tuple(entry["blocks"])})

    def to_entry(self) -> dict[str, Any]:
        return {**vars(self), "shelf": _NAME_OF_SHELF.get(self.shelf, self.shelf)}


class DamagedRunError(Exception):
    """A run's file does not hold what was written."""


class StoredRun:
    """Rows that are looked up together. Its files are opened on first use.

    If the files cannot be used, `recover` returns the rows, and `files` is None until they are written again.
    """

    def __init__(
        self,
        info: RunInfo,
        rows: pa.Table | None = None,
        files: "RunFiles | None" = None,
        recover: Callable[[RunInfo, Exception], pa.Table] | None = None,
    ) -> None:
        self.info = info
        self.files = files
        self._built = rows
        self._recover = recover

    @cached_property
    def rows(self) -> pa.Table:
        if self._built is not None:
            return self._built
        found = self._from_files(RunFiles.read_rows)
        return self._built if found is None else found

    @cached_property
    def index(self) -> Index:
        found = self._from_files(RunFiles.read_index)
        return build(longs(self.rows, "hash"), longs(self.rows, "time")) if found is None else found

    def _from_files(self, read: "Callable[[RunFiles], Content]") -> Content | None:
        """None if the files cannot be used; the rows are then in memory."""
        if self.files is None:
            return None
        try:
            self.files.check(self.info)
            return read(self.files)
        except (OSError, DamagedRunError) as lost:
            if self._recover is None:
                raise
            self.files = None
            self._built = self._recover(self.info, lost)
            return None


class RunFiles:
    """The two files of a run.

    Any ordinary write changes the signature, so it is noticed without reading. Checksums notice changes without a
    write, as on a failing disk: a run is read completely on its first use after it was written, and after each start of
    the executor. `checked` names the starts that have read it. The check takes 40 to 80 ns a row (122 bytes, and 24 of
    the index; on a busy machine), of which 3 are for Arrow's arrays and for bounds. The catalog keeps the starts
    because workers take turns: if each worker checked for itself, it would read the run again. How much that would cost
    a join was not measured.
    """

    def __init__(
        self,
        folder: PrivateFolder,
        name: str,
        signature: list[list[int]] | None = None,
        checksums: list[int] | None = None,
        checked: list[str] | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a run")
        self.folder = folder
        self.name = name
        self.signature = signature or []
        self.checksums = checksums or []
        self.checked = checked or []

    @classmethod
    def from_entry(cls, folder: PrivateFolder, entry: dict[str, Any]) -> "RunFiles":
        return cls(folder, entry["name"], entry["signature"], entry["checksums"], entry["checked"])

    def to_entry(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "signature": self.signature,
            "checksums": self.checksums,
            "checked": self.checked[:_MAX_STARTS],
        }

    @property
    def names(self) -> list[str]:
        return [f"{self.name}.{suffix}" for suffix in _SUFFIXES]

    def intact(self) -> bool:
        """Whether the files are unchanged, as far as their signature tells."""
        try:
            return [_signature(self.folder.status(name)) for name in self.names] == self.signature
        except OSError:
            return False

    @classmethod
    def write(cls, folder: PrivateFolder, run: StoredRun) -> "RunFiles":
        files = cls(folder, uuid4().hex)
        try:
            for name, write in zip(files.names, (_write_rows, _write_index), strict=True):
                with folder.create(name) as file:
                    summed = _Summed(file)
                    write(summed, run)
                files.checksums.append(summed.checksum)
                files.signature.append(_signature(folder.status(name)))
        except OSError:
            for name in files.names:
                folder.remove(name)
            raise
        return files

    def check(self, info: RunInfo) -> None:
        """Raises unless the files are safe for the kernels, which do not check bounds."""
        if _START in self.checked:
            return
        contents = [self._mapped(number) for number in range(len(_SUFFIXES))]
        if [zlib.crc32(content) for content in contents] != self.checksums:
            raise DamagedRunError("its checksum is wrong")
        try:
            rows = checked_rows(contents[0])
            if rows.num_rows != info.rows or rows.column(0).num_chunks > 1:
                raise DamagedRunError("it has other rows than expected")
            check(_index_in(contents[1]), rows.num_rows)
        except (BlockError, ValueError) as broken:
            raise DamagedRunError(str(broken)) from broken
        self.checked = [_START, *self.checked]

    def read_rows(self) -> pa.Table:
        return pa.ipc.open_stream(self._mapped(0)).read_all()

    def read_index(self) -> Index:
        return _index_in(self._mapped(1))

    def _mapped(self, number: int) -> pa.Buffer:
        with self.folder.open(self.names[number]) as file:
            if _signature(os.fstat(file.fileno())) != self.signature[number]:
                raise DamagedRunError("it was changed")
            # Mapped by its descriptor, so it is the file just checked. Python's mmap would keep the descriptor open.
            return pa.memory_map(f"/dev/fd/{file.fileno()}").read_buffer()


class _Summed:
    """Writes to a file, and computes the checksum of the content."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.checksum = 0

    def write(self, content: Any) -> int:
        self.checksum = zlib.crc32(content, self.checksum)
        return self._file.write(content)


def _signature(found: os.stat_result) -> list[int]:
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _write_rows(file: _Summed, run: StoredRun) -> None:
    with pa.ipc.new_stream(pa.PythonFile(file, "w"), ROWS) as writer:
        writer.write_table(run.rows)


def _write_index(file: _Summed, run: StoredRun) -> None:
    columns = [getattr(run.index, name) for name, _ in _INDEX_COLUMNS]
    file.write(np.array([len(column) for column in columns], np.int64))
    for column in columns:
        file.write(np.ascontiguousarray(column))


def _index_in(content: pa.Buffer) -> Index:
    """Raises a ValueError if the content is shorter than its header says."""
    lengths = np.frombuffer(content, np.int64, len(_INDEX_COLUMNS))
    if lengths.min() < 0 or lengths.max() > content.size:
        raise ValueError("an index with columns of impossible lengths")
    at = lengths.nbytes
    columns: dict[str, Any] = {}
    for (name, kind), length in zip(_INDEX_COLUMNS, lengths.tolist(), strict=True):
        columns[name] = np.frombuffer(content, kind, length, at) if length else np.empty(0, kind)
        at += columns[name].nbytes
    return Index(**columns)
