"""Starts a Spark session for the join. Its JVM does not get the terminal's Ctrl-C, and ends with the driver."""

import os
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from balajoin.config.redaction import SECRET_NAMES, Redactor, is_secret
from balajoin.errors import ConfigError, Problem, SetupError
from balajoin.spark import java, warm_up
from balajoin.spark.conf import REQUIRED_CONF, required_conf
from balajoin.spark.failures import innermost_cause
from balajoin.spark.jars import fetch
from balajoin.spark.jvm_output import JvmOutput

# A task is tried four times, so that one lost Python worker does not end the query. As many tasks at once as nodes, on
# fewer cores, made 5 % fewer rows a second with 12 % more CPU time (4 tasks on 2 cores).
DEFAULT_MASTER = "local[*,4]"

BASE_CONF = {
    **REQUIRED_CONF,
    # Spark sorts an operator's input in pages. Its default pages, up to 64 MiB of zeros a task, make the JVM's
    # collector mark the whole heap (see blocks.SENT_BLOCK_BYTES): 67 times in five runs of 1.1M rows, and 5 with these.
    "spark.buffer.pageSize": "960k",
    "spark.python.daemon.module": "balajoin.spark.daemon",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Spark starts a daemon for each environment that its operators' workers want. This setting is a variable for all
    # operators but `transformWithStateInPandas`: with it on, nodes have workers of their own, in twice the memory.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.redaction.regex": SECRET_NAMES,
    # Blocks are compressed and have a checksum before Spark sees them (see core.blocks).
    "spark.shuffle.checksum.enabled": "false",
    "spark.shuffle.compress": "false",
    # One file a task instead of one for each node, and none of them copied: 5 % less CPU time of an almost empty batch.
    "spark.shuffle.sort.bypassMergeThreshold": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Spark reads these only when its Java process starts.
_COMMAND_LINE_ONLY = ("spark.driver.extraJavaOptions", "spark.driver.extraClassPath", "spark.driver.defaultJavaOptions")
# A join makes much short-lived garbage and does not need short pauses. Spark's classes fill 150 MB; Java begins with
# room for 21 MB of them, and collects all garbage whenever it is full. The slower compiler took 39 % of a minute-old
# JVM's CPU time, so only code that runs all the time is compiled with it. With these thresholds the first result comes
# after 9.1 s instead of 10.0, and with a third of them after 9.9 (medians of five starts). Warm, all three join equally
# fast.
_JVM_OPTIONS = (
    "-XX:+UseParallelGC -XX:MetaspaceSize=256m "
    "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=20000 -XX:Tier4CompileThreshold=200000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)
_CHOOSES_COLLECTOR = re.compile(r"-XX:[+-]Use\w*GC\b")
_JVM_OPTIONS_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
# On one machine Spark should not listen to the network, nor depend on how the host's name resolves.
_LOCAL_CONF = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
# Where Hadoop's native library is missing, its local file system starts a process (chmod) for each file and folder that
# it makes, about 20 in each batch. This one asks the kernel: an almost empty batch takes 355 ms instead of 440.
_LOCAL_FILES_CONF = {"spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"}
# On a local disk the default manager runs a shell command per file, where Hadoop's native library is missing: 330 ms
# instead of 20 for an operator's commit.
LOCAL_CHECKPOINT_CONF = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}


def create_session(
    *,
    master: str | None,
    app_name: str,
    spark_conf: Mapping[str, str],
    cache: Path,
    nodes: int | None = None,
    checkpoint: str | None = None,
    verbose: bool = False,
    redactor: Redactor | None = None,
    environ: Mapping[str, str] = os.environ,
) -> SparkSession:
    """Starts Spark. `spark_conf` overrides the settings of this module. Spark hides the secrets that `redactor` knows.

    Without `checkpoint`, a local master assumes a checkpoint on the default file system.
    """
    if SparkContext._active_spark_context is not None:
        raise SetupError("a Spark session already runs in this process: stop it first")
    java.require(environ)
    _say_nothing_beside_exceptions(verbose)
    conf = session_conf(
        master=master,
        app_name=app_name,
        spark_conf=spark_conf,
        connector=fetch("connector", cache, environ=environ),
        nodes=nodes,
        verbose=verbose,
        redactor=redactor,
        environ=environ,
    )
    if is_local(conf["spark.master"]):
        warm_up.compile_kernels_in_background()
    with _on_loopback(conf), _compiled_pyspark(cache, conf):
        context = _start(conf, redactor or Redactor(()), checkpoint)
    if is_local(conf["spark.master"]) or "spark.pyspark.python" in conf:
        # PySpark would take the first `python3` of the PATH, which may lack balajoin
        context.pythonExec = conf.get("spark.pyspark.python", sys.executable)
    return SparkSession(context)


def _say_nothing_beside_exceptions(verbose: bool) -> None:
    """PySpark writes each exception of an expression, with its Java trace, to standard error before it raises it."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = not verbose


def session_conf(
    *,
    master: str | None,
    app_name: str,
    spark_conf: Mapping[str, str],
    connector: list[Path],
    nodes: int | None,
    verbose: bool,
    redactor: Redactor | None = None,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    chosen_master = master or spark_conf.get("spark.master", DEFAULT_MASTER)
    local = is_local(chosen_master)
    log_settings = Path(__file__).with_name("log4j2-spark-verbose.properties" if verbose else "log4j2-spark.properties")
    # On one machine the jars are on the class path: one of them reads files, which Spark does before it loads its jars.
    jars = "spark.driver.extraClassPath" if local else "spark.jars"
    separators = {"spark.driver.extraClassPath": os.pathsep, "spark.jars": ",", "spark.driver.extraJavaOptions": " "}
    added = {
        jars: separators[jars].join(map(str, connector)),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
    }
    joined = {name: separators[name].join(filter(None, (ours, spark_conf.get(name)))) for name, ours in added.items()}
    return {
        **BASE_CONF,
        **({**_LOCAL_CONF, **_LOCAL_FILES_CONF} if local else {}),
        **(required_conf(nodes) if nodes else {}),
        **(_redacting(redactor.pattern) if redactor and redactor.pattern else {}),
        "spark.app.name": app_name,
        **_jvm_conf(spark_conf, environ),
        **spark_conf,
        **joined,
        "spark.master": chosen_master,
    }


def _jvm_conf(spark_conf: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Our JVM options, unless the user has chosen a collector: Java refuses to start with two."""
    chosen = {"driver": [environ.get(name, "") for name in _JVM_OPTIONS_VARIABLES], "executor": []}
    return {
        f"spark.{process}.defaultJavaOptions": _JVM_OPTIONS
        for process, options in chosen.items()
        if not _CHOOSES_COLLECTOR.search(" ".join([*options, spark_conf.get(f"spark.{process}.extraJavaOptions", "")]))
    }


def _redacting(secrets: str) -> dict[str, str]:
    """Settings by which Spark hides these secrets in its settings and plans."""
    return {"spark.redaction.regex": f"{SECRET_NAMES}|{secrets}", "spark.sql.redaction.string.regex": secrets}


def _start(conf: Mapping[str, str], redactor: Redactor, checkpoint: str | None) -> SparkContext:
    """Starts the JVM in its own session, where the terminal's signals reach neither the JVM nor its children.

    The JVM ends with the driver, however the driver dies, because the pipe to its standard input breaks.
    """
    # Secret settings go through the gateway instead: every user of the machine can read a command line.
    visible = SparkConf(loadDefaults=False).setAll(
        [(name, value) for name, value in conf.items() if not is_secret(name) and redactor(value) == value]
    )
    for name in _COMMAND_LINE_ONLY:
        if redactor(conf.get(name, "")) != conf.get(name, ""):
            hint = "give it to the program in another way"
            raise ConfigError([Problem(f"spark.{name}", "Java's command line would show the secret to everyone", hint)])
    gateway = SparkContext._gateway or _launch_jvm(visible)
    complete = SparkConf(_jvm=gateway.jvm).setAll(list(conf.items()))
    default_scheme = _default_scheme(gateway.jvm, complete)
    for name, value in checkpoint_conf(checkpoint, default_scheme, is_local(conf["spark.master"])).items():
        complete.setIfMissing(name, value)
    try:
        return SparkContext(conf=complete, gateway=gateway)
    except Py4JJavaError as error:
        cause = innermost_cause(str(error))
        raise SetupError(f"Spark does not start: {cause}; check run.master and [spark]") from None


@contextmanager
def _on_loopback(conf: Mapping[str, str]) -> Iterator[None]:
    """A Spark that starts within the block has its web page, if it is on, on the driver's address."""
    if "SPARK_LOCAL_IP" in os.environ or not is_local(conf["spark.master"]):
        yield
        return
    os.environ["SPARK_LOCAL_IP"] = conf["spark.driver.bindAddress"]
    try:
        yield
    finally:
        del os.environ["SPARK_LOCAL_IP"]


@contextmanager
def _compiled_pyspark(cache: Path, conf: Mapping[str, str]) -> Iterator[None]:
    """The Python processes of a Spark that starts within the block import PySpark from where this process has it.

    By default they import the archive in Spark's home, which holds no compiled files: that takes 0.7 s instead of 0.15,
    and each start of a query waits for such a process. With a home without the archive they look further. On a cluster,
    or in a home that the user chose, Spark may need the archive.
    """
    if "SPARK_HOME" in os.environ or "spark.pyspark.python" in conf or not is_local(conf["spark.master"]):
        yield
        return
    installed = Path(pyspark.__file__).resolve().parent
    home = cache / f"spark-home-{pyspark.__version__}-{zlib.crc32(str(installed).encode()):08x}"
    home.mkdir(parents=True, exist_ok=True)
    for part in ("bin", "conf", "jars"):
        with suppress(FileExistsError):
            (home / part).symlink_to(installed / part)
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _launch_jvm(conf: SparkConf) -> Any:
    try:
        with JvmOutput() as output:
            place = {"start_new_session": True, "stderr": output.file_number}
            return launch_gateway(conf, place)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        raise SetupError(f"the Java process of Spark ended at its start: {output.explanation()}") from None


def is_local(master: str) -> bool:
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def checkpoint_conf(checkpoint: str | None, default_scheme: str, local_master: bool) -> dict[str, str]:
    """Settings for a checkpoint on a local disk only. A path without a scheme is on the default file system."""
    scheme = urlsplit(checkpoint or "").scheme or default_scheme
    is_known = checkpoint is not None or local_master
    return LOCAL_CHECKPOINT_CONF if is_known and scheme == "file" else {}


def _default_scheme(jvm: Any, conf: SparkConf) -> str:
    """The scheme of `fs.defaultFS`, which may come from `[spark]`, Spark's defaults or Hadoop's core-site.xml."""
    hadoop_conf = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(conf._jconf)
    return str(jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(hadoop_conf).getScheme())
