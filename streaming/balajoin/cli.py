"""The `balajoin` command: reads arguments, and turns every error into a line on stderr and an exit status.

Settings take variables of the environment only through `load` here. Apart from that, the environment is read where Java
and Spark are started: see `spark.java`, `spark.jars` and `spark.session`.
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from balajoin.config.address import Address, AddressError
from balajoin.config.loading import lines_in, load, with_lines
from balajoin.config.models import Config
from balajoin.config.redaction import RedactingFormatter, Redactor
from balajoin.errors import BalaJoinError, ConfigError, Problem
from balajoin.service.log_limit import LogLimit
from balajoin.spark.jars import default_cache

_DONE, _FAILED, _WRONG_CONFIG, _INTERRUPTED = 0, 1, 2, 130
_LOG_LINE = "%(asctime)s %(levelname)s %(name)s %(message)s"
_logger = logging.getLogger(__name__)

_SUMMARIES = {
    "run": "run the join until it is stopped: Ctrl-C and SIGTERM finish the batch first",
    "check": "check the file, its topics and its expressions, without running the join",
    "topics": "create the topics that are missing",
}
_CONTROL_SUMMARY = "look at the join's control and replica topics"
_TAIL_SUMMARY = "print the last records of both topics: signals, and the build rows that nodes pulled"
_STATE_SUMMARY = "show what a checkpoint holds, without running the join"
_RESCALE_SUMMARY = "copy a stopped join's checkpoint to one with another number of nodes; the old one stays as it is"
_DEMO_SUMMARY = (
    "join two skewed streams by hash and by bala-join, side by side on a temporary Kafka broker, and check both"
)
_TOP_SUMMARY = "watch a running service in the terminal, as its live page shows it"
_PLOT_SUMMARY = "draw recorded runs: rows by node, balance over time, traffic against balance"
_EPILOG = """\
environment:
  BALAJOIN_CACHE  folder for downloaded jars (default: balajoin in XDG_CACHE_HOME or ~/.cache)
  JAVA_HOME       the Java to use (default: the first on PATH)
  others          whatever ${NAME} in the file refers to
