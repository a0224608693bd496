import pyarrow as pa

from balajoin.core.blocks import decode
from balajoin.edge.pack import Packer
from balajoin.kafka.producer import Publisher
from balajoin.spark.labels import source_label
from oracle import Row
from strategies import LARGEST_ORDINARY_OBJECT, rows_of, table

NODES = 3


def packed(rows: list[Row]) -> list[dict[str, object]]:
    """Packs all rows at once, as the edge does. None is a dead letter, so nothing is published."""
    edge = table(rows).append_column("dead", pa.nulls(len(rows), pa.string())).combine_chunks()
    packer = Packer("probe", "topic", NODES, "dead", 1000, Publisher.of({}))
    return [row for batch in edge.to_batches() for block in packer.pack(batch) for row in block.to_pylist()]


def test_rows_become_blocks_so_small_that_the_jvm_takes_them_as_ordinary_objects():
    rows = [Row(b"k%d" % offset, offset, bytes(80), 2, 5 + offset) for offset in range(40_000)]
    found = packed(rows)
    tables = [decode(row["block"]) for row in found]
    assert rows_of(*tables) == rows
    assert [row["rows"] for row in found] == [block.num_rows for block in tables]
    assert [row["first_offset"] for row in found] == [block.column("offset")[0].as_py() for block in tables]
    assert {row["source"] for row in found} == {source_label(2, NODES)}
    assert len(found) > 1
    assert max(len(row["block"]) for row in found) <= LARGEST_ORDINARY_OBJECT // 2


def test_a_block_is_of_one_partition():
    rows = [Row(b"k", 0, b"v", offset % 3, offset) for offset in range(30)]
    found = packed(rows)
    by_partition = {row["partition"]: rows_of(decode(row["block"])) for row in found}
    assert len(found) == 3
    assert by_partition == {partition: rows[partition::3] for partition in range(3)}
