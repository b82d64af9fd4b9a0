/* SPDX-License-Identifier: Apache-2.0 */
/** @file stack.h  The stack: layers and operations in execution order, the edges between them, and their schedule.
 *
 * A stack is described first (qdr_stack_add_*), then built: qdr_stack_build() turns the description into lists of
 * tasks (the schedules of forward and backward), from which all sizes are known exactly, and binds memory. Edges carry
 * activations: each has a value and (except inputs) a gradient. All values are kept until the backward has used them. A
 * node reads edges added before it. All functions are collective over the grid and called in the same order on all
 * ranks, by one thread per stack at a time. Adding does not wait for other ranks: an allocation may fail on one of them
 * alone, so pass the status of the description to qdr_agree() before building.
 *
 * All ranks must describe the same stack. They compare their arguments outside of steps: qdr_stack_create() compares
 * the grid and the options, qdr_stack_build() each entry of the description in order (names, blocks, edges, options),
 * initialisation its seed and deviation, gathering its parameter. If a rank passes something else, all ranks fail with
 * QDR_ERR_ARGUMENT, and the sentence names the entry, the option, two ranks and both values. Not compared,
 * because they may differ: the functions and `user` of an operation, its saved_bytes and cost, and memory. The
 * arguments of a step (flags, loss_scale, the layer; the rate of an optimizer) are compared only with QDR_CHECK=1
 * (context.h), by each call, which then waits for all ranks; without it, the flags and loss_scale of the last backward,
 * of the stack or of single layers, are compared by the functions that read its gradients:
 * qdr_stack_gather_parameter() and qdr_grad_norm(). */
#ifndef QUADRILLE_STACK_H
#define QUADRILLE_STACK_H

#include <stdio.h>

#include "codec.h"
#include "operations.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What may overlap with the products: all of it by default. Without a flag the same tasks run one after another. The
 * results are the same, bit for bit. */
enum {
    QDR_OVERLAP_WEIGHTS = 1, /**< all-gathers of W, ahead of the layer */
    QDR_OVERLAP_ROWS =
        2, /**< reductions and gathers of activations, including the reduction of dX during the dW product */
    QDR_OVERLAP_GRADIENTS = 4, /**< reduce-scatter of dW over z and its sum over d, during later backward work */
    QDR_OVERLAP_ALL = 7,
    QDR_OVERLAP_NONE = 8 /**< none of them (a zero means all) */
};

/** The precision in which the products of a linear layer are computed. */
typedef enum qdr_product_type {
    QDR_PRODUCT_DEFAULT = 0, /**< for a layer: the stack's setting; for a stack: QDR_PRODUCT_AS_STORED */
    QDR_PRODUCT_AS_STORED = 1,
    QDR_PRODUCT_FP8 = 2 /**< operands are rounded to 8 bits first: X and W to E4M3, dY to E5M2. Each is first multiplied
                           by a power of two that brings its largest element just below the largest number of the
                           format; the scale is divided out of the sums, which are fp32. Everything else, communication
                           included, stays in the type of the stack: BF16 or F32. The bits depend on panels, parts and
                           grid, since each operand of each product has its own scale. GPUs need compute capability 8.9
                           (Ada) or later, and memory for both rounded operands of the largest product
                           (qdr_stack_sizes.device). QDR_TUNE skips such layers, and models price them as stored */
} qdr_product_type;

/** What the backward pass computes again instead of keeping it. Results are the same, bit for bit; panels and parts
 * that a stack chooses do not depend on it. Where a GPU fuses GELU with the product before it, what is computed again
 * is rounded otherwise. */
typedef enum qdr_recompute {
    QDR_RECOMPUTE_NONE = 0,
    QDR_RECOMPUTE_ATTENTION = 1, /**< scores and softmax only ("selective"), for predictions of other software; of a
                                    stack: nothing, as its attention computes them again anyway */
    QDR_RECOMPUTE_FULL = 2, /**< all of a segment (qdr_stack_begin_segment(), or layers of qdr_stack_add_network()) that
                               its backward needs, from what enters it */
    QDR_RECOMPUTE_OPERATIONS = 3, /**< norms, from statistics that are kept, and activation functions */
    QDR_RECOMPUTE_LAYERS = 4 /**< all of each layer, as other software does it, for predictions; of a stack: as FULL */
} qdr_recompute;

