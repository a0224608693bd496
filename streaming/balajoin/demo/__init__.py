"""`balajoin demo`: two made-up streams, joined by two policies side by side, and a check of every joined row."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from balajoin.config.address import Address
from balajoin.demo.display import display_for
from balajoin.demo.scenario import Scenario
from balajoin.observe.live.onlookers import Onlookers

__all__ = ["main"]


def main(
    *, seconds: int, rate: int, cache: Path, page: Address | None, record: Path | None = None, verbose: bool = False
) -> int:
    """Produces for `seconds`, `rate` probe rows in each; `cache` is the folder of the jars. Returns the exit code."""
    display = display_for(Console())
    scenario = Scenario(seconds, rate)
    display.say(scenario.introduction)
    from balajoin.demo.running import run  # Spark's libraries take a second, in which something should be on screen

    with Onlookers(page, record, ("--page", "--record")) as onlookers:
        if onlookers.url:
            display.say(f"Watch it in a browser at [bold]{escape(onlookers.url)}[/]\n")
        return run(scenario, display, onlookers.listeners, cache=cache, verbose=verbose)
