import pickle
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balajoin.config import durations, reference
from balajoin.config.loading import load
from balajoin.config.models import Config, JoinSettings, Kafka, Output, Run, Skew, Stream, topic_clashes
from balajoin.config.toml_lines import line_of, locate
from balajoin.errors import ConfigError, Problem
from balajoin.kafka.topics import shapes
from samples import join_toml

MINIMAL = join_toml(kafka={"bootstrap_servers": "localhost:9092"})

FULL = """\
name = "orders-with-clicks"

[kafka]
bootstrap_servers = "a:9092, b:9092"

[kafka.options]
security.protocol = "SASL_SSL"
"sasl.mechanism" = "PLAIN"
sasl.username = "me"
sasl.password = "${PASSWORD}"
socket.keepalive.enable = true

[kafka.java]
max.request.size = 2000000

[probe]
topic = "orders"
key = "json:$.customer"
time = "json:$.at"
value = "value"
starting_offsets = "latest"
isolation_level = "read_uncommitted"

[build]
topic = "clicks"

[join]
before = "1 day"
after = "-2 h"
lateness = "10s"
idle_after = "1.5 min"
max_ahead = "0 s"
nodes = 16
policy = "hash"
dead_letter_topic = "dead"
late_topic = "late"
control_topic = "control"
replica_topic = "replicas"
max_rows_per_batch = 1000

[join.skew]
threshold = 0.02
balance = 0.1
counters = 256
half_life = "2 min"
lease = "30 s"
first_pass_rows = 5000
keys = ["a", "b"]

[output]
topic = "joined"
value = "to_json(struct(*))"

[run]
checkpoint = "/checkpoints/a"
trigger = "500 ms"
master = "local[2,4]"
cache_dir = "/cache"

[topics]
partitions = 8
replication = 3

[spark]
spark.driver.memory = "4g"
spark.ui.enabled = true
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "join.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(folder: Path, text: str, **environ: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text), environ)
    return list(caught.value.problems)


def test_a_short_file_is_enough(tmp_path: Path) -> None:
    config = load(write(tmp_path, MINIMAL), {})
    assert (config.join.before_ms, config.join.after_ms, config.join.nodes) == (300_000, 0, 4)
    assert (config.probe.key, config.probe.time, config.probe.value) == ("key", "timestamp", "value")
    assert (config.join.dead_letter_topic, config.join.late_topic) == ("joined.dead-letter", "joined.late")
    assert (config.join.control_topic, config.join.replica_topic) == ("joined.control", "joined.replicas")
    assert (config.output.delivery, config.output.commit_topic) == ("exactly-once", "joined.commits")
    assert (config.join.policy, config.join.skew.balance) == ("bala-join", 0.2)
    assert (config.run.trigger_ms, config.topics.partitions, config.spark) == (1_000, 4, {})


@pytest.mark.parametrize("setting", ["probe.key", "build.time", "probe.value", "output.value"])
def test_an_expression_with_a_secret_and_pages_that_would_show_it_are_refused(tmp_path: Path, setting: str) -> None:
    section, _, name = setting.partition(".")
    text = MINIMAL.replace(f"[{section}]\n", f"[{section}]\n{name} = \"concat('${{A}}', '${{SALT_SECRET}}')\"\n")
    assert load(write(tmp_path, text), {"A": "a", "SALT_SECRET": "hunter2"})
    for shown_by in ("spark.ui.enabled", "spark.eventLog.enabled"):
        (problem,) = problems(tmp_path, f"{text}\n[spark]\n{shown_by} = true", A="a", SALT_SECRET="hunter2")
        assert problem.setting == setting
        assert problem.message == f"{shown_by} would show the secret in this expression"


def test_a_commit_topic_is_there_only_where_it_is_needed(tmp_path: Path) -> None:
    plain = MINIMAL.replace('topic = "joined"', 'topic = "joined"\ndelivery = "at-least-once"')
    assert plain != MINIMAL
    config = load(write(tmp_path, plain), {})
    assert "output.commit_topic" not in config.topics_by_setting
    assert "joined.commits" not in shapes(config)
    compacted = shapes(load(write(tmp_path, MINIMAL), {}))["joined.commits"]
    assert (compacted.partitions, compacted.settings["cleanup.policy"]) == (4, "compact")
    (clash,) = problems(tmp_path, MINIMAL.replace('topic = "joined"', 'topic = "joined"\ncommit_topic = "joined"'))
    assert (clash.setting, clash.message) == ("output.commit_topic", "the same topic as output.topic")


def test_a_full_file(tmp_path: Path) -> None:
    config = load(write(tmp_path, FULL), {"PASSWORD": "hunter2"})
    assert config.kafka == Kafka(
        bootstrap_servers="a:9092,b:9092",
        options={
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "sasl.password": "hunter2",
            "socket.keepalive.enable": "true",
        },
        java={"max.request.size": "2000000"},
    )
    assert (config.probe.isolation_level, config.build.isolation_level) == ("read_uncommitted", "read_committed")
    assert config.join == JoinSettings(
        before="24 h",
        after="-120 min",
        lateness="10000 ms",
        idle_after="90 s",
        max_ahead="0 min",
        nodes=16,
        dead_letter_topic="dead",
        late_topic="late",
        control_topic="control",
        replica_topic="replicas",
        policy="hash",
        skew=Skew(
            threshold=0.02,
            balance=0.1,
            counters=256,
            half_life="120 s",
            lease="0.5 min",
            first_pass_rows=5000,
            keys=("a", "b"),
        ),
        max_rows_per_batch=1000,
    )
    assert config.run == Run(checkpoint="/checkpoints/a", trigger="0.5 s", master="local[2,4]", cache_dir="/cache")
    assert config.spark == {"spark.driver.memory": "4g", "spark.ui.enabled": "true"}
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("line", "replacement", "setting", "message", "suggestion"),
    [
        (
            2,
            "bootstrap_server = 'localhost:9092'",
            "kafka.bootstrap_server",
            "unknown",
            "did you mean bootstrap_servers?",
        ),
        (2, "bootstrap_servers = 'localhost'", "kafka.bootstrap_servers", "port", "host:9092"),
        (2, "bootstrap_servers = 9092", "kafka.bootstrap_servers", "text", '"localhost:9092"'),
        (4, "topic = 'a b'", "probe.topic", "not a Kafka topic name", "letters"),
        (11, "topic = 'orders'", "output.topic", "the same topic as probe.topic", "of its own"),
        (8, "before = 5", "join.before", "without a unit", '"5 s" or "5 min"'),
        (8, "before = '5'", "join.before", "without a unit", "5 min"),
        (8, "before = '5 minits'", "join.before", "unknown unit", 'did you mean "min'),
        (8, "before = 'soon'", "join.before", "not a duration", "a number and a unit"),
        (9, "after = '-6 min'", "join.after", "ends before it starts", "before + after"),
        (9, "after = '0 s'\nlateness = '-1 s'", "join.lateness", "at least 0", "lateness ="),
        (9, "after = '0 s'\nnodes = 0", "join.nodes", "at least 1", "nodes = 4"),
        (9, "after = '0 s'\nnodes = 1025", "join.nodes", "at most 1024", "nodes = 4"),
        (9, "after = '0 s'\nnodes = true", "join.nodes", "whole number", "nodes = 4"),
        (9, "after = '0 s'\nnodes = 'many'", "join.nodes", "whole number", "nodes = 4"),
        (9, "after = '0 s'\npolicy = 'hashh'", "join.policy", "'hash'", 'policy = "bala-join"'),
        (9, "after = '0 s'\npartitions = 4", "join.partitions", "unknown", "move it to [topics]"),
        (9, "after = '0 s'\nskew.treshold = 0.1", "join.skew.treshold", "unknown", "did you mean threshold"),
        (9, "after = '0 s'\nskew.threshold = 1.5", "join.skew.threshold", "below 1", "threshold = 0.01"),
        (9, "after = '0 s'\nskew.balance = 'x'", "join.skew.balance", "a number", "balance = 0.2"),
        (9, "after = '0 s'\nskew.weights = [1, 2]", "join.skew.weights", "2 for join.nodes = 4", "give 4 numbers"),
        (9, "after = '0 s'\nnodes = 2\nskew.weights = [1]", "join.skew.weights", "1 for join.nodes = 2", "leave"),
        (9, "after = '0 s'\nskew.weights = [1, 1, 1, 0]", "join.skew.weights.3", "at least 0.01", "weights = ["),
        (9, "after = '0 s'\nskew.weights = [1, 1, 1, nan]", "join.skew.weights.3", "", "weights = ["),
        (9, "after = '0 s'\nskew.weights = 2", "join.skew.weights", "a list", "weights = ["),
        (9, "after = '0 s'\nskew.keys = 'x'", "join.skew.keys", "a list", "keys = "),
        (9, "after = '0 s'\npolicy = 'bppr'\nskew.balance = 0.1", "join.skew.keys", "is missing", "keys = "),
        (11, "topic = 'clicks'", "output.topic", "the same topic as build.topic", "of its own"),
        (11, "topic = 'joined'\nvalue = ''", "output.value", "empty", "value ="),
        (13, "checkpoint = '/x'\ntrigger = 1", "run.trigger", "without a unit", '"1 s"'),
        (
            13,
            "checkpoint = '/x'\n[spark]\nspark.sql.shuffle.partitions = 8",
            "spark.spark.sql.shuffle.partitions",
            "itself",
            "join.nodes",
        ),
        (13, "checkpoint = '/x'\n[spark]\n'a.b' = [1]", "spark.a.b", "text", ""),
        (13, "checkpoint = '/x'\n[kafka.options]\ngroup.id = 'g'", "kafka.options.group.id", "itself", "remove"),
        (
            13,
            "checkpoint = '/x'\n[kafka.java]\nisolation.level = 'read_uncommitted'",
            "kafka.java.isolation.level",
            "each input",
            "probe.isolation_level and build.isolation_level",
        ),
        (4, "topic = 'orders'\nisolation_level = 'committed'", "probe.isolation_level", "'read_committed'", "level ="),
        (
            4,
            "topic = 'orders'\nallow_compacted = 'x'",
            "probe.allow_compacted",
            "true or false",
            "allow_compacted = true",
        ),
        (13, "checkpoint = '/x'\n[runn]", "runn", "unknown", "did you mean run?"),
    ],
)
def test_a_problem_names_setting_line_and_remedy(
    tmp_path: Path, line: int, replacement: str, setting: str, message: str, suggestion: str
) -> None:
    lines = MINIMAL.splitlines()
    lines[line - 1] = replacement
    found = next(each for each in problems(tmp_path, "\n".join(lines)) if each.setting == setting)
    assert found.line == line + replacement.count("\n")
    assert message in found.message
    assert suggestion in found.suggestion


def test_a_missing_setting_is_blamed_on_its_table(tmp_path: Path) -> None:
    text = MINIMAL.replace('checkpoint = "/var/lib/balajoin"\n', "")
    assert problems(tmp_path, text) == [
        Problem("run.checkpoint", "is missing", 'for example checkpoint = "/var/lib/balajoin/checkpoint"', 12)
    ]


def test_a_missing_section_is_told_with_what_belongs_into_it(tmp_path: Path) -> None:
    [found] = problems(tmp_path, MINIMAL.replace('[output]\ntopic = "joined"\n', ""))
    assert (found.setting, found.message, found.suggestion) == ("output", "is missing", "add [output] with topic")


def test_all_problems_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
nam = "x"
[kafka]
bootstrap_servers = "${NOWHERE}"
[probe]
topic = "orders"
keyy = "key"
[build]
topic = "orders"
[join]
before = 5
after = "1 fortnight"
nodes = -1
[output]
topic = "orders"
"""
    found = problems(tmp_path, text)
    assert [(each.line, each.setting) for each in found] == [
        (None, "run"),
        (1, "nam"),
        (3, "kafka.bootstrap_servers"),
        (6, "probe.keyy"),
        (10, "join.before"),
        (11, "join.after"),
        (12, "join.nodes"),
        (14, "output.topic"),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a = 1\nb = \n", 2), ("a = 1\n\nb = 'x\n", 3), ("[a]\nx = 1\n[a]\n", 3), ("a = [1,\n2", 2)],
)
def test_what_is_not_toml_is_told_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    [found] = problems(tmp_path, text)
    assert found.line == line
    assert "not valid TOML" in found.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "nowhere.toml", {})