typedef struct qdr_stack_opts {
    size_t size; /**< QDR_INIT(qdr_stack_opts) */
    int64_t n_rows; /**< M: global rows of one forward call, over all ranks; ≥ 0 */
    int64_t row_unit; /**< rows that are never separated by the splits over d and z (the context length); must divide
                         n_rows; 0: 1 */
    qdr_dtype dtype; /**< of parameters and activations: F32, F64, BF16 or F16. Parameter gradients are F64 for F64,
                        else F32 */
    int overlap; /**< sum of QDR_OVERLAP_…; 0: all */
    int prefetch; /**< number of layers whose W is gathered ahead; 0: as many as fit in prefetch_bytes */
    int panels; /**< row panels of a product whose rows are gathered or whose result is summed across ranks: one panel
                   is communicated while the next is computed; 1: no panels; 0: one number for the stack, chosen by
                   predicted time; more than there are rows: one per row. Bits may depend on it */
    int caller_memory; /**< 1: the caller binds memory with qdr_stack_bind() after qdr_stack_build() */
    size_t prefetch_bytes; /**< memory on each rank for gathered weights: the one in use and those gathered ahead, each
                              as large as the largest. If it is 0, or too small for two, one is gathered ahead */
    int batch_parts; /**< number of parts, each of whole row_units, into which each rank's rows are divided. The parts
                        pass through the whole stack one after another, so that the sums of one over x or y overlap with
                        the products of the next; 1: one part; 0: one or two, by predicted time; at most 16. There is
                        one part if neither x nor y has several ranks, or if the rows of an edge are scattered, and one
                        per unit if there are fewer units than parts. Callers' operations, and attention that gathers
                        key heads, take all parts at once. Bits may depend on it */
    qdr_product_type product_type; /**< of linear layers that do not set their own; heads tied to an embedding compute
                                      as stored */
    int caller_activations; /**< 1: x, y, dx and dy are the caller's, passed with each call of qdr_linear_forward() and
                               qdr_linear_backward(): the stack allocates no memory for its edges, and cannot run as a
                               whole */
    const qdr_codecs *codecs; /**< how collectives between nodes shorten their messages (codec.h), copied; NULL: what
                                 the environment variable QDR_CODEC of rank 0 says, such as "hybrid", or nothing. Which
                                 are coded is settled when the stack is built: gathers of W, sums of gradients of W, and
                                 gathers and sums of activations and of their gradients as a whole, not of small
                                 parameters, statistics and keys. F64 is never coded: codecs given here
                                 are refused, and the variable is ignored */
    qdr_recompute recompute;
    int recompute_every; /**< of FULL: layers of a network that make one segment; 0: 1. Of a segment only what enters it
                            is kept, so more layers keep less, but need more while a segment is repeated */
} qdr_stack_opts;

/** Makes an empty stack. Collective, agrees.
 *  @retval QDR_ERR_ARGUMENT  also where ranks pass other options, or other grids
 *  @retval QDR_ERR_SHAPE  n_rows < 0 or row_unit does not divide it
 *  @retval QDR_ERR_DTYPE, QDR_ERR_MEMORY
 *  @retval QDR_ERR_ARGUMENT, QDR_ERR_UNSUPPORTED  also codecs that qdr_codecs_parse() would refuse, for F64, or that
 *                                                 this library or device lacks */
QDR_API QDR_NODISCARD qdr_status qdr_stack_create(qdr_grid *grid, const qdr_stack_opts *opts, qdr_stack **stack);
/** Waits for the work on the library's streams, destroys the stack, its layers and everything it owns, and sets *stack
 * to NULL. If its work was enqueued on streams of the caller's, the caller must synchronize those first. NULL is
 * allowed. Collective. May be called before or after its grid and its optimizers are destroyed: these keep it (see
 * qdr_context_destroy()). */
QDR_API void qdr_stack_destroy(qdr_stack **stack);

/** The grid the stack was created on, and the type of its parameters and activations. Local. For a NULL stack: NULL and
 * F32. */
QDR_API qdr_grid *qdr_stack_grid(const qdr_stack *stack);
QDR_API qdr_dtype qdr_stack_dtype(const qdr_stack *stack);

/** How an edge is laid out: a normal layer reads edges split over x and makes edges split over y. */
typedef struct qdr_edge_desc {
    size_t size; /**< QDR_INIT(qdr_edge_desc) */
    qdr_block cols[QDR_MAX_BLOCKS];
    qdr_axis col_axis; /**< QDR_X or QDR_Y: the axis that splits the columns; rows are replicated or scattered over the
                          other */
    qdr_layout layout; /**< rows on that other axis */
    int64_t scatter_unit; /**< rows that stay together when scattered; must divide row_unit; 0: 1 */
} qdr_edge_desc;

/** Adds an activation of the stack's type that the caller fills before each forward. with_gradient = 1: backward also
 * computes its gradient. */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_input(qdr_stack *stack, const char *name, const qdr_edge_desc *desc,
                                                     int with_gradient, qdr_edge *edge);
