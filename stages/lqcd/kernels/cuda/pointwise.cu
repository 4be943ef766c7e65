// Element by element on rows [segment][row][n]: copies in another precision, sums, multiples, and columns with numbers
// of their own. Rows and segments of an operand lie apart by its strides, so that it may be some columns of a block or
// one parity of a field. Products and sums are rounded one by one, as on the host.

#include "share.cuh"

template <class T> struct Operand {
    T* data;
    long long segment, row;  // strides, in elements
    __device__ __forceinline__ T* at(long long s, long long r) const { return data + s * segment + r * row; }
};

// The real numbers of an element.
template <class T> struct Reals { using Real = T; static constexpr int COUNT = 1; };
template <> struct Reals<float2> { using Real = float; static constexpr int COUNT = 2; };
template <> struct Reals<double2> { using Real = double; static constexpr int COUNT = 2; };
template <class T> using RealOf = typename Reals<T>::Real;
template <class T> __device__ __forceinline__ auto& part(T& element, int i) {
    return reinterpret_cast<RealOf<T>*>(&element)[i];
}
template <class T> __device__ __forceinline__ auto part(const T& element, int i) {
    return reinterpret_cast<const RealOf<T>*>(&element)[i];
}

// The wider of two precisions.
template <class A, class B> struct WiderOf { using type = double; };
template <> struct WiderOf<float, float> { using type = float; };
template <class A, class B> using Wider = typename WiderOf<A, B>::type;

