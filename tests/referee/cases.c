/* SPDX-License-Identifier: Apache-2.0 */
/* The model's simulated time compared with SimGrid's, list by list: forward, backward, and the two backward lists of a
 * step with several micro-batches. In the model one rank represents all, and a collective is a number of bytes on a few
 * shares of links; in SimGrid every rank has its own streams and links, and every collective consists of rings of flows
 * or messages between ranks.
 *
 * usage: referee [--long]    (64 and 256 ranks; or 1,024) */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "referee.h"

typedef struct scene {
    const char *what;
    int ranks_per_node, n_adapters;
    double adapter_GBps;
    int x, y, z, d;
    const char *order;
    int layout;
    int sequences; /* per cell */
    int messages; /* single messages instead of flows */
    double limit; /* on |model / referee - 1| */
    int gradient_parts, optimizer_parts; /* 0: no levels */
} scene;

enum { R = (int)QDR_REPLICATED, S = (int)QDR_SCATTERED };

/* Limits: 1 % where the model should agree with flows exactly; 5 % where two ranks share an adapter, for single
 * messages, and in two cases of 1,024 ranks; 10 % where nodes divide groups unequally, so that ranks differ. */
static const scene ordinary[] = {
    {"d across nodes", 8, 1, 50, 1, 8, 1, 8, "xyzd", R, 2, 0, 0.01, 0, 0},
    {"z across nodes", 8, 1, 50, 8, 1, 8, 1, "xyzd", R, 2, 0, 0.01, 0, 0},
    {"x across nodes", 8, 1, 50, 8, 2, 4, 1, "yzxd", S, 2, 0, 0.01, 0, 0},
    {"one node each", 8, 8, 25, 2, 4, 8, 1, "xyzd", S, 8, 0, 0.01, 0, 0},
    {"fast links", 8, 1, 5000, 4, 4, 2, 2, "xyzd", S, 8, 0, 0.01, 0, 0},
    {"no powers of two", 6, 1, 100, 3, 4, 2, 2, "xyzd", S, 2, 0, 0.01, 0, 0},
    {"y and z share", 8, 1, 50, 4, 4, 4, 1, "xyzd", R, 2, 0, 0.01, 0, 0},
    {"y and z share, scattered", 8, 1, 50, 4, 4, 4, 1, "xyzd", S, 2, 0, 0.01, 0, 0},
    {"x, y across nodes", 8, 1, 50, 2, 2, 4, 4, "zdxy", S, 8, 0, 0.01, 0, 0},
    {"all share", 4, 1, 50, 2, 4, 4, 2, "zyxd", S, 4, 0, 0.01, 0, 0},
    {"one adapter per rank", 8, 8, 25, 4, 4, 4, 1, "xyzd", R, 2, 0, 0.01, 0, 0},
    {"one adapter per rank", 8, 8, 25, 2, 8, 2, 2, "xyzd", R, 2, 0, 0.01, 0, 0},
    {"two ranks per adapter", 8, 4, 25, 2, 4, 4, 2, "yzxd", S, 2, 0, 0.05, 0, 0},
    {"nodes divide groups", 6, 1, 50, 4, 4, 4, 1, "xyzd", R, 2, 0, 0.1, 0, 0},
    {"256 ranks", 8, 1, 100, 4, 4, 4, 4, "xyzd", R, 2, 0, 0.01, 0, 0},
    {"256 ranks, adapters", 8, 8, 25, 4, 4, 8, 2, "yxzd", S, 2, 0, 0.01, 0, 0},
    {"near in nodes", 8, 1, 50, 1, 1, 2, 16, "xyzd", R, 2, 0, 0.01, 8, 32},
    {"near, far, copies", 8, 1, 50, 2, 1, 2, 16, "zdxy", R, 2, 0, 0.01, 4, 8},
    {"copies across nodes", 8, 8, 25, 1, 2, 1, 16, "yzdx", S, 2, 0, 0.01, 2, 4},
    {"state over all", 4, 1, 50, 2, 2, 1, 8, "xyzd", R, 4, 0, 0.01, 1, 8},
    {"messages, y and z share", 8, 1, 50, 4, 4, 4, 1, "xyzd", R, 2, 1, 0.05, 0, 0},
    {"messages, adapters", 8, 8, 25, 4, 4, 2, 2, "xyzd", S, 2, 1, 0.05, 0, 0},
};
static const scene large[] = {
    {"1024 ranks", 8, 1, 100, 8, 8, 4, 4, "xyzd", R, 2, 0, 0.05, 0, 0},
    {"1024 ranks, z inter-node", 8, 1, 100, 2, 4, 128, 1, "xyzd", R, 2, 0, 0.01, 0, 0},
    {"1024 ranks, adapters", 8, 8, 25, 4, 8, 8, 4, "xyzd", S, 2, 0, 0.05, 0, 0},
};

