/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a linear layer on one rank: Y = X·Wᵀ is NT if W is stored as [out, in] and NN if it is stored as [in,
 * out]; dW = dYᵀ·X is TN. */
#include "bench/product.h"
#include "calibrate/calibrate.h"

typedef struct shape {
    int m, n, k;
} shape;

static const shape shapes[] = {
    {64, 64, 64},     {256, 256, 256},  {512, 512, 512},  {1024, 1024, 1024}, {64, 512, 512},
    {128, 1024, 512}, {512, 64, 512},   {512, 512, 64},   {1024, 128, 1024},  {1024, 1024, 128},
    {2048, 256, 512}, {2048, 512, 128}, {256, 2048, 512}, {4096, 64, 512},    {64, 1024, 2048},
};
static const shape quick_shapes[] = {{64, 64, 64}, {256, 256, 256}, {256, 64, 128}, {128, 256, 64}, {64, 128, 512}};
static const shape other_shapes[] = {
    {128, 128, 128}, {512, 512, 512}, {1024, 256, 512}, {256, 1024, 128}, {512, 128, 1024}};
#define N_OF(list) ((int)(sizeof(list) / sizeof *(list)))

static qdr_status call_forward(void *user)
{
    const product *p = user;
    return qdr_linear_forward(p->layer, p->x, p->y, 0, NULL);
}

static qdr_status call_gradient(void *user)
{
    const product *p = user;
    return qdr_linear_backward(p->layer, p->dy, p->x, NULL, QDR_NO_DX, NULL);
}

static const char *const group_names[3][3] = {
    {"product NN f32", "product NT f32", "product TN f32"},
    {"product NN f64", "product NT f64", "product TN f64"},
    {"product NN bf16", "product NT bf16", "product TN bf16"},
};

static int measure(calibration *c, product *p, qdr_sample *s, failure *why)
{
    const int type = s->dtype == QDR_F32 ? 0 : s->dtype == QDR_F64 ? 1 : 2;
    const calibrate_work work = {s->mode == QDR_MODE_TN ? call_gradient : call_forward, c->alone, p, 256, 0};
    s->kind = QDR_SAMPLE_PRODUCT;
    s->group = group_names[type][s->mode];
    if (!calibrate_time(c, &work, &s->secs, why)) calibrate_add(c, s);
    return why->code;
}

/* One layer with one storage of W. */
static int measure_stored(calibration *c, const shape *of, qdr_dtype dtype, qdr_storage storage, failure *why)
{
    const product_desc desc = {.m = of->m, .n = of->n, .k = of->k, .dtype = dtype, .n_panels = 1, .storage = storage};
    product p = {0};
    qdr_sample forward = {
        .dtype = dtype, .mode = storage == QDR_IN_OUT ? QDR_MODE_NN : QDR_MODE_NT, .m = of->m, .n = of->n, .k = of->k};
    qdr_sample gradient = {.dtype = dtype, .mode = QDR_MODE_TN, .m = of->n, .n = of->k, .k = of->m};
    fail_status(why, product_create(c->alone, (grid_size){1, 1, 1, 1}, &desc, &p));
    if (!fail_together(why, c->ctx) && !measure(c, &p, &forward, why) && storage == QDR_OUT_IN)
        measure(c, &p, &gradient, why);
    product_destroy(&p);
    return why->code;
}

static int measure_shapes(calibration *c, const shape *list, int n, qdr_dtype dtype, failure *why)
{
    for (int i = 0; i < n && !why->code; i++)
        if (!measure_stored(c, &list[i], dtype, QDR_OUT_IN, why)) measure_stored(c, &list[i], dtype, QDR_IN_OUT, why);
    return why->code;
}

int calibrate_products(calibration *c, failure *why)
{
    calibrate_show(c, "products");
    if (c->is_quick && !measure_shapes(c, quick_shapes, N_OF(quick_shapes), QDR_F32, why) && c->run.dtype != QDR_F32)
        measure_shapes(c, quick_shapes, N_OF(quick_shapes), c->run.dtype, why);
    if (c->is_quick || why->code) return why->code;
    if (measure_shapes(c, shapes, N_OF(shapes), QDR_F32, why) ||
        measure_shapes(c, other_shapes, N_OF(other_shapes), QDR_F64, why))
        return why->code;
    return measure_shapes(c, other_shapes, N_OF(other_shapes), QDR_BF16, why);
}