def test_references_are_resolved_in_any_text(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from file\n")
    text = MINIMAL.replace("orders", "${STAGE}-orders") + (
        f"[kafka.options]\nsasl.password = '${{file:{secret}}}'\nsasl.username = '$${{STAGE}} $5'\n"
    )
    config = load(write(tmp_path, text), {"STAGE": "test"})
    assert config.probe.topic == "test-orders"
    assert config.kafka.options == {"sasl.password": "from file", "sasl.username": "${STAGE} $5"}


def test_unresolved_references_are_problems_of_their_own(tmp_path: Path) -> None:
    text = MINIMAL + "[kafka.options]\na = '${GONE}'\nb = '${file:/no/such/file}'\nc = '${p@ss word}'\nd = '${'\n"
    found = problems(tmp_path, text)
    assert [each.line for each in found] == [15, 16, 17, 18]
    assert "GONE is not set" in found[0].message
    assert "/no/such/file cannot be read" in found[1].message
    assert "p@ss word" not in str(found[2])


SECRET = "s3cret-hunter2"


@pytest.mark.parametrize("setting", [line.split(" = ")[0] for line in FULL.splitlines() if " = " in line])
def test_no_message_repeats_a_value_that_was_referred_to(tmp_path: Path, setting: str) -> None:
    lines = [f'{setting} = "${{HIDDEN}}"' if line.startswith(f"{setting} =") else line for line in FULL.splitlines()]
    path = write(tmp_path, "\n".join(lines) + "\nspark.x = []")
    with pytest.raises(ConfigError) as caught:
        load(path, {"HIDDEN": f"{SECRET} 5 fortnights", "PASSWORD": SECRET})
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_no_text_of_a_config_shows_a_secret(tmp_path: Path) -> None:
    text = FULL.replace('value = "to_json(struct(*))"', "value = \"aes_decrypt(value, '${AES_SECRET}')\"")
    text = text.replace("spark.ui.enabled = true\n", "")
    config = load(
        write(tmp_path, text + f'spark.hadoop.fs.s3a.secret.key = "{SECRET}"'),
        {"PASSWORD": SECRET, "AES_SECRET": SECRET},
    )
    assert config.kafka.options["sasl.password"] == SECRET
    for text in (str(config), repr(config), str(config.kafka), repr(config.kafka), f"{config.kafka!r:>10}"):
        assert SECRET not in text
        assert "me" in text
    assert SECRET not in f"{config.kafka.model_dump()} {config.kafka.model_dump_json()} {config.model_dump()['spark']}"
    assert config.redactor(f"login of {SECRET} failed") == "login of *** failed"


def test_a_topic_may_be_joined_with_itself() -> None:
    assert not topic_clashes({"probe": {"topic": "a"}, "build": {"topic": "a"}, "output": {"topic": "b"}})


def test_constructors_raise_the_same_errors_as_files() -> None:
    with pytest.raises(ConfigError, match="add a unit"):
        JoinSettings(
            before="5", after="0 s", dead_letter_topic="d", late_topic="l", control_topic="c", replica_topic="r"
        )
    with pytest.raises(ConfigError, match=r"host:9092"):
        Kafka(bootstrap_servers="localhost")
    with pytest.raises(ConfigError, match=r"the same topic as probe\.topic"):
        Config(
            kafka=Kafka(bootstrap_servers="a:1"),
            probe=Stream(topic="a"),
            build=Stream(topic="b"),
            join=JoinSettings(
                before="1 s", after="1 s", dead_letter_topic="a", late_topic="l", control_topic="c1", replica_topic="c2"
            ),
            output=Output(topic="c"),
            run=Run(checkpoint="/c"),
        )


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(Exception, match="frozen"):
        Stream(topic="a").topic = "b"  # type: ignore[misc]


LONGEST_MS = 100 * 365 * 86_400_000


@given(st.integers(-LONGEST_MS, LONGEST_MS))
def test_durations_survive_being_written(duration_ms: int) -> None:
    assert durations.parse_ms(durations.format_ms(duration_ms)) == duration_ms


@given(
    st.integers(-10_000, 10_000),
    st.sampled_from([("ms", 1), ("s", 1_000), ("sec", 1_000), ("min", 60_000), ("h", 3_600_000), ("days", 86_400_000)]),
    st.sampled_from(["", " ", "  "]),
)
def test_durations_mean_what_they_say(number: int, unit: tuple[str, int], space: str) -> None:
    assert durations.parse_ms(f"{number}{space}{unit[0]}") == number * unit[1]


def refusal(written: object) -> durations.DurationError | None:
    try:
        durations.parse_ms(written)
    except durations.DurationError as error:
        return error
    return None


@given(st.one_of(st.text(), st.from_regex(r"-?[0-9.]+ ?[a-z]*"), st.floats(), st.none(), st.lists(st.integers())))
def test_what_is_no_duration_is_refused_with_an_example(written: object) -> None:
    error = refusal(written)
    assert error is None or error.suggestion
    assert error is None or not isinstance(written, str) or len(written) < 4 or written not in str(error)


@given(st.integers() | st.floats(allow_nan=False))
def test_a_bare_number_is_refused_with_a_unit(number: float) -> None:
    error = refusal(number)
    assert error is not None
    assert f'"{number} s"' in error.suggestion


def test_the_documented_settings_are_those_of_the_models() -> None:
    written = Path(__file__).parents[3] / "docs" / "settings.md"
    command = "python -m balajoin.config.reference > docs/settings.md"
    assert written.read_text(encoding="utf-8") == reference.markdown(), f"the page is out of date: run {command}"
    assert "| None |" not in reference.markdown(), "a setting has no description"


BARE_KEYS = st.from_regex(r"\A[a-z][a-z0-9_-]{0,5}\Z")
QUOTED_KEYS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters='."\\'), max_size=6
)
# Values that contain text like keys, tables and comments.
VALUES = st.sampled_from(
    [
        "1",
        "-1.5e3",
        "true",
        "1979-05-27T07:32:00Z",
        '"# no comment"',
        '"a \\" = b"',
        "'[not.a.table]'",
        '"""\n[decoy]\nx = 1\n\\""" still inside """',
        "'''\ny = 2 # \"\n'''",
        '""""quoted""""',
        '"""x"""""',
        "[1, 2]",
        "[ # comment ]\n  'a]', # b\n  [[1], []],\n]",
        "[{ p = 1 }, { 'q' = '}' }]",
        "{}",
        "{ i = 1, 'j.k' = { l = ']' } }",
    ]
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """A TOML text and the line of each of its keys."""
    text, expected, table = "", {}, ""
    for number in range(draw(st.integers(1, 8))):
        text += draw(st.sampled_from(["", "\n", "# k = 1\n", "  \t\n", "\n\n"]))
        line = text.count("\n") + 1
        if draw(st.booleans()) and number:
            table = f"t{number}.{draw(BARE_KEYS)}."
            text += draw(st.sampled_from(["[{}]\n", "[ {} ] # x\n", "[[{}]]\n"])).format(table[:-1])
            expected[table[:-1]] = line
        else:
            name = f"k{number}"
            written = name
            for _ in range(draw(st.integers(0, 2))):
                part, quote = draw(st.one_of(st.tuples(BARE_KEYS, st.just("")), st.tuples(QUOTED_KEYS, st.just('"'))))
                name += f".{part}"
                written += draw(st.sampled_from([".", " . "])) + f"{quote}{part}{quote}"
            text += f"{written} = {draw(VALUES)}" + draw(st.sampled_from(["\n", "  # x = 3\n", "\r\n"]))
            expected[table + name] = line
    return text, expected


@given(documents())
def test_keys_are_found_at_their_lines(document: tuple[str, dict[str, int]]) -> None:
    text, expected = document
    tomllib.loads(text)
    lines = locate(text)
    assert {name: lines.get(name) for name in expected} == expected
    assert not {"decoy", "x", "y"} & lines.keys()


def test_lines_inside_inline_tables_and_above_missing_keys() -> None:
    lines = locate("[kafka]\noptions = { a = 1, 'b.c' = 2 }\n")
    assert (line_of(lines, "kafka.options.b.c"), line_of(lines, "kafka.options.z"), line_of(lines, "join")) == (
        2,
        2,
        None,
    )
