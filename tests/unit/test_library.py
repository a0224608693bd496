"""The promises to programs that import balajoin: its names, typed constructors and defaults."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import balajoin
from balajoin.config import models
from balajoin.config.models import Config, JoinSettings, Kafka, Metrics, Output, Page, Run, Skew, Stream
from balajoin.errors import ConfigError

ROOT = Path(__file__).parents[2]
TYPED_BY_HAND = {"Skew": Skew, "JoinSettings": JoinSettings, "Run": Run, "Metrics": Metrics, "Page": Page}
REQUIRED: dict[str, Any] = {"before": "5 min", "after": "0 s", "checkpoint": "/c"}

PROGRAM = """\
from balajoin import JoinSettings, Kafka, Output, Skew, Stream
from balajoin.config.models import Metrics, Page, Run
from balajoin.testing import LocalCluster, Row

JoinSettings(before="10 min", after="0 s")
JoinSettings(before="10 min", after="0 s", type="left", nodes=8, skew=Skew(half_life="2 min", keys=["a"]))
JoinSettings(before="10 min", after="0 s", late_topic="late", max_rows_per_batch=None).nodes.bit_length()
JoinSettings(before="10 min", after="0 s").before_ms.bit_length()
Kafka(bootstrap_servers="a:9092", options={"client.id": "x"})
Stream(topic="clicks", key="json:$.user", starting_offsets="latest")
Output(topic="joined", delivery="at-least-once")
Run(checkpoint="/c", trigger="5 s")
Page(address="127.0.0.1:0")
Metrics(address=None)
LocalCluster(JoinSettings(before="1 s", after="0 s"), sources=2).feed(probe=[Row("a", time=1.5)])[0].build
JoinSettings(before="10 min")  # wrong: after is missing
JoinSettings(before="10 min", after="0 s", latenes="1 s")  # wrong: misspelt
JoinSettings(before=600, after="0 s")  # wrong: a number without a unit
JoinSettings(before="10 min", after="0 s", type="outer")  # wrong: no such type
Skew(treshold=0.1)  # wrong: misspelt
Kafka(bootstrap_server="a:9092")  # wrong: misspelt
Stream(topic="clicks", keys="a")  # wrong: misspelt
Stream(key="a")  # wrong: topic is missing
Output(topic="joined", delivery="once")  # wrong: no such delivery
Run(checkpoint="/c", trigger=5)  # wrong: a number without a unit
Page(adress="127.0.0.1:0")  # wrong: misspelt
Row("a")  # wrong: time is missing
LocalCluster(JoinSettings(before="1 s", after="0 s")).idle(60)  # wrong: a number without a unit
"""


def test_the_public_names_are_these() -> None:
    assert balajoin.__all__ == [
        "BalaJoinError",
        "BlockError",
        "ConfigError",
        "JoinSettings",
        "Kafka",
        "KafkaError",
        "Output",
        "Problem",
        "SetupError",
        "Skew",
        "StateError",
        "Stream",
        "join",
        "write_exactly_once",
    ]
    assert set(balajoin.__all__) <= set(dir(balajoin))
    assert all(getattr(balajoin, name) for name in balajoin.__all__)


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="Strem"):
        balajoin.Strem  # noqa: B018


def documented_imports() -> Iterator[tuple[str, str]]:
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for program in re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.S):
            for node in ast.walk(ast.parse(program)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("balajoin"):
                    yield from ((node.module or "", name.name) for name in node.names)


@pytest.mark.parametrize(("module", "name"), sorted({*documented_imports()}))
def test_what_the_documents_import_is_exported(module: str, name: str) -> None:
    package = import_module(module)
    assert hasattr(package, name)
    assert name in getattr(package, "__all__", [name])


def test_mypy_accepts_right_arguments_and_refuses_wrong_ones(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(program)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT / "streaming")},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line}
    assert {int(line) for line in re.findall(r"program\.py:(\d+): error", found)} == wrong, found


def typed_parameters(model: str) -> ast.arguments:
    """The constructor's parameters for type checkers: it takes durations as text and stores numbers."""
    tree = ast.parse(Path(models.__file__).read_text(encoding="utf-8"))
    (body,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == model]
    return next(node.args for node in ast.walk(body) if isinstance(node, ast.FunctionDef) and node.name == "__init__")


@pytest.mark.parametrize("model", TYPED_BY_HAND)
def test_typed_parameters_are_those_of_the_model(model: str) -> None:
    fields = {field.alias or name: field for name, field in TYPED_BY_HAND[model].model_fields.items()}
    parameters = typed_parameters(model)
    defaults = {name.arg: default for name, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)}
    assert defaults.keys() == fields.keys()
    assert {name for name, default in defaults.items() if default is None} == {
        name for name, field in fields.items() if field.is_required()
    }
    written = {name: ast.literal_eval(default) for name, default in defaults.items() if default is not None}
    given = {name: value for name, value in written.items() if value is not ...}
    required = {name: value for name, value in REQUIRED.items() if name in fields}
    assert TYPED_BY_HAND[model](**required, **given) == TYPED_BY_HAND[model](**required)


SIDE_TOPICS = ("dead_letter_topic", "late_topic", "control_topic", "replica_topic")


def side_topics(settings: JoinSettings) -> list[str]:
    return [getattr(settings, name) for name in SIDE_TOPICS]


def config(join: JoinSettings) -> Config:
    return Config(
        kafka=Kafka(bootstrap_servers="a:1"),
        probe=Stream(topic="clicks"),
        build=Stream(topic="shows"),
        join=join,
        output=Output(topic="joined"),
        run=Run(checkpoint="/c"),
    )


def test_side_topics_follow_the_output_of_a_service() -> None:
    join = config(JoinSettings(before="1 s", after="0 s", late_topic="mine")).join
    assert side_topics(join) == ["joined.dead-letter", "mine", "joined.control", "joined.replicas"]


def test_side_topics_follow_the_inputs_of_a_librarys_join() -> None:
    settings = JoinSettings(before="1 s", after="0 s", control_topic="mine")
    named = settings.of_inputs(Stream(topic="clicks"), Stream(topic="shows"))
    assert side_topics(named) == [
        "clicks-shows.dead-letter",
        "clicks-shows.late",
        "mine",
        "clicks-shows.replicas",
    ]
    assert named.of_inputs(Stream(topic="other"), Stream(topic="topics")) == named
    assert side_topics(settings.with_side_topics("x")) == ["x.dead-letter", "x.late", "mine", "x.replicas"]


def test_a_side_topic_has_a_name_that_kafka_takes() -> None:
    settings = JoinSettings(before="1 s", after="0 s")
    with pytest.raises(ConfigError, match="dead_letter_topic: not a Kafka topic name"):
        settings.with_side_topics("x" * 240)
    with pytest.raises(ConfigError, match="late_topic: not a Kafka topic name"):
        JoinSettings(before="1 s", after="0 s", late_topic="")


def test_a_user_cannot_ask_for_collisions() -> None:
    assert "hash_bits" not in signature(balajoin.join).parameters
