/* SPDX-License-Identifier: Apache-2.0 */
/* The values that rank 1 passes in test_same.c: one line for each member of each description and each argument. */
#ifndef TEST_DIST_SAME_CASES_H
#define TEST_DIST_SAME_CASES_H

/* name; what is passed; words of the sentence */
#define CASES(X)                                                                                                       \
    X(qdr_grid_opts, x, swap_axes(s), "grid")                                                                          \
    X(qdr_grid_opts, y, swap_axes(s), "grid")                                                                          \
    X(qdr_grid_opts, z, move_to(s, &s->grid.z), "grid")                                                                \
    X(qdr_grid_opts, d, move_to(s, &s->grid.d), "grid")                                                                \
    X(qdr_grid_opts, order, s->grid.order = "dzyx", "order dzyx")                                                      \
    X(qdr_matrix, n_rows, s->from.n_rows = s->to.n_rows = 32, "the source has n_rows 16 on rank 0 and 32")             \
    X(qdr_matrix, row_unit, s->to.row_unit = 4, "the target has row_unit 2 on rank 0 and 4 on rank 1")                 \
    X(qdr_matrix, cols, s->from.cols[0].unit = 1, "the source has cols 8/2 on rank 0 and 8/1")                         \
    X(qdr_matrix, spread, s->to.spread = QDR_SPREAD_ROOT, "the target has spread 0 on rank 0 and 2")                   \
    X(qdr_matrix, split_cols, s->from.split_cols = 0, "the source has split_cols 1 on rank 0 and 0")                   \
    X(qdr_matrix, col_axis, s->from.col_axis = QDR_Y, "the source has col_axis 0 on rank 0 and 1")                     \
    X(qdr_matrix, split_cells, s->from.split_cells = 0, "the source has split_cells 1 on rank 0 and 0")                \
    X(qdr_matrix, scatter_rows, s->to.scatter_rows = 0, "the target has scatter_rows 1 on rank 0 and 0")               \
    X(qdr_matrix, scatter_axis, s->from.scatter_axis = QDR_X, "the source has scatter_axis 1 on rank 0 and 0")         \
    X(qdr_matrix, scatter_unit, s->to.scatter_unit = 2, "the target has scatter_unit 1 on rank 0 and 2")               \
    X(qdr_stack_opts, n_rows, s->stack.n_rows = 32, "qdr_stack_opts has n_rows 16 on rank 0 and 32 on rank 1")         \
    X(qdr_stack_opts, row_unit, s->stack.row_unit = 8, "qdr_stack_opts has row_unit 4 on rank 0 and 8 on rank 1")      \
    X(qdr_stack_opts, dtype, s->stack.dtype = QDR_BF16, "qdr_stack_opts has dtype f32 on rank 0 and bf16 on rank 1")   \
    X(qdr_stack_opts, overlap, s->stack.overlap = QDR_OVERLAP_NONE, "overlap 7 on rank 0 and 8 on rank 1")             \
    X(qdr_stack_opts, prefetch, s->stack.prefetch = 2, "qdr_stack_opts has prefetch 0 on rank 0 and 2 on rank 1")      \
    X(qdr_stack_opts, panels, s->stack.panels = 2, "qdr_stack_opts has panels 1 on rank 0 and 2 on rank 1")            \
    X(qdr_stack_opts, caller_memory, s->stack.caller_memory = 1, "caller_memory 0 on rank 0 and 1 on rank 1")          \
    X(qdr_stack_opts, caller_activations, s->stack.caller_activations = 1, "caller_activations 0 on rank 0 and 1")     \
    X(qdr_stack_opts, prefetch_bytes, s->stack.prefetch_bytes = 4096, "prefetch_bytes 0 on rank 0 and 4096")           \
    X(qdr_stack_opts, batch_parts, s->stack.batch_parts = 2, "batch_parts 0 on rank 0 and 2 on rank 1")                \
    X(qdr_stack_opts, product_type, s->stack.product_type = QDR_PRODUCT_FP8, "QDR_PRODUCT_FP8 on rank 1")              \
    X(qdr_stack_opts, codecs, s->without_codecs = 1, "qdr_stack_opts has codecs given on rank 0 and NULL on rank 1")   \
    X(qdr_codecs, of, s->codecs.of[QDR_D][3].kind = QDR_CODEC_INT8, "codec d.gradient raw on rank 0 and int8/128")     \
    X(qdr_codecs, least_bytes, s->codecs.least_bytes = 4, "codecs' least_bytes 0 on rank 0 and 4 on rank 1")           \
    X(qdr_codecs, inside, s->codecs.inside = 1, "codecs' inside 0 on rank 0 and 1 on rank 1")                          \
    X(qdr_edge_desc, cols, s->input.cols[0].unit = 1, "input 'a' has cols 8/2 on rank 0 and 8/1 on rank 1")            \
    X(qdr_edge_desc, col_axis, s->input.col_axis = QDR_Y, "input 'a' has col_axis QDR_X on rank 0 and QDR_Y")          \
    X(qdr_edge_desc, layout, s->input.layout = QDR_SCATTERED, "input 'a' has layout QDR_REPLICATED on rank 0")         \
    X(qdr_edge_desc, scatter_unit, s->input.scatter_unit = 2, "input 'a' has scatter_unit 1 on rank 0 and 2")          \
    X(qdr_embedding_desc, name, s->embedding.name = "e", "embedding 'emb' on rank 0 and embedding 'e' on rank 1")      \
    X(qdr_embedding_desc, vocab, s->embedding.vocab.unit = 1, "embedding 'emb' has vocab 16/2 on rank 0 and 16/1")     \
    X(qdr_embedding_desc, features, s->embedding.features.unit = 1, "features 8/2 on rank 0 and 8/1 on rank 1")        \
    X(qdr_embedding_desc, context, s->embedding.context = 2, "embedding 'emb' has context 4 on rank 0 and 2")          \
    X(qdr_embedding_desc, factor, s->embedding.factor = 2, "embedding 'emb' has factor 1 on rank 0 and 2")             \
    X(qdr_embedding_desc, layout, s->embedding.layout = QDR_SCATTERED, "embedding 'emb' has layout QDR_REPLICATED")    \
    X(qdr_linear_desc, name, s->linear.name = "fc2", "layer 'fc' on rank 0 and layer 'fc2' on rank 1")                 \
    X(qdr_linear_desc, out, s->linear.out[0].unit = 4, "layer 'fc' has out 16/2 on rank 0 and 16/4 on rank 1")         \
    X(qdr_linear_desc, bias, s->linear.bias = 0, "layer 'fc' has bias 1 on rank 0 and 0 on rank 1; describe the same") \
    X(qdr_linear_desc, transposed, s->linear.transposed = 1, "layer 'fc' has transposed 0 on rank 0 and 1 on rank 1")  \
    X(qdr_linear_desc, out_layout, s->linear.out_layout = QDR_SCATTERED, "layer 'fc' has out_layout QDR_REPLICATED")   \
    X(qdr_linear_desc, out_row_unit, s->linear.out_row_unit = 4, "layer 'fc' has out_row_unit 1 on rank 0 and 4")      \
    X(qdr_linear_desc, panels, s->linear.panels = 2, "layer 'fc' has panels 0 on rank 0 and 2 on rank 1")              \
    X(qdr_linear_desc, drop_gathered, s->linear.drop_gathered = 1, "layer 'fc' has drop_gathered 0 on rank 0 and 1")   \
    X(qdr_linear_desc, storage, s->linear.storage = QDR_IN_OUT, "QDR_STORAGE_AUTO on rank 0 and QDR_IN_OUT on rank 1") \
    X(qdr_linear_desc, product_type, s->linear.product_type = QDR_PRODUCT_FP8, "layer 'fc' has product_type QDR_")     \
    X(qdr_tied_head_desc, name, s->head_name = "top", "tied head 'head' on rank 0 and tied head 'top'")                \
    X(qdr_tied_head_desc, table, s->other_table = 1, "tied head 'head' has table emb2 on rank 0 and emb3")             \
    X(qdr_tied_head_desc, out_layout, s->head_layout = QDR_SCATTERED, "tied head 'head' has out_layout")               \
    X(qdr_norm_desc, name, s->norm.name = "n", "norm 'norm' on rank 0 and norm 'n' on rank 1")                         \
    X(qdr_norm_desc, epsilon, s->norm.epsilon = 0, "norm 'norm' has epsilon 0.001 on rank 0 and 1e-05 on rank 1")      \
    X(qdr_norm_desc, kind, s->norm.kind = QDR_NORM_LAYER, "norm 'norm' has kind 1 on rank 0 and 0 on rank 1")          \
    X(qdr_norm_desc, no_beta, s->norm.no_beta = 1, "norm 'norm' has no_beta 0 on rank 0 and 1 on rank 1")              \
    X(qdr_norm_desc, one_plus, s->norm.one_plus = 1, "norm 'norm' has one_plus 0 on rank 0 and 1 on rank 1")           \
    X(qdr_norm_desc, n_blocks, s->norm.n_blocks = 1, "norm 'norm' has n_blocks 0 on rank 0 and 1 on rank 1")           \
    X(qdr_attention_desc, name, s->attention.name = "at", "attention 'attention' on rank 0")                           \
    X(qdr_attention_desc, head_size, s->attention.head_size = 2; s->heads_in = 2, "head_size 4 on rank 0 and 2")       \
    X(qdr_attention_desc, scale, s->attention.scale = 0.25, "attention 'attention' has scale 0.5 on rank 0 and 0.25")  \
    X(qdr_attention_desc, cap, s->attention.cap = 2, "attention 'attention' has cap 0 on rank 0 and 2 on rank 1")      \
    X(qdr_attention_desc, window, s->attention.window = 3, "attention 'attention' has window 4 on rank 0 and 3")       \
    X(qdr_attention_desc, rotary_columns, s->attention.rotary_columns = 4, "has rotary_columns 2 on rank 0 and 4")     \
    X(qdr_attention_desc, interleaved, s->attention.interleaved = 1, "has interleaved 0 on rank 0 and 1 on rank 1")    \
    X(qdr_attention_desc, frequencies, s->attention.frequencies = angles + 1, "has frequency 1 on rank 0 and")         \
    X(qdr_attention_desc, magnitude, s->attention.magnitude = 2, "has magnitude 1 on rank 0 and 2 on rank 1")          \
    X(qdr_attention_desc, head_norm, s->attention.head_norm = 1, "has head_norm 0 on rank 0 and 1 on rank 1")          \
    X(qdr_attention_desc, one_plus, s->attention.one_plus = 1, "has one_plus 0 on rank 0 and 1 on rank 1")             \
    X(qdr_attention_desc, epsilon, s->attention.epsilon = 0.5, "has epsilon 1e-05 on rank 0 and 0.5 on rank 1")        \
    X(qdr_attention_desc, sinks, s->attention.sinks = 1, "attention 'attention' has sinks 0 on rank 0 and 1")          \
    X(qdr_attention_desc, first_keys, s->attention.first_keys = same_edges, "has first_keys -1 on rank 0 and 1")       \
    X(qdr_attention_desc, context, s->attention.context = 2, "attention 'attention' has context 4 on rank 0 and 2")    \
    X(qdr_activation_desc, name, s->activation.name = "silu", "activation 'act' on rank 0 and activation 'silu'")      \
    X(qdr_activation_desc, function, s->activation.function = QDR_SILU, "'act' has function 0 on rank 0 and 2")        \
    X(qdr_activation_desc, gated, s->activation.gated = 1, "activation 'act' has gated 0 on rank 0 and 1 on rank 1")   \
    X(qdr_residual_desc, name, s->residual.name = "s", "residual 'scaled' on rank 0 and residual 's'")                 \
    X(qdr_residual_desc, factor, s->residual.factor = 0.5, "residual 'scaled' has factor 1 on rank 0 and 0.5")         \
    X(qdr_cross_entropy_desc, name, s->capped.name = "c", "cross-entropy 'capped' on rank 0 and cross-entropy 'c'")    \
    X(qdr_cross_entropy_desc, factor, s->capped.factor = 2, "cross-entropy 'capped' has factor 1 on rank 0 and 2")     \
    X(qdr_cross_entropy_desc, cap, s->capped.cap = 5, "cross-entropy 'capped' has cap 0 on rank 0 and 5")              \
    X(qdr_op_desc, name, s->op.name = "op2", "operation 'op' on rank 0 and operation 'op2' on rank 1")                 \
    X(qdr_op_desc, n_in, s->op.n_in = 2, "operation 'op' has n_in 1 on rank 0 and 2 on rank 1")                        \
    X(qdr_op_desc, in, s->op_in = 1, "operation 'op' has input edge 3 on rank 0 and 4 on rank 1")                      \
    X(qdr_op_desc, out, s->op.out[0] = ((qdr_block){16, 2}), "operation 'op' has out none on rank 0 and 16/2")         \
    X(qdr_adamw_opts, beta1, s->adamw.beta1 = 0.5, "qdr_adamw_opts has beta1 0.9 on rank 0 and 0.5 on rank 1")         \
    X(qdr_adamw_opts, beta2, s->adamw.beta2 = 0.5, "qdr_adamw_opts has beta2 0.95 on rank 0 and 0.5 on rank 1")        \
    X(qdr_adamw_opts, epsilon, s->adamw.epsilon = 1e-6, "qdr_adamw_opts has epsilon 1e-08 on rank 0 and 1e-06")        \
    X(qdr_adamw_opts, weight_decay, s->adamw.weight_decay = 0.5, "weight_decay 0 on rank 0 and 0.5 on rank 1")         \
    X(qdr_adamw_opts, clip_norm, s->adamw.clip_norm = 2, "qdr_adamw_opts has clip_norm 0 on rank 0 and 2 on rank 1")   \
    X(qdr_adamw_opts, grad_scale, s->adamw.grad_scale = 2, "qdr_adamw_opts has grad_scale 1 on rank 0 and 2")          \
    X(qdr_adamw_opts, decay_positions, s->adamw.decay_positions = 1, "decay_positions 0 on rank 0 and 1 on rank 1")    \
    X(qdr_checkpoint_opts, note, s->save.note = SAME_NOTE "0.2}",                                                      \
      "qdr_checkpoint_save has a note with, from byte 64 on, '0.1}' on rank 0 and '0.2}' on rank 1")                   \
    X(qdr_checkpoint_opts, background, s->save.background = 1, "background 0 on rank 0 and 1 on rank 1")               \
    X(qdr_checkpoint_opts, keep, s->save.keep = 1, "qdr_checkpoint_save has keep 0 on rank 0 and 1 on rank 1")         \
    X(qdr_checkpoint_load_opts, first_rows, s->load.first_rows = "fc.weight",                                          \
      "qdr_checkpoint_load has first_rows none on rank 0 and fc.weight on rank 1")

