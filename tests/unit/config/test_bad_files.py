"""Any content of a configuration file is either accepted or refused with a message."""

import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from balajoin.config import durations
from balajoin.config.loading import lines_in, load
from balajoin.config.models import Config
from balajoin.config.toml_lines import locate
from balajoin.errors import ConfigError

EXAMPLE = (Path(__file__).parents[3] / "examples" / "join.toml").read_text()
toml_scalars = (
    st.sampled_from(
        [
            "1e999",
            "nan",
            "-inf",
            "0x" + "f" * 5000,
            "9" * 400,
            "1979-05-27T07:32:00Z",
            "07:32:00",
            "true",
            '""',
            "[]",
            "{}",
            '"${X}"',
            '"${"',
            '"${file:/dev/zero}"',
            '"${file:\\u0000}"',
            '"5 min"',
            "[[1], {a = 1}]",
            "'''\n'''",
        ]
    )
    | st.integers().map(str)
    | st.text(max_size=6).map(lambda text: json.dumps(text, ensure_ascii=True))
)
settings_names = st.sampled_from(sorted(locate(EXAMPLE))) | st.sampled_from(
    ["kafka.options.a.b", "kafka.java", "join.skew.keys", "join.nodes", "spark", "topics.partitions", "run.trigger"]
)


def loaded(text: str | bytes) -> Config | ConfigError:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "join.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "replace"))
        try:
            return load(path, {"X": "x"})
        except ConfigError as error:
            refused = error
    assert refused.problems
    assert all(problem.message and len(str(problem)) < 2000 for problem in refused.problems)
    return refused


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_file_is_read_or_refused(text):
    assert isinstance(loaded(text), ConfigError)


def test_the_name_of_a_setting_may_be_long():
    assert isinstance(loaded(f"0x{'f' * 5000} = 1\n{EXAMPLE}"), ConfigError)


@given(st.data())
def test_a_changed_file_is_read_or_refused(data):
    start = data.draw(st.integers(0, len(EXAMPLE)))
    end = data.draw(st.integers(start, min(start + 40, len(EXAMPLE))))
    loaded(EXAMPLE[:start] + data.draw(st.text(max_size=10) | toml_scalars) + EXAMPLE[end:])


@given(st.dictionaries(settings_names, toml_scalars, max_size=4))
@example({"kafka.options.a.b": "0x" + "f" * 5000})
@example({"output.topic": "0x" + "f" * 5000})
@example({"join.skew.keys": '["${file:/dev/zero}"]'})
def test_any_value_of_any_setting_is_taken_or_refused(values):
    table_of_all = tomllib.loads(EXAMPLE)
    lines = [f"{name} = {value}" for name, value in values.items()]
    for section, settings in table_of_all.items():
        if not isinstance(settings, dict):
            lines.append(f"{section} = {json.dumps(settings)}")
            continue
        for name, value in settings.items():
            if not isinstance(value, dict) and not any(f"{section}.{name}".startswith(given_) for given_ in values):
                lines.append(f"{section}.{name} = {json.dumps(value)}")
    loaded("\n".join(lines))


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "9" * 10_000,
        "a" + ".a" * 5000 + " = 1",
        "[a" + ".a" * 5000 + "]",
        "a = " + "{a=" * 5000,
        "kafka.options = " + "[" * 40 + "]" * 40,
        '"\\u0000\\u0000" = 1',
        "#" * (1 << 20) + "#",
    ],
    ids=["brackets", "digits", "dots", "dotted table", "braces", "lists", "zeros", "length"],
)
def test_files_that_no_person_writes_are_refused(text):
    assert isinstance(loaded(text), ConfigError)


@pytest.mark.parametrize("setting", [*sorted(locate(EXAMPLE)), "kafka.options.a.b", "spark.a", "page.address"])
def test_a_number_too_long_to_be_printed_is_refused(setting):
    """Python refuses to print a number of more than 4,300 digits."""
    settings = [name for name in locate(EXAMPLE) if name != setting and not name.startswith(f"{setting}.")]
    lines = [f"{name} = {json.dumps(value)}" for name in settings if not isinstance(value := value_of(name), dict)]
    refused = loaded("\n".join([f"{setting} = 0x{'f' * 5000}", *lines]))
    assert isinstance(refused, ConfigError)
    assert [problem.line for problem in refused.problems] == [1]


def value_of(setting: str) -> Any:
    value: Any = tomllib.loads(EXAMPLE)
    for name in setting.split("."):
        value = value[name]
    return value


def test_files_that_never_end_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="/dev/zero: cannot be read: it is larger than 1 MiB"):
        load(Path("/dev/zero"), {})
    path = tmp_path / "join.toml"
    path.write_text('name = "${file:/dev/zero}"')
    with pytest.raises(ConfigError, match="the file /dev/zero cannot be read: it is larger than 1 MiB"):
        load(path, {})
    with pytest.raises(ConfigError, match="cannot be read"):
        lines_in(tmp_path)


toml_keys = st.text(max_size=4).map(json.dumps) | st.sampled_from(["a", "b-1", "'x.y'", "3", '"[="'])
toml_values = st.recursive(
    st.sampled_from(["1", "true", '"a#]"', "'b\"'", '"""\n]"#"""', "'''\n=[''''", "1979-05-27 07:32:00", "nan"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: "[ # ]\n" + ", # [\n".join(values) + "\n]")
        | st.dictionaries(toml_keys, inner, max_size=3).map(
            lambda table: "{ " + ", ".join(f"{key} = {value}" for key, value in table.items()) + " }"
        )
    ),
    max_leaves=6,
)


def paths(settings: dict[str, Any], above: str = "") -> list[str]:
    found = []
    for name, value in settings.items():
        found += [above + name, *(paths(value, f"{above}{name}.") if isinstance(value, dict) else ())]
    return found


@given(st.lists(st.tuples(st.lists(toml_keys, min_size=1, max_size=3).map(".".join), toml_values), max_size=6))
def test_every_setting_that_toml_knows_has_a_line(pairs):
    text = "\n".join(f"{key} = {value} # x" if n % 3 else f"{key} = {value}" for n, (key, value) in enumerate(pairs))
    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)
    lines = locate(text)
    assert set(paths(settings)) <= lines.keys()
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


@given(st.text() | st.integers() | st.floats() | st.none() | st.from_regex(r"\s*[+-]?\d+(\.\d+)?\s*[a-zµ]*\s*"))
@example("9" * 100_000 + " s")
@example("0." + "0" * 100_000 + "1 s")
@example(1 << 100_000)
@example(" " * 100_000 + "x")
def test_any_duration_is_milliseconds_or_refused(written):
    try:
        found = durations.parse_ms(written)
    except durations.DurationError:
        return
    assert durations.parse_ms(durations.format_ms(found)) == found