"""


@dataclass(frozen=True)
class _Order:
    """What a command is given: the settings, the file that holds them, the folder for jars, and how much to log."""

    config: Config
    path: Path
    cache: Path
    verbose: bool


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    redactor = Redactor(())
    _log_to_stderr(redactor, arguments.verbose)
    try:
        if getattr(arguments, "config", None) is None:
            return _WITHOUT_FILE[arguments.command](arguments)
        config = load(arguments.config, os.environ)
        redactor = config.redactor
        _log_to_stderr(redactor, arguments.verbose)
        if arguments.command == "control":
            return _control_tail(config, arguments.lines, arguments.follow)
        if arguments.command == "top":
            return _top(_page_of(config))
        if arguments.command == "state":
            return _state(config, arguments)
        if arguments.command == "rescale":
            return _rescale(config, arguments)
        order = _Order(config, arguments.config, default_cache(os.environ), arguments.verbose)
        return _COMMANDS[arguments.command](order)
    except ConfigError as error:
        _say(redactor(_listed(error, getattr(arguments, "config", None))))
        return _WRONG_CONFIG
    except BalaJoinError as error:
        _say(redactor(f"balajoin: {error}"))
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # a fault of our own; only its trace tells what happened
        _logger.debug("unexpected", exc_info=True)
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        _say(redactor(f"balajoin: unexpected {reason} (see all of it with --verbose)"))
        return _FAILED


def _run(order: _Order) -> int:
    from balajoin.service.run import run

    return run(order.config, order.path, cache=order.cache, verbose=order.verbose)


def _check(order: _Order) -> int:
    from balajoin.service import check

    problems = check.check(order.config, order.path, cache=order.cache)
    if problems:
        raise ConfigError(problems)
    print(f"{order.path}: all good")
    return _DONE


def _topics(order: _Order) -> int:
    from balajoin.kafka import topics

    wanted = topics.shapes(order.config)
    created = topics.create_missing(order.config.kafka, wanted, order.config.topics.replication)
    for topic in wanted:
        print(f"{'created' if topic in created else 'exists '} {topic}")
    return _DONE


def _control_tail(config: Config, lines: int, follow: bool) -> int:
    from balajoin.control.tail import tail
    from balajoin.kafka import rights

    rights.require(config, rights.OF_TAIL)
    for line in tail(config.kafka, config.join.control_topic, config.join.replica_topic, lines, follow):
        print(line, flush=follow)
    return _DONE


def _state(config: Config | None, arguments: argparse.Namespace) -> int:
    from balajoin.checkpoints.show import show

    location = config.run.checkpoint if config else arguments.checkpoint
    show(location, config, in_json=arguments.json, cache=default_cache(os.environ), verbose=arguments.verbose)
    return _DONE


def _rescale(config: Config, arguments: argparse.Namespace) -> int:
    from balajoin.checkpoints.rescale import rescale

    cache, verbose = default_cache(os.environ), arguments.verbose
    print(rescale(config, arguments.nodes, arguments.to, file=str(arguments.config), cache=cache, verbose=verbose))
    return _DONE


def _demo(arguments: argparse.Namespace) -> int:
    from balajoin import demo

    return demo.main(
        seconds=arguments.seconds,
        rate=arguments.rate,
        page=arguments.page,
        record=arguments.record,
        cache=default_cache(os.environ),
        verbose=arguments.verbose,
    )


def _top(url: str) -> int:
    from rich.console import Console

    from balajoin.observe.live import reading, top

    top.show(Console(), reading.moments(url))
    return _DONE


def _page_of(config: Config) -> str:
    address = config.page.address
    if address is None or address.port == 0:
        raise ConfigError(
            [
                Problem(
                    "page.address",
                    "names no port at which to look",
                    'for example address = "127.0.0.1:8787"; or use top --url URL',
                )
            ]
        )
    return address.url


def _plot(arguments: argparse.Namespace) -> int:
    from balajoin.observe.live import plots

    for picture in plots.draw(arguments.runs, arguments.output):
        print(picture)
    return _DONE


_COMMANDS: dict[str, Callable[[_Order], int]] = {"run": _run, "check": _check, "topics": _topics}
_WITHOUT_FILE: dict[str, Callable[[argparse.Namespace], int]] = {
    "demo": _demo,
    "plot": _plot,
    "state": lambda arguments: _state(None, arguments),
    "top": lambda arguments: _top(arguments.url),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="balajoin",
        description="Joins two Kafka topics continuously on Spark, however skewed their keys.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"balajoin {_version()}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--verbose", action="store_true", help="log more, and show full traces of failures")
    file = argparse.ArgumentParser(add_help=False)
    file.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="the join's TOML file")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in _SUMMARIES.items():
        commands.add_parser(name, help=summary, description=summary, parents=[file, common])
    control = commands.add_parser("control", help=_CONTROL_SUMMARY, description=_CONTROL_SUMMARY)
    tail = control.add_subparsers(dest="what", required=True, metavar="WHAT").add_parser(
        "tail", help=_TAIL_SUMMARY, description=_TAIL_SUMMARY, parents=[file, common]
    )
    tail.add_argument("--lines", type=_positive, default=20, help="how many records (default: %(default)s)")
    tail.add_argument("--follow", action="store_true", help="then print new records until Ctrl-C")
    state = commands.add_parser("state", help=_STATE_SUMMARY, description=_STATE_SUMMARY, parents=[common])
    which = state.add_mutually_exclusive_group(required=True)
    which.add_argument("-c", "--config", type=Path, metavar="FILE", help="the join's TOML file")
    which.add_argument("--checkpoint", metavar="PLACE", help="folder or URL of any checkpoint of balajoin")
    state.add_argument("--json", action="store_true", help="print everything as JSON, for programs")
    rescale = commands.add_parser(
        "rescale", help=_RESCALE_SUMMARY, description=_RESCALE_SUMMARY, parents=[file, common]
    )
    rescale.add_argument(
        "--nodes", type=_positive, required=True, metavar="M", help="number of nodes of the new checkpoint"
    )
    rescale.add_argument("--to", required=True, metavar="PLACE", help="folder or URL of the new checkpoint")
    demo = commands.add_parser("demo", help=_DEMO_SUMMARY, description=_DEMO_SUMMARY, parents=[common])
    demo.add_argument("--seconds", type=_positive, default=60, help="how long rows are produced (default: %(default)s)")
    demo.add_argument("--rate", type=_positive, default=2000, help="probe rows per second (default: %(default)s)")
    demo.add_argument(
        "--page",
        type=_address,
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="address of the live page (default: any free port)",
    )
    demo.add_argument("--record", type=Path, metavar="FILE", help="record each batch in this file, for `balajoin plot`")
    top = commands.add_parser("top", help=_TOP_SUMMARY, description=_TOP_SUMMARY, parents=[common])
    service = top.add_mutually_exclusive_group(required=True)
    service.add_argument("-c", "--config", type=Path, metavar="FILE", help="the join's TOML file, with page.address")
    service.add_argument("--url", help="URL of a service's live page")
    plot = commands.add_parser("plot", help=_PLOT_SUMMARY, description=_PLOT_SUMMARY, parents=[common])
    plot.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="file that run.record or demo --record wrote")
    plot.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder for the pictures")
    return parser


def _version() -> str:
    try:
        return version("balajoin")
    except PackageNotFoundError:
        return "(not installed, run from its source)"


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError("must be a whole number above 0")
    return int(text)


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _log_to_stderr(redactor: Redactor, verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter(_LOG_LINE, redactor))
    if not verbose:
        handler.addFilter(LogLimit())
    logger = logging.getLogger("balajoin")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    # Other libraries (py4j, when the JVM dies) log whole traces of what we report in a line.
    logging.getLogger().handlers = [handler if verbose else logging.NullHandler()]


def _listed(error: ConfigError, path: Path | None) -> str:
    problems = list(error.problems)
    if path is None:
        return f"balajoin: {error}"
    if not any(problem.setting == str(path) for problem in problems):  # else the file itself cannot be read
        problems = with_lines(problems, lines_in(path))
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return "\n  ".join([f"{path} has {count}:", *map(str, problems)])


def _say(text: str) -> None:
    print(text, file=sys.stderr)