/* One protocol, no trees, no slowdowns. */
static qdr_machine machine_of(const scene *s)
{
    qdr_machine m = {
        QDR_INIT(qdr_machine),
        .name = "referee",
        .ranks_per_node = s->ranks_per_node,
        .memory_bytes = 1e12,
        .memory_bytes_per_sec = 2e12,
        .memory_efficiency = 1,
        .n_units = 1,
        .wave_power = 1,
        .bf16 = {.peak_flops = 3e14, .most = 0.7, .factor = {1, 1, 1}, .odd_factor = 1},
        .attention_efficiency = 0.5,
        .n_links = 2,
        .collectives = {.start_secs = 5e-6, .n_protocols = 1, .protocols = {{.step_factor = 1, .rate_factor = 1}}},
        .software = {.launch_secs = 4e-6}};
    m.links[0] = (qdr_machine_link){.n_ranks = s->ranks_per_node, .rank_bytes_per_sec = 200e9, .step_secs = 1e-6};
    m.links[1] = (qdr_machine_link){
        .n_adapters = s->n_adapters, .adapter_bytes_per_sec = s->adapter_GBps * 1e9, .step_secs = 10e-6};
    return m;
}

/* Similar to GPT-3 6.7B; the number of layers does not matter. */
static qdr_network network_of(void)
{
    return (qdr_network){QDR_INIT(qdr_network), .name = "referee", .layers = 32,  .hidden = 4096, .heads = 32,
                         .kv_heads = 32,        .head_size = 128,  .ffn = 16384,  .vocab = 51200, .context = 2048,
                         .positions = 2048,     .qkv_bias = 1,     .out_bias = 1, .mlp_bias = 1,  .norms_per_layer = 2};
}

/* Runs the referee in a separate process. */
static double ask(const qdr_machine *machine, const qdr_plan *plan, const referee_list *list, int messages)
{
    double secs = -1;
    int ends[2];
    fflush(stdout);
    if (pipe(ends) != 0) return -1;
    const pid_t child = fork();
    if (child == 0) {
        secs = referee_secs(machine, plan, list, messages);
        _exit(write(ends[1], &secs, sizeof secs) != (ssize_t)sizeof secs);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &secs, sizeof secs) != (ssize_t)sizeof secs) secs = -1;
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    return secs;
}

/* The worst error of all lists of the case; infinite if one failed. */
static double worst_error(const scene *s, double errors[REFEREE_LISTS], double *first_secs)
{
    const qdr_machine machine = machine_of(s);
    const qdr_network network = network_of();
    qdr_plan plan = {QDR_INIT(qdr_plan),
                     .x = s->x,
                     .y = s->y,
                     .z = s->z,
                     .d = s->d,
                     .layout = (qdr_layout)s->layout,
                     .dtype = QDR_BF16,
                     .batch = (int64_t)s->sequences * s->z * s->d,
                     .gradient_parts = s->gradient_parts,
                     .optimizer_parts = s->optimizer_parts};
    referee_list lists[REFEREE_LISTS];
    double worst = 0;
    snprintf(plan.order, sizeof plan.order, "%s", s->order);
    if (referee_lists_make(&machine, &network, &plan, lists) != QDR_OK) {
        printf("%s\n", qdr_last_error());
        return INFINITY;
    }
    for (int kind = 0; kind < REFEREE_LISTS; kind++) {
        if (lists[kind].n_tasks == 0) continue;
        const double secs = ask(&machine, &plan, &lists[kind], s->messages);
        errors[kind] = secs > 0 ? lists[kind].model_secs / secs - 1 : INFINITY;
        if (kind == 0) *first_secs = secs;
        worst = fmax(worst, fabs(errors[kind]));
    }
    referee_lists_free(lists);
    return worst;
}

static int judge(const scene *s)
{
    double errors[REFEREE_LISTS] = {0}, secs = 0;
    const double worst = worst_error(s, errors, &secs);
    printf("%-24s %2dx%2dx%3dx%2d %s %c levels %2d,%2d %d a node, %d x %4.0f GB/s %9.3f ms", s->what, s->x, s->y, s->z,
           s->d, s->order, s->layout == S ? 'S' : 'R', s->gradient_parts, s->optimizer_parts, s->ranks_per_node,
           s->n_adapters, s->adapter_GBps, secs * 1e3);
    for (int kind = 0; kind < REFEREE_LISTS; kind++) printf(" %+7.2f", errors[kind] * 100);
    printf(" %%  (%.0f %%)%s\n", s->limit * 100, worst <= s->limit ? "" : "  BEYOND THE LIMIT");
    return worst <= s->limit;
}

int main(int argc, char **argv)
{
    const int is_long = argc > 1 && strcmp(argv[1], "--long") == 0;
    const scene *scenes = is_long ? large : ordinary;
    const size_t n = is_long ? sizeof large / sizeof *large : sizeof ordinary / sizeof *ordinary;
    int n_wrong = 0;
    puts("grid, order, layout, levels; links; the referee's forward; the model's difference: forward, "
         "first forward, backward alone, before others, after others (limit)");
    for (size_t i = 0; i < n; i++) n_wrong += !judge(&scenes[i]);
    printf("%zu cases, %d beyond the limit\n", n, n_wrong);
    return n_wrong > 0;
}
