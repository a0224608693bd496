"""Spark's Python daemon, which imports everything that the operators need before it forks a worker.

To import pandas, Arrow and numba and to load the kernels takes 1.2 s. Spark starts several workers at once, and again
after a minute without work. A worker forked from this daemon has all of it.
"""

import gc
import sys
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path

from balajoin.spark.quickack import promptly

_OPERATORS_RUN_IN = "pyspark.worker"  # other workers only look at a query before it runs


def prefer_compiled_pyspark(path: list[str]) -> None:
    """Takes the archive of PySpark off the path where the same version is installed.

    On a cluster Spark puts the archive in its home first. It holds no compiled files: to import it takes 0.7 s instead
    of 0.15.
    """
    archives = [place for place in path if Path(place).name == "pyspark.zip" and zipfile.is_zipfile(place)]
    others = [place for place in path if place not in archives]
    installed = PathFinder.find_spec("pyspark", others)
    if installed is None or installed.origin is None:
        return
    version = Path(installed.origin).with_name("version.py").read_bytes()
    if all(_file_of(archive, "pyspark/version.py") == version for archive in archives):
        path[:] = others


def _file_of(archive: str, name: str) -> bytes | None:
    with zipfile.ZipFile(archive) as packed:
        return packed.read(name) if name in packed.namelist() else None


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
    prefer_compiled_pyspark(sys.path)
    from pyspark.daemon import manager

    if _OPERATORS_RUN_IN in sys.argv:
        preload()
    manager()
