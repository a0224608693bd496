"""A standalone Spark: its master on the driver's host, and one worker with one core on each of the others.

Workers have balajoin installed, or its dependencies only: then the package comes with the query. Both ways are in
docs/operations.md.
"""

import importlib.util
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from balajoin.spark.child import Child
from geo.broker import await_line
from geo.hosts import Host, Hosts

_PORT = 7077
_MEMORY = "2200m"
_START_WITHIN_S = 180
_REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Package:
    """How executors get the package."""

    python: Path
    archive: Path | None = None
    """The package as a zip file; None if it is installed."""

    @property
    def conf(self) -> dict[str, str]:
        python = {"spark.pyspark.python": str(self.python)}
        if self.archive is None:
            # As installed: the modules of this checkout, with the kernels that an earlier run has compiled.
            return {**python, "spark.executorEnv.PYTHONPATH": str(_REPOSITORY / "streaming")}
        return {
            **python,
            "spark.files": self.archive.as_uri(),
            "spark.executorEnv.PYTHONPATH": self.archive.name,
        }


@dataclass(frozen=True)
class SparkCluster:
    hosts: Hosts

    @property
    def url(self) -> str:
        return f"spark://{self.hosts.driver.address}:{_PORT}"

    def start(self) -> None:
        driver = self.hosts.driver
        log = driver.folder / "master.log"
        main = "org.apache.spark.deploy.master.Master"
        where = ("--host", driver.address, "--port", str(_PORT), "--webui-port", "8080")
        master = driver.start([_spark_class(), main, *where], log, self._environment(driver))
        await_line(log, "I have been elected leader", _START_WITHIN_S, master)
        for worker, process in [(worker, self.start_worker(worker)) for worker in self.hosts.workers]:
            await_line(worker.folder / "worker.log", "Successfully registered with master", _START_WITHIN_S, process)

    def start_worker(self, worker: Host) -> Child:
        size = ("--cores", "1", "--memory", _MEMORY, "--work-dir", str(worker.folder / "work"))
        command = [_spark_class(), "org.apache.spark.deploy.worker.Worker", "--host", worker.address, *size, self.url]
        return worker.start(command, worker.folder / "worker.log", self._environment(worker))

    @staticmethod
    def _environment(host: Host) -> dict[str, str]:
        local = {"SPARK_LOCAL_IP": host.address, "SPARK_LOCAL_DIRS": str(host.folder / "tmp")}
        # Workers must not find the package by chance.
        return {**local, "SPARK_HOME": str(_spark_home()), "SPARK_DAEMON_MEMORY": "256m", "PYTHONPATH": ""}


def installed() -> Package:
    return Package(Path(sys.executable))


def shipped(folder: Path) -> Package:
    """Makes a Python with balajoin's dependencies only, and a zip file of the package."""
    python = folder / "python"
    venv.create(python, with_pip=False, symlinks=True)
    (site,) = python.glob("lib/python*/site-packages")
    dependencies = _spark_home().parent
    # The folder is on the path, but the .pth files in it are not read: an editable balajoin stays out.
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    interpreter = python / "bin" / "python"
    # An editable install also has a folder of that name there, with Kafka's files, but no modules.
    tried = [str(interpreter), "-c", "import balajoin.errors"]
    if subprocess.run(tried, capture_output=True, cwd=folder, env={}).returncode == 0:
        raise RuntimeError(f"balajoin is installed in {dependencies}: use an editable install, as `make venv` makes it")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(_REPOSITORY)], check=True
    )
    (wheel,) = folder.glob("balajoin-*.whl")
    return Package(interpreter, wheel.rename(folder / "balajoin.zip"))


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found
    assert found.origin
    return Path(found.origin).parent


def _spark_class() -> str:
    return os.fspath(_spark_home() / "bin" / "spark-class")