/** Adds a column of I32 (tokens) for all rows of the (z, d) cell, equal on its ranks and filled by the caller. For a
 * token < 0 an embedding gives zeros, plus the position; a token outside its vocabulary is an asynchronous error
 * (qdr_context_status()): QDR_ERR_ARGUMENT with the row on this rank, the token and the vocabulary. */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_tokens(qdr_stack *stack, const char *name, qdr_edge *edge);

/** How a rank's block of W[n, k] and of its gradient is stored: row-major as on one process, or transposed. This
 * decides how the products read it: Y = X·Wᵀ is NT and dX = dY·W is NN; with a transposed block they are NN and NT.
 * Full values (loaded, gathered or initial) are always [N, K].
 *
 * A layer that does not set it gets [out, in], unless the environment variable QDR_TUNE of rank 0 names a file. Then
 * qdr_stack_build() uses the file's entry for products of this layer's size, on this machine, with as many threads. If
 * there is none, all ranks time the products at the same time, in temporary memory: medians of five rounds, or of as
 * many as fit in a tenth of a second, on the slowest rank. [out, in] is kept unless the other is at least 5 % faster,
 * twice. The choice is added to the file. Products of fewer than 10⁷ flops are not timed. All ranks make the same
 * choices; the same file gives the same choices again, and so the same bits. On a GPU each product is timed with each
 * of the algorithms that cuBLASLt offers, and the fastest is used and recorded in the file; without a file it is
 * cuBLASLt's first, which products with GELU or in fp8 always use. Unset, empty or "off": nothing is read or timed.
 * Embeddings and heads tied to them are [out, in]. */
typedef enum qdr_storage {
    QDR_STORAGE_AUTO = 0, /**< in a description: [out, in], or as chosen with QDR_TUNE */
    QDR_OUT_IN = 1, /**< [n, k] */
    QDR_IN_OUT = 2 /**< [k, n] */
} qdr_storage;

/** A linear layer. Normal: in-features over x, out-features over y; transposed: over y and x. */
typedef struct qdr_linear_desc {
    size_t size; /**< QDR_INIT(qdr_linear_desc) */
    const char *name; /**< in errors, schedules and traces; copied */
    qdr_block in[QDR_MAX_BLOCKS]; /**< blocks of the input's features, equal to the input edge's; their widths
                                     add up to K */
    qdr_block out[QDR_MAX_BLOCKS]; /**< blocks of the output's features, each split on its own; their widths add up to
                                      N */
    int bias; /**< 1: with b[N] */
    int transposed;
    qdr_layout out_layout; /**< of the output edge */
    int64_t out_row_unit; /**< scatter unit of the output edge; 0: 1. If a cell has fewer such units than the axis has
                             ranks, the edge becomes REPLICATED */
    int panels; /**< as in qdr_stack_opts; 0: the stack's setting */
    int drop_gathered; /**< 1: a gathered X is not kept for dW but gathered again (less memory, one all-gather more) */
    qdr_storage storage; /**< of W; callers that read shards themselves may fix it */
    qdr_product_type product_type; /**< of Y, dX and dW */
} qdr_linear_desc;
/** Adds a linear layer.
 *  @retval QDR_ERR_SHAPE  a unit does not divide its width, or blocks or axis differ from the input edge's; the stack
 *                         is unchanged */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_linear(qdr_stack *stack, const qdr_linear_desc *desc, qdr_edge in,
                                                      qdr_edge *out, qdr_linear **layer);

/** Token and position embedding, a transposed layer with a one-hot input: E[V, H] in the head's block, vocabulary over
 * y, features over x; positions P[context, H] over x. out = factor · E[token] + P[position]; a head that is tied to it
 * uses E itself. */
typedef struct qdr_embedding_desc {
    size_t size; /**< QDR_INIT(qdr_embedding_desc) */
    const char *name;
    qdr_block vocab; /**< V and its unit */
    qdr_block features; /**< H and its unit */
    int64_t context; /**< rows of P; 0: no positions; divides row_unit */
    qdr_layout layout; /**< of the output edge (features over x) */
    double factor; /**< of E; 0: 1 */
    int round_factor; /**< 1: to the stack's type first, as Gemma rounds sqrt(H) */
} qdr_embedding_desc;
/** The resulting `table` can be initialised, loaded and gathered like a layer (W is E), and tied to a head. */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_embedding(qdr_stack *stack, const qdr_embedding_desc *desc,
                                                         qdr_edge tokens, qdr_edge *out, qdr_linear **table);
