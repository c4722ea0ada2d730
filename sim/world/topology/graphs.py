"""Who may talk to whom: undirected graphs on the clients 0 to n - 1, without loops.

Every graph has its nodes in order and depends on the arguments only. Random graphs are drawn until one is
connected, since an unreachable client would silently train by itself. ValueError if that is hopeless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, combinations

import networkx as nx

from sim.kernel.random import key

_TRIES = 100  # draws of a random graph before it is called hopeless to get a connected one


def complete(n: int) -> nx.Graph:
    """Everybody knows everybody."""
    return _graph(n, combinations(range(n), 2))


def ring(n: int) -> nx.Graph:
    """Each client knows the two next to it (two clients: each other)."""
    # Two clients have one edge, not two. A single client would be its own neighbour.
    return _graph(n, ((i, (i + 1) % n) for i in range(n)) if n > 1 else ())


def k_regular(n: int, k: int, seed: int) -> nx.Graph:
    """A random connected graph in which each client has exactly `k` neighbours."""
    _require(0 <= k < n, f"a k-regular graph of {n} clients: k must be between 0 and {n - 1}, not {k}")
    _require(n * k % 2 == 0, f"a k-regular graph: n * k must be even, and n = {n}, k = {k}")
    _require(k >= 2 or n == k + 1, f"a k-regular graph of {n} clients is connected only for k >= 2, not {k}")
    return _connected(
        lambda draw: _random_regular(k, n, draw),
        n,
        key(seed, "k-regular"),
        f"{k}-regular",
        "a larger k",
    )


def _random_regular(k: int, n: int, seed: int) -> nx.Graph:
    # Its algorithm pairs free ends at random, which hardly ever succeeds if most pairs are linked. Then the
    # complement is drawn.
    if 2 * k > n:
        return nx.complement(nx.random_regular_graph(n - 1 - k, n, seed=seed))
    return nx.random_regular_graph(k, n, seed=seed)


def erdos_renyi(n: int, p: float, seed: int) -> nx.Graph:
    """Each pair is linked with probability `p`, independently, given that the graph is connected."""
    _require(0 <= p <= 1, f"an Erdos-Renyi graph: p must be between 0 and 1, not {p}")
    return _connected(
        lambda draw: nx.fast_gnp_random_graph(n, p, seed=draw),
        n,
        key(seed, "erdos-renyi"),
        f"Erdos-Renyi (p = {p})",
        "a p above ln(n) / n",
    )


def small_world(n: int, k: int, p: float, seed: int) -> nx.Graph:
    """A ring in which each client knows the `k` nearest (`k` even); edges are rewired with probability `p`.

    Watts, Strogatz, "Collective dynamics of 'small-world' networks", Nature 393, 1998.
    """
    _require(
        k % 2 == 0 and 2 <= k < n,
        f"a small world of {n} clients: k must be even, at least 2 and below {n}, not {k}",
    )
    _require(0 <= p <= 1, f"a small world: p must be between 0 and 1, not {p}")
    return _connected(
        lambda draw: nx.watts_strogatz_graph(n, k, p, seed=draw),
        n,
        key(seed, "small-world"),
        f"small-world (k = {k}, p = {p})",
        "a larger k or a smaller p",
    )


def clusters(sizes: Sequence[int]) -> nx.Graph:
    """Groups of these sizes, in order: complete inside, and without links between them."""
    _require(all(size >= 1 for size in sizes), f"clusters: every size must be at least 1, not {list(sizes)}")
    ends = accumulate(sizes)
    groups = (range(end - size, end) for end, size in zip(ends, sizes, strict=True))
    return _graph(sum(sizes), (pair for group in groups for pair in combinations(group, 2)))


def from_edge_list(text: str, n: int) -> nx.Graph:
    """The graph of a text with two client numbers on each line; # begins a comment.

    An edge stands once, in either direction. The graph need not be connected. ValueError, with the line, for
    anything else.
    """
    edges = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"line {number}: {line.strip()[:60]!r}"
        # int() raises an error of its own for thousands of digits.
        _require(
            len(words) == 2 and all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words),
            f"{where} is not two client numbers",
        )
        i, j = map(int, words)
        _require(max(i, j) < n, f"{where}: clients are numbered 0 to {n - 1}")
        _require(i != j, f"{where}: a client is not its own neighbour")
        edges.append((i, j))
    return _graph(n, edges)


def neighbours(graph: nx.Graph) -> list[list[int]]:
    """For each client the clients that it may talk to, sorted."""
    return [sorted(graph[i]) for i in range(len(graph))]


def _graph(n: int, edges: Iterable[tuple[int, int]]) -> nx.Graph:
    _require(n >= 1, f"a topology needs at least one client, not {n}")
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges)
    return graph


def _connected(draw: Callable[[int], nx.Graph], n: int, seed: int, kind: str, remedy: str) -> nx.Graph:
    _require(n >= 1, f"a topology needs at least one client, not {n}")
    for attempt in range(_TRIES):
        drawn = draw(key(seed, attempt))
        if nx.is_connected(drawn):
            return _graph(n, drawn.edges)
    raise ValueError(f"no connected {kind} graph of {n} clients in {_TRIES} draws: it needs {remedy}")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
