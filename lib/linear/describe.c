/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions as facts. */
#include "linear/describe.h"

#include <stdio.h>

#include "core/block.h"
#include "core/codec.h"
#include "core/order.h"

enum { WHO_BYTES = 160 };

static const char *layout_name(qdr_layout layout)
{
    return layout == QDR_SCATTERED ? "QDR_SCATTERED" : "QDR_REPLICATED";
}

static const char *product_type_name(qdr_product_type type)
{
    static const char *const names[] = {"QDR_PRODUCT_DEFAULT", "QDR_PRODUCT_AS_STORED", "QDR_PRODUCT_FP8"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "unknown";
}

static int64_t or_one(int64_t unit) { return unit ? unit : 1; }

/* ---- the options ---- */

void qdri_describe_codecs(qdri_facts *facts, const char *who, const qdr_codecs *codecs)
{
    char option[64], text[64];
    qdri_facts_add(facts, who, "codecs", codecs ? "given" : "NULL");
    for (int axis = 0; codecs && axis < QDR_N_AXES; axis++)
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++) {
            snprintf(option, sizeof option, "codec %c.%s", QDRI_USUAL_ORDER[axis],
                     qdri_traffic_name((qdr_traffic_class) class));
            qdr_codec_text(&codecs->of[axis][class], text, sizeof text);
            qdri_facts_add(facts, who, option, text);
        }
    if (!codecs) return;
    qdri_facts_add_int(facts, who, "codecs' least_bytes", codecs->least_bytes);
    qdri_facts_add_int(facts, who, "codecs' inside", codecs->inside != 0);
}

void qdri_describe_opts(qdri_facts *facts, const qdr_grid *grid, const qdr_stack_opts *opts)
{
    static const char who[] = "qdr_stack_opts";
    char shape[96];
    qdri_grid_words(grid, shape, sizeof shape);
    qdri_facts_add(facts, "the grid", "", shape);
    qdri_facts_add_int(facts, who, "n_rows", opts->n_rows);
    qdri_facts_add_int(facts, who, "row_unit", or_one(opts->row_unit));
    qdri_facts_add(facts, who, "dtype", qdr_dtype_name(opts->dtype));
    qdri_facts_add_int(facts, who, "overlap", opts->overlap ? opts->overlap : QDR_OVERLAP_ALL);
    qdri_facts_add_int(facts, who, "prefetch", opts->prefetch);
    qdri_facts_add_int(facts, who, "panels", opts->panels);
    qdri_facts_add_int(facts, who, "caller_memory", opts->caller_memory != 0);
    qdri_facts_add_int(facts, who, "caller_activations", opts->caller_activations != 0);
    qdri_facts_add_int(facts, who, "prefetch_bytes", (int64_t)opts->prefetch_bytes);
    qdri_facts_add_int(facts, who, "batch_parts", opts->batch_parts);
    qdri_facts_add(facts, who, "product_type",
                   product_type_name(opts->product_type ? opts->product_type : QDR_PRODUCT_AS_STORED));
    qdri_describe_codecs(facts, who, opts->codecs);
}

/* ---- entries ---- */

/* The entry being described. */
typedef struct entry {
    qdri_facts *facts;
    char who[WHO_BYTES]; /* "layer 'fc'" */
} entry;

static entry begin(qdr_stack *stack, const char *kind, const char *name)
{
    entry e = {.facts = &stack->described};
    char number[WHO_BYTES];
    snprintf(e.who, sizeof e.who, "%s '%.120s'", kind, name);
    snprintf(number, sizeof number, "entry %d of the description", ++stack->n_described);
    qdri_facts_add(e.facts, number, "", e.who);
    return e;
}

static void add_int(const entry *e, const char *option, int64_t value)
{
    qdri_facts_add_int(e->facts, e->who, option, value);
}

static void add_text(const entry *e, const char *option, const char *value)
{
    qdri_facts_add(e->facts, e->who, option, value);
}

static void add_blocks(const entry *e, const char *option, const qdr_block *blocks, int n)
{
    qdri_facts_add_blocks(e->facts, e->who, option, blocks, n);
}

static void add_inputs(const entry *e, int n_in, const qdr_edge *in)
{
    add_int(e, "n_in", n_in);
    for (int i = 0; i < n_in; i++) add_int(e, i ? "a further input edge" : "input edge", in[i]);
}

void qdri_describe_input(qdr_stack *stack, const char *name, const qdr_edge_desc *desc, int with_gradient)
{
    const entry e = begin(stack, "input", name);
    add_blocks(&e, "cols", desc->cols, QDR_MAX_BLOCKS);
    add_text(&e, "col_axis", desc->col_axis == QDR_X ? "QDR_X" : "QDR_Y");
    add_text(&e, "layout", layout_name(desc->layout));
    add_int(&e, "scatter_unit", or_one(desc->scatter_unit));
    add_int(&e, "with_gradient", with_gradient);
}

