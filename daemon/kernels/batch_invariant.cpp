// Products of float weights with several columns that have the bits of the same columns one at a time.
//
// ggml multiplies one column by its dot product (`ggml_vec_dot_*`) and several by `llamafile_sgemm`, which adds in
// another order. This library has a function of that name, and the loader takes the one that it finds first. Here each
// number is summed as the dot product sums it, and the weights are still read once for all columns. Everything else goes on
// to ggml's own function: other types, one column, and prompts where the weights are halves, which that is faster at. The
// small matrices in F32 that quantized models have are multiplied here in prompts, too, so that cells depend on no width.
//
// Whether the sums are those of the dot product is not believed: `pilotfish_batch_invariant_begin` compares bits for each
// type, and only products of what agrees are computed here.

#include <dlfcn.h>
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

struct ggml_threadpool;
struct ggml_compute_params {  // the beginning of ggml's own
    int ith, nth;
    size_t wsize;
    void * wdata;
    ggml_threadpool * threadpool;
};

extern "C" bool llamafile_sgemm(const ggml_compute_params *, int64_t, int64_t, int64_t, const void *, int64_t, const void *,
                                int64_t, void *, int64_t, int, int, int);

namespace {

using Params = ggml_compute_params;
using Product = bool(const Params *, int64_t, int64_t, int64_t, const void *, int64_t, const void *, int64_t, void *,
                     int64_t, int, int, int);

struct Ggml {  // what is called of it
    Product * product;
    void (*barrier)(ggml_threadpool *);
    void (*set_share)(ggml_threadpool *, int);
    int (*add_share)(ggml_threadpool *, int);
    uint32_t types;  // 1 << type for each whose products are computed here
} ggml;
volatile int64_t calls = 0;  // of this library's function

enum Type { F32 = 0, F16 = 1, BF16 = 30 };  // ggml's numbers

constexpr int kMostColumns = 32;  // of halves
constexpr int kRows = 4;  // of weights, in registers together
constexpr int kPacked = 16 << 10;  // bytes of columns in use at a time, to stay in the first cache
constexpr int kGroup = 128 << 10;  // bytes of weights read several times, to stay in the second
constexpr int kJobs = 8;  // shares of the rows for each thread, so that one that is held up leaves some to others

#if defined(__AVX512F__)
using Sum = __m512;
constexpr int kColumns = 6;
inline Sum zero() { return _mm512_setzero_ps(); }
inline Sum add(Sum a, Sum b) { return _mm512_add_ps(a, b); }
inline Sum multiply_add(Sum a, Sum b, Sum c) { return _mm512_fmadd_ps(a, b, c); }
inline Sum load(const float * p) { return _mm512_loadu_ps(p); }
inline Sum load_half(const uint16_t * p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p)); }
inline Sum load_brain(const uint16_t * p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) p)), 16));
}
inline void store(float * p, Sum a) { _mm512_store_ps(p, a); }
inline float across(Sum a) { return _mm512_reduce_add_ps(a); }
#else
using Sum = __m256;
constexpr int kColumns = 3;
inline Sum zero() { return _mm256_setzero_ps(); }
inline Sum add(Sum a, Sum b) { return _mm256_add_ps(a, b); }
inline Sum multiply_add(Sum a, Sum b, Sum c) { return _mm256_fmadd_ps(a, b, c); }
inline Sum load(const float * p) { return _mm256_loadu_ps(p); }
inline Sum load_half(const uint16_t * p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p)); }
inline Sum load_brain(const uint16_t * p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) p)), 16));
}
inline void store(float * p, Sum a) { _mm256_store_ps(p, a); }
inline float across(Sum a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_hadd_ps(s, s);
    return _mm_cvtss_f32(_mm_hadd_ps(s, s));
}
#endif
constexpr int kWide = sizeof(Sum) / sizeof(float);

