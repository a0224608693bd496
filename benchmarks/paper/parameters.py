"""Everything that the paper leaves open and the model needs: assumptions, and the fitted numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """`python -m paper --fit` finds these once: five by Table 1, and the two costs of detection by one row of Table 2.

    All other rows, tables and figures are predictions.
    """

    threshold: float = 0.001
    """θ. The paper names none."""
    clustering: float = 0.1
    """The share of each key's rows that lie together at one node. The paper says only that placement is uneven."""
    row_bytes: float = 22.28
    """On the network. The paper names neither the size of a row nor the number of rows; see `ROWS`."""
    row_us: float = 10.67
    """CPU time of a node for a row that it takes in, whether first copy or not."""
    results_per_us: float = 301.9
    """Results that a node makes in a microsecond."""
    detect_us: float = 2.84
    """CPU time of a source for a probe row that an online detector counts."""
    first_pass_us: float = 2.50
    """CPU time of a source for a probe row in a pass that only counts, before anything moves."""


FITTED = Parameters()

MINIMA = {
    "processors": FITTED,
    # The error has a second, higher minimum (0.355; that of `FITTED` is 0.292), where links set the pace.
    "links": Parameters(
        threshold=0.001,
        clustering=0.4,
        row_bytes=203.2,
        row_us=5.75,
        results_per_us=174.0,
        detect_us=2.05,
        first_pass_us=1.53,
    ),
}

# Assumptions, not fitted.
ROWS = 30_000
"""|S|. Ten times the rows, each with ten times the bytes and the CPU time, give the same throughput: only these
products count, because results grow with the square of the rows."""
KEYS = 10_000
PLACEMENTS = 8
"""Every point is the mean of so many placements of keys on nodes: where the hottest keys have their homes is luck."""
TABLE_1_NODES = 3
"""The only size of cluster at which PRPD can have 0.79/1.14 of PnR's traffic, if both tables have the same skew."""

# The paper's default settings (section 5.2).
MBIT, BALANCE, ZIPF, RATIO = 100.0, 0.2, 1.25, 2 / 3

# The paper names the ends of its ranges, but not the steps between them.
MBITS = (10.0, 50.0, 100.0, 150.0, 200.0, 250.0, 300.0)
BALANCES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
ZIPFS = (0.0, 0.5, 1.0, 1.5, 2.0)
RATIOS = (1 / 3, 1 / 2, 2 / 3, 1.0, 3 / 2, 2.0, 3.0)