__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float sum(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double sum(double a, double b) { return __dadd_rn(a, b); }

// out[segment][row][place(column)] = value(segment, row, column) for this device's elements. A block takes `together` rows
// at a time; a thread has BATCH elements in hand, so that loads are under way together. Values may be of `out` itself.
constexpr int BATCH = 4;

template <class T, class Value, class Place>
__device__ __forceinline__ void each(const Operand<T>& out, long long segments, long long rows, int n, int together,
                                     Value value, Place place) {
    const long long begin = first_row(), end = end_row(rows), runs = (end - begin + together - 1) / together;
    const int down = blockDim.x / n, right = blockDim.x % n;
    for (long long run = blockIdx.x; run < runs * segments; run += gridDim.x) {
        const long long segment = run / runs, first = begin + (run - segment * runs) * together;
        const int here = min((long long)together, end - first);
        int row = threadIdx.x / n, column = threadIdx.x % n;
        while (row < here) {
            T values[BATCH];
            int its_row[BATCH], its_column[BATCH];
            #pragma unroll
            for (int b = 0; b < BATCH; b++) {
                its_row[b] = row, its_column[b] = column;
                if (row < here) values[b] = value(segment, first + row, column);
                row += down, column += right;
                if (column >= n) column -= n, row++;
            }
            #pragma unroll
            for (int b = 0; b < BATCH; b++)
                if (its_row[b] < here) out.at(segment, first + its_row[b])[place(its_column[b])] = values[b];
        }
    }
}

template <class T, class Value>
__device__ __forceinline__ void each(const Operand<T>& out, long long segments, long long rows, int n, int together,
                                     Value value) {
    each(out, segments, rows, n, together, value, [](int column) { return column; });
}

template <class Out, class X> __device__ __forceinline__ Out converted(const X& x) {
    Out out;
    #pragma unroll
    for (int i = 0; i < Reals<Out>::COUNT; i++) part(out, i) = RealOf<Out>(part(x, i));
    return out;
}
template <> __device__ __forceinline__ uint4 converted(const uint4& x) { return x; }
template <> __device__ __forceinline__ uint2 converted(const uint2& x) { return x; }

template <class Out, class X>
__global__ void __launch_bounds__(256)
    copy(Out* out, long long out_segment, long long out_row, const X* x, long long x_segment, long long x_row,
         long long segments, long long rows, int n, int together) {
    const Operand<const X> from{x, x_segment, x_row};
    each(Operand<Out>{out, out_segment, out_row}, segments, rows, n, together,
         [&](long long s, long long r, int c) { return converted<Out>(from.at(s, r)[c]); });
}

template <class Out>
__global__ void __launch_bounds__(256)
    clear(Out* out, long long out_segment, long long out_row, long long segments, long long rows, int n, int together) {
    each(Operand<Out>{out, out_segment, out_row}, segments, rows, n, together,
         [](long long, long long, int) { return Out{}; });
}

// out = x - y
template <class T>
__global__ void __launch_bounds__(256)
    difference(T* out, long long out_segment, long long out_row, const T* x, long long x_segment, long long x_row,
               const T* y, long long y_segment, long long y_row, long long segments, long long rows, int n,
               int together) {
    const Operand<const T> from{x, x_segment, x_row}, other{y, y_segment, y_row};
    each(Operand<T>{out, out_segment, out_row}, segments, rows, n, together, [&](long long s, long long r, int c) {
        T a = from.at(s, r)[c];
        const T b = other.at(s, r)[c];
        #pragma unroll
        for (int i = 0; i < Reals<T>::COUNT; i++) part(a, i) -= part(b, i);
        return a;
    });
}

// y += x
template <class Y, class X>
__global__ void __launch_bounds__(256)
    add(Y* y, long long y_segment, long long y_row, const X* x, long long x_segment, long long x_row,
        long long segments, long long rows, int n, int together) {
    const Operand<Y> to{y, y_segment, y_row};
    const Operand<const X> from{x, x_segment, x_row};
    each(to, segments, rows, n, together, [&](long long s, long long r, int c) {
        const X a = from.at(s, r)[c];
        Y b = to.at(s, r)[c];
        #pragma unroll
        for (int i = 0; i < Reals<Y>::COUNT; i++) part(b, i) += part(a, i);
        return b;
    });
}

// out = factor x
template <class T>
__global__ void __launch_bounds__(256)
    scale(T* out, long long out_segment, long long out_row, const T* x, long long x_segment, long long x_row,
          double factor, long long segments, long long rows, int n, int together) {
    const Operand<const T> from{x, x_segment, x_row};
    each(Operand<T>{out, out_segment, out_row}, segments, rows, n, together, [&](long long s, long long r, int c) {
        T a = from.at(s, r)[c];
        #pragma unroll
        for (int i = 0; i < Reals<T>::COUNT; i++) part(a, i) = product(part(a, i), RealOf<T>(factor));
        return a;
    });
}

// out = a x + b y
template <class T>
__global__ void __launch_bounds__(256)
    weighted_sum(T* out, long long out_segment, long long out_row, const T* x, long long x_segment, long long x_row,
                 const T* y, long long y_segment, long long y_row, double a, double b, long long segments,
                 long long rows, int n, int together) {
    using Real = RealOf<T>;
    const Operand<const T> from{x, x_segment, x_row}, other{y, y_segment, y_row};
    each(Operand<T>{out, out_segment, out_row}, segments, rows, n, together, [&](long long s, long long r, int c) {
        T v = from.at(s, r)[c];
        const T w = other.at(s, r)[c];
        #pragma unroll
        for (int i = 0; i < Reals<T>::COUNT; i++)
            part(v, i) = sum(product(part(v, i), Real(a)), product(part(w, i), Real(b)));
        return v;
    });
}

// out = factor x with a factor for each column; with DIVIDE, x / factor.
template <class T, class Factor, bool DIVIDE>
__global__ void __launch_bounds__(256)
    scale_lanes(T* out, long long out_segment, long long out_row, const T* x, long long x_segment, long long x_row,
                const Factor* factors, long long segments, long long rows, int n, int together) {
    using Sum = Wider<RealOf<T>, Factor>;
    const Operand<const T> from{x, x_segment, x_row};
    each(Operand<T>{out, out_segment, out_row}, segments, rows, n, together, [&](long long s, long long r, int c) {
        const Sum factor = __ldg(factors + c);
        T a = from.at(s, r)[c];
        #pragma unroll
        for (int i = 0; i < Reals<T>::COUNT; i++)
            part(a, i) = RealOf<T>(DIVIDE ? Sum(part(a, i)) / factor : product(Sum(part(a, i)), factor));
        return a;
    });
}

// y += factor x with a factor for each column of x, one without; those of y where `lanes` tells them, else the same.
template <class Y, class X, class Factor>
__global__ void __launch_bounds__(256)
    add_lanes(Y* y, long long y_segment, long long y_row, const X* x, long long x_segment, long long x_row,
              const Factor* factors, const int* lanes, long long segments, long long rows, int n, int together) {
    using Product = Wider<RealOf<X>, Factor>;
    using Sum = Wider<RealOf<Y>, Product>;
    const Operand<Y> to{y, y_segment, y_row};
    const Operand<const X> from{x, x_segment, x_row};
    const auto place = [&](int c) { return lanes ? __ldg(lanes + c) : c; };
    const auto value = [&](long long s, long long r, int c) {
        const Product factor = factors ? Product(__ldg(factors + c)) : Product(1);
        const X a = from.at(s, r)[c];
        Y b = to.at(s, r)[place(c)];
        #pragma unroll
        for (int i = 0; i < Reals<Y>::COUNT; i++)
            part(b, i) = RealOf<Y>(sum(Sum(part(b, i)), Sum(product(Product(part(a, i)), factor))));
        return b;
    };
    each(to, segments, rows, n, together, value, place);
}

// out = columns `lanes` of x
template <class T>
__global__ void __launch_bounds__(256)
    take_lanes(const T* x, long long x_segment, long long x_row, T* out, long long out_segment, long long out_row,
               const int* lanes, long long segments, long long rows, int n, int together) {
    const Operand<const T> from{x, x_segment, x_row};
    each(Operand<T>{out, out_segment, out_row}, segments, rows, n, together,
         [&](long long s, long long r, int c) { return from.at(s, r)[__ldg(lanes + c)]; });
}

// Columns `lanes` of out = 0
template <class T>
__global__ void __launch_bounds__(256)
    clear_lanes(T* out, long long out_segment, long long out_row, const int* lanes, long long segments, long long rows,
                int n, int together) {
    each(Operand<T>{out, out_segment, out_row}, segments, rows, n, together,
         [](long long, long long, int) { return T{}; }, [&](int c) { return __ldg(lanes + c); });
}

// y = x in the columns that are chosen
template <class T>
__global__ void __launch_bounds__(256)
    choose_lanes(T* y, long long y_segment, long long y_row, const T* x, long long x_segment, long long x_row,
                 const bool* chosen, long long segments, long long rows, int n, int together) {
    const Operand<T> to{y, y_segment, y_row};
    const Operand<const T> from{x, x_segment, x_row};
    each(to, segments, rows, n, together,
         [&](long long s, long long r, int c) { return chosen[c] ? from.at(s, r)[c] : to.at(s, r)[c]; });
}

// Column c of out = column vectors[c] of eta where the row is a member of subsets[c], else zero.
template <class T>
__global__ void __launch_bounds__(256)
    masked(T* out, long long out_segment, long long out_row, const T* eta, long long eta_segment, long long eta_row,
           const int* __restrict__ member, const int* vectors, const int* subsets, long long segments, long long rows,
           int n, int together) {
    const Operand<const T> from{eta, eta_segment, eta_row};
    each(Operand<T>{out, out_segment, out_row}, segments, rows, n, together, [&](long long s, long long r, int c) {
        const T a = from.at(s, r)[__ldg(vectors + c)];
        return member[s * rows + r] == __ldg(subsets + c) ? a : T{};
    });
}

// Column c of out = column c / count of eta times sign c % count of the site, which has COLOURS rows.
template <class T, int COLOURS>
__global__ void __launch_bounds__(256)
    signed_columns(T* out, long long out_segment, long long out_row, const T* eta, long long eta_segment,
                   long long eta_row, const signed char* __restrict__ signs, int count, long long segments,
                   long long rows, int n, int together) {
    const Operand<const T> from{eta, eta_segment, eta_row};
    each(Operand<T>{out, out_segment, out_row}, segments, rows, n, together, [&](long long s, long long r, int c) {
        T a = from.at(s, r)[c / count];
        const bool negative = signs[(s * rows + r) / COLOURS * count + c % count] < 0;
        #pragma unroll
        for (int i = 0; i < Reals<T>::COUNT; i++) part(a, i) = negative ? -part(a, i) : part(a, i);
        return a;
    });
}
