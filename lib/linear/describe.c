/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions as facts. */
#include "linear/describe.h"

#include <stdio.h>

#include "core/block.h"
#include "core/codec.h"
#include "core/order.h"

enum { WHO_BYTES = 160 };

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
    qdri_facts_add_int(facts, who, "recompute", (int)opts->recompute);
    qdri_facts_add_int(facts, who, "recompute_every", opts->recompute_every > 1 ? opts->recompute_every : 1);
    qdri_facts_add(facts, who, "product_type",
                   qdri_product_type_name(opts->product_type ? opts->product_type : QDR_PRODUCT_AS_STORED));
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

void qdri_describe_input(qdr_stack *stack, const char *name, const qdr_edge_desc *desc, int with_gradient)
{
    const entry e = begin(stack, "input", name);
    qdri_facts_add_blocks(e.facts, e.who, "cols", desc->cols, QDR_MAX_BLOCKS);
    qdri_facts_add(e.facts, e.who, "col_axis", desc->col_axis == QDR_X ? "QDR_X" : "QDR_Y");
    qdri_facts_add(e.facts, e.who, "layout", qdri_layout_name(desc->layout));
    qdri_facts_add_int(e.facts, e.who, "scatter_unit", or_one(desc->scatter_unit));
    qdri_facts_add_int(e.facts, e.who, "with_gradient", with_gradient);
}

void qdri_describe_tokens(qdr_stack *stack, const char *name) { (void)begin(stack, "tokens", name); }

void qdri_describe_node(qdr_stack *stack, const qdri_node_desc *desc)
{
    const entry e = begin(stack, qdri_node_kind_name(desc), desc->name);
    qdri_node_describe(e.facts, e.who, &stack->net, desc);
    qdri_facts_add_int(e.facts, e.who, "segment", stack->net.segment);
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
