"""Sources of vectors: jobs and given vectors, with the coefficients by which they enter.

A vector is a linear combination of sources: the changes made by training jobs, gradients, and vectors without
a known origin. The coefficients of all vectors of interest are found by one pass over the recorded
computations, from the last to the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sim.learning.architecture import Architecture
from sim.learning.engine.affine import AffineMap, affine_map
from sim.learning.engine.graph.operations import Mix, Train, ZeroUntrained
from sim.learning.engine.graph.parts import ExtractPart, ReplacePart
from sim.learning.engine.graph.sampler import TrainJob
from sim.learning.engine.recorded import Computation, PendingFactor, RecordedFactor, RecordedTerms
from sim.learning.engine.snapshot import VectorId

CLIPPED, OPTIMIZER, UNKNOWN = "clipped pulls", "pulls of another optimizer", "factors that the log lacks"
SAMPLES = "weights of samples that come from another vector"


class ColumnRange(NamedTuple):
    """`length` columns from `target` of a vector of interest, equal to columns from `source` of another."""

    target: int
    source: int
    length: int


class Source(NamedTuple):
    """Source of the vectors of interest.

    record: number of its computation, or None for a given vector. output: 0 for parameters, 1 for the state
    of an optimizer. coefficients: one for each vector of interest, [T]. owner: the source vector; for a job,
    the vector that it returned, of which only the job's own part counts.
    """

    owner: VectorId
    record: int | None
    output: int
    columns: ColumnRange
    coefficients: np.ndarray


_Ranges = dict[ColumnRange, np.ndarray]


@dataclass
class Lineage:
    """Pass over the records of an engine.

    factors: values of scalars that scale vectors, by serial. reads: numbers of the computations whose result
    depends on another vector in an unknown way, by reason and client; -1 for a computation of no client.
    """

    records: Sequence[Computation]
    factors: Mapping[int, float]
    reads: defaultdict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    _open: dict[VectorId, _Ranges] = field(default_factory=dict)

    def sources(self, vectors: Sequence[RecordedTerms]) -> Iterator[Source]:
        """Yield the sources of vectors of interest, from the last computation to the first."""
        for number, terms in enumerate(vectors):
            for owner, factor in terms:
                value = self._value(factor)
                if value is None:
                    self.reads[UNKNOWN, -1].add(-1)
                else:
                    self._add(
                        owner, ColumnRange(0, 0, owner.width), _unit_vector(number, len(vectors)), value
                    )
        for number in range(len(self.records) - 1, -1, -1):
            record = self.records[number]
            for output, owner in enumerate(record.outputs):
                if owner in self._open:
                    yield from self._expanded(number, record, output, self._open.pop(owner))
        for owner, ranges in self._open.items():
            for columns, coefficients in ranges.items():
                yield Source(owner, None, 0, columns, coefficients)
        self._open.clear()

    def _expanded(self, number: int, record: Computation, output: int, ranges: _Ranges) -> Iterator[Source]:
        """Replace a computed vector by its inputs. Yields a vector, or a part of one, that is a source."""
        operation = record.operation
        if isinstance(operation, Train):
            yield from _as_sources(number, record, output, ranges)
            self._pass_job(number, record, operation, output, ranges)
        elif isinstance(operation, Mix) and (values := self._all(record.factors)) is not None:
            for owner, value in zip(record.inputs, values, strict=False):
                self._pass(owner, ranges, value)
        elif isinstance(operation, ExtractPart):
            for columns, coefficients in ranges.items():
                self._add(
                    record.inputs[0], columns._replace(source=columns.source + operation.offset), coefficients
                )
        elif isinstance(operation, ReplacePart):
            self._pass_with_part(record, operation, ranges)
        elif isinstance(operation, ZeroUntrained):
            for columns, coefficients in ranges.items():
                for piece, is_trained in _split_by_training(columns, operation.architecture):
                    if is_trained:
                        self._add(record.inputs[0], piece, coefficients)
        else:
            if isinstance(operation, Mix):
                self.reads[UNKNOWN, -1].add(number)
            yield from _as_sources(number, record, output, ranges)

    def _pass_job(
        self, number: int, record: Computation, operation: Train, output: int, ranges: _Ranges
    ) -> None:
        """Pass the coefficients of a job's result on to its start, its optimizer state and its anchors."""
        starts = self._all(record.factors)
        job, slots = record.payload, operation.optimizer.slots
        assert isinstance(job, TrainJob)
        maps, unknown = self._maps(operation, job, record)
        first = len(record.factors)
        anchors = record.inputs[first + bool(slots) + bool(operation.weighted) :]
        map_ = None if maps is None else maps[output]
        if starts is None:
            unknown, starts = [*unknown, UNKNOWN], ()
        for reason in unknown:
            self.reads[reason, job.client].add(number)
        architecture = operation.kernel.architecture
        for columns, coefficients in ranges.items():
            pieces = _split_by_training(columns, architecture) if map_ is not None else [(columns, True)]
            for piece, is_trained in pieces:
                if map_ is None or not is_trained:  # the result is the start plus the job's own part
                    of = AffineMap(1.0 if output == 0 else 0.0, 0.0, ())
                else:
                    of = map_
                for owner, factor in zip(record.inputs, starts, strict=False):
                    self._add(owner, piece, coefficients, factor * of.start)
                if of.state:
                    self._add(record.inputs[first], piece, coefficients, of.state)
                for owner, factor in zip(anchors, of.anchors, strict=False):
                    self._add(owner, piece, coefficients, factor)

    def _maps(
        self, operation: Train, job: TrainJob, record: Computation
    ) -> tuple[tuple[AffineMap, AffineMap] | None, list[str]]:
        """Return the maps of a job's parameters and state, if known, and what its result also depends on."""
        unknown = [SAMPLES] if operation.weighted else []
        strengths = self._all(record.strengths)
        if strengths is None:
            return None, [*unknown, UNKNOWN]
        rate = job.learning_rate
        rates = rate if isinstance(rate, tuple) else (rate,) * job.steps
        maps = affine_map(operation.optimizer, rates, job.steps_done, strengths)
        if maps is None and strengths:
            unknown.append(CLIPPED if operation.optimizer.rule.is_linear else OPTIMIZER)
        return maps, unknown

    def _pass_with_part(self, record: Computation, operation: ReplacePart, ranges: _Ranges) -> None:
        whole, part = record.inputs
        first, end = operation.offset, operation.offset + operation.width
        for columns, coefficients in ranges.items():
            self._add(whole, _cut(columns, 0, first), coefficients)
            inside = _cut(columns, first, end)
            self._add(part, inside._replace(source=inside.source - first), coefficients)
            self._add(whole, _cut(columns, end, whole.width), coefficients)

    def _pass(self, owner: VectorId, ranges: _Ranges, factor: float) -> None:
        for columns, coefficients in ranges.items():
            self._add(owner, columns, coefficients, factor)

    def _add(
        self, owner: VectorId, columns: ColumnRange, coefficients: np.ndarray, factor: float = 1.0
    ) -> None:
        if columns.length <= 0 or not factor:
            return
        ranges = self._open.setdefault(owner, {})
        present = ranges.get(columns)
        if present is None:
            ranges[columns] = coefficients * factor
        else:
            present += coefficients * factor

    def _value(self, factor: RecordedFactor) -> float | None:
        if not isinstance(factor, PendingFactor):
            return factor
        value = self.factors.get(factor.serial)
        return None if value is None else factor.number * value

    def _all(self, factors: Sequence[RecordedFactor]) -> tuple[float, ...] | None:
        """Return the values of factors; None if the log lacks one."""
        values = tuple([value for factor in factors if (value := self._value(factor)) is not None])
        return values if len(values) == len(factors) else None


def _as_sources(number: int, record: Computation, output: int, ranges: _Ranges) -> Iterator[Source]:
    for columns, coefficients in ranges.items():
        yield Source(record.outputs[output], number, output, columns, coefficients)


def _unit_vector(number: int, count: int) -> np.ndarray:
    values = np.zeros(count)
    values[number] = 1.0
    return values


def _cut(columns: ColumnRange, first: int, end: int) -> ColumnRange:
    """Return the part of a range in columns [first, end) of its source; its length may be 0 or negative."""
    low, high = max(columns.source, first), min(columns.source + columns.length, end)
    return ColumnRange(columns.target + low - columns.source, low, high - low)


def _split_by_training(
    columns: ColumnRange, architecture: Architecture
) -> Iterator[tuple[ColumnRange, bool]]:
    """Yield the trained and the untrained parts of a range; the flag is True for trained parameters."""
    column, end = columns.source, columns.source + columns.length
    for part in architecture.untrained:
        first, last = part.offset, part.offset + part.numel
        if last <= column or first >= end:
            continue
        if (before := _cut(columns, column, first)).length > 0:
            yield before, True
        yield _cut(columns, max(first, column), last), False
        column = last
    if (after := _cut(columns, column, end)).length > 0:
        yield after, True
