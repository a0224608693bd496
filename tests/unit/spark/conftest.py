"""A fake Java: tests choose its version and what it does instead of running Ivy."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

FakeJava = Callable[..., dict[str, str]]

JAVA_17 = 'openjdk version "17.0.1"'

_SCRIPT = """#!/bin/sh
if [ "$1" = -version ]; then
    echo '{version_text}' >&2
    exit {version_exit}
fi
while [ $# -gt 0 ]; do
    [ "$1" = -retrieve ] && jars=$(dirname "$2")
    shift
done
echo run >> "{runs}"
{ivy}
"""


@pytest.fixture
def fake_java(tmp_path: Path) -> FakeJava:
    """Returns an environment whose JAVA_HOME holds the fake. `runs.txt` there has a line for each run of Ivy."""

    def make(ivy: str = "exit 1", version_text: str = JAVA_17, version_exit: int = 0) -> dict[str, str]:
        home = tmp_path / f"java-{len(list(tmp_path.glob('java-*')))}"
        script = home / "bin" / "java"
        script.parent.mkdir(parents=True)
        script.write_text(
            _SCRIPT.format(version_text=version_text, version_exit=version_exit, runs=home / "runs.txt", ivy=ivy)
        )
        script.chmod(0o755)
        return {"JAVA_HOME": str(home), "PATH": os.environ["PATH"]}

    return make
