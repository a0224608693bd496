"""The end of the demo in a few lines."""

from dataclasses import dataclass
from typing import Self

from balajoin.demo.checking import Verdict
from balajoin.demo.display import hottest, shares
from balajoin.demo.joining import Joining


@dataclass(frozen=True)
class Summary:
    rows_by_topic: dict[str, int]
    seconds: float
    batches: int
    node_rows: tuple[int, ...]
    verdict: Verdict

    @classmethod
    def of(cls, joining: Joining, verdict: Verdict) -> Self:
        watch = joining.watch
        return cls(joining.production.counts, joining.duration_s, watch.batches, tuple(watch.node_rows), verdict)

    def __str__(self) -> str:
        return "\n".join(f"  {name:<11}{text}" for name, text in self._lines().items())

    def _lines(self) -> dict[str, str]:
        rows = sum(self.rows_by_topic.values())
        parts = ", ".join(f"{count:,} {topic}" for topic, count in self.rows_by_topic.items())
        verdict = self.verdict
        return {
            "rows in": f"{rows:,} ({parts})",
            "pairs": f"{verdict.expected:,} expected, {verdict.found:,} found",
            "check": f"{verdict.missing:,} missing, {verdict.unexpected:,} unexpected, {verdict.repeats:,} repeated",
            "speed": (
                f"{rows / self.seconds:,.0f} rows/s in, {verdict.found / self.seconds:,.0f} pairs/s out, "
                f"{self.batches:,} batches in {self.seconds:.0f} s"
            ),
            "nodes": ", ".join(f"{share:.1%}" for share in shares(self.node_rows)) + " of all rows",
            "": hottest(self.node_rows),
        }
