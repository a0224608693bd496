"""What the operators need from the Python worker of Spark that runs them."""

import gc
import os
import socket
from functools import cache
from pathlib import Path

from pyspark import TaskContext

from balajoin.core.messages import Stamp


@cache
def settle() -> None:
    """Hides all objects that exist by now from the garbage collector.

    Spark's worker runs a full collection after each task; over the objects of pandas, numba and pyarrow that takes
    ~100 ms, eight times a batch at n = 4 (measured: a fifth of a 500k-row batch, most of an almost empty one).
    """
    gc.collect()
    gc.freeze()


@cache
def machine() -> str:
    """Names the network that this process is in: a machine's, or a container's own."""
    try:
        booted = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{booted}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:  # not Linux
        return socket.gethostname()


def current_stamp(plan: str = "") -> Stamp:
    """The stamp of this task's batch. Every attempt at the task has the same."""
    context = TaskContext.get()
    assert context is not None
    join, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    assert join is not None
    assert batch is not None
    return Stamp(join, int(batch), plan)
