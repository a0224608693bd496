"""The control and the replica topic in memory, with the records that nodes and sources write to them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from balajoin.control import encoding
from balajoin.core.envelope import Addressed
from balajoin.core.hashing import home
from balajoin.core.messages import Report, Shipment, Signal, Stamp
from balajoin.kafka.producer import Record


@dataclass
class Topics:
    """Both topics in one: all records in their order, as nodes read them, and how many of them have been read."""

    written: list[Addressed] = field(default_factory=list)
    read: int = 0

    def take(self) -> list[Addressed]:
        """The records that no batch has read yet."""
        unread = self.written[self.read :]
        self.read = len(self.written)
        return unread

    def forget(self) -> None:
        """Drops the records that have been read: many batches of many rows would fill the memory."""
        del self.written[: self.read]
        self.read = 0

    @property
    def drained(self) -> bool:
        return self.read == len(self.written)


def of_signal(stamp: Stamp, nodes: int, signal: Signal) -> Addressed:
    to = home(signal.hash, nodes)
    return _control(to, encoding.signal_record(stamp, to, signal))


def of_tick(stamp: Stamp, nodes: int, now_ms: int) -> list[Addressed]:
    return [_control(node, encoding.tick_record(stamp, now_ms)) for node in range(nodes)]


def of_wake_up(nodes: int) -> list[Addressed]:
    return [_control(node, encoding.wake_up_record()) for node in range(nodes)]


def of_shipment(stamp: Stamp, shipment: Shipment) -> list[Addressed]:
    return _replicas(shipment.node, encoding.shipment_records(stamp, shipment))


def of_report(stamp: Stamp, report: Report) -> list[Addressed]:
    return _replicas(report.home, encoding.report_records(stamp, report))


def _control(node: int, record: Record) -> Addressed:
    return Addressed(node=node, section="signal", note=_text(record.value))


def _replicas(node: int, records: Iterable[Record]) -> list[Addressed]:
    return [
        Addressed(node=node, section="replica", note=_text(dict(record.headers)[encoding.HEADER]), block=record.value)
        for record in records
    ]


def _text(written: bytes | None) -> str:
    return (written or b"").decode()