/* function, parameter; what is passed; words; only with QDR_CHECK=1 */
#define CALLS(X)                                                                                                       \
    X(qdr_redistribute, dtype, s->moved = QDR_I32, "the call has dtype f32 on rank 0 and i32 on rank 1", 0)            \
    X(qdr_stack_add_input, name, s->input_name = "a2", "input 'a' on rank 0 and input 'a2' on rank 1", 0)              \
    X(qdr_stack_add_input, with_gradient, s->with_gradient = 1, "input 'a' has with_gradient 0 on rank 0 and 1", 0)    \
    X(qdr_stack_add_tokens, name, s->tokens_name = "t9", "entry 1 of the description is tokens 't' on rank 0", 0)      \
    X(qdr_stack_add_linear, in, s->linear_in = 1, "layer 'fc' has input edge 3 on rank 0 and 4 on rank 1", 0)          \
    X(qdr_stack_add_embedding, tokens, s->tokens = 1, "embedding 'emb' has input edge 0 on rank 0 and 1", 0)           \
    X(qdr_stack_add_tied_head, in, s->head_in = 1, "tied head 'head' has input edge 3 on rank 0 and 4", 0)             \
    X(qdr_stack_add_norm, in, s->norm_in = 1, "norm 'norm' has input edge 3 on rank 0 and 4 on rank 1", 0)             \
    X(qdr_stack_add_attention, in, s->heads_in = 1, "attention 'attention' has input edge 6 on rank 0 and 7", 0)       \
    X(qdr_stack_add_activation, in, s->activation_in = 1, "activation 'act' has input edge", 0)                        \
    X(qdr_stack_add_gelu, name, s->gelu_name = "act", "activation 'gelu' on rank 0 and activation 'act'", 0)           \
    X(qdr_stack_add_gelu, in, s->gelu_in = 1, "activation 'gelu' has input edge 3 on rank 0 and 4", 0)                 \
    X(qdr_stack_add_gelu, one_more, s->gelu_twice = 1, "is residual 'sum' on rank 0 and activation 'twice'", 0)        \
    X(qdr_stack_add_gelu, one_more_at_the_end, s->more = 1, "is nothing on rank 0 and activation 'more'", 0)           \
    X(qdr_stack_add_residual, name, s->residual_name = "r", "residual 'sum' on rank 0 and residual 'r'", 0)            \
    X(qdr_stack_add_residual, a, s->residual_a = 1, "residual 'sum' has input edge 3 on rank 0 and 4 on rank 1", 0)    \
    X(qdr_stack_add_residual, b, s->residual_b = 1, "residual 'sum' has a further input edge 3 on rank 0 and 4", 0)    \
    X(qdr_stack_add_residual_with, a, s->scaled_a = 1, "residual 'scaled' has input edge 3 on rank 0 and 4", 0)        \
    X(qdr_stack_add_residual_with, b, s->scaled_b = 1, "residual 'scaled' has a further input edge 3 on rank 0", 0)    \
    X(qdr_stack_add_cross_entropy_with, logits, s->capped_logits = 1, "cross-entropy 'capped' has input edge", 0)      \
    X(qdr_stack_add_cross_entropy, name, s->ce_name = "ce", "cross-entropy 'loss' on rank 0", 0)                       \
    X(qdr_stack_add_cross_entropy, logits, s->logits = 1, "cross-entropy 'loss' has input edge", 0)                    \
    X(qdr_stack_set_codecs, codecs, s->later_inside = 1, "set codecs has codecs' inside 0 on rank 0 and 1", 0)         \
    X(qdr_stack_init, seed, s->seed = 9, "qdr_stack_init has seed 1 on rank 0 and 9 on rank 1; pass the same", 0)      \
    X(qdr_stack_init, stddev, s->stddev = 1, "qdr_stack_init has stddev 0.5 on rank 0 and 1 on rank 1", 0)             \
    X(qdr_linear_init, seed, s->layer_seed = 9, "qdr_linear_init has seed 2 on rank 0 and 9 on rank 1", 0)             \
    X(qdr_linear_init, stddev, s->layer_stddev = 1, "qdr_linear_init has stddev 0.25 on rank 0 and 1 on rank 1", 0)    \
    X(qdr_stack_gather_parameter, index, s->index = 1, "qdr_stack_gather_parameter has index 0 on rank 0 and 1", 0)    \
    X(qdr_stack_gather_parameter, which, s->which = 1, "qdr_stack_gather_parameter has which 0 on rank 0 and 1", 0)    \
    X(qdr_stack_backward, flags, s->backward_flags = QDR_ACCUMULATE, "flags 0 on rank 0 and 1 on rank 1", 0)           \
    X(qdr_stack_backward, deferring, s->backward_flags = QDR_DEFER_SYNC, "flags 0 on rank 0 and 2 on rank 1", 0)       \
    X(qdr_stack_backward, loss_scale, s->loss_scale = 2, "loss_scale 1 on rank 0 and 2 on rank 1", 0)                  \
    X(qdr_stack_load_parameter, index, s->load_index = 1, "qdr_stack_load_parameter has index 0 on rank 0 and 1", 1)   \
    X(qdr_stack_load_parameter, full, s->loaded = 2, "fc.weight has a full value of digest", 1)                        \
    X(qdr_linear_forward, flags, s->forward_flags = QDR_Y_ACCUMULATE, "qdr_linear_forward has flags 0 on rank 0", 1)   \
    X(qdr_linear_backward, flags, s->linear_backward_flags = QDR_NO_DX, "qdr_linear_backward has flags 0", 1)          \
    X(qdr_linear_backward, adding, s->linear_backward_flags = QDR_ACCUMULATE, "flags 0 on rank 0 and 1 on rank 1", 0)  \
    X(qdr_adamw_step, lr, s->lr = 1, "the step has learning rate 0.125 on rank 0 and 1 on rank 1", 1)                  \
    X(qdr_adamw_set_rate, lr, s->set_lr = 1, "the step has learning rate 0.25 on rank 0 and 1 on rank 1", 1)           \
    X(qdr_adamw_backward, flags, s->joined_flags = QDR_ACCUMULATE, "backward has flags 0 on rank 0 and 1 on rank 1",   \
      1)                                                                                                               \
    X(qdr_adamw_backward, loss_scale, s->joined_scale = 2, "has loss_scale 1 on rank 0 and 2 on rank 1", 1)            \
    X(qdr_checkpoint_save, path, s->other_path = 1, "qdr_checkpoint_save has path /tmp/quadrille_same_", 0)

