"""A node as the guest of keys that have their home elsewhere: which build rows it can count on, and what it waits for.

A probe row that no grant covers yet is *pinned*: it stays, however far time goes on, until its home has shipped the
build rows that are there and promised those to come.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from balajoin.core.blocks import concat, decode, longs
from balajoin.core.codec import whole
from balajoin.core.event_time import BEGINNING
from balajoin.core.hashing import homes
from balajoin.core.messages import ForeignRecordError, Grant, Part, Shipment, Signal, check_times
from balajoin.errors import BlockError

# A signal is answered within two batches. If the answer has not come by then, it is lost, and the guest asks again: at
# once, because its home keeps the build rows of the answer for only two batches more.
ASK_AGAIN_AFTER = 2
_LONGEST_NOTED_WAIT = 64  # batches; longer waits count as this one

Key = tuple[int, bool]  # hash, fragment


@dataclass
class Pin:
    earliest: int
    latest: int
    asked: int
    """The batch of the last signal for it."""

    since: int
    """The batch of its first row."""


@dataclass
class Guest:
    number: int
    nodes: int
    held: dict[Key, int] = field(default_factory=dict)
    pins: dict[Key, Pin] = field(default_factory=dict)
    channels: dict[int, int] = field(default_factory=dict)
    """The last batch of each home from which a shipment was taken: what comes of that batch later is a repetition."""

    foreign_parts: int = 0
    delayed_shipments: int = 0
    """Older than one batch. A trigger that does not read on, such as `availableNow` with a rate limit, does that."""

    waits: list[int] = field(default_factory=list)
    """At index *b*, how many pins were let go after *b* batches."""

    def accept(self, parts: Iterable[Part], batch: int, kept_since: int = BEGINNING) -> list[Shipment]:
        """The shipments that are new to this node, in the order of their batches.

        A task that is tried again ships again, and not always the same: it may have read fewer of its batch's signals
        early. All whole attempts are taken as one shipment; docs/architecture.md says why their grants hold. What comes
        later than the next batch is of an attempt that was given up: of its rows, those older than `kept_since` may
        have been here, met others, and gone.
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
        """None if parts are missing, as of an attempt that died while it wrote, or cannot be read."""
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
            if key in self.pins:  # what still waits came after the rows that this is the answer for
                self.pins[key].asked = max(self.pins[key].asked, batch - 1)
        waiting = {key: pin for key, pin in self.pins.items() if pin.latest > self._covered(*key)}
        for key in self.pins.keys() - waiting.keys():
            self._note_wait(batch - self.pins[key].since)
        self.pins = waiting

    def _note_wait(self, batches: int) -> None:
        at = min(batches, _LONGEST_NOTED_WAIT)
        self.waits += [0] * (at + 1 - len(self.waits))
        self.waits[at] += 1

    def pin(self, probe: pa.Table, fragment: bool, watermark: int, batch: int) -> None:
        """Remembers the rows of foreign keys that no grant covers. Late rows are nobody's promise, and not pinned."""
        hashes, times = longs(probe, "hash"), longs(probe, "time")
        foreign = (homes(hashes, self.nodes) != self.number) & (times >= watermark)
        if not foreign.any():
            return
        codes, distinct = pd.factorize(hashes[foreign])
        covered = np.array([self._covered(int(hash_), fragment) for hash_ in distinct], np.int64)
        open_ = times[foreign] > covered[codes]
        waiting = pd.Series(times[foreign][open_]).groupby(codes[open_])
        for code, earliest, latest in waiting.agg(["min", "max"]).itertuples():
            key = (int(distinct[code]), fragment)
            before = self.pins.get(key, Pin(earliest, latest, asked=batch, since=batch))
            self.pins[key] = replace(before, earliest=min(before.earliest, earliest), latest=max(before.latest, latest))

    def holds_back(self, rows: pa.Table, pins: Mapping[Key, Pin]) -> NDArray[np.bool_]:
        """Which rows wait under one of these pins."""
        hashes, times = longs(rows, "hash"), longs(rows, "time")
        held = np.zeros(rows.num_rows, np.bool_)
        for (hash_, _), pin in pins.items():
            held |= (hashes == hash_) & (times >= pin.earliest)
        return held

    @property
    def earliest_pinned(self) -> int | None:
        return min((pin.earliest for pin in self.pins.values()), default=None)

    def asks(self, batch: int) -> list[Signal]:
        """Signals for what should have come by now."""
        overdue = [(key, pin) for key, pin in self.pins.items() if batch - pin.asked >= ASK_AGAIN_AFTER]
        for _, pin in overdue:
            pin.asked = batch
        return [
            Signal(hash_, self.number, pin.latest, fragment, again=True, since=pin.earliest)
            for (hash_, fragment), pin in sorted(overdue, key=_key)
        ]

    def end_holds(self, probe_watermark: int) -> None:
        """No row that is on time can be covered by them any more."""
        self.held = {key: until for key, until in self.held.items() if until >= probe_watermark}

    def _covered(self, hash_: int, fragment: bool) -> int:
        """Who gets all build rows also gets every fragment's share."""
        return max(self.held.get((hash_, False), BEGINNING), self.held.get((hash_, fragment), BEGINNING))

    def to_state(self) -> dict[str, Any]:
        return {
            "held": [[*key, until] for key, until in sorted(self.held.items())],
            "pins": [[*key, *astuple(pin)] for key, pin in sorted(self.pins.items(), key=_key)],
            "channels": sorted(self.channels.items()),
        }

    @classmethod
    def from_state(cls, number: int, nodes: int, state: dict[str, Any]) -> "Guest":
        return cls(
            number,
            nodes,
            {(whole(hash_), bool(fragment)): whole(until) for hash_, fragment, until in state["held"]},
            {(whole(hash_), bool(fragment)): _pin(*map(whole, pin)) for hash_, fragment, *pin in state["pins"]},
            {whole(home): whole(batch) for home, batch in state["channels"]},
        )


def _merged(shipments: Sequence[Shipment], kept_since: int = BEGINNING) -> Shipment:
    """Every row may be there already, or stand in several of them."""
    rows = [concat([table.filter(pa.array(longs(table, "time") >= kept_since))]) for s in shipments for table in s.rows]
    hashes = np.unique(np.concatenate([*(longs(table, "hash") for table in rows), np.empty(0, np.int64)]))
    pulled = {hash_ for shipment in shipments for hash_ in shipment.pulled} | set(hashes.tolist())
    grants = [grant for shipment in shipments for grant in shipment.grants]
    return Shipment(shipments[0].home, shipments[0].node, rows, grants, sorted(pulled))


def _pin(earliest: int, latest: int, asked: int, since: int | None = None) -> Pin:
    """Earlier states of the same format do not tell `since`."""
    return Pin(earliest, latest, asked, asked if since is None else since)


def _key(entry: tuple[Key, Pin]) -> Key:
    return entry[0]
