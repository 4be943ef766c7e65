// Conjugate gradients on coordinates in paired powers, a warp for each right-hand side. Lane j has the numbers j, j + 32
// of each vector. With h = G r, q = G B p (B: what A makes of coordinates) a step has one product with a matrix, two
// sums over the warp, and h -= alpha q.

#include "powers.cuh"

// Steps whose basis p_0 ... p_steps is conditioned well enough: the first pivot of Cholesky's factors of the vectors
// scaled to length one that is below `least` ends it. At least one, unless a vector is not finite; `scratch` is shared.
template <class Number, int STEPS, int COUNT>
__device__ int allowed_steps(const Number (&gram)[COUNT][COUNT], Number (&scratch)[STEPS + 1][STEPS + 2], double least) {
    const int row = threadIdx.x;
    const double own = row <= STEPS ? high_of(gram[row][row]) : 0;
    if (row <= STEPS)
        for (int k = 0; k <= STEPS; k++) scratch[row][k] = gram[row][k];
    __syncwarp();
    int allowed = STEPS;
    for (int k = 0; k <= STEPS; k++) {  // eliminate vector k from those after it
        const Number pivot = scratch[k][k];
        const double scale = __shfl_sync(~0u, own, k);
        if (!(high_of(pivot) > least * scale)) {
            if (scale > 0) allowed = max(1, k - 1);
            break;
        }
        if (row > k && row <= STEPS) {
            const Number factor = negative(quotient(scratch[row][k], pivot));
            for (int i = k + 1; i <= STEPS; i++)
                scratch[row][i] = sum(scratch[row][i], product(factor, scratch[k][i]));
        }
        __syncwarp();
    }
    return allowed;
}

// x, r, p: [STEPS + 1][RHS][COUNT], doubles. report: rows |r|^2 [STEPS + 1], p^H A p [STEPS + 1], steps [1], [..][RHS].
// restarted: p^H r of the first step is not |r|^2.
template <class Number, int RHS, int STEPS>
__global__ void __launch_bounds__(32)
    coordinates(const double* __restrict__ high, const double* __restrict__ low, const double* __restrict__ change,
                const double* __restrict__ targets2, const double* __restrict__ restarted, double* __restrict__ xs,
                double* __restrict__ rs, double* __restrict__ ps, double* __restrict__ report, double least) {
    constexpr int COUNT = Powers<STEPS, RHS>::COUNT, FIRST = STEPS + 1, EACH = (COUNT + 31) / 32;
    __shared__ Number gram[COUNT][COUNT], image[COUNT][COUNT], shared[COUNT], scratch[STEPS + 1][STEPS + 2];
    __shared__ double tridiagonal[COUNT][3];  // of each row
    const int lane = threadIdx.x, n = blockIdx.x;
    for (int i = lane; i < COUNT * COUNT; i += 32)
        gram[i / COUNT][i % COUNT] = number<Number>(high[n * COUNT * COUNT + i], low[n * COUNT * COUNT + i]);
    for (int i = lane; i < 3 * COUNT; i += 32) {
        const int row = i / 3, column = row + i % 3 - 1;
        tridiagonal[row][i % 3] = column >= 0 && column < COUNT ? change[row * COUNT + column] : 0;
    }
    __syncwarp();
    for (int i = lane; i < COUNT * COUNT; i += 32) {
        const int row = i / COUNT, column = i % COUNT;
        Number total = {};
        for (int j = max(0, column - 1); j <= min(COUNT - 1, column + 1); j++)
            total = sum(total, product(gram[row][j], number<Number>(tridiagonal[j][column - j + 1], 0)));
        image[column][row] = total;
    }
    const int allowed = least > 0 ? allowed_steps<Number, STEPS, COUNT>(gram, scratch, least) : STEPS;

    Number x[EACH], r[EACH], p[EACH], h[EACH];
    const auto store = [&](int step) {
        #pragma unroll
        for (int i = 0; i < EACH; i++)
            if (const int j = lane + 32 * i; j < COUNT) {
                const int at = (step * RHS + n) * COUNT + j;
                xs[at] = high_of(x[i]), rs[at] = high_of(r[i]), ps[at] = high_of(p[i]);
            }
    };
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int j = lane + 32 * i;
        x[i] = number<Number>(0, 0), r[i] = number<Number>(j == FIRST, 0), p[i] = number<Number>(j == 0, 0);
        h[i] = j < COUNT ? gram[j][FIRST] : number<Number>(0, 0);
    }
    store(0);
    Number rho = gram[FIRST][FIRST];
    if (lane == 0) report[n] = high_of(rho), report[(STEPS + 1) * RHS + n] = 1;
    bool exactly = restarted[n] != 0, going = true;
    int taken = 0;
    for (int step = 0; step < STEPS; step++) {
        going = going && step < allowed && high_of(rho) > targets2[n];
        double measured = 1;
        if (going) {
            #pragma unroll
            for (int i = 0; i < EACH; i++)
                if (lane + 32 * i < COUNT) shared[lane + 32 * i] = p[i];
            __syncwarp();
            Number q[EACH], ap[EACH], curved = {}, along = {};
            #pragma unroll
            for (int i = 0; i < EACH; i++) {
                const int j = lane + 32 * i;
                q[i] = ap[i] = number<Number>(0, 0);
                if (j >= COUNT) continue;
                Number even = {}, odd = {};
                #pragma unroll 4
                for (int k = 0; k + 1 < COUNT; k += 2) {
                    even = sum(even, product(image[k][j], shared[k]));
                    odd = sum(odd, product(image[k + 1][j], shared[k + 1]));
                }
                q[i] = sum(sum(even, odd), product(image[COUNT - 1][j], shared[COUNT - 1]));
                ap[i] = product(number<Number>(tridiagonal[j][1], 0), p[i]);
                if (j > 0) ap[i] = sum(ap[i], product(number<Number>(tridiagonal[j][0], 0), shared[j - 1]));
                if (j + 1 < COUNT) ap[i] = sum(ap[i], product(number<Number>(tridiagonal[j][2], 0), shared[j + 1]));
                curved = sum(curved, product(p[i], q[i]));
                along = sum(along, product(p[i], h[i]));
            }
            __syncwarp();
            const Number curvature = warp_sum(curved), gamma = exactly ? warp_sum(along) : rho;
            measured = high_of(curvature);
            if (measured > 0) {
                const Number alpha = quotient(gamma, curvature), back = negative(alpha);
                Number norm = {}, conjugate = {};
                #pragma unroll
                for (int i = 0; i < EACH; i++) {
                    x[i] = sum(x[i], product(alpha, p[i]));
                    r[i] = sum(r[i], product(back, ap[i]));
                    h[i] = sum(h[i], product(back, q[i]));
                    norm = sum(norm, product(r[i], h[i]));
                    conjugate = sum(conjugate, product(ap[i], h[i]));
                }
                const Number after = warp_sum(norm);
                const Number beta = exactly ? negative(quotient(warp_sum(conjugate), curvature)) : quotient(after, rho);
                #pragma unroll
                for (int i = 0; i < EACH; i++) p[i] = sum(r[i], product(beta, p[i]));
                rho = after, exactly = false, taken = step + 1;
            } else going = false;
        }
        store(step + 1);
        if (lane == 0) {
            report[(step + 1) * RHS + n] = high_of(rho);
            report[(STEPS + 1 + step + 1) * RHS + n] = measured;
        }
    }
    if (lane == 0) {
        report[2 * (STEPS + 1) * RHS + n] = taken;
        report[(2 * (STEPS + 1) + 1) * RHS + n] = allowed;
    }
}
