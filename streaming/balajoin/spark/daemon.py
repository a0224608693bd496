"""Spark's Python daemon, which imports everything that the operators need before it forks a worker.

To import pandas, Arrow and numba and to load the kernels takes 1.2 s. Spark starts several workers at once, and again
after a minute without work. A worker forked from this daemon has all of it.
"""

import gc
import sys

from pyspark.daemon import manager

from balajoin.spark.quickack import promptly

_OPERATORS_RUN_IN = "pyspark.worker"  # other workers only look at a query before it runs


def preload() -> None:
    import pyspark.worker

    import balajoin.compute.batch
    import balajoin.edge.pack
    import balajoin.routing.router
    import balajoin.sinks.writer  # noqa: F401
    from balajoin.spark.memory import giving_back
    from balajoin.spark.warm_up import load_kernels

    pyspark.worker.main = promptly(giving_back(pyspark.worker.main))
    load_kernels()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    if _OPERATORS_RUN_IN in sys.argv:
        preload()
    manager()
