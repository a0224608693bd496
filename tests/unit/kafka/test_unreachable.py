"""Errors for a broker that cannot be reached, and for options that librdkafka refuses before it connects."""

import time

import pytest

from balajoin.config.models import Kafka
from balajoin.control.tail import tail
from balajoin.errors import ConfigError, KafkaError
from balajoin.kafka import topics


def test_an_unreachable_broker_is_one_line_in_bounded_time(capfd: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    with pytest.raises(
        KafkaError, match=r"cannot reach Kafka at 127\.0\.0\.1:1 \(.*refused.*bootstrap_servers"
    ) as caught:
        topics.existing(Kafka(bootstrap_servers="127.0.0.1:1"), ["x"])
    assert time.monotonic() - begin < 20
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_the_control_topics_of_an_unreachable_broker_are_one_line_too(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KafkaError, match=r"cannot reach Kafka at 127\.0\.0\.1:1"):
        list(tail(Kafka(bootstrap_servers="127.0.0.1:1"), "control", "replicas", lines=5, follow=False))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"no.such.option": "x"}, "kafka.options.no.such.option"),
        ({"socket.timeout.ms": "hunter2"}, "kafka.options.socket.timeout.ms"),
        ({"sasl.jaas.config": "hunter2"}, "kafka.options.sasl.jaas.config"),
        ({"security.protocol": "ssl", "ssl.ca.location": "hunter2"}, "kafka.options.ssl.ca.location"),
        (
            {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.password": "hunter2"},
            "kafka.options.sasl.password",
        ),
    ],
)
def test_an_option_that_librdkafka_refuses_is_a_problem_of_the_file(options: dict[str, str], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        topics.existing(Kafka(bootstrap_servers="127.0.0.1:1", options=options), ["x"])
    [problem] = caught.value.problems
    assert problem.setting == setting
    assert "hunter2" not in str(problem)
