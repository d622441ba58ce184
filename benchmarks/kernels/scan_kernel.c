/* The 2-D band scan (x int32, y float32) by hand: the yardstick for the generated kernel.
 *
 * Same plan: chunks of the window that fit the L1 cache, four probes a loaded vector, words of match bits kept
 * without a branch, pairs written afterwards; resumable when the output is nearly full. All
 * probes meet the whole window, bounds are numbers, and low <= high. */
#include <stdint.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#define LANES 16
typedef __m512i Keys;
typedef struct { __m512i low_x, span_x, low_y, span_y; } Bounds;

/* Floats as integers of the same order. */
static inline __m512i ordered(__m512i v) {
    return _mm512_xor_si512(v, _mm512_srli_epi32(_mm512_srai_epi32(v, 31), 1));
}
static inline Bounds bounds(int32_t low_x, int32_t high_x, float low_y, float high_y) {
    __m512i y = ordered(_mm512_castps_si512(_mm512_set1_ps(-(0.0f - low_y))));
    __m512i end = ordered(_mm512_castps_si512(_mm512_set1_ps(high_y + 0.0f)));
    Bounds b = {_mm512_set1_epi32(low_x), _mm512_set1_epi32((int32_t)((uint32_t)high_x - (uint32_t)low_x)), y,
                _mm512_sub_epi32(end, y)};
    return b;
}
static inline Keys load_x(const int32_t *x) { return _mm512_loadu_si512(x); }
static inline Keys load_y(const float *y) { return ordered(_mm512_loadu_si512(y)); }
static inline uint64_t match(Keys x, Keys y, const Bounds *b) {
    __mmask16 m = _mm512_cmple_epu32_mask(_mm512_sub_epi32(x, b->low_x), b->span_x);
    return _mm512_mask_cmple_epu32_mask(m, _mm512_sub_epi32(y, b->low_y), b->span_y);
}
#define DENSE 3
static inline int64_t write_dense(uint64_t word, int64_t place, int64_t probe, int32_t *out_probe, int32_t *out_pos,
                                  int64_t count) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i position = _mm512_add_epi32(_mm512_set1_epi32((int32_t)place), lane);
    for (int p = 0; p < 4; p++, word >>= 16) {
        _mm512_storeu_si512(out_probe + count, _mm512_set1_epi32((int32_t)probe + p));
        _mm512_storeu_si512(out_pos + count, _mm512_maskz_compress_epi32((__mmask16)word, position));
        count += __builtin_popcountll(word & 0xffff);
    }
    return count;
}

#elif defined(__AVX2__)
#include <immintrin.h>
#define LANES 8
typedef __m256i Keys;
typedef struct { __m256i low_x, high_x; __m256 low_y, high_y; } Bounds;

static inline Bounds bounds(int32_t low_x, int32_t high_x, float low_y, float high_y) {
    Bounds b = {_mm256_set1_epi32(low_x), _mm256_set1_epi32(high_x), _mm256_set1_ps(low_y), _mm256_set1_ps(high_y)};
    return b;
}
static inline Keys load_x(const int32_t *x) { return _mm256_loadu_si256((const __m256i *)x); }
static inline Keys load_y(const float *y) { return _mm256_loadu_si256((const __m256i *)y); }
static inline uint64_t match(Keys x, Keys keys_y, const Bounds *b) {
    __m256 y = _mm256_castsi256_ps(keys_y);
    __m256i out = _mm256_or_si256(_mm256_cmpgt_epi32(b->low_x, x), _mm256_cmpgt_epi32(x, b->high_x));
    __m256 in = _mm256_and_ps(_mm256_cmp_ps(y, b->low_y, _CMP_GE_OQ), _mm256_cmp_ps(y, b->high_y, _CMP_LE_OQ));
    return (uint64_t)_mm256_movemask_ps(_mm256_andnot_ps(_mm256_castsi256_ps(out), in));
}

#else
#define LANES 8
typedef struct { int32_t i[LANES]; float f[LANES]; } Keys;
typedef struct { int32_t low_x, high_x; float low_y, high_y; } Bounds;

static inline Bounds bounds(int32_t low_x, int32_t high_x, float low_y, float high_y) {
    Bounds b = {low_x, high_x, low_y, high_y};
    return b;
}
static inline Keys load_x(const int32_t *x) {
    Keys k;
    for (int l = 0; l < LANES; l++) k.i[l] = x[l];
    return k;
}
static inline Keys load_y(const float *y) {
    Keys k;
    for (int l = 0; l < LANES; l++) k.f[l] = y[l];
    return k;
}
static inline uint64_t match(Keys x, Keys y, const Bounds *b) {
    uint32_t bits = 0;
    for (int l = 0; l < LANES; l++)
        bits |= (uint32_t)((x.i[l] >= b->low_x) & (x.i[l] <= b->high_x) & (y.f[l] >= b->low_y) &
                           (y.f[l] <= b->high_y)) << l;
    return bits;
}
#endif

