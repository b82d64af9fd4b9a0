/* SPDX-License-Identifier: Apache-2.0 */
/* OpenBLAS's number of threads belongs to the program: it is the same after each call of the library as before. */
#include <cblas.h>

#include "dev/cpu/cpu.h"
#include "nodes.h"
#include "qdr_test.h"
#include "quadrille/optim.h"

enum { ROWS = 64, WIDTH = 32 };

static int number(void) { return openblas_get_num_threads(); }

/* The program's number; more than one thread, or this tests nothing. */
static int set_number(int n)
{
    openblas_set_num_threads(n);
    if (number() != n) skip(); /* OpenBLAS without threads */
    return n;
}

#define KEEPS(call)                                                                                                    \
    do {                                                                                                               \
        const int before_ = number();                                                                                  \
        CHECK_OK(call);                                                                                                \
        CHECK_OK(qdr_stream_synchronize(qdr_context_stream(ctx)));                                                     \
        if (number() != before_) fail_msg("%s: %d threads, and %d before", #call, number(), before_);                  \
    } while (0)

static void add_layers(qdr_context *ctx, qdr_stack *net)
{
    const qdr_block width = {WIDTH, 8};
    const qdr_edge_desc rows = {QDR_INIT(qdr_edge_desc), .cols = {width}, .col_axis = QDR_X};
    const qdr_linear_desc first = {QDR_INIT(qdr_linear_desc), .name = "qkv", .in = {width},
                                   .out = {width, width, width}};
    const qdr_linear_desc second = {QDR_INIT(qdr_linear_desc), .name = "out", .in = {width}, .out = {width},
                                    .transposed = 1};
    qdr_edge in, qkv, heads, out;
    qdr_linear *layer;
    KEEPS(qdr_stack_add_input(net, "x", &rows, 1, &in));
    KEEPS(qdr_stack_add_linear(net, &first, in, &qkv, &layer));
    KEEPS(test_add_attention(net, "attention", 8, 8, qkv, &heads));
    KEEPS(qdr_stack_add_linear(net, &second, heads, &out, &layer));
}

static void train(qdr_context *ctx, qdr_dtype dtype)
{
    qdr_grid *grid;
    qdr_stack *net;
    qdr_adamw *optimizer;
    const qdr_grid_opts one = {QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 1, .d = 1};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = ROWS, .row_unit = 8, .dtype = dtype};
    KEEPS(qdr_grid_create(ctx, &one, &grid));
    KEEPS(qdr_stack_create(grid, &opts, &net));
    add_layers(ctx, net);
    KEEPS(qdr_stack_build(net));
    KEEPS(qdr_stack_init(net, 1, 0.1));
    KEEPS(qdr_adamw_create(net, NULL, &optimizer));
    KEEPS(qdr_stack_forward(net));
    KEEPS(qdr_stack_backward(net, 0, 1));
    KEEPS(qdr_adamw_step(optimizer, 0.1));
    qdr_adamw_destroy(&optimizer);
    qdr_stack_destroy(&net);
    qdr_grid_destroy(&grid);
}

TEST(calls_keep_the_number)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    for (int n = 1; n <= 2; n++) {
        set_number(3 - n); /* 2 where the context has 1, and the other way round */
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
            qdr_context *ctx;
            const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = n, .device = "cpu"};
            CHECK_OK(qdr_context_create_self(&opts, &ctx));
            train(ctx, dtypes[i]);
            qdr_context_destroy(&ctx);
            assert_int_equal(number(), 3 - n);
        }
    }
}

static int train_one(qdr_local_world *world, int rank, void *user)
{
    qdr_context *ctx;
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = 1 + rank % 2, .device = "cpu"};
    (void)user, (void)world;
    CHECK_OK(qdr_context_create_self(&opts, &ctx));
    for (int i = 0; i < 10; i++) {
        qdr_stream *stream = qdr_context_stream(ctx);
        static float a[WIDTH * WIDTH];
        float c[WIDTH * WIDTH];
        const qdri_gemm gemm = {.m = WIDTH,
                                .n = WIDTH,
                                .k = WIDTH,
                                .a = a,
                                .b = a,
                                .c = c,
                                .lda = WIDTH,
                                .ldb = WIDTH,
                                .ldc = WIDTH,
                                .alpha = 1,
                                .dtype = QDR_F32,
                                .c_dtype = QDR_F32};
        CHECK_OK(qdri_gemm_run(stream, &gemm));
        CHECK_OK(qdr_stream_synchronize(stream));
    }
    qdr_context_destroy(&ctx);
    return 0;
}

/* Products of several ranks at once, with different numbers. */
TEST(ranks_keep_the_number)
{
    int result = 1;
    set_number(2);
    CHECK_OK(qdr_local_run(4, train_one, NULL, &result));
    assert_int_equal(result, 0);
    assert_int_equal(number(), 2);
}

/* Products that overlap: the last one puts the number back. */
TEST(overlapping_products_keep_the_number)
{
    set_number(2);
    qdri_blas_begin(1);
    assert_int_equal(number(), 1);
    qdri_blas_begin(1);
    qdri_blas_end();
    assert_int_equal(number(), 1);
    qdri_blas_end();
    assert_int_equal(number(), 2);
}

/* What the program sets while a product runs is what it wants. */
TEST(a_new_number_stays)
{
    set_number(4);
    if (number() != 4) skip();
    qdri_blas_begin(1);
    openblas_set_num_threads(3);
    qdri_blas_end();
    assert_int_equal(number(), 3);
    qdri_blas_begin(1);
    openblas_set_num_threads(2);
    qdri_blas_begin(1);
    assert_int_equal(number(), 1);
    qdri_blas_end();
    qdri_blas_end();
    assert_int_equal(number(), 2);
}
