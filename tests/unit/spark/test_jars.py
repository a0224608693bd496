import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from balajoin.errors import SetupError
from balajoin.spark import jars
from balajoin.spark.jars import default_cache, fetch

FakeJava = Callable[..., dict[str, str]]

FETCHES_TWO = 'mkdir -p "$jars"; echo a > "$jars/a-1.jar"; echo b > "$jars/b-2.jar"'
FAILS_MIDWAY = 'mkdir -p "$jars"; echo a > "$jars/a-1.jar"; echo "download failed: b-2.jar"; exit 1'
NO_JAVA = {"PATH": ""}


def runs(environ: dict[str, str]) -> int:
    count = Path(environ["JAVA_HOME"]) / "runs.txt"
    return len(count.read_text().splitlines()) if count.exists() else 0


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"not within 20 s: {what}"
        time.sleep(0.02)


def fetch_in_other_process(cache: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    code = (
        "import sys; from pathlib import Path; from balajoin.spark.jars import fetch;"
        "print(*(jar.name for jar in fetch('broker', Path(sys.argv[1]), notice=print)), flush=True)"
    )
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, "-c", code, str(cache)], env={**environ, **path}, stdout=subprocess.PIPE, text=True
    )


def test_second_call_needs_neither_java_nor_network(tmp_path: Path, fake_java: FakeJava) -> None:
    environ = fake_java(FETCHES_TWO)
    first = fetch("broker", tmp_path / "cache", environ=environ)
    assert names(first) == ["a-1.jar", "b-2.jar"]
    assert first[0].read_text() == "a\n"
    assert fetch("broker", tmp_path / "cache", environ=NO_JAVA) == first
    assert runs(environ) == 1


def test_notice_is_given_for_a_download_only(tmp_path: Path, fake_java: FakeJava) -> None:
    said: list[str] = []
    for _ in range(2):
        fetch("connector", tmp_path, environ=fake_java(FETCHES_TWO), notice=said.append)
    assert len(said) == 1
    assert said[0].startswith("fetching the connector jars")


def test_sets_do_not_mix(tmp_path: Path, fake_java: FakeJava) -> None:
    one = 'mkdir -p "$jars"; echo a > "$jars/{}.jar"'
    assert names(fetch("broker", tmp_path, environ=fake_java(one.format("broker")))) == ["broker.jar"]
    assert names(fetch("connector", tmp_path, environ=fake_java(one.format("connector")))) == ["connector.jar"]


def test_ivy_failing_midway_leaves_nothing_that_looks_good(tmp_path: Path, fake_java: FakeJava) -> None:
    with pytest.raises(SetupError, match=r"^cannot fetch the broker jars: download failed: b-2.jar [^\n]*$"):
        fetch("broker", tmp_path, environ=fake_java(FAILS_MIDWAY))
    assert [entry.name for entry in (tmp_path / "jars").iterdir() if entry.is_dir()] == []
    assert names(fetch("broker", tmp_path, environ=fake_java(FETCHES_TWO))) == ["a-1.jar", "b-2.jar"]


def test_ivy_that_fetches_nothing_is_a_failure(tmp_path: Path, fake_java: FakeJava) -> None:
    with pytest.raises(SetupError, match="Ivy wrote nothing"):
        fetch("broker", tmp_path, environ=fake_java("exit 0"))


def test_process_killed_while_downloading(tmp_path: Path, fake_java: FakeJava) -> None:
    pid_file = tmp_path / "ivy.pid"
    hangs = (
        f'mkdir -p "$jars"; echo a > "$jars/a-1.jar"; echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 60'
    )
    killed = fetch_in_other_process(tmp_path, fake_java(hangs))
    wait_for(pid_file.exists, "Ivy runs")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    partial = [entry for entry in (tmp_path / "jars").iterdir() if entry.is_dir()]
    assert len(partial) == 1
    if sys.platform == "linux":
        ivy = Path("/proc", pid_file.read_text().strip(), "cmdline")
        wait_for(lambda: not ivy.exists() or not ivy.read_bytes(), "Ivy ends with its parent")

    assert names(fetch("broker", tmp_path, environ=fake_java(FETCHES_TWO))) == ["a-1.jar", "b-2.jar"]
    assert not partial[0].exists()


def test_two_processes_fetch_once(tmp_path: Path, fake_java: FakeJava) -> None:
    environ = fake_java(f"sleep 1; {FETCHES_TWO}")
    both = [fetch_in_other_process(tmp_path, environ) for _ in range(2)]
    said = sorted(process.communicate(timeout=30)[0].splitlines() for process in both)
    assert [lines[-1] for lines in said] == ["a-1.jar b-2.jar"] * 2
    assert said[0][0] == "another process is fetching the same jars; waiting for it"
    assert runs(environ) == 1


def test_changed_versions_are_fetched_anew(
    tmp_path: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = fake_java(FETCHES_TWO)
    ivy_file = tmp_path / "broker.xml"
    monkeypatch.setattr(jars, "kafka_file", lambda name: tmp_path / name)
    ivy_file.write_text("4.1.0")
    old = fetch("broker", tmp_path, environ=environ)
    ivy_file.write_text("4.1.1")
    assert fetch("broker", tmp_path, environ=environ) != old
    assert runs(environ) == 2


def test_cache_that_cannot_be_written(tmp_path: Path, fake_java: FakeJava) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match=r"^cannot keep jars in [^\n]* set BALAJOIN_CACHE [^\n]*$"):
        fetch("broker", tmp_path / "file", environ=fake_java(FETCHES_TWO))


def test_wrong_java_is_told_before_anything_is_made(tmp_path: Path, fake_java: FakeJava) -> None:
    with pytest.raises(SetupError, match="is Java 11"):
        fetch("broker", tmp_path / "cache", environ=fake_java(version_text='openjdk version "11.0.2"'))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"BALAJOIN_CACHE": "/b", "XDG_CACHE_HOME": "/x"}, Path("/b")),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/balajoin")),
        ({"BALAJOIN_CACHE": "", "XDG_CACHE_HOME": ""}, Path.home() / ".cache" / "balajoin"),
        ({}, Path.home() / ".cache" / "balajoin"),
    ],
)
def test_default_cache(environ: dict[str, str], expected: Path) -> None:
    assert default_cache(environ) == expected