typedef struct qdr_tied_head_desc {
    size_t size; /**< QDR_INIT(qdr_tied_head_desc) */
    const char *name;
    qdr_linear *table; /**< of an embedding of the same stack */
    qdr_layout out_layout; /**< of the output edge */
} qdr_tied_head_desc;
/** Adds a normal layer without bias whose W is the embedding's E (W[V, H]): one parameter, one gradient. */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_tied_head(qdr_stack *stack, const qdr_tied_head_desc *desc, qdr_edge in,
                                                         qdr_edge *out);

typedef struct qdr_network_desc {
    size_t size; /**< QDR_INIT(qdr_network_desc) */
    int64_t context; /**< tokens of a sequence; divides row_unit */
    int64_t n_layers; /**< of the network's; 0: all */
    qdr_layout layout; /**< of all edges */
    double epsilon; /**< of norms; 0: the network's */
    int only_layers; /**< 1: without embedding, last norm, head and loss */
    int stand_ins; /**< 1: an activation that the library lacks is QDR_GELU_TANH, where only time matters */
    const qdr_edge *first_keys; /**< of each layer's attention, as in qdr_attention_desc; NULL: none */
    double z_loss; /**< as in qdr_cross_entropy_desc */
} qdr_network_desc;
/** Adds the nodes of a network, as a plan (plan.h) describes them: from an edge of tokens to the targets of the loss,
 * or with only_layers from an edge of `hidden` columns, split over x in `layout`, to another. Nodes are named
 * "embedding", "norm", "head", "loss", and of layer i from 0 on "blockI." with norm1, qkv, qk_norm, attention, proj,
 * after1, residual1, norm2, fc, gelu (of other functions act, or, gated, gate), fc2, after2, residual2, as far as the
 * network has them (after1, after2: norms of what is added). A gated fc has the gate first, then what it gates.
 *  @retval QDR_ERR_ARGUMENT     NULL, no size, n_layers < 0
 *  @retval QDR_ERR_UNSUPPORTED  the library lacks something, and stand_ins is 0: the sentence names it
 *  @retval QDR_ERR_SHAPE, QDR_ERR_MEMORY  as the functions above; nodes that were added before remain */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_network(qdr_stack *stack, const qdr_network *network,
                                                       const qdr_network_desc *desc, qdr_edge in, qdr_edge *out);

/** Begins a segment: what is added from here on, until another begins, or one ends. With QDR_RECOMPUTE_FULL only what
 * enters a segment is kept, with what norms save. Before its backward runs, what that reads is made again: products,
 * their collectives, operations, and callers' operations that allow it, in the order of the forward, with the same
 * panels and parts, and so with the same bits. What only later segments read, such as a segment's last product, is not.
 * Weights are gathered again, but those that are still there (prefetch_bytes). Layers of qdr_stack_add_network() are
 * segments without these calls; its ends are not. Without QDR_RECOMPUTE_FULL they do nothing. Local; call them on all
 * ranks, or building fails.
 *  @retval QDR_ERR_STATE  built already */
QDR_API QDR_NODISCARD qdr_status qdr_stack_begin_segment(qdr_stack *stack);
/** What is added from here on belongs to no segment: it is kept.
 *  @retval QDR_ERR_STATE  built already */
QDR_API QDR_NODISCARD qdr_status qdr_stack_end_segment(qdr_stack *stack);

/** The layer or embedding of this name, the first that was added. Local. @return NULL: there is none */
QDR_API qdr_linear *qdr_stack_find_layer(const qdr_stack *stack, const char *name);
/** The edge that the node of this name makes, the first that was added; of a loss, its targets. Local.
 *  @return -1: there is none */
QDR_API qdr_edge qdr_stack_find_edge(const qdr_stack *stack, const char *name);

/** Ends the description, chooses how each W is stored (qdr_storage), makes the schedules and, unless caller_memory,
 * allocates and binds memory. Collective, agrees.
 *  @retval QDR_ERR_MEMORY  the sentence states what the memory is for, how much was needed, and on a GPU how much is
 *                          free; after this the stack can only be destroyed
 *  @retval QDR_ERR_SHAPE, QDR_ERR_DTYPE  the parameters differ from those that the stack should share; the sentence
 *                                        names the first that does
 *  @retval QDR_ERR_ARGUMENT  QDR_RECOMPUTE_FULL, but nothing can be repeated; the stack can only be destroyed
 *  @retval QDR_ERR_DTYPE  panels or parts are to be chosen, and the machine that is named has no peak for the type
 *  @retval QDR_ERR_IO, QDR_ERR_ARGUMENT  QDR_TUNE's file could not be read or written, or is not one; the stack may be
 *                                        built again
 *  @retval QDR_ERR_ARGUMENT  ranks described different stacks; the stack can only be destroyed
 *  @retval QDR_ERR_ARGUMENT, QDR_ERR_UNSUPPORTED  QDR_CODEC names no codecs, or some that this library or device lacks;
 *                                                 the stack may be built again */
