"""Reads and writes files of a checkpoint, on any file system that Spark reaches."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


class Folder:
    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        path = jvm.org.apache.hadoop.fs.Path(location)
        self._system = path.getFileSystem(spark._jsc.hadoopConfiguration())
        self._root = self._system.makeQualified(path)

    @property
    def location(self) -> str:
        return str(self._root.toString())

    @property
    def local_path(self) -> Path | None:
        """The folder's path on this machine's disk; None for a folder on another file system."""
        uri = self._root.toUri()
        return Path(str(uri.getPath())) if str(uri.getScheme()) == "file" else None

    def exists(self, name: str = "") -> bool:
        return bool(self._system.exists(self._path(name)))

    def numbers(self, folder: str) -> list[int]:
        """The batch numbers in one of Spark's logs, whose files are named by batch."""
        if not self.exists(folder):
            return []
        names = [str(status.getPath().getName()) for status in self._system.listStatus(self._path(folder))]
        return sorted(int(name) for name in names if name.isdecimal())

    def read(self, name: str) -> bytes:
        stream = self._system.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes, *, replace: bool = False) -> None:
        stream = self._system.create(self._path(name), replace)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def delete(self) -> None:
        self._system.delete(self._root, True)

    def within(self, name: str) -> str:
        return str(self._path(name).toString())

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root
