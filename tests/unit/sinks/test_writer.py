import pyarrow as pa

from balajoin.core.spec import Target
from balajoin.sinks.writer import Writer


def test_a_node_without_rows_has_nothing_to_do_with_kafka() -> None:
    writer = Writer(Target("out", "commits", (("bootstrap.servers", "nowhere:1"),)), {"policy": '"bala-join"'})
    nothing = pa.array([], pa.binary())
    assert list(writer.as_function()(iter([]))) == []
    assert list(writer.as_function()(iter([pa.record_batch(dict.fromkeys(("key", "value", "id"), nothing))]))) == []
