"""What can be done while Spark starts, so that the first batch does not wait for it."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from balajoin.core import kernels
from balajoin.spark.child import Child

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compile_kernels_in_background() -> None:
    """In a process of its own, if no process has compiled them before.

    Compiling all of them takes 20 s. The first worker would do it, and the first batch wait for it.
    """
    if not kernels.have_been_compiled():
        with open(os.devnull, "wb") as nowhere:
            Child([sys.executable, "-m", __name__], nowhere)


def start_workers_in_background(spark: "SparkSession", tasks: int) -> None:
    """Lets Spark start its Python processes while the caller plans a query."""

    def run() -> None:
        with suppress(Exception):  # the session may be stopped by now; if anything is wrong, the query will say so
            spark.range(0, tasks, 1, tasks).mapInArrow(_unchanged, "id long").count()

    threading.Thread(target=run, name="start-workers", daemon=True).start()


def _unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def load_kernels() -> None:
    """Uses every kernel once: the first call compiles it, or reads it from numba's cache."""
    with kernels.only_compiler():
        _use_kernels()


def _use_kernels() -> None:
    import pyarrow as pa

    from balajoin.compute.index import build, matches, rows_with
    from balajoin.compute.pairs import PAIRS
    from balajoin.core.blocks import ROWS, concat, decode, encode, longs, partition_by
    from balajoin.core.hashing import homes
    from balajoin.core.spec import ResultFormat, Window
    from balajoin.routing import policies
    from balajoin.routing.rule import SkewRule
    from balajoin.routing.source import Source
    from balajoin.sinks.values import ResultEncoder

    row = dict.fromkeys(ROWS.names, 0) | {"key": b"k", "value": b"v"}
    # Decoded, so that the arrays are read-only: numba compiles a kernel for writable and read-only ones separately.
    rows = concat([decode(encode(pa.Table.from_pylist([row, row], ROWS)))])
    index = build(longs(rows, "hash"), longs(rows, "time"))
    list(matches(rows, index, rows, Window(0, 0)))
    rows_with(index, longs(rows, "hash")[:1])
    partition_by(rows, homes(longs(rows, "hash"), 2), 2)
    policy = policies.make("bala-join", 2, 0, SkewRule())
    Source(0, 2, 0, 1, policy).route(0, {"probe": [rows], "build": [rows]})
    result = dict.fromkeys(PAIRS.names, 0) | {"key": b"k", "probe_value": b"v", "build_value": b"v"}
    shown = ResultFormat("inner", dict.fromkeys(("key", "probe_value", "build_value"), "binary"))
    ResultEncoder(shown).records(pa.Table.from_pylist([result], PAIRS))


if __name__ == "__main__":
    os.nice(5)  # what starts beside it matters more
    load_kernels()