QDR_API QDR_NODISCARD qdr_status qdr_stack_build(qdr_stack *stack);

/** Sets other codecs for a stack that has its memory, between two steps, for example to train the first steps
 * uncompressed. NULL: none. Waits for the stack's work, sets its feedback to zero, and begins its measurements
 * (report.h) anew. Stacks that share its parameters keep their own codecs; steps that were recorded before (graph.h)
 * keep the codecs that they were recorded with. Collective, agrees, blocking; after an error the
 * stack has the codecs that it had.
 *  @retval QDR_ERR_STATE  the stack has no memory yet, or a step is being recorded; or a codec has feedback where the
 *                         stack was built with codecs without: build it with the ones that need the most memory
 *  @retval QDR_ERR_ARGUMENT, QDR_ERR_UNSUPPORTED, QDR_ERR_MEMORY  as qdr_stack_create(), of codecs; ranks differ */
QDR_API QDR_NODISCARD qdr_status qdr_stack_set_codecs(qdr_stack *stack, const qdr_codecs *codecs);
/** The codecs of a stack that is built: from its options, from QDR_CODEC, or set later. Local.
 *  @retval QDR_ERR_ARGUMENT, QDR_ERR_STATE  NULL, or it is not built */
QDR_API QDR_NODISCARD qdr_status qdr_stack_get_codecs(const qdr_stack *stack, qdr_codecs *codecs);

/** Lets `stack` use the parameters of `owner`, a stack that has its memory: to evaluate with another number of rows
 * while the owner trains. Call it while `stack` is being described; qdr_stack_build() then compares the two and copies
 * nothing. What the owner's optimizer, qdr_stack_load_parameter() or qdr_stack_init() has written is what the next
 * forward of `stack` reads: both run on the context's stream, in the order of the calls.
 *  - Both stacks have the same grid, the same type, and the same parameters: names, blocks and units, in the same
 *    order. Rows, layouts of edges, panels, overlap and prefetch may differ. A W of storage AUTO is stored as the
 *    owner's is.
 *  - `stack` runs forward only: it has no gradients, neither of parameters nor of activations. Its sizes count neither
 *    parameters nor gradients, and with caller_memory they stay NULL.
 *  - It reads the parameters and never writes them: initialise and load them with the owner. They can be gathered with
 *    either.
 *  - The two may be destroyed in either order: the owner's memory is freed with the last stack that uses it. Memory
 *    that the caller gave to the owner must outlive both.
 * Local; call it on all ranks, or building fails.
 *  @retval QDR_ERR_STATE     `stack` is built, or shares already; `owner` has no memory yet, or shares a third one's
 *  @retval QDR_ERR_ARGUMENT  NULL, or another grid */
QDR_API QDR_NODISCARD qdr_status qdr_stack_share_parameters(qdr_stack *stack, qdr_stack *owner);

/** Bytes of this rank's memory, exact; known after qdr_stack_build(). */
typedef struct qdr_stack_sizes {
    size_t size; /**< QDR_INIT(qdr_stack_sizes) */
    size_t parameters; /**< shards of weights, biases and norms, in the stack's type */
    size_t gradients; /**< of the same, F32 (F64 for F64) */
    size_t feedback; /**< of codecs with feedback: what messages of gradients have lost, kept from step to step, in
                        the gradients' scale: a step with another loss_scale adds it with the wrong weight */
    size_t activations; /**< values and saved state of the edges, kept from forward to backward */
    size_t workspace; /**< gathered weights, gradients of weights until they are summed, partial products, gradients of
                         activations */
    size_t communication; /**< staging of the communicators, always the library's own memory. Not counted: what MPI
                             ranks of one node share, see qdr_mem_usage(). The stacks of a grid share it; a second,
                             larger stack takes its own in addition to the first one's */
    size_t device; /**< the library's own: on a CPU the panels in which products convert BF16 and F16, or operands
                      rounded to fp8, and what each thread but the first needs for attention (of one head, whatever the
                      batch), shared by all stacks of a context; on a GPU the workspaces of the context's stream for
                      cuBLASLt and for sums, shared by all stacks, and this stack's largest operands in fp8 and largest
                      workspace of cuDNN's attention. Each further stream that runs layers on a GPU needs as much again.
                      A rank without rows needs none, and arrays of the caller's that are not aligned to 16 bytes may
                      need twice the memory in fp8 */
} qdr_stack_sizes;
QDR_API QDR_NODISCARD qdr_status qdr_stack_get_sizes(const qdr_stack *stack, qdr_stack_sizes *sizes);
/** Device memory of the caller's, aligned to 64 bytes and at least as large as qdr_stack_get_sizes() states. A NULL
 * member: the library allocates it. */
