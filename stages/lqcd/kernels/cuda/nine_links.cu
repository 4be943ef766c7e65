// Links18 tiles of 16 directions, [tile][direction][site][3][3], as Links9 or ShortLinks9 of own_links.cuh. A block takes a
// tile and a mu, a thread a link at a time. found: the real number that times U(3) matrices are the long links, which is the
// length of the first row of the first; and the largest deviation from that of any element, relative to it, not less than
// 1e30 where that number is zero.

#include "own_links.cuh"
#include "short_field.cuh"

__device__ __forceinline__ double2 conjugate(double2 a) { return {a.x, -a.y}; }
__device__ __forceinline__ double2 times(double2 a, double2 b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }
__device__ __forceinline__ double length(double2 a) { return hypot(a.x, a.y); }
__device__ __forceinline__ Turn<double> direction(double x, double y) {
    const double norm = hypot(x, y);
    return norm > 0 ? Turn<double>{x / norm, y / norm} : Turn<double>{1, 0};
}
__device__ __forceinline__ double2 direction(double2 a) {
    const Turn<double> turn = direction(a.x, a.y);
    return {turn.cosine, turn.sine};
}
__device__ __forceinline__ Turn<double> as_turn(double2 a) { return direction(a.x, a.y); }

// (a, b) of a row times the transpose of a rotation
__device__ __forceinline__ void turn_back(const Turn<double>& by, double2& a, double2& b) {
    const double2 x = a;
    a = {by.cosine * x.x + by.sine * b.x, by.cosine * x.y + by.sine * b.y};
    b = {by.cosine * b.x - by.sine * x.x, by.cosine * b.y - by.sine * x.y};
}

// The rotations of a U(3) matrix.
__device__ Rotations<double> rotations_of(const double2 (&u)[3][3]) {
    Rotations<double> found;
    const double a = length(u[0][0]), b = length(u[0][1]), c = length(u[0][2]);
    found.in12 = direction(a, b), found.in13 = direction(hypot(a, b), c);
    double2 rows[2][3];
    for (int j = 0; j < 3; j++) {
        const double2 phase = direction(u[0][j]);
        found.first[j] = as_turn(phase);
        for (int i = 0; i < 2; i++) rows[i][j] = times(u[i + 1][j], conjugate(phase));
    }
    for (int i = 0; i < 2; i++) turn_back(found.in12, rows[i][0], rows[i][1]), turn_back(found.in13, rows[i][0], rows[i][2]);
    // Now rows of diag(l1, l2) R23 diag(1, m): (c l1, s l1 m), (-s l2, c l2 m).
    const double2 p = rows[0][1], q = rows[0][2], r = {-rows[1][1].x, -rows[1][1].y}, s = rows[1][2];
    found.in23 = direction(hypot(length(p), length(s)), hypot(length(q), length(r)));
    const bool straight = found.in23.cosine >= found.in23.sine;
    const double2 middle = direction(straight ? times(q, conjugate(p)) : times(s, conjugate(r)));
    found.middle = as_turn(middle);
    found.last[0] = as_turn(straight ? p : times(q, conjugate(middle)));
    found.last[1] = as_turn(straight ? times(s, conjugate(middle)) : r);
    return found;
}

// The tangent of half the angle, up to `most`.
__device__ __forceinline__ double half_tangent(const Turn<double>& turn, double most) {
    if (turn.cosine >= 0) return turn.sine / (1 + turn.cosine);
    return turn.sine == 0 ? most : fmin(most, fmax(-most, (1 - turn.cosine) / turn.sine));
}

__device__ __forceinline__ unsigned angle_code(const Turn<double>& turn, bool phase) {
    const double angle = atan2(turn.sine, turn.cosine) / 3.14159265358979323846;
    return phase ? unsigned(__double2int_rn(angle * 32768) + 32768) & 0xffff : min(65535, __double2int_rn(angle * 131070));
}

template <class Real> __device__ double deviation(const Complex<Real>* link, const Rotations<double>& u, double scale) {
    double largest = 0;
    for (int j = 0; j < 3; j++) {
        ColorVectors<double, 1> unit = {}, column = {};
        unit.re[j][0] = 1;
        multiply_add(column, u, unit);
        for (int i = 0; i < 3; i++) {
            const Complex<Real> element = link[3 * i + j];
            const double off = hypot(column.re[i][0] - element.x / scale, column.im[i][0] - element.y / scale);
            largest = off < 1e30 ? fmax(largest, off) : 1e30;
        }
    }
    return largest;
}

