/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow number types, rounded to nearest even. */
#include <math.h>
#include <string.h>

#include "../fp8.h"
#include "../narrow.h"
#include "lt.h"

int fake_type_is_fp8(int type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

int fake_type_bytes(int type)
{
    switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return 1;
    default: return 0;
    }
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Drops the last n bits of a float. */
static uint32_t round_bits(float value, int n)
{
    const uint32_t bits = bits_of(value);
    if (isnan(value)) return bits | 0x400000u;
    return bits + ((1u << (n - 1)) - 1 + (bits >> n & 1));
}

float fake_round_tf32(float value) { return isfinite(value) ? of_bits(round_bits(value, 13) & ~0x1fffu) : value; }

double fake_load(const void *data, int64_t index, int type)
{
    switch (type) {
    case CUDA_R_64F: return ((const double *)data)[index];
    case CUDA_R_32F: return (double)((const float *)data)[index];
    case CUDA_R_16BF: return (double)of_bits((uint32_t)((const uint16_t *)data)[index] << 16);
    case CUDA_R_16F: return narrow_value(QDR_F16, ((const uint16_t *)data)[index]);
    case CUDA_R_8F_E4M3: return fp8_value(QDRI_E4M3, ((const uint8_t *)data)[index]);
    default: return fp8_value(QDRI_E5M2, ((const uint8_t *)data)[index]);
    }
}

void fake_store(void *data, int64_t index, int type, double value)
{
    switch (type) {
    case CUDA_R_64F: ((double *)data)[index] = value; break;
    case CUDA_R_32F: ((float *)data)[index] = (float)value; break;
    case CUDA_R_16BF: ((uint16_t *)data)[index] = (uint16_t)(round_bits((float)value, 16) >> 16); break;
    default: ((uint16_t *)data)[index] = narrow_bits(QDR_F16, value); break;
    }
}
