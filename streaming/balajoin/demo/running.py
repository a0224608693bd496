"""The demo from its start to its end. Whatever happens, what it started ends and what it wrote is removed."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from balajoin.config.models import Config
from balajoin.demo.checking import Verdict, compare, expected_pairs, read_back
from balajoin.demo.display import Display
from balajoin.demo.joining import Joining
from balajoin.demo.scenario import AFTER_MS, BEFORE_MS, PARTITIONS, PRICES, VIEWS, Scenario
from balajoin.demo.staging import Stage, StopIfAsked, fetch_jars
from balajoin.demo.summary import Summary
from balajoin.embedded.workload import Event
from balajoin.errors import BalaJoinError
from balajoin.kafka.client_options import librdkafka_options
from balajoin.observe.live.moment import Moment
from balajoin.service.stopping import Interrupted, StopRequests, finish_batch_and_stop
from balajoin.spark.failures import Place, explain, trace_of

_DONE, _INTERRUPTED = 0, 130


def run(
    scenario: Scenario, display: Display, listeners: Sequence[Callable[[Moment], None]], *, cache: Path, verbose: bool
) -> int:
    with StopRequests() as requests:

        def stop_if_asked() -> None:
            if requests.count:
                display.say("stopping")
                raise Interrupted

        try:
            jars = fetch_jars(cache, display)
            # From here on signals are only counted: one in the middle of a start would leave a process behind.
            requests.wait_for_batches()
            with ExitStack() as ending:
                stage = Stage(ending, jars, display, stop_if_asked)
                stage.start(cache, verbose)
                _perform(stage, scenario, listeners, requests, ending)
        except Interrupted:
            return _INTERRUPTED
    return _DONE


def _perform(
    stage: Stage,
    scenario: Scenario,
    listeners: Sequence[Callable[[Moment], None]],
    requests: StopRequests,
    ending: ExitStack,
) -> None:
    display = stage.display
    try:
        with display.busy("starting both queries and Spark's Python workers"):
            joining = Joining(stage.spark, stage.configs, scenario, listeners)
            ending.callback(joining.production.stop)
            joining.warm_up(stage.check)
        with display.moving():
            joining.until_drained(display.show, stage.check)
        with display.busy("everything is joined: stopping the queries"):
            for join in joining.joins:
                finish_batch_and_stop(join.query, requests)
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise _explained(error, stage.configs[0]) from None
    with display.busy("comparing both outputs with the expected join"):
        verdicts = _verdicts(stage.configs, joining.production.sent, stage.check)
    display.say(f"\n{Summary.of(joining, verdicts)}\n")
    for config, verdict in zip(stage.configs, verdicts, strict=True):
        if not verdict.good:
            raise BalaJoinError(f"the output of {config.join.policy} is not the expected join: {verdict.example}")
    display.say("[green]✓[/] both outputs are the expected join, no pair more or less")


def _verdicts(configs: list[Config], sent: dict[str, list[Event]], stop_if_asked: StopIfAsked) -> list[Verdict]:
    expected = expected_pairs(sent[VIEWS], sent[PRICES], BEFORE_MS, AFTER_MS)
    outputs = (
        read_back(librdkafka_options(config.kafka), config.output.topic, PARTITIONS, stop_if_asked)
        for config in configs
    )
    return [compare(expected, found) for found in outputs]


def _explained(error: Exception, config: Config) -> BalaJoinError:
    if not isinstance(error, PySparkException):
        return BalaJoinError("the demo's Spark ended by itself: free some memory and run it again")
    place = Place(config.kafka.bootstrap_servers, config.run.checkpoint, "FILE")
    return explain(trace_of(error), place)