// How a type is summed: in kSums sums, which take kEach elements in turns.
struct InFours {
    using Packed = float;
    static constexpr int kSums = 4, kEach = kWide;
    static constexpr bool kBrain = false;
    static Sum column(const Packed * p) { return load(p); }
    static Sum step(Sum a, Sum b, Sum c) { return multiply_add(a, b, c); }
    static float total(const Sum * s) { return across(add(add(s[0], s[2]), add(s[1], s[3]))); }
};

struct OfFloats : InFours {
    using Stored = float;
    static Sum weight(const Stored * p) { return load(p); }
    static void pack(const Stored * from, Packed * to) { store(to, load(from)); }
};

struct OfHalves : InFours {
    using Stored = uint16_t;
    static Sum weight(const Stored * p) { return load_half(p); }
    static void pack(const Stored * from, Packed * to) { store(to, load_half(from)); }
};

#if defined(__AVX512BF16__)
struct OfBrains {
    using Stored = uint16_t;
    using Packed = uint16_t;
    static constexpr int kSums = 2, kEach = 32;
    static constexpr bool kBrain = true;
    static __m512i weight(const Stored * p) { return _mm512_loadu_si512(p); }
    static __m512i column(const Packed * p) { return _mm512_loadu_si512(p); }
    static void pack(const Stored * from, Packed * to) { std::memcpy(to, from, 64); }
    static Sum step(__m512i a, __m512i b, Sum c) { return _mm512_dpbf16_ps(c, (__m512bh) a, (__m512bh) b); }
    static float total(const Sum * s) { return (float) ((double) across(s[0]) + (double) across(s[1])); }
};
#else
struct OfBrains : InFours {
    using Stored = uint16_t;
    static constexpr bool kBrain = true;
    static Sum weight(const Stored * p) { return load_brain(p); }
    static void pack(const Stored * from, Packed * to) { store(to, load_brain(from)); }
#if defined(__AVX512F__)
    static constexpr int kSums = 2;
    static float total(const Sum * s) { return (float) ((double) across(s[0]) + (double) across(s[1])); }
#else
    static float total(const Sum * s) {
        const Sum all = add(add(s[0], s[2]), add(s[1], s[3]));
        __m128 g = _mm_add_ps(_mm256_extractf128_ps(all, 1), _mm256_castps256_ps128(all));
        g = _mm_add_ps(g, _mm_movehl_ps(g, g));
        return _mm_cvtss_f32(_mm_add_ss(g, _mm_movehdup_ps(g)));
    }
#endif
};
#endif

#define UNROLLED _Pragma("GCC unroll 8")

// kRows rows and N columns, one of the sums over `steps` of its places. `b` has N columns next to each other.
template <class T, int R, int N>
inline void tile(const typename T::Stored * a, int64_t lda, const typename T::Packed * b, int64_t steps, bool first,
                 Sum * kept, const char *& ahead, const char * end) {
    constexpr int kStride = T::kSums * T::kEach, kLines = std::max<int>(1, R * T::kEach * sizeof(*a) / 64);
    Sum sums[R][N];
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (int n = 0; n < N; n++) sums[r][n] = first ? zero() : kept[r * N + n];
    for (int64_t i = 0; i < steps; i++, a += kStride, b += N * T::kEach) {
        if (ahead < end) {
            UNROLLED for (int line = 0; line < kLines; line++) _mm_prefetch(ahead + 64 * line, _MM_HINT_T1);
            ahead += 64 * kLines;
        }
        decltype(T::column(b)) y[N];
        UNROLLED for (int n = 0; n < N; n++) y[n] = T::column(b + n * T::kEach);
        UNROLLED for (int r = 0; r < R; r++) {
            const auto x = T::weight(a + r * lda);
            UNROLLED for (int n = 0; n < N; n++) sums[r][n] = T::step(x, y[n], sums[r][n]);
        }
    }
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (int n = 0; n < N; n++) kept[r * N + n] = sums[r][n];
}

