"""Block linear algebra against plain matrix products in double; the same bits for any number of threads."""

import numpy as np
import pytest
from widths import widths

from stages.base.errors import InputError
from support.matrices import near

ROWS = (1, 47, 48, 2048, 6151)

PAIRS = widths([(3, 3), (8, 8), (33, 5)], [(1, 1), (3, 16), (16, 16), (33, 33), (64, 64)])


@pytest.mark.parametrize(("n", "m"), PAIRS)
def test_products_of_blocks(backend, random, tolerance, n, m):
    x, y, a = random(2051, 3, n), random(2051, 3, m), random(n, m).astype(complex)
    rows_x, rows_y = x.reshape(-1, n).astype(complex), y.reshape(-1, m).astype(complex)
    blas, on_device = backend.kernels.block_blas, backend.array(x)
    gram = blas.gram(on_device, backend.array(y))
    assert gram.dtype == np.complex128
    assert near(backend.host(gram), rows_x.conj().T @ rows_y, tolerance)

    product = rows_x @ a
    out = backend.array(np.full_like(y, np.nan))
    assert blas.rotate(on_device, backend.array(a), out) is out
    assert near(backend.host(out).reshape(-1, m), product, tolerance)
    updated = backend.array(y)
    blas.update(updated, on_device, backend.array(a))
    assert near(backend.host(updated).reshape(-1, m), rows_y + product, tolerance)
    out = backend.array(np.full_like(y, np.nan))
    assert blas.rotate_add(backend.array(y), on_device, backend.array(a), out) is out
    assert near(backend.host(out).reshape(-1, m), rows_y + product, tolerance)
    assert np.array_equal(backend.host(on_device), x)


@pytest.mark.parametrize("n", widths((3, 8), (1, 16, 33)))
def test_results_may_take_the_place_of_their_input(backend, random, n):
    x, q, a = backend.array(random(700, 3, n)), backend.array(random(700, 3, n)), random(n, n).astype(complex)
    blas, a = backend.kernels.block_blas, backend.array(a)
    apart = blas.rotate(x, a, backend.xp.empty_like(x))
    apart_sum = blas.rotate_add(q, x, a, backend.xp.empty_like(x))
    in_place = blas.rotate(x.copy(), a, x.copy())
    assert np.array_equal(backend.host(in_place), backend.host(apart))
    overwritten = x.copy()
    blas.rotate(overwritten, a, overwritten)
    assert np.array_equal(backend.host(overwritten), backend.host(apart))
    overwritten = x.copy()
    blas.rotate_add(q, overwritten, a, overwritten)
    assert np.array_equal(backend.host(overwritten), backend.host(apart_sum))


@pytest.mark.parametrize("n", widths((3, 33), (1, 8, 16, 64)))
def test_sums_by_column(backend, random, tolerance, n):
    x, y = random(2051, 3, n), random(2051, 3, n)
    blas = backend.kernels.block_blas
    dots, norms2 = blas.dots(backend.array(x), backend.array(y)), blas.norms2(backend.array(x))
    assert (dots.dtype, norms2.dtype) == (np.complex128, np.float64)
    expected = np.einsum("scn,scn->n", x.conj().astype(complex), y)
    assert near(backend.host(dots), expected, tolerance)
    assert near(backend.host(norms2), (np.abs(x.astype(complex)) ** 2).sum(axis=(0, 1)), tolerance)


@pytest.mark.parametrize("rows", ROWS)
def test_every_number_of_rows(backend, random, tolerance, rows):
    x, y, a = random(rows, 8), random(rows, 8), random(8, 8).astype(complex)
    blas = backend.kernels.block_blas
    wide_x, wide_y = x.astype(complex), y.astype(complex)
    on_device = [backend.array(values) for values in (x, y)]
    assert near(backend.host(blas.gram(*on_device)), wide_x.conj().T @ wide_y, tolerance)
    assert near(backend.host(blas.dots(*on_device)), (wide_x.conj() * wide_y).sum(axis=0), tolerance)
    out = blas.rotate(on_device[0], backend.array(a), backend.array(np.full_like(x, np.nan)))
    assert near(backend.host(out), wide_x @ a, tolerance)


def test_refuses_blocks_that_do_not_match(backend, random):
    x, y = backend.array(random(12, 3, 4)), backend.array(random(10, 3, 4))
    blas = backend.kernels.block_blas
    with pytest.raises(InputError):
        blas.gram(x, y)
    with pytest.raises(InputError):
        blas.dots(x, y)
    with pytest.raises(InputError, match=r"\(4, 4\)"):
        blas.rotate(x, backend.array(random(4, 3)), x.copy())
