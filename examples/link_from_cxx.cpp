/* SPDX-License-Identifier: Apache-2.0 */
/* Quadrille from C++: the same layer as in linear.c, with objects that free themselves and errors as exceptions. In
 * C++20 option structs take designators, as in C; in C++17 members are assigned one by one. */
#include <quadrille/quadrille.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

namespace
{

void check(qdr_status status)
{
    if (status < 0) throw std::runtime_error(qdr_last_error());
}

struct Free {
    void operator()(qdr_grid *grid) const { qdr_grid_destroy(&grid); }
    void operator()(qdr_stack *stack) const { qdr_stack_destroy(&stack); }
};

/* Ranks along y, which splits the outputs; rows of X; and the layer. */
#if __cplusplus >= 202002L
qdr_grid_opts describe_grid(int n_ranks) { return {QDR_INIT(qdr_grid_opts), .x = 1, .y = n_ranks, .z = 1, .d = 1}; }

qdr_stack_opts describe_stack(int64_t n_rows) { return {QDR_INIT(qdr_stack_opts), .n_rows = n_rows, .dtype = QDR_F64}; }

qdr_edge_desc describe_input(int64_t in) { return {QDR_INIT(qdr_edge_desc), .cols = {{in, 1}}, .col_axis = QDR_X}; }

qdr_linear_desc describe_layer(int64_t in, int64_t out)
{
    return {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {{in, 1}}, .out = {{out, 1}}};
}
#else
qdr_grid_opts describe_grid(int n_ranks)
{
    qdr_grid_opts opts{};
    opts.size = sizeof opts;
    opts.x = opts.z = opts.d = 1;
    opts.y = n_ranks;
    return opts;
}

qdr_stack_opts describe_stack(int64_t n_rows)
{
    qdr_stack_opts opts{};
    opts.size = sizeof opts;
    opts.n_rows = n_rows;
    opts.dtype = QDR_F64;
    return opts;
}

qdr_edge_desc describe_input(int64_t in)
{
    qdr_edge_desc input{};
    input.size = sizeof input;
    input.cols[0] = {in, 1};
    input.col_axis = QDR_X;
    return input;
}

qdr_linear_desc describe_layer(int64_t in, int64_t out)
{
    qdr_linear_desc desc{};
    desc.size = sizeof desc;
    desc.name = "layer";
    desc.in[0] = {in, 1};
    desc.out[0] = {out, 1};
    return desc;
}
#endif

std::unique_ptr<qdr_grid, Free> make_grid(qdr_context *ctx)
{
    const qdr_grid_opts opts = describe_grid(qdr_context_size(ctx));
    qdr_grid *grid = nullptr;
    check(qdr_grid_create(ctx, &opts, &grid));
    return std::unique_ptr<qdr_grid, Free>(grid);
}

std::unique_ptr<qdr_stack, Free> make_stack(qdr_grid *grid, int64_t n_rows)
{
    const qdr_stack_opts opts = describe_stack(n_rows);
    qdr_stack *stack = nullptr;
    check(qdr_stack_create(grid, &opts, &stack));
    return std::unique_ptr<qdr_stack, Free>(stack);
}

void multiply(qdr_context *ctx)
{
    constexpr int64_t rows = 4, in = 3, out = 5;
    const auto grid = make_grid(ctx);
    const auto net = make_stack(grid.get(), rows);

    qdr_edge x = 0, y = 0;
    qdr_linear *layer = nullptr;
    const qdr_edge_desc input = describe_input(in);
    const qdr_linear_desc desc = describe_layer(in, out);
    check(qdr_stack_add_input(net.get(), "x", &input, 0, &x));
    check(qdr_stack_add_linear(net.get(), &desc, x, &y, &layer));
    check(qdr_stack_build(net.get()));

    // W[i,j] = i + 1 and X = 1, so that Y[r,i] = 3·(i + 1). Every rank takes its part of the full W.
    std::vector<double> w;
    for (int64_t i = 0; i < out; i++) w.insert(w.end(), in, static_cast<double>(i + 1));
    check(qdr_stack_load_parameter(net.get(), qdr_linear_weight_index(layer), w.data()));
    qdr_owned x_part{}, y_part{};
    x_part.size = y_part.size = sizeof x_part;
    void *x_value = nullptr, *y_value = nullptr;
    check(qdr_stack_edge_owned(net.get(), x, &x_part));
    check(qdr_stack_edge_owned(net.get(), y, &y_part));
    check(qdr_stack_edge_value(net.get(), x, &x_value));
    check(qdr_stack_edge_value(net.get(), y, &y_value));
    for (int64_t i = 0; i < x_part.n_rows * x_part.n_cols; i++) static_cast<double *>(x_value)[i] = 1;

    check(qdr_stack_forward(net.get()));
    check(qdr_stream_synchronize(qdr_context_stream(ctx)));
    for (int64_t j = 0; j < y_part.n_cols; j++)
        std::printf("Y[0,%d] = %g\n", static_cast<int>(y_part.cols[0].begin + j), static_cast<double *>(y_value)[j]);
}

/* No exception may leave a function called from C. */
int run_rank(qdr_context *ctx, void *)
{
    try {
        multiply(ctx);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "link_from_cxx: %s\n", error.what());
        return 1;
    }
}

} // namespace

int main()
{
    int exit_code = 1;
    if (qdr_launch(2, nullptr, run_rank, nullptr, &exit_code) < 0)
        std::fprintf(stderr, "link_from_cxx: %s\n", qdr_last_error());
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
        std::fputs("link_from_cxx: standard output cannot be written\n", stderr);
        return 1;
    }
    return exit_code;
}