typedef struct qdr_stack_memory {
    size_t size; /**< QDR_INIT(qdr_stack_memory) */
    void *parameters, *gradients, *activations, *workspace, *feedback;
} qdr_stack_memory;
/** Gives the stack its memory, and sets parameters, gradients and feedback to zero. Collective, agrees; after an error
 * nothing is bound, and it may be called again. Stacks may have the same memory for activations and workspace, if none
 * runs between the forward and the backward of another; parameters, gradients and feedback are a stack's own until it
 * is destroyed.
 *  @retval QDR_ERR_MEMORY    too little for one of them; the sentence states which, how much it needs, and on a GPU how
 *                            much is free
 *  @retval QDR_ERR_ARGUMENT  memory that is not aligned; members that overlap; parameters or gradients that overlap
 *                            memory of another stack of the context, or other members that overlap that stack's
 *                            parameters or gradients; on a GPU memory of the host or another GPU
 *  @retval QDR_ERR_STATE     not built, or bound already */
QDR_API QDR_NODISCARD qdr_status qdr_stack_bind(qdr_stack *stack, const qdr_stack_memory *memory);

/** Layout and local memory of an edge. Values exist after binding; the value of an input may be written when the
 * streams are idle, or with qdr_copy() on the context's stream.
 *
 * A value that neither the backward reads nor the caller has memory only while a forward pass runs, where the stack can
 * run as a whole: what layers add to a residual stream, rows that a layer keeps as it has gathered them, what is made
 * again (qdr_recompute), and in a stack that only runs forward all but its inputs, its last edge and logits. */
QDR_API QDR_NODISCARD qdr_status qdr_stack_edge_matrix(const qdr_stack *stack, qdr_edge edge, qdr_matrix *matrix);
QDR_API QDR_NODISCARD qdr_status qdr_stack_edge_owned(const qdr_stack *stack, qdr_edge edge, qdr_owned *owned);
/** @retval QDR_ERR_STATE  not bound; or the value is one that does not last */
QDR_API QDR_NODISCARD qdr_status qdr_stack_edge_value(const qdr_stack *stack, qdr_edge edge, void **value);
/** Lets the value of an edge last until the next forward pass. Local; call it before the stack is built.
 *  @retval QDR_ERR_STATE  built already */
QDR_API QDR_NODISCARD qdr_status qdr_stack_keep_value(qdr_stack *stack, qdr_edge edge);
/** Gradient of an input that was added with_gradient, or of the stack's last edge (which the caller fills before
 * backward if the stack has no cross-entropy). */
QDR_API QDR_NODISCARD qdr_status qdr_stack_edge_gradient(const qdr_stack *stack, qdr_edge edge, void **gradient);

enum {
    QDR_ACCUMULATE = 1, /**< add to the gradients of parameters instead of overwriting them */
    QDR_DEFER_SYNC = 2 /**< leave out the sums over d (and of biases and norms over their copies): a later call does
                          them. With levels, sums over the near ranks of d are not left out */
};
/** Runs the whole stack forward on the context's stream. Stream-ordered. */
QDR_API QDR_NODISCARD qdr_status qdr_stack_forward(qdr_stack *stack);
/** Runs it backward. flags: 0 or a sum of QDR_ACCUMULATE, QDR_DEFER_SYNC. loss_scale multiplies the gradient of a
 * cross-entropy (1 / valid tokens of the whole step; finite); ignored without one. In F16, gradients of activations
 * below 2^-24 (6e-8) vanish: multiply loss_scale by a power of two, and let the optimizer divide it out
 * (qdr_adamw_opts.grad_scale). Stream-ordered. After calls with QDR_DEFER_SYNC, call it without the flag for the last
 * backward of a step: the gradients are complete when that has run.
 *  @retval QDR_ERR_STATE  no forward of the stack was run yet; or QDR_ACCUMULATE, but some gradients lack deferred sums
 *                         and others do not (layers were run one at a time). Nothing ran */
QDR_API QDR_NODISCARD qdr_status qdr_stack_backward(qdr_stack *stack, int flags, double loss_scale);
/** Sum of the losses of the last forward, and the number of valid rows, over all ranks. Collective, blocking; the same
 * on all ranks.
 *  @retval QDR_ERR_STATE  the stack has no cross-entropy, or no forward was run yet */
