"""Follows the steps of CONTRIBUTING.md to add a policy, literally, in a copy of the package."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text()
STEP = re.compile(
    r"^\*\*\d\.\*\* (?:Create|Register the name in) `(?P<file>\S+)`.*?^```(\w+)\n(?P<code>.*?)^```$", re.M | re.S
)


class Step(NamedTuple):
    file: str
    code: str


def steps() -> Iterator[Step]:
    section = PAGE.partition("\n## Add a policy\n")[2].partition("\n## ")[0]
    return (Step(found["file"], found["code"]) for found in STEP.finditer(section))


def apply(step: Step, tree: Path) -> None:
    file = tree / step.file
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(step.code)
        return
    lines = step.code.splitlines()
    old, new = ("\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
    text = file.read_text()
    assert text.count(old) == 1, f"{step.file} has no line {old}"
    file.write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests, with the policy of CONTRIBUTING.md added."""
    tree = tmp_path_factory.mktemp("copy")
    for folder in ("streaming", "tests"):
        shutil.copytree(
            REPOSITORY / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", "data", "soak")
        )
    shutil.copy(REPOSITORY / "pyproject.toml", tree)
    for step in steps():
        apply(step, tree)
    return tree


def in_tests(name: str, tree: Path = REPOSITORY) -> Path:
    return next((tree / "tests").rglob(name))


def run(tree: Path, *command: str) -> None:
    environ = os.environ | {"PYTHONPATH": f"{tree / 'streaming'}:{tree / 'tests'}"}
    ended = subprocess.run([sys.executable, "-m", *command], cwd=tree, env=environ, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_page_creates_a_policy_and_a_test_and_registers_the_name() -> None:
    assert [Path(step.file).name for step in steps()] == ["two_nodes.py", "rule.py", "test_two_nodes.py"]


def test_the_policy_of_the_page_does_what_its_test_says(tree: Path) -> None:
    """The policy also passes the tests for all policies, which take the names from `PolicyName`."""
    *_, own = steps()
    shared = in_tests("test_policies.py", tree)
    run(tree, "pytest", "-q", "-p", "no:cacheprovider", own.file, str(shared), "-k", "two_nodes or two-nodes")


def test_the_policy_of_the_page_passes_lint(tree: Path) -> None:
    files = [step.file for step in steps()]
    run(tree, "ruff", "check", "--no-cache", *files)
    run(tree, "ruff", "format", "--no-cache", "--check", *files)


def test_the_page_has_the_layers_that_are_tested() -> None:
    rows = re.findall(r"^\| (\d) \| (.+) \|$", PAGE, re.M)
    named = [set(re.findall(r"`(\w+)`", packages)) for _, packages in rows]
    layers = runpy.run_path(str(in_tests("test_layers.py")))["LAYERS"]
    assert named == [parts for parts in layers if "__main__" not in parts]
