import os
from pathlib import Path
from typing import Any

import pytest

from balajoin.session import DEFAULT_MASTER, _compiled_pyspark, session_conf

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def conf(**changed: Any) -> dict[str, str]:
    defaults: dict[str, Any] = {
        "master": None,
        "app_name": "x",
        "spark_conf": {},
        "connector": [Path("/jars/a.jar"), Path("/jars/b.jar")],
        "nodes": None,
        "checkpoint": None,
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
    both = conf(spark_conf={"spark.jars": "/c.jar", "spark.driver.extraJavaOptions": "-Dx=y"})
    assert both["spark.jars"] == "/jars/a.jar,/jars/b.jar,/c.jar"
    assert both["spark.driver.extraJavaOptions"].endswith("log4j2-spark.properties -Dx=y")


def test_logging_is_quiet_unless_asked() -> None:
    for verbose, name in ((False, "log4j2-spark.properties"), (True, "log4j2-spark-verbose.properties")):
        settings = conf(verbose=verbose)["spark.driver.extraJavaOptions"].partition("=file://")[2]
        assert settings.endswith(f"/{name}")
        assert Path(settings).is_file()


@pytest.mark.parametrize(
    ("master", "checkpoint", "on_local_disk"),
    [
        (None, None, True),
        ("local", None, True),
        ("spark://host:7077", None, False),
        (None, "/var/lib/x", True),
        (None, "relative/x", True),
        (None, "file:///var/lib/x", True),
        (None, "hdfs://host/x", False),
        (None, "s3a://bucket/x", False),
        ("spark://host:7077", "file:///shared/x", True),
    ],
)
def test_the_quick_file_manager_is_for_local_disks(
    master: str | None, checkpoint: str | None, on_local_disk: bool
) -> None:
    assert (FILE_MANAGER in conf(master=master, checkpoint=checkpoint)) == on_local_disk


def test_only_a_local_spark_stays_on_loopback() -> None:
    assert conf()["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in conf(master="yarn")


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
    for _ in range(2):  # the second time it is there
        with _compiled_pyspark(tmp_path, conf(**changed)):
            within = os.environ.get("SPARK_HOME")
        assert (within != home) == ours
        assert os.environ.get("SPARK_HOME") == home
    if ours:
        assert within is not None
        assert (Path(within) / "bin" / "spark-submit").is_file()
        assert not (Path(within) / "python").exists()
