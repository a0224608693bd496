"""Runs the paper's experiments through the model: `PYTHONPATH=benchmarks python -m paper` prints and draws everything.

`--tables` prints only the tables, `--figures` draws only the figures, `--fit` fits the free parameters again, and
`--check` compares the model with the measurements of a real cluster.
"""

import argparse
import time
from pathlib import Path

from rich.console import Console

from paper import check, figures, ssb, tables
from paper.fit import fit
from paper.parameters import MINIMA
from paper.tables import describe

_REPOSITORY = Path(__file__).parents[2]


def main() -> None:
    options = _options()
    console = Console(width=190)
    began = time.monotonic()
    if options.fit:
        console.print(fit(console))
        return
    everything = not (options.tables or options.figures or options.check)
    if options.tables or everything:
        parameters = MINIMA[options.minimum]
        console.print(f"{parameters}\n")
        tables.print_all(console, parameters)
        ssb.print_joins(console, parameters)
    if options.figures or everything:
        for file in figures.draw_all(options.output):
            console.print(f"drew {file}")
    if options.check or everything:
        check.print_check(console, options.measurements)
    console.print(describe(time.monotonic() - began))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--minimum", choices=[*MINIMA], default="processors", help="of the fit's error, for the tables")
    parser.add_argument("-o", "--output", type=Path, default=_REPOSITORY / "docs" / "paper", help="folder of figures")
    parser.add_argument("--measurements", type=Path, default=check.MEASUREMENTS, help="JSON, see paper/check.py")
    return parser.parse_args()


if __name__ == "__main__":
    main()
