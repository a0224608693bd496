"""A secret in an expression stays hidden in a complete join and in `balajoin state`."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from balajoin.config.loading import load
from balajoin.spark.failures import Place, explain, trace_of
from kafka_data import send
from pipeline import Pipeline, rows
from samples import join_toml

OLD, NEW = "swordfish-1", "swordfish-2"
EXPRESSION = "sha2(concat('${SALT}', cast(key as string)), 256)"


def test_a_rotated_secret_shows_nowhere(
    pipeline: Callable[..., Pipeline],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG, "balajoin")
    running = pipeline(nodes=2, lateness="1 h")
    file = tmp_path / "join.toml"
    file.write_text(
        join_toml(
            probe={"topic": running.probe.topic, "key": EXPRESSION},
            build={"topic": running.build.topic, "key": EXPRESSION},
            join={"nodes": 2, "after": "2 min"},
            run={"checkpoint": running.checkpoint},
        )
    )

    def use(secret: str) -> None:
        config = load(file, {"SALT": secret})
        running.probe, running.build = config.probe, config.build

    def state(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, "-m", "balajoin", "state", *arguments], capture_output=True, text=True)

    use(OLD)
    for start in range(2):  # the second start finds the salt of the first
        send(running.bootstrap, running.build.topic, rows(start, 20, first=20 * start))
        send(running.bootstrap, running.probe.topic, rows(start + 100, 30, first=20 * start))
        running.run()
    assert running.assert_equals_batch_join() > 100
    monkeypatch.setenv("SALT", OLD)
    outputs = [
        state("--checkpoint", running.checkpoint),
        state("--checkpoint", running.checkpoint, "--json"),
        state("-c", str(file)),
    ]
    assert [output.returncode for output in outputs] == [0, 0, 0], outputs
    assert json.loads(outputs[1].stdout)["settings"]["probe.key"] == "***"

    use(NEW)
    send(running.bootstrap, running.probe.topic, rows(200, 30, first=40))
    with pytest.raises(StreamingQueryException) as failed:
        running.run()
    reason = str(explain(trace_of(failed.value), Place("", "", "")))
    assert "key is another expression than the checkpoint was made with" in reason
    monkeypatch.setenv("SALT", NEW)
    refused = state("-c", str(file))
    assert refused.returncode == 1
    assert "key is another expression than the checkpoint was made with" in refused.stderr
    texts = [reason, trace_of(failed.value), caplog.text, refused.stdout, refused.stderr]
    texts += [text for output in outputs for text in (output.stdout, output.stderr)]
    assert [text for text in texts if OLD in text] == []
