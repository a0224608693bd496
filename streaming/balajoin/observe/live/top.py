"""`balajoin top`: what the live page shows, in a terminal."""

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.live import Live

from balajoin.observe.live.hub import KEPT_BATCHES
from balajoin.observe.live.moment import Moment
from balajoin.observe.live.picture import Join, picture


def show(console: Console, news: Iterable[Sequence[Moment]]) -> None:
    """Draws until `news` ends. On an output that is no terminal it prints the first picture and returns."""
    joins: defaultdict[str, deque[Moment]] = defaultdict(lambda: deque(maxlen=KEPT_BATCHES))
    heard_s: dict[str, float] = {}
    with Live(console=console, screen=console.is_terminal, auto_refresh=False, vertical_overflow="ellipsis") as live:
        for moments in news:
            for moment in moments:
                joins[moment.join].append(moment)
                heard_s[moment.join] = time.monotonic()
            shown = [Join(list(past), time.monotonic() - heard_s[join]) for join, past in joins.items()]
            live.update(picture(shown, console.width, console.height), refresh=console.is_terminal)
            if not console.is_terminal and joins:
                break
