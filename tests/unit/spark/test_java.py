from collections.abc import Callable
from pathlib import Path

import pytest

from balajoin.errors import SetupError
from balajoin.spark import java

FakeJava = Callable[..., dict[str, str]]


@pytest.mark.parametrize(
    "version_text",
    [
        'openjdk version "17" 2021-09-14',
        'openjdk version "17-ea" 2021-09-14',
        'openjdk version "17.0.15" 2025-04-15',
        'java version "21.0.2" 2024-01-16 LTS',
        'Picked up JAVA_TOOL_OPTIONS: -Dversion="11"\nopenjdk version "25.0.1" 2025-10-21',
    ],
)
def test_accepts_17_and_newer(fake_java: FakeJava, version_text: str) -> None:
    environ = fake_java(version_text=version_text)
    assert java.require(environ) == Path(environ["JAVA_HOME"]) / "bin" / "java"


@pytest.mark.parametrize(
    ("version_text", "version"),
    [('openjdk version "11.0.22" 2024-01-16', 11), ('java version "1.8.0_392"', 8), ('openjdk version "16.0.2"', 16)],
)
def test_refuses_older_and_says_what_to_do(fake_java: FakeJava, version_text: str, version: int) -> None:
    with pytest.raises(SetupError, match=rf"^\S+/java is Java {version}, too old: install Java 17 or newer[^\n]*$"):
        java.require(fake_java(version_text=version_text))


def test_no_java_anywhere(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^no Java found: install Java 17 or newer[^\n]*$"):
        java.require({"PATH": str(tmp_path)})


def test_no_path_at_all_does_not_fall_back_to_this_process_path() -> None:
    with pytest.raises(SetupError, match="no Java found"):
        java.require({})


def test_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=f"JAVA_HOME is {tmp_path}"):
        java.require({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})


def test_java_home_goes_before_path(fake_java: FakeJava) -> None:
    chosen, other = fake_java(), fake_java()
    found = java.require({"JAVA_HOME": chosen["JAVA_HOME"], "PATH": f"{other['JAVA_HOME']}/bin:{other['PATH']}"})
    assert found == Path(chosen["JAVA_HOME"]) / "bin" / "java"


def test_path_is_searched(fake_java: FakeJava) -> None:
    home = fake_java()["JAVA_HOME"]
    assert java.require({"PATH": f"{home}/bin:/usr/bin:/bin"}) == Path(home) / "bin" / "java"


@pytest.mark.parametrize(
    ("version_text", "version_exit"),
    [("Unable to locate a Java Runtime.", 1), ('openjdk version "17.0.1"', 1), ("hello", 0)],
)
def test_a_java_that_does_not_work(fake_java: FakeJava, version_text: str, version_exit: int) -> None:
    with pytest.raises(SetupError, match="does not tell its version: install Java"):
        java.require(fake_java(version_text=version_text, version_exit=version_exit))


def test_a_java_that_cannot_be_executed(fake_java: FakeJava) -> None:
    environ = fake_java()
    (Path(environ["JAVA_HOME"]) / "bin" / "java").chmod(0o644)
    with pytest.raises(SetupError, match="does not run"):
        java.require(environ)


def test_problem_is_the_complaint_or_nothing(fake_java: FakeJava, tmp_path: Path) -> None:
    assert java.problem(fake_java()) is None
    complaint = java.problem({"PATH": str(tmp_path)})
    assert complaint is not None
    assert complaint.startswith("no Java found")
