/* SPDX-License-Identifier: Apache-2.0 */
/* A roofline with quantisation. Tiles and waves: NVIDIA, "Matrix Multiplication Background", User's Guide; the half
 * extents: Hockney's n½ (R. W. Hockney, C. R. Jesshope, Parallel Computers, 1981), once for each extent. */
#include "price/gemm.h"

#include <math.h>

#include "core/dtype.h"

const qdr_machine_products *qdri_machine_products(const qdr_machine *machine, qdr_dtype dtype)
{
    if (dtype == QDR_F64) return &machine->f64;
    return qdri_is_narrow(dtype) ? &machine->bf16 : &machine->f32;
}

/* The fraction of the work of whole tiles in whole waves that is useful: in (0, 1], the best of the machine's tiles. 1
 * without tiles. */
static double tile_share(const qdr_machine *machine, double m, double n, double n_products)
{
    const double units = machine->n_units;
    double best = machine->n_tiles ? 0 : 1;
    for (int i = 0; i < machine->n_tiles; i++) {
        const qdr_machine_tile *tile = &machine->tiles[i];
        const double n_tiles = ceil(m / tile->m) * ceil(n / tile->n) * n_products;
        /* Tiles, relative to those that the units could compute in the same time. */
        const double in_waves = n_tiles <= units ? n_tiles / units
                                                 : pow(n_tiles / (ceil(n_tiles / units) * units), machine->wave_power);
        const double share = tile->efficiency * in_waves * m * n * n_products / (n_tiles * tile->m * tile->n);
        if (share > best) best = share;
    }
    return best;
}

static int is_odd(double extent) { return fmod(extent, 2) != 0; }

double qdri_product_secs(const qdr_machine *machine, const qdri_product *p)
{
    const qdr_machine_products *type = qdri_machine_products(machine, p->dtype);
    if (!(p->m > 0) || !(p->n > 0) || !(p->k > 0)) return 0;
    const double aligned = is_odd(p->m) || is_odd(p->n) || is_odd(p->k) ? type->odd_factor : 1;
    const double efficiency = type->most * type->factor[p->mode] * aligned *
                              tile_share(machine, p->m, p->n, p->n_products) /
                              (1 + type->half_m / p->m + type->half_n / p->n + type->half_k / p->k);
    const double flops = 2 * p->m * p->n * p->k * p->n_products;
    const double computing = flops / (type->peak_flops * efficiency);
    const double reads = (double)qdr_dtype_bytes(p->dtype) * (p->m * p->k + p->k * p->n);
    const double bytes = p->n_products * (reads + p->out_bytes * p->m * p->n * (p->accumulate ? 2 : 1));
    const double moving = bytes / (machine->memory_bytes_per_sec * machine->memory_efficiency);
    return computing > moving ? computing : moving;
}
