"""Spark's Python daemon, with everything that the operators need already there when it forks a worker.

To import pandas, Arrow and numba and to load the kernels takes 1.2 s, and Spark starts several workers at once, also
again after a minute without work. Forked from here they have all of it.
"""

import gc
import sys

from pyspark.daemon import manager

from balajoin.spark.quickack import promptly

_OPERATORS_RUN_IN = "pyspark.worker"  # others, that look at a query before it runs, need nothing of it


def preload() -> None:
    import pyspark.worker

    import balajoin.compute.batch
    import balajoin.edge.pack
    import balajoin.routing.router
    import balajoin.sinks.writer  # noqa: F401
    from balajoin.spark.warm_up import load_kernels

    pyspark.worker.main = promptly(pyspark.worker.main)
    load_kernels()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    if _OPERATORS_RUN_IN in sys.argv:
        preload()
    manager()
