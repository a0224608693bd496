"""`balajoin state`, on a complete checkpoint that an older balajoin wrote."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import old_states
from balajoin.errors import StateError
from old_summary import ROWS, old_summary
from samples import join_toml


@pytest.fixture
def old_checkpoint(tmp_path: Path) -> Path:
    return old_states.checkpoint(2, tmp_path)


def test_a_checkpoint_is_read_with_all_its_changelogs(spark: Any, old_checkpoint: Path) -> None:
    from balajoin.checkpoints.reading import read
    from balajoin.checkpoints.summary import summary

    before = _listing(old_checkpoint)
    found = summary(read(spark, str(old_checkpoint)))
    expected = old_summary()
    assert (found.nodes, found.sources, found.keys, found.pins) == (
        expected.nodes,
        expected.sources,
        expected.keys,
        expected.pins,
    )
    assert (found.batch, found.unfinished) == (2, None)
    assert found.offsets["probe"] == {"probe": {"0": 102, "1": 75}}
    assert _listing(old_checkpoint) == before


def _listing(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def _no_metadata(checkpoint: Path) -> None:
    (checkpoint / "metadata").unlink()


def _no_commits(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "commits")


def _no_router(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state" / "1")


def _no_state(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state")


def _other_variables(checkpoint: Path) -> None:
    (metadata,) = checkpoint.glob("state/0/_metadata/v2/0")
    metadata.write_text(metadata.read_text().replace('stateName\\":\\"state', 'stateName\\":\\"head'))


def _lost_changelog(checkpoint: Path) -> None:
    (checkpoint / "state" / "0" / "1" / "3.changelog").unlink()


def _cut_changelog(checkpoint: Path) -> None:
    changelog = checkpoint / "state" / "0" / "1" / "3.changelog"
    changelog.write_bytes(changelog.read_bytes()[:-100])


def _cut_offsets(checkpoint: Path) -> None:
    (checkpoint / "offsets" / "2").write_text("v1\n{}\n{")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (_no_metadata, "there is no checkpoint at"),
        (_no_commits, "holds nothing yet: no batch was finished"),
        (_no_router, "was not written by balajoin"),
        (_no_state, "was not written by balajoin"),
        (_other_variables, "another version of balajoin wrote the checkpoint"),
        (_lost_changelog, "cannot be read, or is of another join or another balajoin: restore it"),
        (_cut_changelog, "cannot be read, or is of another join or another balajoin: restore it"),
        (_cut_offsets, "cannot be read"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_read_is_said_in_one_line(
    spark: Any, old_checkpoint: Path, harm: Callable[[Path], None], message: str
) -> None:
    from balajoin.checkpoints.reading import explained, read
    from balajoin.checkpoints.summary import summary

    harm(old_checkpoint)
    for checksum in old_checkpoint.rglob(".*.crc"):
        checksum.unlink()
    with pytest.raises(StateError, match=message) as raised, explained(str(old_checkpoint)):
        summary(read(spark, str(old_checkpoint)))
    assert "\n" not in str(raised.value)
    assert str(old_checkpoint) in str(raised.value)


@pytest.mark.spark
def test_state_as_a_user_runs_it(old_checkpoint: Path) -> None:
    config = old_checkpoint.parent / "join.toml"
    run = {"checkpoint": str(old_checkpoint)}
    join = {"before": "5 min", "after": "2 min"}
    config.write_text(join_toml(probe={"topic": "probe"}, build={"topic": "other"}, join=join, run=run))

    def state(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, "-m", "balajoin", "state", *arguments], capture_output=True, text=True)

    shown = state("--checkpoint", str(old_checkpoint), "--json")
    assert shown.returncode == 0, shown.stderr
    assert [node["rows"] for node in json.loads(shown.stdout)["nodes"]] == ROWS
    refused = state("-c", str(config))
    assert refused.returncode == 1
    assert refused.stderr == (
        "balajoin: build.topic is 'other', but the checkpoint was made with 'build': stored rows are placed by it. "
        "Set it back, or use a new checkpoint location\n"
    )
