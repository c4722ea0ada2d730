"""Latencies from their section in a scenario: distributions, matrices, places and traces."""

from pathlib import Path
from typing import Any

import numpy as np

from sim.build.actors import Actors
from sim.build.distributions import distribution
from sim.build.traces import latency_matrix, round_trips
from sim.errors import UserError
from sim.kernel.random import Draws
from sim.settings.latency import MatrixLatency, PositionLatency, TraceLatency
from sim.world.cities import CITIES, draw_city
from sim.world.distributions import Distribution
from sim.world.latency import NodeLatency, Place, fibre_seconds, one_way_seconds, sampled_nodes


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
    needed = len(actors.clients) + len(actors.servers)
    seconds = latency_matrix(settings.file, key, settings.unit, needed)
    rows = {name: row for row, name in enumerate(actors.clients)}
    # From the end, so that a further client takes no server's row.
    rows |= {name: len(seconds) - 1 - row for row, name in enumerate(actors.servers)}
    return NodeLatency(seconds[np.newaxis], rows, jitter=settings.jitter)


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
    medians_s, slices_s = round_trips(settings.source, key, data_dir)
    round_trips_s = medians_s[np.newaxis] if settings.slice is None else slices_s
    nodes = sampled_nodes(actors.seed, actors.clients, actors.servers, round_trips_s.shape[1])
    return NodeLatency(
        one_way_seconds(round_trips_s, slices_s),
        nodes,
        **({} if settings.slice is None else {"slice_s": settings.slice}),
        jitter=settings.jitter,
    )
