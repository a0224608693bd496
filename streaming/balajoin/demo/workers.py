"""Spark's Python workers, brought up before there is a row for them.

They load pandas, Arrow and the kernels, which after an installation have to be compiled first. Left to the first batch,
that made it take 20 s instead of 6 (2 cores, busy).
"""

import threading
from contextlib import suppress

from pyspark.sql import SparkSession


def start_workers(spark: SparkSession) -> threading.Thread:
    """A thread that ends once they are up, or cannot be: then the first batch tells why."""

    def run() -> None:
        cores = spark.sparkContext.defaultParallelism
        with suppress(Exception):
            spark.range(0, cores, 1, cores).mapInArrow(iter, "id bigint").collect()

    thread = threading.Thread(target=run, name="demo-workers", daemon=True)
    thread.start()
    return thread