QDR_API QDR_NODISCARD qdr_status qdr_stack_loss(qdr_stack *stack, double *loss_sum, int64_t *n_valid);

/** Initial parameters: every W, E and P normal with mean 0 and deviation `stddev`, drawn per global index from a
 * counter-based generator, so that they do not depend on the grid; biases 0. Collective, blocking, agrees. No full
 * matrix is ever held. After an error, which all ranks get, values are undefined until they are set again, and what was
 * stale (qdr_parameter) stays so.
 *  @retval QDR_ERR_ARGUMENT  ranks pass another seed or deviation
 *  @retval QDR_ERR_MEMORY    too little for a shard on the host
 *  @retval QDR_ERR_STATE     not built, or without memory */
QDR_API QDR_NODISCARD qdr_status qdr_stack_init(qdr_stack *stack, uint64_t seed, double stddev);

/** One parameter of the stack on this rank, for optimizers and tests. A shard is one array; what follows its first
 * n_elems elements is padding; qdr_stack_parameter_runs() says which elements of the whole parameter it holds. */
typedef struct qdr_parameter {
    size_t size; /**< QDR_INIT(qdr_parameter) */
    const char *name; /**< "layer.weight", "layer.bias", "norm.gamma", … */
    void *data; /**< type of the stack */
    void *gradient; /**< F32, F64 for F64 */
    int64_t n_elems; /**< local elements that count */
    int64_t n_global; /**< elements of the whole parameter */
    int decay; /**< 1 for matrices: weight decay applies */
    int counted; /**< 1 on exactly one of the ranks (of one d) that hold a copy: sums over x, y, z count it once; with
                    levels, sums over x, y, z, d of the n_state elements on ranks of copy 0 */
    int deferred; /**< 1 while the gradient lacks sums that QDR_DEFER_SYNC left out; the same on all ranks */
    qdr_storage storage; /**< of data and gradient; AUTO: not known before qdr_stack_build() */
    int shared; /**< 1: it belongs to another stack (qdr_stack_share_parameters()), and gradient is NULL */
    int64_t n_rows, n_cols; /**< of the whole parameter: [N,K], [V,H], [context,H], and [1,n] of a vector */
    /* With levels (grid.h) an optimizer updates a part of a shard, and the library gathers the rest. Without them, and
     * for vectors and positions, these are all elements. */
    int64_t gradient_begin, n_gradient; /**< the elements of data to which `gradient` belongs, from its first on */
    int64_t state_begin, n_state; /**< the elements of data that this rank updates: those whose sum is complete, the
                                     gradient's from state_begin - gradient_begin on */
    int n_copies, copy; /**< number of ranks of d that update the same elements, and which of them this one is */
    int stale; /**< 1: other ranks have updated elements of data that this one does not update, and the next forward
                  that needs them will return them; the same on all ranks */
    float *feedback; /**< of codecs with feedback: what earlier messages of this rank's gradient have lost and the next
                        one adds, with padding; NULL: none. To go on exactly as before, save and restore it on the same
                        grid; zeros lose only what one message has lost */
    int64_t n_feedback; /**< its elements */
} qdr_parameter;
QDR_API int qdr_stack_n_parameters(const qdr_stack *stack);
QDR_API QDR_NODISCARD qdr_status qdr_stack_parameter(const qdr_stack *stack, int index, qdr_parameter *parameter);
/** Says that the caller, not an optimizer of this library, has enqueued an update of the n_state elements of every
 * parameter on the context's stream: what else a shard holds is then stale. Without levels it does nothing. Call it on
 * all ranks. Local.
 *  @retval QDR_ERR_STATE  the stack has no memory, or shares the parameters of another one */
QDR_API QDR_NODISCARD qdr_status qdr_stack_mark_updated(qdr_stack *stack);
/** Returns now what is stale; otherwise the next pass that needs it does: a whole forward returns everything, a layer
 * run alone its own W. For callers that read shards themselves. Collective, stream-ordered on the context's stream.
 *  @retval QDR_ERR_STATE  the stack has no memory */
QDR_API QDR_NODISCARD qdr_status qdr_stack_refresh(qdr_stack *stack);
/** A rectangle of a parameter that this rank stores: its element (i, j), 0 ≤ i < n_rows and 0 ≤ j < n_cols, is
 * data[offset + i·row_step + j·col_step], likewise of gradient, and [row + i, col + j] of the whole parameter. One
 * of the steps is 1: col_step where the storage is [out, in], row_step where it is [in, out]. No members will be added:
 * lists of it are passed. */
