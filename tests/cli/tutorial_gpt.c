/* SPDX-License-Identifier: Apache-2.0 */
/* The last part of the tutorial's program: the GPT of section 11 compared with a serial one in float64. */
#include "reference/network_serial.h"

enum { N_IN_BLOCK = 12, N_STEPS = 6, TOKENS = B * T };

typedef struct batch {
    int32_t inputs[TOKENS], targets[TOKENS];
} batch;

static batch make_batch(int step)
{
    batch made;
    for (int i = 0; i < TOKENS; i++) {
        made.inputs[i] = (int32_t)((i * 37 + step * 11 + i * i) % V);
        made.targets[i] = (made.inputs[i] * 3 + 1) % V;
    }
    return made;
}

/* Values of a trained network's size: norms near 1, weights near 0. */
static double first_value(const char *kind, int64_t i)
{
    const double noise = (double)value(i);
    return kind[0] == 'g' ? 1 + 0.3 * noise : 0.4 * noise;
}

/* Sets the serial network, and the same values in the order in which a plain C program has them. */
static void fill_both(serial_network *serial, float *at)
{
    static const char *const kinds[N_IN_BLOCK] = {"g", "b", "w", "b", "w", "b", "g", "b", "w", "b", "w", "b"};
    int64_t seed = 0;
    for (int p = 0; p < serial->n_tensors; p++) {
        const int last = serial->n_tensors - 2;
        const char *kind = p < 2 ? "w" : p >= last ? (p == last ? "g" : "b") : kinds[(p - 2) % N_IN_BLOCK];
        for (int64_t i = 0; i < serial->tensors[p].n; i++)
            serial->tensors[p].value[i] = (double)(float)first_value(kind, seed++);
    }
    for (int i = 0; i < V_PADDED * C; i++) *at++ = i < V * C ? (float)serial->tensors[0].value[i] : NAN;
    for (int i = 0; i < MAX_T * C; i++) *at++ = i < T * C ? (float)serial->tensors[1].value[i] : NAN;
    for (int t = 0; t < N_IN_BLOCK; t++)
        for (int block = 0; block < L; block++)
            for (int64_t i = 0, p = 2 + block * N_IN_BLOCK + t; i < serial->tensors[p].n; i++)
                *at++ = (float)serial->tensors[p].value[i];
    for (int p = 2 + L * N_IN_BLOCK; p < serial->n_tensors; p++)
        for (int64_t i = 0; i < serial->tensors[p].n; i++) *at++ = (float)serial->tensors[p].value[i];
}

/* The mean loss over all rows, from logits that were read row by row. */
static double loss_of_logits(gpt *m, const batch *data)
{
    double sum = 0;
    for (int row = 0; row < TOKENS; row++) {
        float logits[V];
        double exponentials = 0;
        OK(read_logits(m, row, logits));
        for (int i = 0; i < V; i++) exponentials += exp((double)logits[i]);
        sum += log(exponentials) - (double)logits[data->targets[row]];
    }
    return sum / TOKENS;
}

/* Each loss has a rounding error of about 1e-7 of its own, and inherits those of the steps before. */
static void expect_loss(const char *what, int step, double got, double want)
{
    EXPECT(fabs(got - want) <= 2e-6 * (step + 1) * want, "%s of step %d is %.9g, not %.9g", what, step, got, want);
}

static void check_gpt(qdr_grid *grid)
{
    const qdr_network network = {QDR_INIT(qdr_network), .layers = L,   .hidden = C,   .heads = NH,  .kv_heads = NH,
                                 .head_size = C / NH,   .ffn = 4 * C,  .vocab = V,    .context = T, .positions = T,
                                 .qkv_bias = 1,         .out_bias = 1, .mlp_bias = 1, .tied = 1};
    serial_network serial = serial_network_make(&network, T, 0);
    float *values = malloc(sizeof *values *
                           (V_PADDED * C + MAX_T * C + L * (4 * C * C + 2 * OC * C + 9 * C + OC) + 2 * C));
    gpt m = {.grid = grid}, evaluation = {.grid = grid};
    EXPECT(values, "no memory");
    fill_both(&serial, values);
    OK(describe_gpt(&m, B));
    OK(build_gpt(&m));
    OK(load_gpt(&m, values));
    OK(describe_gpt(&evaluation, B));
    OK(qdr_stack_share_parameters(evaluation.stack, m.stack));
    OK(qdr_stack_build(evaluation.stack));
    for (int step = 0; step < N_STEPS; step++) {
        const batch data = make_batch(step);
        int decay[2 + L * N_IN_BLOCK + 2];
        double loss;
        for (int p = 0; p < serial.n_tensors; p++) decay[p] = p != 1 && serial.tensors[p].n > OC;
        const double want =
            serial_network_backprop(&serial, B, data.inputs, data.targets, 1.0 / TOKENS, (serial_noise){0}) / TOKENS;
        OK(set_batch(&evaluation, data.inputs, data.targets));
        OK(qdr_stack_forward(evaluation.stack));
        expect_loss("the loss of the logits", step, loss_of_logits(&evaluation, &data), want);
        OK(train_step(&m, data.inputs, data.targets, 1e-2, &loss));
        expect_loss("the loss", step, loss, want);
        serial_network_adamw(&serial, 1e-2, 0.9, 0.95, 0.1, 1, decay);
    }
    destroy_gpt(&evaluation);
    destroy_gpt(&m);
    serial_network_free(&serial);
    free(values);
}