template <int SITES, class C> __device__ double scale_of(const C* tiles, double* found) {
    double norm2 = 0;
    for (int j = 0; j < 3; j++) {
        const C element = tiles[18 * SITES + j];
        norm2 += double(element.x) * element.x + double(element.y) * element.y;
    }
    if (blockIdx.x + blockIdx.y + threadIdx.x == 0) found[0] = sqrt(norm2);
    return sqrt(norm2);
}

template <class Real> __device__ Rotations<double> checked(const Complex<Real>* link, double scale, double* found) {
    double2 u[3][3];
    for (int e = 0; e < 9; e++) u[e / 3][e % 3] = {link[e].x / scale, link[e].y / scale};
    const Rotations<double> rotations = rotations_of(u);
    const double off = deviation<Real>(link, rotations, scale);
    atomicMax(reinterpret_cast<unsigned long long*>(found + 1), __double_as_longlong(off));  // in the order of positive numbers
    return rotations;
}

template <class Real, int SITES>
__global__ void __launch_bounds__(64) nine_links(Real* __restrict__ out, const Complex<Real>* __restrict__ tiles, double* found) {
    using Form = Reals9<Real, SITES>;
    const double scale = scale_of<SITES>(tiles, found);
    const Complex<Real>* links = tiles + (size_t(blockIdx.x) * 4 + blockIdx.y) * (36 * SITES);
    Real* to = out + (size_t(blockIdx.x) * 4 + blockIdx.y) * (54 * SITES);
    for (int i = threadIdx.x; i < 4 * SITES; i += blockDim.x) {
        const int sign = i / SITES % 2, site = i % SITES;
        const Complex<Real>* link = links + 9 * i;
        if (i < 2 * SITES) {
            for (int e = 0; e < 9; e++) to[Form::fat_at(sign, 2 * e, site)] = link[e].x, to[Form::fat_at(sign, 2 * e + 1, site)] = link[e].y;
            continue;
        }
        Rotations<double> rotations = checked<Real>(link, scale, found);
        for (int k = 0; k < PARAMETERS; k++)
            to[Form::long_at(sign, k, site)] = half_tangent(parameter(rotations, k), sizeof(Real) == 4 ? 1e9 : 1e17);
    }
}

// The same in 20 bits and angles of 16.
template <int SITES>
__global__ void __launch_bounds__(64) short_nine_links(uint4* __restrict__ out, const float2* __restrict__ tiles, double* found) {
    const double scale = scale_of<SITES>(tiles, found);
    const float2* links = tiles + (size_t(blockIdx.x) * 4 + blockIdx.y) * (36 * SITES);
    uint4* to = out + (size_t(blockIdx.x) * 4 + blockIdx.y) * (8 * SITES);
    for (int i = threadIdx.x; i < 2 * SITES; i += blockDim.x) {
        const int sign = i / SITES, site = i % SITES;
        const float2* fat = links + 9 * i;
        float largest = 0;
        for (int e = 0; e < 9; e++) largest = fmaxf(largest, fmaxf(fabsf(fat[e].x), fabsf(fat[e].y)));
        const unsigned exponent = exponent_for(largest, 524287);
        const float inverse = power_of_two(254 - exponent);
        unsigned w[16] = {};
        for (int k = 0; k < 18; k++) {
            const float number = (k % 2 ? fat[k / 2].y : fat[k / 2].x) * inverse;
            const unsigned long long code = unsigned(__float2int_rn(number) + int(Packed9::ZERO));
            const int first = 20 * k / 32, shift = 20 * k % 32;
            w[first] |= unsigned(code << shift);
            if (shift > 12) w[first + 1] |= unsigned(code << shift >> 32);
        }
        w[11] |= exponent << 8;
        Rotations<double> rotations = checked<float>(fat + 18 * SITES, scale, found);
        for (int k = 0; k < PARAMETERS; k++) {
            const unsigned code = angle_code(parameter(rotations, k), k < PHASES);
            w[k == 8 ? 11 : 12 + k / 2] |= code << (k == 8 || k % 2 ? 16 : 0);
        }
        for (int k = 0; k < 4; k++)
            to[(k < 3 ? 3 * sign + k : 6 + sign) * SITES + site] = {w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3]};
    }
}
