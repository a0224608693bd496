"""`balajoin demo`: joins two made-up streams by two policies side by side, and checks every joined row."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from balajoin.config.address import Address
from balajoin.demo.scenario import Scenario
from balajoin.demo.screen import Screen
from balajoin.observe.live.onlookers import Onlookers

__all__ = ["main"]


def main(
    *, seconds: int, rate: int, cache: Path, page: Address | None, record: Path | None = None, verbose: bool = False
) -> int:
    """Sends `rate` probe rows per second for `seconds`. `cache` is the jars' folder. Returns the exit code."""
    screen = Screen(Console())
    scenario = Scenario(seconds, rate)
    screen.say(scenario.introduction)
    from balajoin.demo.run import run  # after the introduction, since Spark's libraries take a second

    with Onlookers(page, record, ("--page", "--record")) as onlookers:
        if onlookers.url:
            screen.say(f"Watch it in a browser at [bold]{escape(onlookers.url)}[/]\n")
        return run(scenario, screen, onlookers.listeners, cache=cache, verbose=verbose)
