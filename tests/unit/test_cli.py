import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from balajoin import cli
from balajoin.config.address import Address
from balajoin.config.models import Config
from balajoin.errors import BalaJoinError, ConfigError, KafkaError, Problem, SetupError
from balajoin.spark.jars import default_cache
from samples import join_toml

pytestmark = pytest.mark.usefixtures("untouched_logging")

SECRET = "s3cret-hunter2"
TEXT = join_toml(kafka={"options.sasl.password": "${KAFKA_PASSWORD}"})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    path = tmp_path / "join.toml"
    path.write_text(TEXT)
    return path


class FakeModule(ModuleType):
    """Replaces a module of balajoin that needs Spark or a broker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
        super().__init__(f"balajoin.{name}")
        vars(self).update(members)
        monkeypatch.setitem(sys.modules, self.__name__, self)
        monkeypatch.setattr(f"balajoin.{name}", self, raising=False)


def failing_run(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def run(*_: Any, **__: Any) -> int:
        logging.getLogger("balajoin.service").info("trying with %s", SECRET)
        raise error

    FakeModule(monkeypatch, "service.run", run=run)


def test_run_hands_over_the_file_and_returns_its_code(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def run(config: Config, path: Path, **options: Any) -> int:
        calls.append((config.output.topic, path, options))
        return 7

    FakeModule(monkeypatch, "service.run", run=run)
    monkeypatch.setenv("BALAJOIN_CACHE", "/somewhere")
    assert cli.main(["run", "-c", str(file), "--verbose"]) == 7
    assert calls == [("joined", file, {"cache": default_cache({"BALAJOIN_CACHE": "/somewhere"}), "verbose": True})]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(f"refused {SECRET}"), 1),
        (SetupError("no Java"), 1),
        (BalaJoinError("two\nlines"), 1),
        (ConfigError([Problem("probe.topic", f"no topic {SECRET}", "create it")]), 2),
        (ZeroDivisionError(f"a fault of ours {SECRET}\nmore"), 1),
    ],
)
@pytest.mark.parametrize("verbose", [False, True])
def test_failures_are_told_without_trace_and_secret(
    file: Path,
    error: Exception,
    code: int,
    verbose: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing_run(monkeypatch, error)
    assert cli.main(["run", "-c", str(file), *(["--verbose"] if verbose else [])]) == code
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    assert "trying with ***" in told.err
    assert ("Traceback" in told.err) == (verbose and isinstance(error, ZeroDivisionError))


def test_problems_of_a_running_service_stand_at_their_lines(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing_run(monkeypatch, ConfigError([Problem("probe.topic", "topic orders does not exist", "create it")]))
    assert cli.main(["run", "-c", str(file)]) == 2
    assert f"{file} has 1 problem:\n  line 5: probe.topic: topic orders does not exist (create it)\n" in (
        capsys.readouterr().err
    )


def test_a_bad_file_is_told_with_all_its_problems(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(TEXT.replace('"5 min"', "5").replace("[build]", "[build]\nkye = 1"))
    assert cli.main(["topics", "-c", str(file)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"{file} has 2 problems:",
        "  line 7: build.kye: unknown setting (did you mean key?)",
        '  line 10: join.before: a number without a unit (write "5 s" or "5 min", with the quotes)',
    ]


@pytest.mark.parametrize("content", [None, b"\xff", b"a = "])
def test_an_unreadable_file_is_one_problem(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "join.toml"
    if content is not None:
        path.write_bytes(content)
    assert cli.main(["check", "-c", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_check_says_that_all_is_good(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeModule(monkeypatch, "service.check", check=lambda config, path, cache: [])
    assert cli.main(["check", "-c", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: all good\n"


def test_topics_says_what_it_created(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from balajoin.kafka.topics import shapes

    FakeModule(monkeypatch, "kafka.topics", shapes=shapes, create_missing=lambda kafka, wanted, replication: ["clicks"])
    assert cli.main(["topics", "-c", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "exists  orders",
        "created clicks",
        "exists  joined",
        "exists  joined.commits",
        "exists  joined.dead-letter",
        "exists  joined.late",
        "exists  joined.control",
        "exists  joined.replicas",
    ]


def test_demo_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def main(**options: Any) -> int:
        calls.append(options)
        return 0

    FakeModule(monkeypatch, "demo", main=main)
    monkeypatch.setenv("BALAJOIN_CACHE", "/somewhere")
    assert cli.main(["demo", "--seconds", "5", "--rate", "100"]) == 0
    told = {"seconds": 5, "rate": 100, "page": Address("127.0.0.1", 0), "record": None}
    assert calls == [{**told, "cache": Path("/somewhere"), "verbose": False}]


def test_ctrl_c_elsewhere_ends_without_a_trace(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    FakeModule(monkeypatch, "service.check", check=check)
    assert cli.main(["check", "-c", str(file)]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("arguments", [[], ["run"], ["nonsense"], ["demo", "--seconds", "0"], ["run", "-c"]])
def test_a_wrong_command_line_shows_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: balajoin" in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--version", "--help"):
        with pytest.raises(SystemExit) as caught:
            cli.main([option])
        assert caught.value.code == 0
    assert "BALAJOIN_CACHE" in capsys.readouterr().out
