"""Expressions that hold substitutions stand in no state, no error and no output of `balajoin state`."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from rich.console import Console

import old_states
from balajoin.checkpoints.display import as_json, tables
from balajoin.checkpoints.summary import Summary
from balajoin.compute import head
from balajoin.compute.head import HEAD
from balajoin.compute.node import Node
from balajoin.config.loading import load
from balajoin.config.models import Config
from balajoin.config.pinned import pins
from balajoin.core.pins import agreed, refuse_others, shown
from balajoin.core.spec import JoinSpec
from balajoin.errors import StateError
from balajoin.sinks.marker import Marker, deciding
from balajoin.spark.failures import Place, explain, trace_of
from kafka_data import send
from pipeline import Pipeline, rows
from strategies import Memory

INTERVAL = {"join.before": "5 min", "join.after": "0 ms"}
OLD, NEW = "swordfish-1", "swordfish-2"
EXPRESSION = "sha2(concat('${SALT}', cast(key as string)), 256)"


def _config(
    folder: Path, environ: Mapping[str, str], key: str = EXPRESSION, build_key: str = "key", checkpoint: str = "/c"
) -> Config:
    file = folder / "join.toml"
    file.write_text(f"""\
[kafka]
bootstrap_servers = "127.0.0.1:1"
[probe]
topic = "probe"
key = "{key}"
[build]
topic = "build"
key = "{build_key}"
[join]
nodes = 2
before = "5 min"
after = "2 min"
[output]
topic = "joined"
[run]
checkpoint = "{checkpoint}"
""")
    return load(file, environ)


def _pins(folder: Path, environ: Mapping[str, str], key: str = EXPRESSION) -> dict[str, Any]:
    config = _config(folder, environ, key)
    return pins(config.probe, config.build, config.join)


def test_what_is_written_holds_nothing_of_the_expression_and_only_the_same_one_fits(tmp_path: Path) -> None:
    written = json.loads(json.dumps(agreed(None, _pins(tmp_path, {"SALT": OLD}))))
    assert OLD not in json.dumps(written)
    assert "sha2" not in json.dumps(written)
    assert written["build.key"] == "key"  # it holds no substitution, and is pinned as it is
    assert agreed(written, _pins(tmp_path, {"SALT": OLD})) == written
    refuse_others(written, _pins(tmp_path, {}, EXPRESSION.replace("${SALT}", OLD)))
    for other in (
        _pins(tmp_path, {"SALT": NEW}),
        _pins(tmp_path, {"SALT": OLD}, "key"),
        _pins(tmp_path, {"SALT": OLD}, "concat('${SALT}', key)"),
    ):
        with pytest.raises(StateError, match=r"^probe\.key is another expression than the checkpoint") as refused:
            refuse_others(written, other)
        assert "sha2" not in str(refused.value)
        assert "swordfish" not in str(refused.value)


def test_each_checkpoint_has_its_own_salt(tmp_path: Path) -> None:
    first, second = (agreed(None, _pins(tmp_path, {"SALT": OLD}))["probe.key"] for _ in range(2))
    assert first["salt"] != second["salt"]
    assert first["scrypt"] != second["scrypt"]


@pytest.mark.parametrize("written", [{}, {"salt": 1, "scrypt": []}, {"salt": "a", "scrypt": "b"}, None, 7, ["key"]])
def test_a_made_up_pin_is_another_expression(tmp_path: Path, written: Any) -> None:
    given = _pins(tmp_path, {"SALT": OLD})
    with pytest.raises(StateError, match=r"probe\.key is another expression"):
        refuse_others({**agreed(None, given), "probe.key": written}, given)


def test_a_pin_in_plain_text_of_an_older_balajoin_fits_and_becomes_a_hash(tmp_path: Path) -> None:
    nodes, _ = old_states.states(2)
    durable = Memory()
    state = nodes[0].pop(HEAD)
    for number, block in nodes[0].items():
        durable.put(number, block)

    def node(name: str) -> Node:
        given = _pins(tmp_path, {"NAME": name}, "${NAME}")
        spec = JoinSpec(2, 300_000_000, 120_000_000, 600_000_000, 60_000, {"probe": 2, "build": 2}, given)
        return Node(spec, state, durable, tmp_path / "cache", 0)

    assert head.read(state)["pins"]["probe.key"] == "key"
    with pytest.raises(StateError, match="another expression") as refused:
        node("value")
    assert "'key'" not in str(refused.value)
    upgraded = head.read(node("key").state())["pins"]["probe.key"]
    assert upgraded.keys() == {"salt", "scrypt"}
    given = _pins(tmp_path, {"NAME": "key"}, "${NAME}")
    assert shown({"probe.key": "key", "build.key": "key"}, given) == {"probe.key": "***", "build.key": "key"}


def test_neither_people_nor_programs_are_shown_a_hash(tmp_path: Path) -> None:
    written = agreed(None, _pins(tmp_path, {"SALT": OLD}))
    found = Summary("here", "a-b", 2, None, written, {}, [], [], {})
    assert as_json(found)["settings"]["probe.key"] == "***"
    console = Console(width=200, record=True, file=io.StringIO())
    for part in tables(found, 5):
        console.print(part)
    assert "probe.key ***, build.key key" in console.export_text()


def test_markers_on_the_commit_topic_hold_no_expression(tmp_path: Path) -> None:
    config = _config(tmp_path, {"SALT": OLD}, EXPRESSION, EXPRESSION)
    marker = Marker("query", 0, 1, 2, 3, deciding(config.join)).to_json().decode()
    assert "swordfish" not in marker
    assert "sha2" not in marker


def test_a_rotated_secret_shows_nowhere(
    pipeline: Callable[..., Pipeline],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG, "balajoin")
    running = pipeline(nodes=2, lateness="1 h")
    topics = {"probe": running.probe.topic, "build": running.build.topic}

    def use(secret: str) -> None:
        config = _config(tmp_path, {"SALT": secret}, EXPRESSION, EXPRESSION, running.checkpoint)
        running.probe, running.build = (
            stream.model_copy(update={"topic": topics[side]})
            for side, stream in (("probe", config.probe), ("build", config.build))
        )
        file = tmp_path / "join.toml"
        text = file.read_text()
        for side, topic in topics.items():
            text = text.replace(f'topic = "{side}"', f'topic = "{topic}"')
        file.write_text(text)

    def state(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, "-m", "balajoin", "state", *arguments], capture_output=True, text=True)

    use(OLD)
    for start in range(2):  # the second finds the first one's salt
        send(running.bootstrap, running.build.topic, rows(start, 20, first=20 * start))
        send(running.bootstrap, running.probe.topic, rows(start + 100, 30, first=20 * start))
        running.run()
    assert running.assert_equals_batch_join() > 100
    monkeypatch.setenv("SALT", OLD)
    outputs = [
        state("--checkpoint", running.checkpoint),
        state("--checkpoint", running.checkpoint, "--json"),
        state("-c", str(tmp_path / "join.toml")),
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
    refused = state("-c", str(tmp_path / "join.toml"))
    assert refused.returncode == 1
    assert "key is another expression than the checkpoint was made with" in refused.stderr
    texts = [reason, trace_of(failed.value), caplog.text, refused.stdout, refused.stderr]
    texts += [text for output in outputs for text in (output.stdout, output.stderr)]
    assert [text for text in texts if OLD in text] == []


@pytest.mark.parametrize("setting", INTERVAL)
def test_an_interval_cannot_change_because_rows_of_a_wider_one_have_expired(setting: str) -> None:
    message = f"{setting} is '1 h', but the checkpoint was made with '{INTERVAL[setting]}': rows are stored for only as"
    with pytest.raises(StateError, match=message):
        refuse_others(INTERVAL, {**INTERVAL, setting: "1 h"})


def test_a_checkpoint_of_an_older_version_takes_the_interval_of_its_next_start() -> None:
    assert agreed({"join.nodes": 4}, {"join.nodes": 4, **INTERVAL}) == {"join.nodes": 4, **INTERVAL}