/* What no member and no number says. */
#define EXCUSES(X)                                                                                                     \
    X("*.size", "where it is wrong, the rank that passes it is told")                                                  \
    X("qdr_linear_desc.in", "it is that of the input edge, or refused; and that is compared")                          \
    X("qdr_op_desc.saved_bytes", "it is that of this rank's rows")                                                     \
    X("qdr_op_desc.forward_flops", "it is that of this rank's rows")                                                   \
    X("qdr_op_desc.backward_flops", "it is that of this rank's rows")                                                  \
    X("qdr_op_desc.forward_bytes", "it is that of this rank's rows")                                                   \
    X("qdr_op_desc.backward_bytes", "it is that of this rank's rows")                                                  \
    X("qdr_op_desc.forward", "functions lie elsewhere in each process")                                                \
    X("qdr_op_desc.backward", "functions lie elsewhere in each process")                                               \
    X("qdr_op_desc.user", "it is the rank's own")                                                                      \
    X("qdr_context_opts.n_threads", "ranks may have other numbers of cores")                                           \
    X("qdr_context_opts.machine", "rank 0's applies")                                                                  \
    X("qdr_context_opts.device", "each rank has a GPU of its own; kinds are compared when the context is made")        \
    X("qdr_stack_memory.*", "memory is the rank's own")                                                                \
    X("qdr_grid_opts.gradient_parts", "one rank along z and d has no choice; see test_grid.c")                         \
    X("qdr_grid_opts.optimizer_parts", "one rank along z and d has no choice; see test_grid.c")                        \
    X("qdr_topo_opts.*", "no ranks")                                                                                   \
    X("qdr_sample.*", "no ranks")                                                                                      \
    X("qdr_machine.*", "no ranks; qdr_plan_auto() takes rank 0's")                                                     \
    X("qdr_network.*", "no ranks, or the nodes that come of it are compared; qdr_plan_auto() takes rank 0's")          \
    X("qdr_network_parameter.*", "the library gives it")                                                               \
    X("qdr_network_desc.*", "the nodes that come of it are compared")                                                  \
    X("qdr_stack_add_network(in)", "it is the input of the first node, which is compared")                             \
    X("qdr_topo.*", "no ranks; the library makes it")                                                                  \
    X("qdr_plan.*", "no ranks; what comes of it, grid and stack, is compared")                                         \
    X("qdr_search_opts.*", "no ranks; qdr_plan_auto() takes rank 0's")                                                 \
    X("qdr_stored_plan.*", "no ranks; what comes of it, grid and stack, is compared")

