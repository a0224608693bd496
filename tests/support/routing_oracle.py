"""Routing as the paper defines it, in plain Python. It imports nothing of the project."""

from collections.abc import Iterable, Sequence

_MASK = (1 << 64) - 1


def paper_hash(hash_: int, epoch: int) -> int:
    """The paper's hash(x + epoch): splitmix64's finaliser."""
    z = (hash_ + epoch * 0x9E3779B97F4A7C15) & _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)


def gen_seq(x: int, seq: list[int], n: int) -> list[int]:
    if len(seq) < n:
        epoch = len(seq)
        candidate = paper_hash(x, epoch) % n
        while candidate in seq:
            epoch += 1
            candidate = paper_hash(x, epoch) % n
        seq.append(candidate)
    return seq


def update_u(x: int, u: list[int], seq: list[int], n: int) -> list[int]:
    size = len(u)
    seq = gen_seq(x, seq, n)
    if size == len(seq):
        return u
    u.append(seq[size])
    return u


def balance_factor(loads: Sequence[int]) -> float:
    return 0.0 if max(loads) == 0 else (max(loads) - min(loads)) / max(loads)


class BalancedPartition:
    """Algorithm 2, one row at a time. `letter` follows the paper's pseudocode, which breaks Theorem 1.

    `prose` follows the paper's text: U(x) also grows if its least loaded node would still leave B above ε.
    """

    def __init__(self, n: int, epsilon: float, letter: bool = False, prose: bool = False) -> None:
        self.n = n
        self.epsilon = epsilon
        self.letter = letter
        self.prose = prose
        self.loads = [0] * n
        self.u: dict[int, list[int]] = {}
        self.seq: dict[int, list[int]] = {}
        self.last: dict[int, int] = {}

    def row(self, x: int) -> int:
        u, seq = self.u.setdefault(x, []), self.seq.setdefault(x, [])
        if not seq:
            update_u(x, u, seq, self.n)
            node = seq[0]
        else:
            last = self.last[x]
            if self._balance_factor_with(last) > self.epsilon:
                node = self._least_loaded(u, last)
                if node == last or (self.prose and self._balance_factor_with(node) > self.epsilon):
                    full = len(u) == self.n
                    update_u(x, u, seq, self.n)
                    node = node if full and not self.letter else seq[-1]
            else:
                node = last
        self.last[x] = node
        self.loads[node] += 1
        return node

    def _balance_factor_with(self, node: int) -> float:
        return balance_factor([load + (j == node) for j, load in enumerate(self.loads)])

    def _least_loaded(self, u: Sequence[int], last: int) -> int:
        least = min(self.loads[j] for j in u)
        if self.loads[last] == least and not self.letter:
            return last
        return next(j for j in u if self.loads[j] == least)


class SpaceSaving:
    """Has k counters. A new key takes over the smallest one.

    The algorithm leaves open which of several smallest counters is taken. So two sketches are sure to agree only until
    the first counter is taken over.
    """

    def __init__(self, k: int) -> None:
        self.k = k
        self.counts: dict[int, int] = {}
        self.errors: dict[int, int] = {}
        self.total = 0

    def row(self, x: int) -> None:
        self.total += 1
        if x not in self.counts:
            self.counts[x] = self.errors[x] = 0
            if len(self.counts) > self.k:
                smallest = min((y for y in self.counts if y != x), key=self.counts.__getitem__)
                self.counts[x] = self.errors[x] = self.counts.pop(smallest)
                del self.errors[smallest]
        self.counts[x] += 1

    def skewed(self, x: int, theta: float, least: int) -> bool:
        surely = self.counts[x] - self.errors[x]
        return surely >= least and surely > theta * self.total


def bala_join(
    hashes: Iterable[int], n: int, theta: float, epsilon: float, k: int, least: int
) -> list[tuple[int, bool]]:
    """The node of each row, and whether the row was treated as skewed."""
    sketch, partition = SpaceSaving(k), BalancedPartition(n, epsilon)
    routed = []
    for x in hashes:
        sketch.row(x)
        skewed = sketch.skewed(x, theta, least)
        routed.append((partition.row(x) if skewed else paper_hash(x, 0) % n, skewed))
    return routed
