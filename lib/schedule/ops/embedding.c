/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding of tokens and positions: a transposed layer whose input is one-hot. */
#include <math.h>

#include "core/block.h"
#include "schedule/ops/layer.h"

static qdr_status check_embedding(const qdri_net *net, const qdr_embedding_desc *desc, const char *who, qdr_edge tokens)
{
    const qdr_block vocab[QDR_MAX_BLOCKS] = {desc->vocab}, features[QDR_MAX_BLOCKS] = {desc->features};
    QDR_TRY(qdri_check_layout(desc->layout, who));
    QDR_TRY(qdri_blocks_check(vocab, who));
    QDR_TRY(qdri_blocks_check(features, who));
    QDR_TRY(qdri_op_check_tokens(net, who, tokens, "tokens"));
    if (desc->context < 0 || (desc->context && net->opts.row_unit % desc->context))
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: context %" PRId64 " does not divide the stack's row_unit %" PRId64, who,
                        desc->context, net->opts.row_unit);
    return QDR_OK;
}

/* To nearest even; no exponent is out of reach of what multiplies an embedding. */
static double rounded(double factor, qdr_dtype dtype)
{
    const int bits = dtype == QDR_BF16 ? 8 : dtype == QDR_F16 ? 11 : dtype == QDR_F32 ? 24 : 53;
    int exponent;
    const double fraction = frexp(factor, &exponent);
    return ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

static qdr_status add(qdri_net *net, const qdri_node_desc *described, qdr_edge *out)
{
    const qdr_embedding_desc *desc = &described->u.embedding;
    const char *who = described->name;
    const qdr_edge tokens = described->in[0];
    const qdr_block vocab[QDR_MAX_BLOCKS] = {desc->vocab}, features[QDR_MAX_BLOCKS] = {desc->features};
    const qdr_block positions[QDR_MAX_BLOCKS] = {{desc->context, 1}};
    const int64_t unit = desc->vocab.unit ? desc->vocab.unit : 1;
    qdri_node *node = NULL;
    QDR_TRY(check_embedding(net, desc, who, tokens));
    QDR_TRY(qdri_op_check_factor(who, desc->factor));
    QDR_TRY(qdri_check_switch(who, "round_factor", desc->round_factor));
    QDR_TRY(qdri_layer_node_add(net, who, QDRI_NODE_EMBEDDING, &node));
    qdri_layer *layer = &node->layer;
    const qdr_matrix matrix = qdri_edge_matrix(net, features, QDR_X, desc->layout, 1);
    QDR_TRY(qdri_weight_add(net, vocab, features, QDR_Y, QDR_X, &layer->weight));
    if (desc->context)
        QDR_TRY(qdri_parameter_add(net,
                                   &(qdri_parameter_desc){.what = "positions",
                                                          .rows = positions,
                                                          .cols = features,
                                                          .col_split = 1 + QDR_X,
                                                          .extra_sums = matrix.scatter_rows ? 1 << QDR_Y : 0},
                                   &layer->bias));
    QDR_TRY(qdri_edge_add(net, who, &matrix, net->opts.dtype, out));
    qdri_layer_connect(net, node, QDR_Y, tokens, *out);
    int64_t vocab_end;
    qdri_split(desc->vocab.width, unit, net->position.size[QDR_Y], net->position.coordinate[QDR_Y],
               &layer->shape.vocab_begin, &vocab_end);
    layer->shape.vocab = desc->vocab.width;
    layer->shape.k = vocab_end - layer->shape.vocab_begin; /* rows of E's block; its columns are the outputs */
    layer->shape.context = desc->context;
    layer->shape.factor = desc->round_factor ? rounded(desc->factor, net->opts.dtype) : desc->factor;
    return QDR_OK;
}

static void describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    (void)net;
    qdri_facts_add_blocks(facts, who, "vocab", &desc->u.embedding.vocab, 1);
    qdri_facts_add_blocks(facts, who, "features", &desc->u.embedding.features, 1);
    qdri_facts_add_int(facts, who, "context", desc->u.embedding.context);
    qdri_facts_add_real(facts, who, "factor", desc->u.embedding.factor == 0 ? 1 : desc->u.embedding.factor);
    qdri_facts_add_int(facts, who, "round_factor", desc->u.embedding.round_factor);
    qdri_facts_add(facts, who, "layout", qdri_layout_name(desc->u.embedding.layout));
}

const qdri_op qdri_embedding_op = {.name = "embedding", .n_in = 1, .add = add, .describe = describe};
