/* SPDX-License-Identifier: Apache-2.0 */
/* The serial reference: plain loops in float64, and the bounds of docs/numerics.md. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float read_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Rounds a float to its upper 16 bits, ties to even. Values here are finite. */
static uint16_t round_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

double element_read(qdr_dtype dtype, const void *memory, int64_t index)
{
    if (dtype == QDR_F64) return ((const double *)memory)[index];
    if (dtype == QDR_F32) return (double)((const float *)memory)[index];
    return (double)read_bf16(((const uint16_t *)memory)[index]);
}

void element_write(qdr_dtype dtype, void *memory, int64_t index, double value)
{
    if (dtype == QDR_F64) ((double *)memory)[index] = value;
    if (dtype == QDR_F32) ((float *)memory)[index] = (float)value;
    if (dtype == QDR_BF16) ((uint16_t *)memory)[index] = round_bf16((float)value);
}

/* The finaliser of splitmix64: a bijection that mixes all bits. */
static uint64_t mix(uint64_t bits)
{
    bits += 0x9e3779b97f4a7c15u;
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    return bits ^ bits >> 31;
}

double draw_value(uint64_t seed, int stream, int64_t index, int is_exact, qdr_dtype dtype)
{
    const uint64_t bits = mix(mix(seed + ((uint64_t)stream << 48)) ^ (uint64_t)index);
    if (is_exact) return (double)(bits % 3) - 1;
    union {
        double f64;
        float f32;
        uint16_t bf16;
    } memory = {0};
    element_write(dtype, &memory, 0, ldexp((double)(bits >> 11), -52) - 1);
    return element_read(dtype, &memory, 0);
}

int64_t draw_below(uint64_t seed, int stream, int64_t n)
{
    return (int64_t)(mix(mix(seed) + (uint64_t)stream) % (uint64_t)n);
}

/* One zeroed array of doubles; at least one element, so that NULL means no memory. */
static int make_array(int64_t n_elems, double **array)
{
    *array = calloc((size_t)n_elems + 1, sizeof **array);
    return *array ? 0 : -1;
}

static int make_sums(int64_t n_elems, reference_sums *sums)
{
    return make_array(n_elems, &sums->value) | make_array(n_elems, &sums->magnitude);
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
    }
    memset(old, 0, sizeof *old);
}

static void add_term(reference_sums *sums, int64_t index, double term)
{
    sums->value[index] += term;
    sums->magnitude[index] += fabs(term);
}

void reference_run(reference *problem)
{
    const int64_t k = problem->k, n = problem->n;
    for (int64_t i = 0; i < problem->m; i++)
        for (int64_t j = 0; j < n; j++) {
            const double dy = problem->dy[i * n + j];
            for (int64_t l = 0; l < k; l++) {
                const double x = problem->x[i * k + l], w = problem->w[j * k + l];
                add_term(&problem->y, i * n + j, x * w);
                add_term(&problem->dx, i * k + l, dy * w);
                add_term(&problem->dw, j * k + l, dy * x);
            }
            add_term(&problem->y, i * n + j, problem->b[j]);
            add_term(&problem->db, j, dy);
        }
}

/* Higham's γ_n = n·u / (1 - n·u). */
static double gamma_of(double n, double unit_roundoff)
{
    return n * unit_roundoff / (1 - n * unit_roundoff);
}

double error_factor(error_shape shape)
{
    const double u64 = 0x1p-53, u = shape.dtype == QDR_F64 ? u64 : 0x1p-24, u_bf16 = 0x1p-8;
    const double depth = (double)shape.n_terms + shape.n_members + 2;
    const double summed = gamma_of(depth, u),
                 reference_itself = gamma_of((double)shape.n_terms + 1, u64);
    const double stored = shape.dtype == QDR_BF16 ? pow(1 + u_bf16, shape.n_roundings) - 1 : 0;
    return stored * (1 + summed) + summed + reference_itself;
}

double error_share(double computed, double value, double magnitude, double factor, int is_exact)
{
    const double error = fabs(computed - value), bound = is_exact ? 0 : factor * magnitude;
    if (error == 0) return 0;
    return error <= bound ? error / bound : isnan(error) || bound == 0 ? INFINITY : error / bound;
}
