"""A join continues with another number of nodes on a real broker, and still has the results of a batch join."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from balajoin.checkpoints import seed
from balajoin.checkpoints.lock import sole_user
from balajoin.checkpoints.reading import read
from balajoin.checkpoints.rescale import change
from balajoin.checkpoints.summary import summary
from balajoin.config.models import JoinSettings
from balajoin.config.pinned import pins
from balajoin.core.sides import SIDES
from balajoin.errors import StateError
from balajoin.observe import observed
from kafka_data import Sent, everything, send
from pipeline import AFTER_MS, BEFORE_MS, START, Pipeline, rows

CONFIG = """\
[kafka]
bootstrap_servers = "{running.bootstrap}"
[probe]
topic = "{running.probe.topic}"
[build]
topic = "{running.build.topic}"
[join]
type = "{running.type}"
before = "{before} ms"
after = "{after} ms"
lateness = "{running.lateness}"
nodes = {running.nodes}
control_topic = "{running.control}"
replica_topic = "{running.replicas}"
[output]
topic = "joined"
id = "header"
[run]
checkpoint = "{running.checkpoint}"
cache_dir = "{running.cache}"
master = "local[2,4]"
"""


def rescale(running: Pipeline, *arguments: str) -> "subprocess.CompletedProcess[str]":
    file = running.folder / "join.toml"
    file.write_text(CONFIG.format(running=running, before=BEFORE_MS, after=AFTER_MS))
    command = [sys.executable, "-m", "balajoin", "rescale", "-c", str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_join_goes_on_with_more_nodes_in_the_middle_of_pulls(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline(nodes=2, lateness="1 h", skew={"threshold": 0.1, "lease": "1 s"})
    for start in range(3):
        send(running.bootstrap, running.build.topic, rows(start, 100, first=100 * start))
        send(running.bootstrap, running.probe.topic, rows(start + 100, 300, first=100 * start))
        running.run_a_batch()
    before = running.results().count()

    new = running.folder / "rescaled"
    done = rescale(running, "--nodes", "3", "--to", str(new))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{new} is ready: set join.nodes = 3 and run.checkpoint =")
    running.place, running.nodes = "rescaled", 3
    unstarted = seed.unstarted(running.spark, str(new))
    assert unstarted is not None
    held = summary(unstarted)

    batches = running.run()
    assert all(batch["numInputRows"] < 100 for batch in batches), "rows were read again"
    owed = running.results().count() - before
    assert owed > 100
    assert owed == sum(node.owed for node in held.nodes)
    assert sum(node.rows["replicas"] + node.rows["fragment"] + len(node.leases) for node in held.nodes) == 0
    assert seed.unstarted(running.spark, str(new)) is None
    assert owed == running.assert_equals_batch_join() - before
    for start in range(3, 5):
        send(running.bootstrap, running.build.topic, rows(start, 100, first=100 * start))
        send(running.bootstrap, running.probe.topic, rows(start + 100, 300, first=100 * start))
        batches = running.run()
    assert running.assert_equals_batch_join() > 10_000
    assert everything(running.bootstrap, running.late) == []
    told = [json.loads(text) for batch in batches for text in observed.values(batch, observed.NODES).values() if text]
    assert {node["node"] for node in told if node["probe_rows"] > 10} == {0, 1, 2}


def test_rows_that_wait_for_a_match_go_on_waiting_under_fewer_nodes(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline(type="full", nodes=3, lateness="1 h", skew={"threshold": 0.1, "lease": "1 s"})
    for start in range(2):
        for topic, seed_ in ((running.build.topic, start), (running.probe.topic, 100 + start)):
            alone = [Sent(topic.encode(), b"%d" % n, START + (100 * start + n) * 1000, n % 2) for n in range(20)]
            send(running.bootstrap, topic, [*rows(seed_, 200, first=100 * start), *alone])
        running.run_a_batch()
    given = settings(running)
    change(
        running.spark,
        running.checkpoint,
        str(running.folder / "new"),
        2,
        given,
        pins(running.probe, running.build, given),
    )
    running.place, running.nodes, running.max_rows_per_batch = "new", 2, 2
    for later in range(1, 13):  # the last rows are the same on both sides, so each has a match
        for topic in (running.build.topic, running.probe.topic):
            at = START + later * 36_000_000
            send(running.bootstrap, topic, [Sent(b"end", b"e", at, partition) for partition in range(2)])
    running.run()
    assert running.assert_equals_batch_join() > 1000
    for side in SIDES:
        assert running.results().filter(f"{side}_offset is null").count() >= 40
    assert everything(running.bootstrap, running.late) == []


def settings(running: Pipeline, **others: Any) -> JoinSettings:
    given = {
        "type": running.type,
        "before": f"{BEFORE_MS} ms",
        "after": f"{AFTER_MS} ms",
        "nodes": running.nodes,
        "dead_letter_topic": running.dead,
        "late_topic": running.late,
        "control_topic": running.control,
        "replica_topic": running.replicas,
    }
    return JoinSettings(**{**given, **others})


def test_what_cannot_be_rescaled_is_refused_in_one_line(
    pipeline: Callable[..., Pipeline],
    tmp_path: Path,
) -> None:
    running = pipeline(nodes=2)
    send(running.bootstrap, running.build.topic, rows(0, 20))
    send(running.bootstrap, running.probe.topic, rows(1, 20))
    running.run()
    spark, old, new = running.spark, running.checkpoint, str(tmp_path / "new")
    given = pins(running.probe, running.build, settings(running))

    with pytest.raises(StateError, match="has 2 nodes already"):
        change(spark, old, new, 2, settings(running), given)
    with pytest.raises(StateError, match=r"probe\.topic is 'other', but the checkpoint was made with"):
        change(spark, old, new, 3, settings(running), {**given, "probe.topic": "other"})
    with pytest.raises(StateError, match="exists: choose another place"):
        change(spark, old, str(tmp_path), 3, settings(running), given)
    with pytest.raises(StateError, match="there is no checkpoint at"):
        change(spark, str(tmp_path / "nowhere"), new, 3, settings(running), given)
    assert not Path(new).exists()
    with sole_user(Path(old)):
        refused = rescale(running, "--nodes", "3", "--to", new)
        assert refused.returncode == 1
        assert refused.stderr == (
            f"balajoin: another process uses the checkpoint {old}: stop it, or give this one a checkpoint of its own\n"
        )

    batch = read(spark, old).batch
    begun = Path(old) / "offsets" / f"{batch + 1}"
    begun.write_text((Path(old) / "offsets" / f"{batch}").read_text())
    with pytest.raises(StateError, match=f"was stopped within batch {batch + 1}, or still runs: start it, stop it"):
        change(spark, old, new, 3, settings(running), given)
    begun.unlink()

    topics = "balajoin-topics.json"
    (Path(old) / topics).write_text("{}")
    change(spark, old, new, 3, settings(running), given)
    assert (Path(new) / topics).read_text() == "{}"
    running.place, running.nodes = "new", 4
    with pytest.raises(StateError, match=r"join\.nodes is 4, but the checkpoint .* was rescaled to 3"):
        running.run()
    (Path(new) / "balajoin-seed" / "manifest").unlink()
    with pytest.raises(StateError, match="was cut short: delete that folder, and rescale again"):
        running.run()
