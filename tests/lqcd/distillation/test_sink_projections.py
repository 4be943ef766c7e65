"""Projections of what does not fit: the same result for any bound on memory, which is kept to."""

import tracemalloc
from itertools import pairwise, product

import numpy as np
import pytest
import zarr
from slice_fields import Elsewhere

from stages.base.errors import InputError
from stages.lqcd.distillation.projection import planned_bytes, sink_projections
from stages.lqcd.distillation.streaming import SlicedField, streamed

AMPLE = 1 << 40


def operands(times=6, sites=24, k=5, n=3, kinds=("complex128", "complex128"), seed=71):
    rng = np.random.default_rng(seed)

    def draw(*shape, dtype):
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)

    return draw(times, 2, sites, 3, k, dtype=kinds[0]), draw(2, times * sites, 12, n, dtype=kinds[1])


def explicit(vectors, solutions):
    times, _, sites, _, _ = vectors.shape
    spinors = solutions.reshape(2, times, sites, 4, 3, -1).astype(complex)
    return np.einsum("tpxci,ptxscj->tsij", vectors.astype(complex).conj(), spinors, optimize=True)


@pytest.mark.parametrize("kinds", list(product(("complex64", "complex128"), repeat=2)), ids=str)
@pytest.mark.parametrize("away", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_every_bound_on_memory_gives_the_same(kinds, away):
    vectors, solutions = operands(kinds=kinds)
    expected = explicit(vectors, solutions)
    given = [
        Elsewhere(field) if moved else field for field, moved in zip((vectors, solutions), away, strict=True)
    ]
    bounds = [planned_bytes(*given, np, tile) for tile in range(1, 7)]
    assert all(small <= large for small, large in pairwise(bounds[:-1]))
    results = [sink_projections(*given, np, bound) for bound in (*bounds, AMPLE)]
    tolerance = 1e-5 if "complex64" in kinds else 1e-12
    assert np.abs(results[0] - expected).max() < tolerance * np.abs(expected).max()
    assert results[0].dtype == np.complex128
    for other in results[1:]:
        assert np.array_equal(other, results[0])


def test_a_bound_that_is_too_small_is_refused_with_the_bytes_needed():
    vectors, solutions = operands()
    elsewhere = Elsewhere(vectors)
    needed = planned_bytes(elsewhere, solutions, np, 1)
    with pytest.raises(InputError, match=rf"takes {needed} bytes .* got device_bytes = {needed - 1}: allow"):
        sink_projections(elsewhere, solutions, np, needed - 1)
    sink_projections(elsewhere, solutions, np, needed)


def test_one_tile_needs_one_buffer():
    vectors, solutions = operands()
    elsewhere = Elsewhere(vectors)
    assert planned_bytes(elsewhere, solutions, np, 6) < planned_bytes(elsewhere, solutions, np, 5)
    one = operands(times=1)
    assert sink_projections(Elsewhere(one[0]), one[1], np, AMPLE).shape == (1, 4, 5, 3)


def test_tiles_are_read_once_and_in_order():
    vectors, solutions = (Elsewhere(field) for field in operands())
    sink_projections(vectors, solutions, np, planned_bytes(vectors, solutions, np, 4))
    assert [part[-1] for part in vectors.read] == [slice(t, t + 1) for t in range(6)]
    assert [part[-1].start for part in solutions.read if part[0] == 1] == [24 * t for t in range(6)]


@pytest.mark.parametrize(("tile", "away"), [(1, (True, True)), (2, (True, False)), (3, (False, True))])
@pytest.mark.parametrize("kinds", [("complex64", "complex64"), ("complex64", "complex128")], ids=str)
def test_memory_is_what_was_planned(tile, away, kinds):
    """Within a fifth, for operands three times larger than the plan and more."""
    fields = operands(times=32, sites=256, k=24, n=8, kinds=kinds)
    given = [Elsewhere(field) if moved else field for field, moved in zip(fields, away, strict=True)]
    planned = planned_bytes(*given, np, tile)
    assert 3 * planned < sum(field.nbytes for field in fields)
    tracemalloc.start()
    sink_projections(*given, np, planned)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 * planned < peak < 1.2 * planned


def test_from_a_store(tmp_path):
    vectors, solutions = operands(kinds=("complex64", "complex64"))
    stored = zarr.create_array(
        tmp_path / "v", shape=vectors.shape, chunks=(1, 2, 24, 3, 5), dtype="complex64"
    )
    stored[:] = vectors
    result = sink_projections(stored, solutions, np, planned_bytes(stored, solutions, np, 2))
    assert np.array_equal(result, sink_projections(vectors, solutions, np, AMPLE))


def test_failures_of_reading_reach_the_caller():
    class Torn(Elsewhere):
        def __getitem__(self, part):
            if part[-1].start >= 3:
                raise OSError("chunk 3 is gone")
            return super().__getitem__(part)

    vectors, solutions = operands()
    with pytest.raises(OSError, match="chunk 3 is gone"):
        sink_projections(Torn(vectors), solutions, np, planned_bytes(Torn(vectors), solutions, np, 1))


def test_a_tile_stays_until_the_next_but_one_is_asked_for():
    vectors, _ = operands()
    field, seen = SlicedField(Elsewhere(vectors), 0, 1), []
    for tile in streamed([field], 6, 1, np):
        seen.append(tile)
        assert np.array_equal(tile.parts[0], vectors[tile.first : tile.first + 1])
    assert [tile.first for tile in seen] == list(range(6))
    assert np.array_equal(seen[4].parts[0], vectors[4:5]) and np.array_equal(seen[5].parts[0], vectors[5:])


def test_operands_that_do_not_belong_together_are_refused():
    vectors, solutions = operands()
    with pytest.raises(InputError, match=r"have shape \(2, 144, 12\) and their number"):
        sink_projections(vectors, solutions[:, :-1], np, AMPLE)
    with pytest.raises(InputError, match="at least 1, got"):
        sink_projections(vectors, solutions[..., :0], np, AMPLE)
    with pytest.raises(InputError, match=r"eigenvectors must have shape \(time, 2, site, 3, eigenvector\)"):
        sink_projections(vectors[..., 0], solutions, np, AMPLE)


@pytest.mark.gpu
@pytest.mark.parametrize("away", [(True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("kinds", [("complex64", "complex64"), ("complex64", "complex128")], ids=str)
def test_streamed_through_the_device_within_the_plan(away, kinds):
    """Operands three times larger than the memory allowed; many tiles, so that buffers are used again."""
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()  # what is used below would else lie in larger blocks, with room beside it
    fields = operands(times=24, sites=2048, k=48, n=16, kinds=kinds)
    expected = explicit(*fields)
    given = [field if moved else cupy.array(field) for field, moved in zip(fields, away, strict=True)]
    sink_projections(*given, cupy, AMPLE)  # compiles, makes handles and page-locked buffers
    for tile in (1, 2):
        planned = planned_bytes(*given, cupy, tile)
        pool.free_all_blocks()
        before = pool.total_bytes()
        result = sink_projections(*given, cupy, planned)
        peak = pool.total_bytes() - before
        assert np.abs(result.get() - expected).max() < 1e-5 * np.abs(expected).max()
        assert 0.8 * planned < peak < 1.2 * planned
        del result
