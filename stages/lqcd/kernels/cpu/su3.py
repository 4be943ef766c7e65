"""SU(3) inside compiled kernels: a row is a tuple of 3 complex numbers, a matrix is a tuple of 3 rows.

A pair (a, b) stands for the 2x2 matrix ((a, b), (-b^*, a^*)), an element of SU(2) times a number >= 0.
Tuples live in registers; these functions are inlined into the kernel that calls them.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

from stages.lqcd.kernels.cpu.compiled import inlined


@inlined
def load(matrices, site):
    """Matrix `site` of an array ``[site, 9]``."""
    m = matrices[site]
    return (m[0], m[1], m[2]), (m[3], m[4], m[5]), (m[6], m[7], m[8])


@inlined
def store(matrices, site, matrix):
    """Write matrix `site` of an array ``[site, 9]``."""
    for row in range(3):
        for column in range(3):
            matrices[site, 3 * row + column] = matrix[row][column]


@inlined
def dagger(m):
    """m^dag."""
    m0, m1, m2 = m
    return (
        (m0[0].conjugate(), m1[0].conjugate(), m2[0].conjugate()),
        (m0[1].conjugate(), m1[1].conjugate(), m2[1].conjugate()),
        (m0[2].conjugate(), m1[2].conjugate(), m2[2].conjugate()),
    )


@inlined
def row_times(row, m):
    """Product of a row with a matrix m."""
    return (
        row[0] * m[0][0] + row[1] * m[1][0] + row[2] * m[2][0],
        row[0] * m[0][1] + row[1] * m[1][1] + row[2] * m[2][1],
        row[0] * m[0][2] + row[1] * m[1][2] + row[2] * m[2][2],
    )


@inlined
def times(a, b):
    """Product a b of two matrices."""
    return row_times(a[0], b), row_times(a[1], b), row_times(a[2], b)


@inlined
def plus_row(a, b):
    """Sum a + b of two rows."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@inlined
def plus(a, b):
    """Sum a + b of two matrices."""
    return plus_row(a[0], b[0]), plus_row(a[1], b[1]), plus_row(a[2], b[2])


@inlined
def normalised(row):
    """Unit vector row / |row|."""
    square = 0.0
    for element in row:
        square += element.real * element.real + element.imag * element.imag
    scale = 1 / math.sqrt(square)
    return scale * row[0], scale * row[1], scale * row[2]


@inlined
def in_su3(row0, row1):
    """The matrix of SU(3) with these two rows, made orthonormal."""
    a = normalised(row0)
    overlap = a[0].conjugate() * row1[0] + a[1].conjugate() * row1[1] + a[2].conjugate() * row1[2]
    b = normalised((row1[0] - overlap * a[0], row1[1] - overlap * a[1], row1[2] - overlap * a[2]))
    c = (
        (a[1] * b[2] - a[2] * b[1]).conjugate(),
        (a[2] * b[0] - a[0] * b[2]).conjugate(),
        (a[0] * b[1] - a[1] * b[0]).conjugate(),
    )
    return a, b, c


@inlined
def pair_product(p, q):
    """Product p q of two pairs."""
    return p[0] * q[0] - p[1] * q[1].conjugate(), p[0] * q[1] + p[1] * q[0].conjugate()


@inlined
def pair_square(p):
    """Determinant of a pair, |a|^2 + |b|^2."""
    a, b = p
    return a.real * a.real + a.imag * a.imag + b.real * b.real + b.imag * b.imag


@inlined
def pair_of(m00, m01, m10, m11):
    """The pair P with Re tr (g P) = Re tr (g m) for every g in SU(2) and 2x2 matrix m."""
    return 0.5 * (m00 + m11.conjugate()), 0.5 * (m01 - m10.conjugate())


@inlined
def pair_times_rows(p, upper, lower):
    """A pair times the 2x3 matrix of two rows."""
    a, b = p
    new_upper = (a * upper[0] + b * lower[0], a * upper[1] + b * lower[1], a * upper[2] + b * lower[2])
    c, d = -b.conjugate(), a.conjugate()
    new_lower = (c * upper[0] + d * lower[0], c * upper[1] + d * lower[1], c * upper[2] + d * lower[2])
    return new_upper, new_lower
