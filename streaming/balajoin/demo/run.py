"""The demo from its start to its end. Whatever happens, what it started ends and what it wrote is removed."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from balajoin.config.models import Config
from balajoin.demo.check import Verdict, compare, expected_pairs, read_back
from balajoin.demo.policy_join import PolicyJoin
from balajoin.demo.production import Production
from balajoin.demo.scenario import AFTER_MS, BEFORE_MS, NODES, PARTITIONS, PRICES, VIEWS, Scenario
from balajoin.demo.screen import Screen
from balajoin.demo.stage import Stage, fetch_jars
from balajoin.demo.summary import Joined, summary
from balajoin.errors import BalaJoinError
from balajoin.kafka.client_options import librdkafka_options
from balajoin.observe.live.moment import Moment
from balajoin.service.stopping import Interrupted, StopRequests, finish_batch_and_stop
from balajoin.spark.failures import Place, explain, trace_of

_DONE, _INTERRUPTED = 0, 130
_POLL_S = 0.1


def run(
    scenario: Scenario, screen: Screen, listeners: Sequence[Callable[[Moment], None]], *, cache: Path, verbose: bool
) -> int:
    with StopRequests() as requests:

        def stop_if_asked() -> None:
            if requests.count:
                screen.say("stopping")
                raise Interrupted

        try:
            jars = fetch_jars(cache, screen)
            # From here on signals are only counted: one in the middle of a start would leave a process behind.
            requests.wait_for_batches()
            with ExitStack() as ending:
                stage = Stage(ending, jars, screen, stop_if_asked)
                stage.start(cache, verbose)
                production = Production(scenario, librdkafka_options(stage.configs[0].kafka))
                ending.callback(production.stop)
                _perform(scenario, stage, screen, production, listeners, requests)
        except Interrupted:
            return _INTERRUPTED
    return _DONE


def _perform(
    scenario: Scenario,
    stage: Stage,
    screen: Screen,
    production: Production,
    listeners: Sequence[Callable[[Moment], None]],
    requests: StopRequests,
) -> None:
    try:
        with screen.busy("starting both queries and Spark's Python workers"):
            joins = [PolicyJoin(stage.spark, config, listeners) for config in stage.configs]
            _warm_up(stage, joins)
        with screen.drawing():
            seconds = _until_drained(scenario, stage, screen, production, joins)
        with screen.busy("everything is joined: stopping the queries"):
            for join in joins:
                finish_batch_and_stop(join.query, requests)
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise _explained(error, stage.configs[0]) from None
    with screen.busy("comparing both outputs with the expected join"):
        verdicts = _verdicts(stage, production)
    joined = [
        Joined.of(join.policy, NODES, join.reports, verdict) for join, verdict in zip(joins, verdicts, strict=True)
    ]
    screen.say(f"\n{summary(production.counts, seconds, joined)}\n")
    for each in joined:
        if not each.verdict.good:
            raise BalaJoinError(f"the output of {each.policy} is not the expected join: {each.verdict.example}")
    screen.say("[green]✓[/] both outputs are the expected join, no pair more or less")


def _warm_up(stage: Stage, joins: Sequence[PolicyJoin]) -> None:
    """Waits until the queries look for rows, and Spark's Python workers for work."""
    while not stage.is_warm or not all(join.has_begun for join in joins):
        _poll(stage, joins)
    for join in joins:
        join.update()
        join.forget_batches()


def _until_drained(
    scenario: Scenario, stage: Stage, screen: Screen, production: Production, joins: Sequence[PolicyJoin]
) -> float:
    """Sends all rows and waits until the joins are done with them. Returns how many seconds that took."""
    begin = time.monotonic()
    production.start()
    while True:
        has_sent_all = production.ended()
        if has_sent_all:
            for join in joins:
                join.look_whether_drained(production.counts)
        is_done = all(join.is_drained for join in joins)
        seconds = time.monotonic() - begin
        phase = "done" if is_done else "draining" if has_sent_all else "joining"
        sent = sum(production.counts.values())
        screen.show(
            f"{phase}, {min(seconds, scenario.seconds):.0f} of {scenario.seconds} s, {sent:,} rows sent",
            [join.view for join in joins if join.view],
        )
        if is_done:
            return seconds
        _poll(stage, joins)


def _poll(stage: Stage, joins: Sequence[PolicyJoin]) -> None:
    stage.check()
    for join in joins:
        join.update()
    time.sleep(_POLL_S)


def _verdicts(stage: Stage, production: Production) -> list[Verdict]:
    expected = expected_pairs(production.sent[VIEWS], production.sent[PRICES], BEFORE_MS, AFTER_MS)
    outputs = (
        read_back(librdkafka_options(config.kafka), config.output.topic, PARTITIONS, stage.check)
        for config in stage.configs
    )
    return [compare(expected, found) for found in outputs]


def _explained(error: Exception, config: Config) -> BalaJoinError:
    if not isinstance(error, PySparkException):
        return BalaJoinError("the demo's Spark ended by itself: free some memory and run it again")
    place = Place(config.kafka.bootstrap_servers, config.run.checkpoint, "FILE")
    return explain(trace_of(error), place)
