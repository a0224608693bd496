"""A repeated batch writes its dead letters and late rows with the same ids."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kafka_data import Sent, everything, headers_of, send
from pipeline import MINUTE, START, Pipeline


def test_a_repeated_batch_repeats_the_ids(pipeline: Callable[..., Pipeline]) -> None:
    running = pipeline({"key": "cast(cast(key as string) as int)"}, {"key": "cast(cast(key as string) as int)"})
    inputs = (running.probe.topic, running.build.topic)
    for hours in (0, 2):
        for topic in inputs:
            send(running.bootstrap, topic, [Sent(b"1", b"v", START + hours * 60 * MINUTE, n) for n in range(2)])
        _run_a_batch(running)
    for topic in inputs:
        bad = [Sent(b"no number", b"dead", START, n % 2) for n in range(6)]
        send(running.bootstrap, topic, [*bad, *(Sent(b"1", b"late", START + n, n % 2) for n in range(4))])
    _run_a_batch(running)
    last = max(int(file.name) for file in Path(running.checkpoint, "commits").glob("[0-9]*"))
    for commit in Path(running.checkpoint, "commits").glob(f"*{last}*"):
        commit.unlink()  # as if the service had been killed before the commit
    _run_a_batch(running)
    for topic, count in ((running.dead, 12), (running.late, 8)):
        ids = Counter(headers_of(message)["balajoin-id"] for message in everything(running.bootstrap, topic))
        assert len(ids) == count
        assert set(ids.values()) == {2}


def _run_a_batch(running: Pipeline) -> None:
    """Runs a batch without Spark's file sink, which skips batches that it has written before."""
    writer = running.joined().writeStream.format("noop").option("checkpointLocation", running.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