typedef struct qdr_parameter_run {
    int64_t offset; /**< elements */
    int64_t row, col;
    int64_t n_rows, n_cols; /**< ≥ 1 */
    int64_t row_step, col_step; /**< elements */
} qdr_parameter_run;
/** Runs of a shard, at most: four blocks by four of whole lines, and a piece of a line before and after them. */
#define QDR_MAX_PARAMETER_RUNS 24
/** The rectangles that make up this rank's shard: together its n_elems elements, each once. Over the ranks of one d
 * on which the parameter is `counted`, they cover the whole parameter, each element once. A rank may have none.
 * Local; known from qdr_stack_build() on.
 *  @param[out] n_runs  how many of `runs` there are
 *  @retval QDR_ERR_STATE     the stack is not built
 *  @retval QDR_ERR_ARGUMENT  NULL, or no such parameter */
QDR_API QDR_NODISCARD qdr_status qdr_stack_parameter_runs(const qdr_stack *stack, int index,
                                                          qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS], int *n_runs);
/** What is gathered of a parameter. */
typedef enum qdr_parameter_data { QDR_PARAMETER_VALUE = 0, QDR_PARAMETER_GRADIENT = 1 } qdr_parameter_data;
/** Gathers a parameter or its gradient as it is on one process: [N,K], [V,H], [context,H] or [n], in the type of the
 * data, to host memory `full` on every rank that passes non-NULL. Collective, blocking, agrees.
 *  @retval QDR_ERR_ARGUMENT  ranks pass another index or `which`, or for a gradient passed different arguments to the
 *                            last backward; `full` overlaps memory of the stack, or of one with the same parameters
 *  @retval QDR_ERR_STATE     the gradient lacks sums, as the last backward had QDR_DEFER_SYNC: it would differ between
 *                            ranks */
QDR_API QDR_NODISCARD qdr_status qdr_stack_gather_parameter(qdr_stack *stack, int index, qdr_parameter_data which,
                                                            void *full);
/** Sets a parameter from its full value in host memory, type of the stack. Blocking; each rank takes its part. Local,
 * but with QDR_CHECK=1 collective: ranks then compare the index and a digest of the value. After an error on any rank
 * the value is undefined until it is set again; passes can still run. It is not stale then, or with QDR_CHECK=1 stale
 * if it was before.
 *  @retval QDR_ERR_ARGUMENT  NULL, no such parameter; `full` overlaps memory of the stack, or of one with the same
 *                            parameters; with QDR_CHECK=1 ranks load something else
 *  @retval QDR_ERR_MEMORY    too little for a shard on the host
 *  @retval QDR_ERR_STATE     not built, without memory, or it shares the parameters of another stack */
QDR_API QDR_NODISCARD qdr_status qdr_stack_load_parameter(qdr_stack *stack, int index, const void *full);

/** The lists of tasks of a stack that runs as a whole. */
typedef enum qdr_list {
    QDR_LIST_FORWARD = 0,
    QDR_LIST_BACKWARD = 1,
    QDR_LIST_FIRST_FORWARD = 2, /**< of the first forward after a step, which with levels begins with returns */
    QDR_LIST_LOSS = 3 /**< of qdr_stack_loss(); only of a stack with a cross-entropy */
} qdr_list;
/** Writes a list as text, one task per line. Local.
 *  @retval QDR_ERR_ARGUMENT  NULL, or no such list */
QDR_API QDR_NODISCARD qdr_status qdr_stack_print(const qdr_stack *stack, qdr_list list, FILE *file);
/** Writes how each layer's W is stored, why, and what was measured, one layer per line. Local.
 *  @retval QDR_ERR_ARGUMENT  NULL */
QDR_API QDR_NODISCARD qdr_status qdr_stack_print_storage(const qdr_stack *stack, FILE *file);
/** What a list plans for this rank: the number of collectives and the bytes that they send. */
typedef struct qdr_planned {
    size_t size; /**< QDR_INIT(qdr_planned) */
    int64_t n_calls;
    int64_t bytes_sent;
} qdr_planned;
/** Of the collectives of a kind on a channel. Local.
 *  @param[out] planned       zeros after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, or no such list */
QDR_API QDR_NODISCARD qdr_status qdr_stack_planned(const qdr_stack *stack, qdr_list list, qdr_channel channel,
                                                   qdr_coll_kind kind, qdr_planned *planned);
/** Flops of products and operations of a list on this rank. Local. For a NULL stack, or no such list: 0. */
QDR_API double qdr_stack_flops(const qdr_stack *stack, qdr_list list);

#ifdef __cplusplus
}
#endif
#endif
