import os
import socket
import time
from typing import Any

import pytest

from balajoin.prompt import promptly


def connected(kind: str) -> tuple[socket.socket, socket.socket]:
    if kind == "unix":
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_worker_reads_and_writes_what_it_would_without(kind: str) -> None:
    spark, worker = connected(kind)
    sent = os.urandom(1 << 17)

    def main(infile: Any, outfile: Any) -> None:
        outfile.write(infile.read(len(sent))[::-1])
        outfile.flush()

    with spark, worker, worker.makefile("rb") as infile, worker.makefile("wb") as outfile:
        spark.sendall(sent)
        promptly(main)(infile, outfile)
        assert spark.recv(len(sent), socket.MSG_WAITALL) == sent[::-1]
        if kind == "tcp":
            assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="needs Linux")
def test_small_pieces_do_not_wait_for_each_other() -> None:
    """Without it each of them waits 40 ms for the acknowledgement of the one before."""
    spark, worker = connected("tcp")
    pieces = 50

    def main(infile: Any, outfile: Any) -> None:
        for _ in range(pieces):
            spark.sendall(b"ab")
            spark.sendall(b"cd")
            infile.read(4)
        outfile.write(b"done")
        outfile.flush()

    started = time.monotonic()
    with spark, worker, worker.makefile("rb") as infile, worker.makefile("wb") as outfile:
        promptly(main)(infile, outfile)
        assert spark.recv(4) == b"done"
    assert time.monotonic() - started < 0.01 * pieces
