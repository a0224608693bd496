"""`balajoin state`: shows what a checkpoint holds, without a query."""

import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from balajoin.checkpoints.display import as_json, tables
from balajoin.checkpoints.reading import explained, read
from balajoin.checkpoints.seed import unstarted
from balajoin.checkpoints.summary import CheckpointSummary, summary
from balajoin.config.models import Config
from balajoin.config.pinned import pins
from balajoin.core.pins import refuse_others, shown
from balajoin.spark.session import create_session

_MOST_KEYS = 5
_WIDE = 160


def show(location: str, config: Config | None, *, in_json: bool, cache: Path, verbose: bool) -> None:
    found = look(location, config, cache=cache, verbose=verbose)
    if in_json:
        print(json.dumps(as_json(found), indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    for part in tables(found, _MOST_KEYS):
        console.print(Text(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))


def look(location: str, config: Config | None, *, cache: Path, verbose: bool) -> CheckpointSummary:
    spark = create_session(
        master=config.run.master if config else None,
        app_name="balajoin state",
        spark_conf=config.spark if config else {},
        cache=cache,
        checkpoint=location,
        verbose=verbose,
    )
    try:
        with explained(location):
            found = summary(unstarted(spark, location) or read(spark, location))
    finally:
        spark.stop()
    if config is None:
        return found
    given = pins(config.probe, config.build, config.join)
    refuse_others(found.pins, {**given, "join.nodes": found.pins.get("join.nodes")})
    return replace(found, pins=shown(found.pins, given))