void qdri_describe_tokens(qdr_stack *stack, const char *name) { (void)begin(stack, "tokens", name); }

void qdri_describe_linear(qdr_stack *stack, const qdr_linear_desc *desc, qdr_edge in)
{
    static const char *const storages[] = {"QDR_STORAGE_AUTO", "QDR_OUT_IN", "QDR_IN_OUT"};
    const entry e = begin(stack, "layer", desc->name);
    add_blocks(&e, "in", desc->in, QDR_MAX_BLOCKS);
    add_blocks(&e, "out", desc->out, QDR_MAX_BLOCKS);
    add_int(&e, "bias", desc->bias != 0);
    add_int(&e, "transposed", desc->transposed != 0);
    add_text(&e, "out_layout", layout_name(desc->out_layout));
    add_int(&e, "out_row_unit", or_one(desc->out_row_unit));
    add_int(&e, "panels", desc->panels);
    add_int(&e, "drop_gathered", desc->drop_gathered != 0);
    add_text(&e, "storage", storages[desc->storage]); /* the net has checked it */
    add_text(&e, "product_type", product_type_name(desc->product_type));
    add_inputs(&e, 1, &in);
}

void qdri_describe_embedding(qdr_stack *stack, const qdr_embedding_desc *desc, qdr_edge tokens)
{
    const entry e = begin(stack, "embedding", desc->name);
    add_blocks(&e, "vocab", &desc->vocab, 1);
    add_blocks(&e, "features", &desc->features, 1);
    add_int(&e, "context", desc->context);
    add_text(&e, "layout", layout_name(desc->layout));
    add_inputs(&e, 1, &tokens);
}

void qdri_describe_tied_head(qdr_stack *stack, const char *name, int table, qdr_layout out_layout, qdr_edge in)
{
    const entry e = begin(stack, "tied head", name);
    add_text(&e, "table", stack->net.nodes[table].name);
    add_text(&e, "out_layout", layout_name(out_layout));
    add_inputs(&e, 1, &in);
}

void qdri_describe_norm(qdr_stack *stack, const char *name, double epsilon, qdr_edge in)
{
    const entry e = begin(stack, "layer norm", name);
    qdri_facts_add_real(e.facts, e.who, "epsilon", epsilon > 0 ? epsilon : 1e-5);
    add_inputs(&e, 1, &in);
}

void qdri_describe_attention(qdr_stack *stack, const char *name, int64_t head_size, int64_t context, qdr_edge in)
{
    const entry e = begin(stack, "attention", name);
    add_int(&e, "head_size", head_size);
    add_int(&e, "context", context);
    add_inputs(&e, 1, &in);
}

void qdri_describe_operation(qdr_stack *stack, const char *kind, const char *name, int n_in, const qdr_edge *in)
{
    const entry e = begin(stack, kind, name);
    add_inputs(&e, n_in, in);
}

/* Its cost and saved_bytes depend on this rank's rows, and functions have different addresses in each process. */
void qdri_describe_op(qdr_stack *stack, const qdr_op_desc *desc)
{
    const entry e = begin(stack, "operation", desc->name);
    add_inputs(&e, desc->n_in, desc->in);
    add_blocks(&e, "out", desc->out, QDR_MAX_BLOCKS);
}

/* ---- calls ---- */

void qdri_describe_backward(qdri_facts *facts, const qdr_stack *stack)
{
    qdri_facts_add_int(facts, "the last backward", "flags", stack->backward_flags);
    for (int i = 0; i < stack->net.n_nodes; i++) /* otherwise nothing reads it */
        if (stack->net.nodes[i].kind == QDRI_NODE_CROSS_ENTROPY)
            qdri_facts_add_real(facts, "the last backward", "loss_scale", stack->loss_scale);
    for (int i = 0; stack->layers_ran && i < stack->net.n_parameters; i++) {
        char who[WHO_BYTES];
        snprintf(who, sizeof who, "the last backward of %.120s", qdri_parameter_of(stack, i)->name);
        qdri_facts_add_int(facts, who, "flags", qdri_parameter_of(stack, i)->flags);
    }
    for (int i = 0; i < stack->net.n_parameters; i++) /* the backward of a single layer has flags of its own */
        if (qdri_parameter_of(stack, i)->deferred)
            qdri_facts_add(facts, "a gradient that lacks deferred sums", "", qdri_parameter_of(stack, i)->name);
}