class Scratch {  // memory of a thread, aligned to vectors
  public:
    void * of(size_t bytes) {
        if (bytes > size_) {
            std::free(memory_);
            size_ = (bytes + 63) / 64 * 64;
            memory_ = std::aligned_alloc(64, size_);
            if (!memory_) std::abort();
        }
        return memory_;
    }
    ~Scratch() { std::free(memory_); }

  private:
    void * memory_ = nullptr;
    size_t size_ = 0;
};
thread_local Scratch packed_columns, kept_sums;

template <class T> struct Columns {  // what is multiplied with every row: packed once a thread
    using Stored = typename T::Stored;
    using Packed = typename T::Packed;
    int64_t n, k, parts, chunk, places;  // `places` of each sum, `chunk` of them at a time
    Packed * packed;

    Columns(int64_t n, int64_t k, const Stored * b, int64_t ldb) : n(n), k(k) {
        parts = (n + kColumns - 1) / kColumns;
        places = k / (T::kSums * T::kEach);
        const int64_t most = kPacked / (std::min<int64_t>(n, kColumns) * T::kEach * sizeof(Packed));
        const int64_t chunks = (places + most - 1) / most;
        chunk = (places + chunks - 1) / chunks;
        packed = (Packed *) packed_columns.of(n * k * sizeof(Packed));
        Packed * to = packed;
        for (int64_t part = 0; part < parts; part++)
            for (int sum = 0; sum < T::kSums; sum++)
                for (int64_t place = 0; place < places; place++)
                    for (int64_t i = begin(part); i < begin(part + 1); i++, to += T::kEach)
                        T::pack(b + i * ldb + (place * T::kSums + sum) * T::kEach, to);
    }
    int64_t begin(int64_t part) const { return n * part / parts; }
};

template <class T, int R, int N>
void rows_by_columns(const Columns<T> & columns, int64_t part, const typename T::Stored * a, int64_t lda, int64_t rows,
                     float * c, int64_t ldc, const char *& ahead, const char * end) {
    const int64_t tiles = rows / R, size = R * N;
    Sum * kept = (Sum *) kept_sums.of(tiles * size * T::kSums * sizeof(Sum));
    const auto * of_part = columns.packed + columns.begin(part) * columns.k;
    for (int sum = 0; sum < T::kSums; sum++)
        for (int64_t place = 0; place < columns.places; place += columns.chunk) {
            const int64_t steps = std::min(columns.chunk, columns.places - place);
            const auto * b = of_part + (sum * columns.places + place) * N * T::kEach;
            for (int64_t t = 0; t < tiles; t++)
                tile<T, R, N>(a + t * R * lda + (place * T::kSums + sum) * T::kEach, lda, b, steps, place == 0,
                              kept + (sum * tiles + t) * size, ahead, end);
        }
    for (int64_t t = 0; t < tiles; t++)
        for (int r = 0; r < R; r++)
            for (int n = 0; n < N; n++) {
                Sum sums[T::kSums];
                for (int sum = 0; sum < T::kSums; sum++) sums[sum] = kept[(sum * tiles + t) * size + r * N + n];
                c[n * ldc + t * R + r] = T::total(sums);
            }
}

template <class T, int R, int N = kColumns>
void rows_by_some(int64_t count, const Columns<T> & columns, int64_t part, const typename T::Stored * a, int64_t lda,
                  int64_t rows, float * c, int64_t ldc, const char *& ahead, const char * end) {
    if (count == N)
        rows_by_columns<T, R, N>(columns, part, a, lda, rows, c, ldc, ahead, end);
    else if constexpr (N > 1)
        rows_by_some<T, R, N - 1>(count, columns, part, a, lda, rows, c, ldc, ahead, end);
}

