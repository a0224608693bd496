"""A transaction that takes its id over before there are rows, without a broker."""

import pyarrow as pa
import pytest

from balajoin.core.spec import Target
from balajoin.errors import BalaJoinError
from balajoin.sinks.marker import Marker
from balajoin.sinks.transaction import Transaction

NOWHERE = Target("out", "commits", (("bootstrap.servers", "127.0.0.1:1"), ("bogus.option", "x")))
NOW = Marker("query", node=1, batch=2, planned_ms=3)


def test_an_id_that_cannot_be_taken_over_ends_the_attempt_with_rows_and_without() -> None:
    """Without the id nobody knows whether an earlier attempt has written rows."""
    with Transaction(NOWHERE, NOW) as transaction:
        transaction.expect_rows()
        with pytest.raises(BalaJoinError, match=r"bogus\.option"):
            transaction.commit()
    with Transaction(NOWHERE, NOW) as transaction:
        transaction.expect_rows()
        with pytest.raises(BalaJoinError, match=r"bogus\.option"):
            transaction.write(pa.record_batch({"key": pa.array([b"k"]), "value": pa.array([b"v"])}))
    with Transaction(NOWHERE, NOW) as transaction:
        assert transaction.commit() == 0
