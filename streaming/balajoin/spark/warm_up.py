"""What can be done while Spark starts, so that the first batch does not wait for it."""

import os
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from balajoin.core import kernels
from balajoin.kafka.producer import Publisher
from balajoin.spark.child import Child

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def compile_kernels_in_background() -> None:
    """In a process of its own, if no process has compiled them before.

    Compiling all of them takes 20 s. The first worker would do it, and the first batch wait for it.
    """
    if not kernels.have_been_compiled():
        with open(os.devnull, "wb") as nowhere:
            Child([sys.executable, "-m", __name__], nowhere)


def import_while_java_starts(module: str) -> None:
    """The driver waits for Java for two seconds. Importing the join's plan takes a quarter of a second."""
    threading.Thread(target=import_module, args=(module,), name="import").start()


def start_workers_in_background(spark: "SparkSession", tasks: int, publisher: Publisher) -> None:
    """Lets Spark start its Python processes, and these their producers, while the caller plans a query."""

    def open_producer(batches: Iterator[Any]) -> Iterator[Any]:
        publisher.open()
        yield from batches

    def run() -> None:
        with suppress(Exception):  # the session may be stopped by now; if anything is wrong, the query will say so
            spark.range(0, tasks, 1, tasks).mapInArrow(open_producer, "id long").count()

    threading.Thread(target=run, name="start-workers", daemon=True).start()


def load_kernels() -> None:
    """Uses every kernel once: the first call compiles it, or reads it from numba's cache."""
    with kernels.only_compiler():
        _use_kernels()


def _use_kernels() -> None:
    import pyarrow as pa

    from balajoin.compute.pairs import PAIRS
    from balajoin.core.blocks import ROWS, concat, decode, encode
    from balajoin.core.spec import ResultFormat
    from balajoin.routing.rule import LEAST_SKEWED_ROWS
    from balajoin.sinks.values import ResultEncoder

    row = dict.fromkeys(ROWS.names, 0) | {"key": b"k", "value": b"v"}
    # Decoded, so that the arrays are read-only: numba compiles a kernel for writable and read-only ones separately.
    rows = concat([decode(encode(pa.Table.from_pylist([row] * LEAST_SKEWED_ROWS * 2, ROWS)))])  # skewed
    _route_two_batches(rows)
    _join_two_batches(rows)
    result = dict.fromkeys(PAIRS.names, 0) | {"key": b"k", "probe_value": b"v", "build_value": b"v"}
    shown = ResultFormat("inner", dict.fromkeys(("key", "probe_value", "build_value"), "binary"))
    ResultEncoder(shown).records(pa.Table.from_pylist([result], PAIRS))


def _route_two_batches(rows: "pa.Table") -> None:
    """The second batch restores what the first has left."""
    from balajoin.routing import policies
    from balajoin.routing.rule import Measure, SkewRule
    from balajoin.routing.source import Source

    for measure in get_args(Measure):
        make_policy = partial(policies.make, "bala-join", 2, 0, SkewRule(measure=measure))
        state = None
        for now_ms in range(2):
            source = Source.restore(0, 2, 0, 1, make_policy, state)
            source.route(now_ms, {"probe": [rows], "build": [rows]})
            state = source.state()


def _join_two_batches(rows: "pa.Table") -> None:
    """The second batch looks rows up in the files of the first. In each the other node pulls the key's build rows."""
    from balajoin.compute.exchange import Arrival, NodeInputs
    from balajoin.compute.node import Node
    from balajoin.core.hashing import home
    from balajoin.core.messages import Signal
    from balajoin.core.sides import SIDES
    from balajoin.core.spec import JoinSpec

    spec = JoinSpec(2, 0, 0, 0, 0, dict.fromkeys(SIDES, 1), {})
    hash_ = rows.column("hash")[0].as_py()
    number = home(hash_, spec.nodes)
    arrivals = [Arrival(side, 0, 0, 0, [rows]) for side in SIDES]
    inputs = NodeInputs(arrivals, [Signal(hash_, 1 - number, 0, again=True)])
    state, blocks = None, _Blocks()
    with tempfile.TemporaryDirectory() as folder:
        for batch in range(2):
            results = Node(spec, state, blocks, Path(folder), number).process(batch, inputs)
            deque(results, maxlen=0)
            state = results.outcome.state


class _Blocks(dict[int, bytes]):
    """Stored blocks in memory."""

    put = dict.__setitem__
    remove = dict.__delitem__


if __name__ == "__main__":
    os.nice(5)  # what starts beside it matters more
    load_kernels()