template <class T>
void some_rows(const Columns<T> & columns, const typename T::Stored * a, int64_t lda, int64_t rows, float * c,
               int64_t ldc) {
    const int64_t bytes = lda * sizeof(*a), group = std::max<int64_t>(1, kGroup / bytes / kRows) * kRows;
    for (int64_t row = 0; row < rows; row += group) {
        const int64_t here = std::min(group, rows - row), whole = here / kRows * kRows;
        const auto * at = a + row * lda;
        const char * ahead = (const char *) (at + here * lda);
        const char * end = ahead + bytes * std::min(group, rows - row - here);
        for (int64_t part = 0; part < columns.parts; part++) {
            const int64_t first = columns.begin(part), count = columns.begin(part + 1) - first;
            float * to = c + first * ldc + row;
            rows_by_some<T, kRows>(count, columns, part, at, lda, whole, to, ldc, ahead, end);
            rows_by_some<T, 1>(count, columns, part, at + whole * lda, lda, here - whole, to + whole, ldc, ahead, end);
        }
    }
}

template <class T>
bool product(const Params * params, int64_t m, int64_t n, int64_t k, const void * A, int64_t lda, const void * B,
             int64_t ldb, float * c, int64_t ldc) {
    if (k % (T::kSums * T::kEach)) return false;
    const Columns<T> columns(n, k, (const typename T::Stored *) B, ldb);
    const int64_t units = (m + kRows - 1) / kRows, jobs = std::min<int64_t>(units, (int64_t) params->nth * kJobs);
    if (params->ith == 0) ggml.set_share(params->threadpool, params->nth);
    ggml.barrier(params->threadpool);
    for (int64_t job = params->ith; job < jobs; job = ggml.add_share(params->threadpool, 1)) {
        const int64_t from = units * job / jobs * kRows, to = std::min(m, units * (job + 1) / jobs * kRows);
        some_rows<T>(columns, (const typename T::Stored *) A + from * lda, lda, to - from, c + from, ldc);
    }
    ggml.barrier(params->threadpool);  // nobody may set the next product's shares before all have theirs
    return true;
}

using Dot = void(int, float *, size_t, const void *, size_t, const void *, size_t, int);

// Whether every number of products in several shapes has the bits of `dot`.
template <class T> bool agrees(Dot * dot) {
    using Stored = typename T::Stored;
    if (!dot) return false;
    uint32_t seed = 1;
    for (const int64_t places : {1, 3, 41}) {
        const int64_t m = 2 * kRows + 3, k = places * T::kSums * T::kEach;
        std::vector<Stored> a(m * k), b(kMostColumns * k);
        for (auto * values : {&a, &b})
            for (Stored & value : *values) {
                seed = seed * 1664525 + 1013904223;
                const float number = (float) (int32_t) seed / (1u << 31);
                if constexpr (sizeof(Stored) == 4)
                    std::memcpy(&value, &number, 4);
                else  // any sign and fraction, and small exponents of several sizes, so that sums are rounded
                    value = (Stored) (T::kBrain ? (seed >> 16 & 0x83ff) | 0x3c00 : (seed >> 16 & 0x8fff) | 0x3000);
            }
        for (const int64_t n : {2, 5, 7, 13, kMostColumns}) {
            std::vector<float> c(m * n);
            some_rows<T>(Columns<T>(n, k, b.data(), k), a.data(), k, m, c.data(), m);
            for (int64_t i = 0; i < m * n; i++) {
                float wanted;
                dot((int) k, &wanted, 0, a.data() + i % m * k, 0, b.data() + i / m * k, 0, 1);
                if (std::memcmp(&wanted, &c[i], sizeof wanted)) return false;
            }
        }
    }
    return true;
}

