"""Unit tests start no broker, Spark or browser; tests that do are integration tests."""

import os
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MARKERS = {"broker", "spark", "browser"}


def test_every_test_stands_where_its_kind_does(request: pytest.FixtureRequest) -> None:
    misplaced = [
        item.nodeid
        for item in request.session.items
        if item.path.is_relative_to(TESTS / "unit") == any(mark.name in MARKERS for mark in item.iter_markers())
    ]
    assert misplaced == []


def test_java_refuses_to_start_here(refusing_java: Path) -> None:
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    told = subprocess.run([java, "-version"], capture_output=True, text=True)
    assert told.returncode == 1
    assert "must not start a JVM" in told.stderr
    (refusing_java / "told").unlink()  # otherwise this test itself would fail for starting Java
