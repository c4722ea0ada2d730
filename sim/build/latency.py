"""Latencies from their section in a scenario: distributions, matrices, places and traces."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.build.actors import Actors
from sim.build.distributions import distribution
from sim.data_folder import trace_file
from sim.errors import UserError
from sim.settings.latency import MatrixLatency, PositionLatency, TraceLatency
from sim.world.cities import CITIES, draw_city
from sim.world.distributions import Distribution
from sim.world.latency import NodeLatency, Place, fibre_seconds, one_way_seconds, sampled_nodes
from sim.world.random import Draws

_FOLDER = "net-latency"
_UNITS_PER_S = {"s": 1.0, "ms": 1e3, "us": 1e6}
# Of each source: its file, then what the file calls the medians and the slices, with their units per second.
_TRACES = {
    "planetlab": ("planetlab_rtt_ms.npz", ("rtt_ms_median", 1e3), ("rtt_ms_slices", 1e3)),
    "seattle": ("seattle_rtt_s.npz", ("rtt_s_median", 1.0), ("rtt_centiseconds", 100.0)),
}


def latency(settings: Any, key: str, actors: Actors, data_dir: Path | None) -> Distribution | NodeLatency:
    """The latency of a section; `key` is where it stands in the scenario. UserError."""
    match settings:
        case MatrixLatency():
            return _matrix(settings, key, actors)
        case PositionLatency():
            return _positions(settings, key, actors)
        case TraceLatency():
            return _trace(settings, key, actors, data_dir)
    return distribution(settings)


def _matrix(settings: MatrixLatency, key: str, actors: Actors) -> NodeLatency:
    seconds = _read_matrix(settings.file, key) / _UNITS_PER_S[settings.unit]
    needed = len(actors.clients) + len(actors.servers)
    if seconds.ndim != 2 or seconds.shape[0] != seconds.shape[1] or len(seconds) < needed:
        raise UserError(
            f"{key}.file = {settings.file}: its shape is {seconds.shape}; must be a square of at least "
            f"{needed} rows, one for each client and server"
        )
    np.fill_diagonal(seconds, 0.0)  # nobody is its own neighbour, and many a file has nothing here
    rows = {name: row for row, name in enumerate(actors.clients)}
    # From the end, so that a further client takes no server's row.
    rows |= {name: len(seconds) - 1 - row for row, name in enumerate(actors.servers)}
    try:
        return NodeLatency(seconds[np.newaxis], rows, jitter=settings.jitter)
    except ValueError as error:
        raise UserError(f"{key}.file = {settings.file}: {error}") from None


def _read_matrix(file: str, key: str) -> NDArray[np.float64]:
    try:
        match Path(file).suffix:
            case ".npy":
                return np.load(file, allow_pickle=False).astype(np.float64)
            case ".csv":
                return np.loadtxt(file, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise UserError(f"{key}.file = {file}: cannot be read: {error}") from None
    raise UserError(f"{key}.file = {file}: must end in .npy or .csv")


def _positions(settings: PositionLatency, key: str, actors: Actors) -> NodeLatency:
    if settings.places is not None and settings.server_place is None and actors.servers:
        raise UserError(f"{key}.server_place: is missing; where the clients are is stated, so state it, too")
    stated = dict(zip(actors.clients, settings.places or (), strict=settings.places is not None))
    if settings.server_place is not None:
        stated |= dict.fromkeys(actors.servers, settings.server_place)
    places = {
        name: _place(stated[name] if name in stated else draw_city(Draws(actors.seed, "place", name)))
        for name in actors.names
    }
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places.values()))}
    return NodeLatency(
        fibre_seconds(list(numbers), settings.floor, settings.stretch),
        {name: numbers[place] for name, place in places.items()},
        jitter=settings.jitter,
    )


def _place(place: str | Place) -> Place:
    if isinstance(place, str):
        return CITIES[place].latitude, CITIES[place].longitude
    return place


def _trace(settings: TraceLatency, key: str, actors: Actors, data_dir: Path | None) -> NodeLatency:
    file, medians, slices = _TRACES[settings.source]
    with np.load(trace_file(key, data_dir, _FOLDER, file)) as arrays:
        medians_s, slices_s = (
            arrays[name].astype(np.float64) / units_per_s for name, units_per_s in (medians, slices)
        )
    round_trips_s = medians_s[np.newaxis] if settings.slice is None else slices_s
    nodes = sampled_nodes(actors.seed, actors.clients, actors.servers, round_trips_s.shape[1])
    return NodeLatency(
        one_way_seconds(round_trips_s, slices_s),
        nodes,
        **({} if settings.slice is None else {"slice_s": settings.slice}),
        jitter=settings.jitter,
    )
