"""A checkpoint path without a scheme is on Hadoop's default file system, local or not."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from balajoin.config.loading import load
from balajoin.kafka import topics
from kafka_data import Sent, send
from samples import join_toml

pytestmark = pytest.mark.spark

_PATIENCE_S = 120
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"

LOOK = f"""
import os, sys
from balajoin.spark.jars import default_cache
from balajoin.checkpoints.files import Folder
from balajoin.spark.session import create_session

place, *conf = sys.argv[1:]
spark = create_session(
    master="local[1]",
    app_name="look",
    cache=default_cache(os.environ),
    checkpoint=place,
    spark_conf=dict(setting.split("=", 1) for setting in conf),
)
print(spark.conf.get("{FILE_MANAGER}", None) is not None, Folder(spark, place).local_path)
spark.stop()
"""


def another_default(folder: Path) -> dict[str, str]:
    """Settings for a default file system with another scheme, which keeps its files in this folder."""
    folder.mkdir()
    return {
        "spark.hadoop.fs.defaultFS": "viewfs://cluster/",
        "spark.hadoop.fs.viewfs.mounttable.cluster.linkFallback": folder.as_uri(),
    }


@pytest.mark.parametrize("is_local", [True, False])
def test_only_a_local_default_makes_a_path_without_a_scheme_local(tmp_path: Path, is_local: bool) -> None:
    place = tmp_path / "a checkpoint#1"
    conf = {} if is_local else another_default(tmp_path / "cluster")
    program = [sys.executable, "-c", LOOK, str(place), *(f"{name}={value}" for name, value in conf.items())]
    told = subprocess.run(program, capture_output=True, text=True)
    assert told.stdout == f"{is_local} {place if is_local else None}\n", told.stderr


def test_a_service_whose_checkpoint_is_elsewhere_leaves_nothing_at_that_path_here(
    bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    names = {name: make_topic(name) for name in ("probe", "build", "out")}
    checkpoint, cluster = tmp_path / "joins" / "clicks", tmp_path / "cluster"
    conf = another_default(cluster)
    file = tmp_path / "join.toml"
    file.write_text(
        join_toml(
            kafka={"bootstrap_servers": bootstrap},
            **{side: {"topic": names[side]} for side in ("probe", "build")},
            join={"nodes": 2},
            output={"topic": names["out"]},
            run={"checkpoint": str(checkpoint), "trigger": "200 ms", "master": "local[2,2]"},
            spark=conf,
        )
    )
    config = load(file, {})
    topics.create_missing(config.kafka, topics.shapes(config), 1)
    for name in ("probe", "build"):
        send(bootstrap, names[name], [Sent(b"k", b"v", 1_700_000_000_000)])
    log = tmp_path / "log"
    with log.open("wb") as output:
        running = subprocess.Popen([sys.executable, "-m", "balajoin", "run", "-c", str(file)], stderr=output)
    try:
        done = cluster / checkpoint.relative_to("/") / "commits" / "0"
        deadline = time.monotonic() + _PATIENCE_S
        while not done.exists():
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        running.send_signal(signal.SIGTERM)
        assert running.wait(_PATIENCE_S) == 0
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
    assert not checkpoint.parent.exists()
