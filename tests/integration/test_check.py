"""`balajoin check` as a user sees it."""

import subprocess
import sys
from pathlib import Path

import pytest

from samples import join_toml

pytestmark = pytest.mark.spark

WRONG = join_toml(probe={"key": "no_such_column"}, build={"value": "cast(value as"})


def test_a_wrong_expression_is_told_in_a_line_and_without_sparks_log(tmp_path: Path) -> None:
    file = tmp_path / "join.toml"
    file.write_text(WRONG)
    command = [sys.executable, "-m", "balajoin", "check", "-c", str(file)]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 2
    assert told.stdout == ""
    title, *problems = told.stderr.splitlines()
    assert title == f"{file} has 3 problems:"
    assert [problem.strip().partition(":")[0] for problem in problems] == ["line 2", "line 5", "line 8"]
