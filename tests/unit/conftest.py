"""Fails any unit test that starts a JVM."""

from collections.abc import Iterator
from pathlib import Path

import pytest

_SCRIPT = """#!/bin/sh
echo 'unit tests must not start a JVM: move this test to tests/integration' | tee '{told}' >&2
exit 1
"""


@pytest.fixture(scope="session")
def refusing_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("java")
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SCRIPT.format(told=home / "told"))
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_java(refusing_java: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("JAVA_HOME", str(refusing_java))
    yield
    told = refusing_java / "told"
    if told.exists():
        told.unlink()
        pytest.fail("the test has started Java: move it to tests/integration")
