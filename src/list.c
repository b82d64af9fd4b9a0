/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille list`: the names known to the other commands and to the library. */
#include <quadrille/machine.h>
#include <quadrille/network.h>
#include <stdio.h>
#include <string.h>

#include "common/command.h"
#include "common/json.h"

static const option_spec specs[] = {
    {"json", 0, NULL, "print JSON: a list of objects", .kind = OPTION_FLAG},
    OPTIONS_END,
};

/* The state of one list: a table on standard output, or JSON. */
typedef struct list {
    json_t *rows; /* NULL: a table */
    qdr_status status; /* of the first name that could not be loaded */
} list;

static void add_row(list *made, json_t *row)
{
    if (json_array_append_new(made->rows, row) != 0) made->status = QDR_ERR_MEMORY;
}

/* ---- models ---- */

static void add_model(const char *name, void *user)
{
    list *made = user;
    qdr_network net = {QDR_INIT(qdr_network)};
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    if (made->status == QDR_OK) made->status = qdr_network_load(name, &net);
    if (made->status == QDR_OK) made->status = qdr_network_params(&net, &counts);
    if (made->status != QDR_OK) return;
    if (made->rows)
        add_row(made,
                json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "name", name, "architecture", net.architecture,
                          "params", (json_int_t)counts.total, "layers", (json_int_t)net.layers, "hidden",
                          (json_int_t)net.hidden, "heads", (json_int_t)net.heads, "context", (json_int_t)net.context));
    else
        printf("%-16s %-9s %9.2fB %7lld %7lld %6lld %8lld\n", name, net.architecture, 1e-9 * (double)counts.total,
               (long long)net.layers, (long long)net.hidden, (long long)net.heads, (long long)net.context);
}

static qdr_status list_models(list *made)
{
    if (!made->rows)
        printf("%-16s %-9s %10s %7s %7s %6s %8s\n", "model", "type", "parameters", "layers", "hidden", "heads",
               "context");
    return qdr_network_list(add_model, made);
}

/* ---- machines ---- */

static void add_machine(const char *name, void *user)
{
    list *made = user;
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    if (made->status == QDR_OK) made->status = qdr_machine_load(name, &machine);
    if (made->status != QDR_OK) return;
    if (made->rows)
        add_row(made, json_pack("{s:s, s:s, s:i, s:f, s:f}", "name", name, "device", machine.device, "ranks_per_node",
                                machine.ranks_per_node, "memory_bytes", machine.memory_bytes, "bf16_peak_flops",
                                machine.bf16.peak_flops));
    else
        printf("%-18s %5d %12.1f %14.4g  %s\n", name, machine.ranks_per_node, machine.memory_bytes / (1 << 30),
               1e-12 * machine.bf16.peak_flops, machine.device);
}

static qdr_status list_machines(list *made)
{
    if (!made->rows)
        printf("%-18s %5s %12s %14s  %s\n", "machine", "ranks", "memory (GiB)", "bf16 (TFLOP/s)",
               "device (ranks: per node; memory and peak: per rank)");
    return qdr_machine_list(add_machine, made);
}

/* ---- software ---- */

static void add_software(const char *name, void *user)
{
    list *made = user;
    qdr_software software = {QDR_INIT(qdr_software)};
    if (made->status == QDR_OK) made->status = qdr_software_load(name, &software);
    if (made->status != QDR_OK) return;
    const qdr_software_factors *by = &software.factors;
    if (made->rows)
        add_row(made, json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", name, "products", by->products, "attention",
                                by->attention, "kernels", by->kernels, "links", by->links));
    else
        printf("%-18s %9.3g %10.3g %8.3g %6.3g\n", name, by->products, by->attention, by->kernels, by->links);
}

static qdr_status list_software(list *made)
{
    if (!made->rows)
        printf("%-18s %9s %10s %8s %6s  %s\n", "software", "products", "attention", "kernels", "links",
               "(factors of a machine's rates)");
    return qdr_software_list(add_software, made);
}

/* ---- the command ---- */

static int print_list(qdr_status (*write)(list *), int as_json, failure *why)
{
    list made = {.rows = as_json ? json_array() : NULL};
    if (as_json && !made.rows) return fail_memory(why, "list: out of memory");
    const qdr_status status = write(&made);
    fail_status(why, status != QDR_OK ? status : made.status);
    return as_json ? write_json(made.rows, JSON_INDENT(2), "list", why) : why->code;
}

static int run(int argc, char **argv)
{
    static const char *const names[] = {"models", "machines", "software"};
    static qdr_status (*const write[])(list *) = {list_models, list_machines, list_software};
    enum { N_LISTS = sizeof names / sizeof *names };
    const char *word = NULL;
    char meant[SUGGESTION_BYTES];
    int as_json = 0;
    failure why = {0};
    if (options_read(argc, argv, specs, &as_json, &word, &why)) return fail_print(&why);
    for (int i = 0; word && i < N_LISTS; i++)
        if (strcmp(word, names[i]) == 0) return print_list(write[i], as_json, &why) ? fail_print(&why) : EXIT_OK;
    suggest(word, names, N_LISTS, meant, sizeof meant);
    if (word)
        fail(&why, EXIT_USAGE, "list: cannot list '%s'%s; use models, machines or software", word, meant);
    else
        fail(&why, EXIT_USAGE, "list: say what to list: models, machines or software");
    return fail_print(&why);
}

const command command_list = {
    .name = "list",
    .summary = "list the known models, machines and software",
    .usage = "quadrille list models|machines|software [--json]",
    .text = "Prints the models, machines and software whose names 'plan', 'mem' and other commands take.",
    .options = specs,
    .examples = "  quadrille list models\n"
                "  quadrille list machines --json\n",
    .is_local = 1,
    .run = run,
};