#define CHUNK 2048
#define SLACK 16
static const int64_t room_of_unit = 4 * CHUNK + SLACK;

static int64_t emit(const uint64_t *words, const int64_t *places, int64_t found, int64_t probe, int32_t *out_probe,
                    int32_t *out_pos, int64_t count) {
    int64_t total = 0;
    for (int64_t i = 0; i < found; i++) total += __builtin_popcountll(words[i]);
#ifdef DENSE
    if (total > found * DENSE) {
        for (int64_t i = 0; i < found; i++)
            count = write_dense(words[i], places[i], probe, out_probe, out_pos, count);
        return count;
    }
#endif
    for (int64_t i = 0; i < found; i++) {
        uint64_t word = words[i];
        int64_t end = count + __builtin_popcountll(word);
        while (count < end) {
            for (int j = 0; j < 4; j++) {
                int64_t bit = word ? __builtin_ctzll(word) : 64;
                out_probe[count + j] = (int32_t)(probe + bit / LANES);
                out_pos[count + j] = (int32_t)(places[i] + bit % LANES);
                word &= word - 1;
            }
            count += 4;
        }
        count = end;
    }
    return count;
}

static inline __attribute__((always_inline)) int64_t collect(int probes, int64_t at, int64_t end, const int32_t *x,
                                                             const float *y, const Bounds *b, uint64_t *words,
                                                             int64_t *places) {
    int64_t found = 0;
    for (; at < end; at += LANES) {
        Keys kx = load_x(x + at), ky = load_y(y + at);
        uint64_t word = 0;
        for (int p = 0; p < probes; p++) word |= match(kx, ky, b + p) << p * LANES;
        words[found] = word;
        places[found] = at;
        found += word != 0;
    }
    return found;
}

/* Probes probe..probe+3 (fewer at the end) against positions at..end-1. */
static int64_t unit(int64_t at, int64_t end, int64_t probe, int64_t n, const int32_t *x, const float *y,
                    const int32_t *low_x, const int32_t *high_x, const float *low_y, const float *high_y,
                    int32_t *out_probe, int32_t *out_pos, int64_t count) {
    uint64_t words[CHUNK / LANES + 1];
    int64_t places[CHUNK / LANES + 1], found;
    int probes = n - probe < 4 ? (int)(n - probe) : 4;
    Bounds b[4];
    for (int p = 0; p < probes; p++)
        b[p] = bounds(low_x[probe + p], high_x[probe + p], low_y[probe + p], high_y[probe + p]);
    int64_t whole = at + (end - at) / LANES * LANES;
    switch (probes) { /* constants, so that the inner loop is unrolled */
    case 1: found = collect(1, at, whole, x, y, b, words, places); break;
    case 2: found = collect(2, at, whole, x, y, b, words, places); break;
    case 3: found = collect(3, at, whole, x, y, b, words, places); break;
    default: found = collect(4, at, whole, x, y, b, words, places);
    }
    count = emit(words, places, found, probe, out_probe, out_pos, count);
    for (at = whole; at < end; at++)
        for (int64_t q = probe; q < probe + probes; q++)
            if (x[at] >= low_x[q] && x[at] <= high_x[q] && y[at] >= low_y[q] && y[at] <= high_y[q]) {
                out_probe[count] = (int32_t)q;
                out_pos[count++] = (int32_t)at;
            }
    return count;
}

/* cursor: chunk and probe to go on with; cursor[0] is -1 when all pairs are out. */
int64_t scan(int64_t n, int64_t size, const int32_t *x, const float *y, const int32_t *low_x, const int32_t *high_x,
             const float *low_y, const float *high_y, int64_t *cursor, int32_t *out_probe, int32_t *out_pos,
             int64_t room) {
    int64_t count = 0, probe = cursor[1];
    for (int64_t chunk = cursor[0]; chunk * CHUNK < size; chunk++, probe = 0) {
        int64_t at = chunk * CHUNK, end = at + CHUNK < size ? at + CHUNK : size;
        for (; probe < n; probe += 4) {
            if (room - count < room_of_unit) {
                cursor[0] = chunk;
                cursor[1] = probe;
                return count;
            }
            count = unit(at, end, probe, n, x, y, low_x, high_x, low_y, high_y, out_probe, out_pos, count);
        }
    }
    cursor[0] = -1;
    return count;
}
