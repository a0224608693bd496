"""Ivy, run by a real Java."""

from pathlib import Path

import pytest

from balajoin.errors import SetupError
from balajoin.spark.jars import fetch

pytestmark = pytest.mark.spark


def test_real_ivy_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    with pytest.raises(SetupError, match=r"^cannot fetch the connector jars: [^\n]*Maven Central[^\n]*$") as caught:
        fetch("connector", tmp_path)
    assert "spark-sql-kafka" in str(caught.value)
