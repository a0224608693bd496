import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from balajoin.config.redaction import Redactor, is_secret
from balajoin.errors import ConfigError
from balajoin.spark.session import (
    DEFAULT_MASTER,
    _compiled_pyspark,
    _on_loopback,
    _start,
    checkpoint_conf,
    session_conf,
)

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def conf(**changed: Any) -> dict[str, str]:
    defaults: dict[str, Any] = {
        "master": None,
        "app_name": "x",
        "spark_conf": {},
        "connector": [Path("/jars/a.jar"), Path("/jars/b.jar")],
        "nodes": None,
        "verbose": False,
    }
    return session_conf(**{**defaults, **changed})


def test_the_users_settings_win() -> None:
    assert conf()["spark.master"] == DEFAULT_MASTER
    assert conf(spark_conf={"spark.master": "local[1]"})["spark.master"] == "local[1]"
    assert conf(master="local[2]", spark_conf={"spark.master": "local[1]"})["spark.master"] == "local[2]"
    assert conf()["spark.ui.enabled"] == "false"
    assert conf(spark_conf={"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"
    assert conf(nodes=3)["spark.sql.shuffle.partitions"] == "3"


def test_jars_and_java_options_add_up() -> None:
    theirs = {
        "spark.jars": "/c.jar",
        "spark.driver.extraClassPath": "/d.jar",
        "spark.driver.extraJavaOptions": "-Dx=y",
    }
    for master, jars, class_path in (
        ("local[2]", "/c.jar", "/jars/a.jar:/jars/b.jar:/d.jar"),
        ("yarn", "/jars/a.jar,/jars/b.jar,/c.jar", "/d.jar"),
    ):
        both = conf(master=master, spark_conf=theirs)
        assert both["spark.jars"] == jars
        assert both["spark.driver.extraClassPath"] == class_path
        assert both["spark.driver.extraJavaOptions"].endswith("log4j2-spark.properties -Dx=y")


def test_who_chooses_a_collector_gets_that_one_alone() -> None:
    def collector(process: str, **changed: Any) -> str:
        return conf(**{"environ": {}, **changed}).get(f"spark.{process}.defaultJavaOptions", "")

    theirs = "-Xmx2g -XX:+UseG1GC"
    assert "-XX:+UseParallelGC" in collector("driver")
    assert "-XX:+UseParallelGC" in collector("executor")
    assert collector("driver", spark_conf={"spark.driver.extraJavaOptions": theirs}) == ""
    assert "Parallel" in collector("executor", spark_conf={"spark.driver.extraJavaOptions": theirs})
    assert collector("executor", spark_conf={"spark.executor.extraJavaOptions": theirs}) == ""
    assert collector("driver", environ={"JAVA_TOOL_OPTIONS": theirs}) == ""
    assert collector("driver", spark_conf={"spark.driver.defaultJavaOptions": "-Dx=y"}) == "-Dx=y"


def test_logging_is_quiet_unless_asked() -> None:
    for verbose, name in ((False, "log4j2-spark.properties"), (True, "log4j2-spark-verbose.properties")):
        settings = conf(verbose=verbose)["spark.driver.extraJavaOptions"].partition("=file://")[2]
        assert settings.endswith(f"/{name}")
        assert Path(settings).is_file()


@pytest.mark.parametrize(
    ("default_scheme", "local_master", "checkpoint", "on_local_disk"),
    [
        ("file", True, None, True),
        ("file", False, None, False),
        ("hdfs", True, None, False),
        ("file", True, "/var/lib/x", True),
        ("file", True, "relative/x", True),
        ("file", True, "file:///var/lib/x", True),
        ("file", True, "hdfs://host/x", False),
        ("file", True, "s3a://bucket/x", False),
        ("file", False, "file:///shared/x", True),
        ("hdfs", False, "/var/lib/x", False),
        ("hdfs", True, "relative/x", False),
        ("hdfs", False, "file:///shared/x", True),
    ],
)
def test_the_quick_file_manager_is_for_local_disks(
    default_scheme: str, local_master: bool, checkpoint: str | None, on_local_disk: bool
) -> None:
    assert (FILE_MANAGER in checkpoint_conf(checkpoint, default_scheme, local_master)) == on_local_disk


def test_beyond_this_machine_sparks_own_file_system_is_used() -> None:
    assert "spark.hadoop.fs.file.impl" in conf()
    assert "spark.hadoop.fs.file.impl" not in conf(master="spark://host:7077")


def test_only_a_local_spark_stays_on_loopback() -> None:
    assert conf()["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in conf(master="yarn")


def test_secrets_are_known_to_spark_so_that_it_hides_them() -> None:
    known = conf(redactor=Redactor(["hunter(2)"]), spark_conf={"spark.odd": "x hunter(2)"})
    for name in ("spark.redaction.regex", "spark.sql.redaction.string.regex"):
        assert re.search(known[name], known["spark.odd"])
        assert not re.search(known[name], "hunter2")
        assert is_secret(name) or re.search(known["spark.redaction.regex"], known[name])
    assert "spark.sql.redaction.string.regex" not in conf(redactor=Redactor([]))


def test_a_secret_that_only_a_command_line_could_carry_is_refused() -> None:
    risky = conf(spark_conf={"spark.driver.extraJavaOptions": "-Dpassword=hunter2"})
    with pytest.raises(ConfigError, match=r"spark\.spark\.driver\.extraJavaOptions: .*command line") as caught:
        _start(risky, Redactor(["hunter2"]), None)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("told", "changed", "expected"),
    [
        (None, {}, "127.0.0.1"),
        (None, {"spark_conf": {"spark.driver.bindAddress": "0.0.0.0"}}, "0.0.0.0"),
        ("10.0.0.1", {}, "10.0.0.1"),
        (None, {"master": "yarn"}, None),
    ],
)
def test_sparks_page_listens_where_the_driver_does(
    monkeypatch: pytest.MonkeyPatch, told: str | None, changed: dict[str, Any], expected: str | None
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    if told:
        monkeypatch.setenv("SPARK_LOCAL_IP", told)
    with _on_loopback(conf(**changed)):
        assert os.environ.get("SPARK_LOCAL_IP") == expected
    assert os.environ.get("SPARK_LOCAL_IP") == told


@pytest.mark.parametrize(
    ("home", "changed", "ours"),
    [
        (None, {}, True),
        (None, {"master": "yarn"}, False),
        (None, {"spark_conf": {"spark.pyspark.python": "/other/python"}}, False),
        ("/opt/spark", {}, False),
    ],
)
def test_workers_import_the_compiled_pyspark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str | None, changed: dict[str, Any], ours: bool
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    if home:
        monkeypatch.setenv("SPARK_HOME", home)
    for _ in range(2):  # the second time the folder exists
        with _compiled_pyspark(tmp_path, conf(**changed)):
            within = os.environ.get("SPARK_HOME")
        assert (within != home) == ours
        assert os.environ.get("SPARK_HOME") == home
    if ours:
        assert within is not None
        assert (Path(within) / "bin" / "spark-submit").is_file()
        assert not (Path(within) / "python").exists()


def test_what_spark_imports_at_each_start_of_a_query_is_light() -> None:
    """Spark imports it in a new process, and the query waits for that."""
    heavy = "{'numba', 'numpy', 'pandas', 'pyarrow', 'pydantic', 'confluent_kafka'}"
    program = f"import sys, balajoin.compute.processor; print(*{heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "\n"