// Whether ggml, multiplying two columns, comes here: it does not where its own function was linked in another way.
bool is_called(void * library) {
    struct InitParams {  // ggml's, which is passed by value
        size_t mem_size;
        void * mem_buffer;
        bool no_alloc;
    };
    const auto init = (void * (*) (InitParams)) dlsym(library, "ggml_init");
    const auto matrix = (void * (*) (void *, int, int64_t, int64_t)) dlsym(library, "ggml_new_tensor_2d");
    const auto zeros = (void * (*) (void *) ) dlsym(library, "ggml_set_zero");
    const auto multiply = (void * (*) (void *, void *, void *) ) dlsym(library, "ggml_mul_mat");
    const auto new_graph = (void * (*) (void *) ) dlsym(library, "ggml_new_graph");
    const auto expand = (void (*)(void *, void *)) dlsym(library, "ggml_build_forward_expand");
    const auto compute = (int (*)(void *, void *, int)) dlsym(library, "ggml_graph_compute_with_ctx");
    const auto release = (void (*)(void *)) dlsym(library, "ggml_free");
    if (!init || !matrix || !zeros || !multiply || !new_graph || !expand || !compute || !release) return false;
    void * context = init({1 << 20, nullptr, false});
    void * graph = new_graph(context);
    expand(graph, multiply(context, zeros(matrix(context, F32, 256, 16)), zeros(matrix(context, F32, 256, 2))));
    const int64_t before = calls;
    compute(context, graph, 1);
    release(context);
    return calls > before;
}

}  // namespace

// Begin to compute for a libllama, whose handle of `dlopen` leads to the ggml that it uses. Returns 1 << type for each type whose products are
// computed here from now on; 0 also where that library has not what is needed.
extern "C" uint32_t pilotfish_batch_invariant_begin(void * library) {
    const auto find = [library](const char * name) { return dlsym(library, name); };
    ggml.product = (Product *) find("llamafile_sgemm");
    ggml.barrier = (void (*)(ggml_threadpool *)) find("ggml_barrier");
    ggml.set_share = (void (*)(ggml_threadpool *, int)) find("ggml_threadpool_chunk_set");
    ggml.add_share = (int (*)(ggml_threadpool *, int)) find("ggml_threadpool_chunk_add");
    if (ggml.product == llamafile_sgemm) ggml.product = nullptr;
    if (!ggml.product || !ggml.barrier || !ggml.set_share || !ggml.add_share) return ggml.types = 0;
    if (!is_called(library)) return ggml.types = 0;
    const uint32_t floats = agrees<OfFloats>((Dot *) find("ggml_vec_dot_f32"));
    const uint32_t halves = agrees<OfHalves>((Dot *) find("ggml_vec_dot_f16"));
    const uint32_t brains = agrees<OfBrains>((Dot *) find("ggml_vec_dot_bf16"));
    return ggml.types = floats << F32 | halves << F16 | brains << BF16;
}

// What the number of elements in a row has to be a multiple of, for products of a type to be computed here.
extern "C" int pilotfish_batch_invariant_multiple(int type) {
    if (type == F32) return OfFloats::kSums * OfFloats::kEach;
    if (type == F16) return OfHalves::kSums * OfHalves::kEach;
    return OfBrains::kSums * OfBrains::kEach;
}

extern "C" bool llamafile_sgemm(const Params * params, int64_t m, int64_t n, int64_t k, const void * A, int64_t lda,
                                const void * B, int64_t ldb, void * C, int64_t ldc, int a_type, int b_type,
                                int c_type) {
    calls = calls + (params->ith == 0);
    if (n > 1 && (n <= kMostColumns || a_type == F32) && c_type == F32 && a_type == b_type && a_type <= BF16 && ggml.types >> a_type & 1) {
        float * c = (float *) C;
        if (a_type == F16 && product<OfHalves>(params, m, n, k, A, lda, B, ldb, c, ldc)) return true;
        if (a_type == F32 && product<OfFloats>(params, m, n, k, A, lda, B, ldb, c, ldc)) return true;
        if (a_type == BF16 && product<OfBrains>(params, m, n, k, A, lda, B, ldb, c, ldc)) return true;
    }
    return ggml.product && ggml.product(params, m, n, k, A, lda, B, ldb, C, ldc, a_type, b_type, c_type);
}
