"""Dead letters and late rows: a repeated one has the same id, and different ones have different ids."""

import base64
import json

import pyarrow as pa

from balajoin.control.rejects import dead_letters, late_records
from balajoin.core.sides import Side
from balajoin.kafka.producer import Record
from oracle import Row
from strategies import table


def _dead(
    side: Side, topic: str, places: list[tuple[int, int]], headers: dict[str, bytes] | None = None
) -> list[Record]:
    written = [{"key": name, "value": base64.b64encode(value).decode()} for name, value in (headers or {}).items()]
    dead = json.dumps({"key": "aw==", "headers": written})
    rows = [{"key": None, "time": 0, "partition": p, "offset": o, "dead": dead} for p, o in places]
    return list(dead_letters(side, topic, pa.Table.from_pylist(rows), 1000))


def _late(side: Side, topic: str, places: list[tuple[int, int]]) -> list[Record]:
    return list(late_records(side, topic, table([Row(b"k", 0, b"v", p, o) for p, o in places]), 10))


def _id(record: Record) -> bytes | None:
    """The id that consumers should read: the last header with this name."""
    return [value for name, value in record.headers if name == "balajoin-id"][-1]


def test_every_row_has_its_own_id_and_the_same_one_again() -> None:
    places = [(0, 0), (0, 1), (1, 0), (1, 10), (11, 0)]
    for made in (_dead, _late):
        of_rows = [
            [_id(record) for record in made(side, topic, places)]
            for side in ("probe", "build")  # one topic may be joined with itself
            for topic in ("clicks", "clicks-1", "1")
        ]
        ids = [id_ for group in of_rows for id_ in group]
        assert len(set(ids)) == len(ids) == 30
        assert [_id(record) for record in made("probe", "clicks", places)] == of_rows[0]
    assert _id(*_dead("build", "shows", [(3, 17)])) == b"build-shows-3-17"


def test_a_dead_letter_keeps_the_headers_that_it_had() -> None:
    """It also keeps the id that it has as the result of another join."""
    (letter,) = _dead("probe", "clicks", [(0, 7)], {"trace": b"abc", "balajoin-id": b"0-1-2-3"})
    assert list(letter.headers)[:2] == [("trace", b"abc"), ("balajoin-id", b"0-1-2-3")]
    assert _id(letter) == b"probe-clicks-0-7"
