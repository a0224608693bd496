"""`python -m soak`: see `soak`."""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from balajoin.core.spec import JoinType
from balajoin.embedded import EmbeddedKafka
from balajoin.spark.jars import default_cache, fetch
from soak import disks
from soak.faults import FAULTS, NEED_DISKS
from soak.service import SoakError
from soak.streams import Load
from soak.world import World

_CACHE_MIB, _CHECKPOINT_MIB = 64, 256


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    can_make_disks = disks.go_where_disks_can_be_made()
    kinds = [kind for kind in options.faults if can_make_disks or FAULTS[kind] not in NEED_DISKS]
    for kind in sorted(set(options.faults) - set(kinds)):
        print(f"{kind} is left out: it needs mounts of its own (root, or user namespaces)")
    with tempfile.TemporaryDirectory(prefix="balajoin-soak-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        mounts = {folder / "cache": _CACHE_MIB, folder / "checkpoints": _CHECKPOINT_MIB} if can_make_disks else {}
        for mount, size in mounts.items():
            disks.make(mount, size)
        try:
            with EmbeddedKafka(folder / "broker", fetch("broker", default_cache(os.environ))) as broker:
                return _soak(folder, broker, kinds, options)
        finally:
            for mount in mounts:
                disks.remove(mount)


def _soak(folder: Path, broker: EmbeddedKafka, kinds: list[str], options: argparse.Namespace) -> int:
    random_ = random.Random(options.seed)
    load = Load(broker.bootstrap_servers, options.seed, options.rate)
    chosen = [("type", options.type), ("delivery", options.delivery), ("policy", options.policy)]
    world = World(folder, broker, random_, chosen, load)
    began = time.monotonic()
    print(f"seed {options.seed}, faults: {', '.join(kinds)}", flush=True)
    try:
        world.begin()
        world.await_results()
        for kind in _plan(random_, kinds, None if options.once else began + options.minutes * 60):
            world.await_results()
            time.sleep(2 * random_.random())
            at = time.monotonic()
            FAULTS[kind](world)
            world.account.faults[kind] += 1
            print(f"{at - began:6.0f} s  {kind}: {time.monotonic() - at:.1f} s", flush=True)
        world.settle()
        failure = None
    except SoakError as error:
        failure = error
    finally:
        load.end()
        world.close()
    _tell(world)
    if failure:
        print(f"\nFAILED with seed {options.seed}: {failure}", file=sys.stderr)
    return 1 if failure else 0


def _plan(random_: random.Random, kinds: list[str], until: float | None) -> Iterator[str]:
    """All kinds in random order: once, or repeatedly until the time `until`."""
    while True:
        for kind in random_.sample(kinds, len(kinds)):
            if until is not None and time.monotonic() > until:
                return
            yield kind
        if until is None:
            return


def _tell(world: World) -> None:
    account = world.account
    print("\nfaults")
    for kind, times in sorted(account.faults.items()):
        print(f"  {kind:24} {times}")
    print("the service ended by")
    for error, times in account.endings.most_common():
        print(f"  {times} × {error}")
    print(
        f"starts {world.service.starts}, checkpoints {account.epochs}, rows in {account.rows_in}, "
        f"expected {account.expected}, found {account.found}, lost {account.lost}, unexpected {account.unexpected}, "
        f"wrong {account.wrong}, late {account.late}, dead letters {account.dead}, repeats {account.repeats}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description="Runs a join under load while random things break.")
    parser.add_argument(
        "--minutes", type=float, default=8, help="minutes after which no new fault starts (default: %(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="cause each fault once, without a time limit")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="repeats the choice of faults")
    parser.add_argument(
        "--faults", nargs="+", choices=FAULTS, default=list(FAULTS), metavar="KIND", help=", ".join(FAULTS)
    )
    parser.add_argument("--rate", type=int, default=100, help="probe rows per second (default: %(default)s)")
    parser.add_argument("--policy", default="bala-join", help="join.policy (default: %(default)s)")
    parser.add_argument("--type", choices=get_args(JoinType), default="inner", help="join.type (default: %(default)s)")
    parser.add_argument("--delivery", choices=("exactly-once", "at-least-once"), default="exactly-once")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
