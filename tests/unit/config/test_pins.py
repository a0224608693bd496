"""No state, no error and no output of `balajoin state` shows an expression with a substitution."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import old_states
from balajoin.checkpoints.display import as_json, tables
from balajoin.checkpoints.summary import CheckpointSummary
from balajoin.compute.exchange import NodeInputs
from balajoin.compute.node import Node
from balajoin.compute.state import HEAD, NodeState
from balajoin.config.loading import load
from balajoin.config.models import Config
from balajoin.config.pinned import pins
from balajoin.core.pins import agreed, refuse_others, shown
from balajoin.core.spec import JoinSpec
from balajoin.errors import StateError
from balajoin.sinks.marker import Marker, deciding
from samples import join_toml
from strategies import Memory

INTERVAL = {"join.before": "5 min", "join.after": "0 ms"}
OLD, NEW = "swordfish-1", "swordfish-2"
EXPRESSION = "sha2(concat('${SALT}', cast(key as string)), 256)"


def _config(folder: Path, environ: Mapping[str, str], key: str = EXPRESSION, build_key: str = "key") -> Config:
    file = folder / "join.toml"
    probe, build = {"topic": "probe", "key": key}, {"topic": "build", "key": build_key}
    file.write_text(join_toml(probe=probe, build=build, join={"nodes": 2, "after": "2 min"}))
    return load(file, environ)


def _pins(folder: Path, environ: Mapping[str, str], key: str = EXPRESSION) -> dict[str, Any]:
    config = _config(folder, environ, key)
    return pins(config.probe, config.build, config.join)


def test_what_is_written_holds_nothing_of_the_expression_and_only_the_same_one_fits(tmp_path: Path) -> None:
    written = json.loads(json.dumps(agreed(None, _pins(tmp_path, {"SALT": OLD}))))
    assert OLD not in json.dumps(written)
    assert "sha2" not in json.dumps(written)
    assert written["build.key"] == "key"  # it has no substitution, so it is pinned as text
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

    assert NodeState.read(state).pins["probe.key"] == "key"
    with pytest.raises(StateError, match="another expression") as refused:
        node("value")
    assert "'key'" not in str(refused.value)
    results = node("key").process(3, NodeInputs())
    assert list(results) == []
    upgraded = NodeState.read(results.outcome.state).pins["probe.key"]
    assert upgraded.keys() == {"salt", "scrypt"}
    given = _pins(tmp_path, {"NAME": "key"}, "${NAME}")
    assert shown({"probe.key": "key", "build.key": "key"}, given) == {"probe.key": "***", "build.key": "key"}


def test_neither_people_nor_programs_are_shown_a_hash(tmp_path: Path) -> None:
    written = agreed(None, _pins(tmp_path, {"SALT": OLD}))
    found = CheckpointSummary("here", "a-b", 2, None, written, {}, [], [], {})
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


@pytest.mark.parametrize("setting", INTERVAL)
def test_an_interval_cannot_change_because_rows_of_a_wider_one_have_expired(setting: str) -> None:
    message = f"{setting} is '1 h', but the checkpoint was made with '{INTERVAL[setting]}': rows are stored for only as"
    with pytest.raises(StateError, match=message):
        refuse_others(INTERVAL, {**INTERVAL, setting: "1 h"})


def test_a_checkpoint_of_an_older_version_takes_the_interval_of_its_next_start() -> None:
    assert agreed({"join.nodes": 4}, {"join.nodes": 4, **INTERVAL}) == {"join.nodes": 4, **INTERVAL}
