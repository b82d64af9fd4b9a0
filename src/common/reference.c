/* SPDX-License-Identifier: Apache-2.0 */
/* The serial reference: plain loops in float64, and the bounds of docs/numerics.md. */
#include "common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The two-byte types: bits of the fraction, and the exponent of the smallest number. */
typedef struct narrow {
    int n_fraction, lowest;
} narrow;

static narrow narrow_of(qdr_dtype dtype) { return dtype == QDR_F16 ? (narrow){10, -24} : (narrow){7, -133}; }

static double read_narrow(narrow type, uint16_t bits)
{
    const int n = type.n_fraction, fraction = bits & ((1 << n) - 1), exponent = (bits & 0x7fff) >> n;
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == 0x7fff >> n) return fraction ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(fraction + (1 << n), type.lowest + exponent - 1) : ldexp(fraction, type.lowest));
}

/* Rounds to a whole number of steps, whose size is that of the value's power of two or of the smallest number; a carry
 * propagates into the exponent. */
static uint16_t round_narrow(narrow type, double value)
{
    const int n = type.n_fraction, infinite = 0x7fff >> n << n, sign = signbit(value) ? 0x8000 : 0;
    int exponent = type.lowest;
    if (isnan(value)) return (uint16_t)(sign | infinite | 1 << (n - 1));
    if (isinf(value)) return (uint16_t)(sign | infinite);
    if (value != 0) (void)frexp(value, &exponent);
    const int wanted = exponent - n - 1, step = wanted > type.lowest ? wanted : type.lowest;
    const double bits = ldexp(step - type.lowest, n) + nearbyint(ldexp(fabs(value), -step));
    return (uint16_t)(sign | (bits < infinite ? (int)bits : infinite));
}

static int is_narrow(qdr_dtype dtype) { return dtype == QDR_BF16 || dtype == QDR_F16; }

double element_read(qdr_dtype dtype, const void *memory, int64_t index)
{
    if (dtype == QDR_F64) return ((const double *)memory)[index];
    if (dtype == QDR_F32) return (double)((const float *)memory)[index];
    return read_narrow(narrow_of(dtype), ((const uint16_t *)memory)[index]);
}

void element_write(qdr_dtype dtype, void *memory, int64_t index, double value)
{
    if (dtype == QDR_F64) ((double *)memory)[index] = value;
    if (dtype == QDR_F32) ((float *)memory)[index] = (float)value;
    if (is_narrow(dtype)) ((uint16_t *)memory)[index] = round_narrow(narrow_of(dtype), value);
}

void element_fill(void *memory, int64_t n_elems, qdr_dtype dtype)
{
    for (int64_t i = 0; i < n_elems; i++) element_write(dtype, memory, i, (double)(i % 7 + 1) * 0.125);
}

uint64_t mix_bits(uint64_t bits)
{
    bits += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return bits ^ bits >> 31;
}

double draw_value(uint64_t seed, int stream, int64_t index, int is_exact, qdr_dtype dtype)
{
    const uint64_t bits = mix_bits(mix_bits(seed + ((uint64_t)stream << 48)) ^ (uint64_t)index);
    if (is_exact) return (double)(bits % 3) - 1;
    union {
        double f64;
        float f32;
        uint16_t narrow;
    } memory = {0};
    element_write(dtype, &memory, 0, ldexp((double)(bits >> 11), -52) - 1);
    return element_read(dtype, &memory, 0);
}

int64_t draw_below(uint64_t seed, int stream, int64_t n)
{
    return (int64_t)(mix_bits(mix_bits(seed) + (uint64_t)stream) % (uint64_t)n);
}

/* A zeroed array of doubles; at least one element, so that NULL means out of memory. */
static int make_array(int64_t n_elems, double **array)
{
    *array = calloc((size_t)n_elems + 1, sizeof **array);
    return *array ? 0 : -1;
}

static int make_sums(int64_t n_elems, reference_sums *sums)
{
    const int failed = make_array(n_elems, &sums->value) | make_array(n_elems, &sums->magnitude);
    return failed | make_array(n_elems, &sums->change);
}

int reference_create(int64_t m, int64_t k, int64_t n, reference *made)
{
    *made = (reference){.m = m, .k = k, .n = n};
    int failed = make_array(m * k, &made->x) | make_array(n * k, &made->w);
    failed |= make_array(n, &made->b) | make_array(m * n, &made->dy);
    failed |= make_sums(m * n, &made->y) | make_sums(m * k, &made->dx);
    failed |= make_sums(n * k, &made->dw) | make_sums(n, &made->db);
    if (failed) reference_destroy(made);
    return failed ? -1 : 0;
}

void reference_destroy(reference *old)
{
    free(old->x);
    free(old->w);
    free(old->b);
    free(old->dy);
    reference_sums *const sums[] = {&old->y, &old->dx, &old->dw, &old->db};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        free(sums[i]->value);
        free(sums[i]->magnitude);
        free(sums[i]->change);
    }
    memset(old, 0, sizeof *old);
}

/* A factor of a term, and by how much it may have changed. */
typedef struct factor {
    double value, change;
} factor;

static void add_term(reference_sums *sums, int64_t index, factor a, factor b)
{
    const double term = a.value * b.value;
    sums->value[index] += term;
    sums->magnitude[index] += fabs(term);
    sums->change[index] += fabs(a.value) * b.change + a.change * fabs(b.value) + a.change * b.change;
}

void reference_run(reference *problem)
{
    const int64_t k = problem->k, n = problem->n;
    const factor one = {1, 0};
    for (int64_t i = 0; i < problem->m; i++)
        for (int64_t j = 0; j < n; j++) {
            const factor dy = {problem->dy[i * n + j], problem->dy_change};
            for (int64_t l = 0; l < k; l++) {
                const factor x = {problem->x[i * k + l], problem->x_change};
                const factor w = {problem->w[j * k + l], problem->w_change};
                add_term(&problem->y, i * n + j, x, w);
                add_term(&problem->dx, i * k + l, dy, w);
                add_term(&problem->dw, j * k + l, dy, x);
            }
            add_term(&problem->y, i * n + j, one, (factor){problem->b[j], 0});
            add_term(&problem->db, j, one, dy);
        }
}

/* Higham's γ_n = n·u / (1 - n·u). */
static double gamma_of(double n, double unit_roundoff) { return n * unit_roundoff / (1 - n * unit_roundoff); }

error_bound error_bound_of(error_shape shape)
{
    const int is_rounded = is_narrow(shape.dtype) && shape.n_roundings > 0;
    const double u64 = 0x1p-53, u = shape.dtype == QDR_F64 ? u64 : 0x1p-24;
    const double v = ldexp(1, -narrow_of(shape.dtype).n_fraction - 1);
    const double depth = (double)shape.n_terms + shape.n_members + 2;
    const double summed = gamma_of(depth, u), reference_itself = gamma_of((double)shape.n_terms + 1, u64);
    const double stored = is_rounded ? pow(1 + v, shape.n_roundings) - 1 : 0;
    const double half_step = is_rounded && shape.dtype == QDR_F16 ? 0x1p-25 : 0;
    return (error_bound){stored * (1 + summed) + summed + reference_itself,
                         (shape.n_members + shape.n_roundings) * half_step};
}

double error_share(double computed, double value, double magnitude, error_bound bound)
{
    const double error = fabs(computed - value), most = bound.factor * magnitude + bound.least;
    if (error == 0) return 0;
    return isnan(error) || most == 0 ? INFINITY : error / most;
}