/* All ranks of x and y on another axis. */
static void move_to(subject *s, int *axis)
{
    *axis = s->grid.x * s->grid.y;
    s->grid.x = s->grid.y = 1;
}

/* All ranks on y, or on x where that is how it was. */
static void swap_axes(subject *s)
{
    const int p = s->grid.x * s->grid.y;
    s->grid.x = s->grid.x == 1 ? p : 1;
    s->grid.y = p / s->grid.x;
}

#define MEMBER_FUNCTION(type, member, statement, words)                                                                \
    static void vary_##type##_##member(subject *s) { statement; }
#define CALL_FUNCTION(function, parameter, statement, words, checked)                                                  \
    static void pass_##function##_##parameter(subject *s) { statement; }
CASES(MEMBER_FUNCTION)
CALLS(CALL_FUNCTION)

#define MEMBER_CASE(type, member, statement, words) {#type "." #member, vary_##type##_##member, words, 0},
#define CALL_CASE(function, parameter, statement, words, checked)                                                      \
    {#function "(" #parameter ")", pass_##function##_##parameter, words, checked},
static const variation variations[] = {CASES(MEMBER_CASE) CALLS(CALL_CASE)};

#define EXCUSE(what, why) {what, why},
static const struct {
    const char *what, *why;
} excuses[] = {EXCUSES(EXCUSE)};

enum { N_VARIATIONS = sizeof variations / sizeof *variations, N_EXCUSES = sizeof excuses / sizeof *excuses };

#endif
