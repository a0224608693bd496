"""A node as a guest for keys whose home is another node: which build rows it has, and which ones it waits for.

A probe row that no grant covers yet is *uncovered*: it stays stored, however far time moves on, until its home has
shipped the build rows that it has and promised to forward those that come later.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.compute.state import GuestKey, Uncovered
from balajoin.core.blocks import concat, decode, longs
from balajoin.core.event_time import BEGINNING
from balajoin.core.hashing import homes
from balajoin.core.messages import ForeignRecordError, Grant, Part, Shipment, Signal, check_times
from balajoin.errors import BlockError

# A signal is answered within two batches. If no answer has come by then, it is lost, and the guest asks again at once,
# because its home keeps the build rows of the answer for only two more batches.
ASK_AGAIN_AFTER = 2
_LONGEST_NOTED_WAIT = 64  # batches; a longer wait counts as this long


@dataclass
class Guest:
    number: int
    nodes: int
    held: dict[GuestKey, int] = field(default_factory=dict)
    uncovered: dict[GuestKey, Uncovered] = field(default_factory=dict)
    channels: dict[int, int] = field(default_factory=dict)
    """By home, the last batch whose shipment was taken. What comes later of that batch is a repetition."""

    foreign_parts: int = 0
    delayed_shipments: int = 0
    """Shipments older than one batch. A trigger that stops reading causes them: `availableNow` with a rate limit."""

    waits: list[int] = field(default_factory=list)
    """At index *b*, the number of keys whose probe rows became covered after *b* batches."""

    def accept(self, parts: Iterable[Part], batch: int, kept_since: int = BEGINNING) -> list[Shipment]:
        """The shipments that are new to this node, in the order of their batches.

        A task that runs again ships again, and maybe other rows: it may have read fewer of its batch's signals early.
        All complete attempts are merged into one shipment; docs/correctness.md says why their grants hold. A shipment
        that comes later than the next batch is of an abandoned attempt. Its rows older than `kept_since` are left out,
        because this node may already have joined and dropped them.
        """
        attempts: dict[tuple[int, int], dict[str, list[Part]]] = defaultdict(lambda: defaultdict(list))
        for part in parts:
            if part.node != self.number or part.home == self.number or not 0 <= part.home < self.nodes:
                self.foreign_parts += 1
            elif self.channels.get(part.home, -1) < part.stamp.batch < batch:
                attempts[part.stamp.batch, part.home][part.attempt].append(part)
        accepted = []
        for (sent, home), by_attempt in sorted(attempts.items()):
            shipments = [shipment for _, written in sorted(by_attempt.items()) if (shipment := self._whole(written))]
            if not shipments:
                self.foreign_parts += sum(map(len, by_attempt.values()))
                continue
            self.channels[home] = sent
            if sent < batch - 1:
                self.delayed_shipments += 1
                accepted.append(_merged(shipments, kept_since))
            else:
                accepted.append(_merged(shipments) if len(shipments) > 1 else shipments[0])
        return accepted

    def _whole(self, written: Sequence[Part]) -> Shipment | None:
        """None if parts are missing, because the attempt died while it wrote, or if they cannot be read."""
        by_number = {part.part: part for part in written}
        first = by_number.get(0)
        if first is None or len(by_number) != first.parts or max(by_number) != first.parts - 1:
            return None
        try:
            rows = [concat([decode(by_number[n].block)]) for n in range(first.parts) if by_number[n].block]
            for table in rows:
                self._check_home(longs(table, "hash"), first.home)
            check_times(rows)
            self._check_home(np.array([grant.hash for grant in first.grants], np.int64), first.home)
        except (BlockError, ForeignRecordError):
            return None
        return Shipment(first.home, self.number, rows, first.grants, first.pulled)

    def _check_home(self, hashes: NDArray[np.int64], home: int) -> None:
        if (homes(hashes, self.nodes) != home).any():
            raise ForeignRecordError("keys of another home")

    def hold(self, grants: Sequence[Grant], batch: int) -> None:
        for grant in grants:
            key = (grant.hash, grant.fragment)
            self.held[key] = max(grant.until, self.held.get(key, grant.until))
            if key in self.uncovered:  # rows still uncovered came after those that this grant answers
                rows = self.uncovered[key]
                self.uncovered[key] = replace(rows, asked=max(rows.asked, batch - 1))
        left = {key: rows for key, rows in self.uncovered.items() if rows.latest > self._covered(*key)}
        for key in self.uncovered.keys() - left.keys():
            self._note_wait(batch - self.uncovered[key].since)
        self.uncovered = left

    def _note_wait(self, batches: int) -> None:
        at = min(batches, _LONGEST_NOTED_WAIT)
        self.waits += [0] * (at + 1 - len(self.waits))
        self.waits[at] += 1

    def note_uncovered(self, probe: pa.Table, fragment: bool, watermark: int, batch: int) -> None:
        """Remembers which rows of keys with another home no grant covers. Late rows are promised nothing."""
        hashes, times = longs(probe, "hash"), longs(probe, "time")
        foreign = (homes(hashes, self.nodes) != self.number) & (times >= watermark)
        if not foreign.any():
            return
        codes, distinct = pd.factorize(hashes[foreign])
        covered = np.array([self._covered(int(hash_), fragment) for hash_ in distinct], np.int64)
        open_ = times[foreign] > covered[codes]
        by_key = pd.Series(times[foreign][open_]).groupby(codes[open_])
        for code, earliest, latest in by_key.agg(["min", "max"]).itertuples():
            key = (int(distinct[code]), fragment)
            before = self.uncovered.get(key, Uncovered(int(earliest), int(latest), asked=batch, since=batch))
            self.uncovered[key] = replace(
                before, earliest=min(before.earliest, int(earliest)), latest=max(before.latest, int(latest))
            )

    @property
    def earliest_uncovered(self) -> int | None:
        return min((rows.earliest for rows in self.uncovered.values()), default=None)

    def asks(self, batch: int) -> list[Signal]:
        """Signals that ask again for build rows which should have come by now."""
        overdue = sorted(key for key, rows in self.uncovered.items() if batch - rows.asked >= ASK_AGAIN_AFTER)
        signals = []
        for hash_, fragment in overdue:
            rows = self.uncovered[hash_, fragment]
            self.uncovered[hash_, fragment] = replace(rows, asked=batch)
            signals.append(Signal(hash_, self.number, rows.latest, fragment, again=True, since=rows.earliest))
        return signals

    def end_holds(self, probe_watermark: int) -> None:
        """Forgets grants that can cover no row on time any more."""
        self.held = {key: until for key, until in self.held.items() if until >= probe_watermark}

    def _covered(self, hash_: int, fragment: bool) -> int:
        """The time up to which probe rows are covered. A grant of all build rows also covers fragments."""
        return max(self.held.get((hash_, False), BEGINNING), self.held.get((hash_, fragment), BEGINNING))


def _merged(shipments: Sequence[Shipment], kept_since: int = BEGINNING) -> Shipment:
    """One shipment of several attempts. All its keys count as pulled: a row may be stored already, or come twice."""
    rows = [concat([table.filter(pa.array(longs(table, "time") >= kept_since))]) for s in shipments for table in s.rows]
    hashes = np.unique(np.concatenate([*(longs(table, "hash") for table in rows), np.empty(0, np.int64)]))
    pulled = {hash_ for shipment in shipments for hash_ in shipment.pulled} | set(hashes.tolist())
    grants = [grant for shipment in shipments for grant in shipment.grants]
    return Shipment(shipments[0].home, shipments[0].node, rows, grants, sorted(pulled))


def is_uncovered(rows: pa.Table, uncovered: Mapping[GuestKey, Uncovered]) -> NDArray[np.bool_]:
    """Which of the rows are uncovered."""
    hashes, times = longs(rows, "hash"), longs(rows, "time")
    found = np.zeros(rows.num_rows, np.bool_)
    for (hash_, _), some in uncovered.items():
        found |= (hashes == hash_) & (times >= some.earliest)
    return found
