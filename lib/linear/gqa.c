/* SPDX-License-Identifier: Apache-2.0 */
/* Attention whose queries need key heads of other ranks: grouped queries on an axis with more ranks than key heads.
 * Keys and values are gathered over the axis, and the gradients of each head are summed over the ranks that used it. */
#include "linear/operations.h"

/* Keys and values of a head are stored together, the rows of the keys before those of the values. */
qdri_coll qdri_key_heads_coll(const qdr_attention *local, const qdri_key_heads *keys, qdr_coll_kind kind)
{
    const int64_t pair = 2 * local->n_rows * local->head_size;
    return (qdri_coll){
        .kind = kind, .dtype = local->dtype, .op = QDR_SUM, .count = keys->n_all * pair, .split_unit = pair ? pair : 1};
}

qdri_comm *qdri_key_heads_comm(const qdr_grid *grid, const qdri_key_heads *keys)
{
    return qdri_grid_comm(grid, (qdr_channel)((int)QDR_CHANNEL_X_STAT + (int)keys->axis));
}

/* One call, with its memory. */
typedef struct call {
    const qdri_op_run *run;
    const qdr_attention *local;
    const qdri_key_heads *keys;
    size_t row, head; /* bytes of a row of a head, and of all rows of a head */
    char *saved, *assembled, *work, *heads, *d_assembled, *own, *one;
} call;

static qdr_status open_call(const qdri_op_run *run, call *c)
{
    qdri_key_heads_bytes l;
    *c = (call){.run = run, .local = &run->node->u.attention.local, .keys = &run->node->u.attention.keys};
    QDR_TRY(qdri_key_heads_parts(c->local, c->keys, &l));
    c->row = (size_t)c->local->head_size * qdr_dtype_bytes(c->local->dtype);
    c->head = (size_t)c->local->n_rows * c->row;
    c->saved = qdri_stack_pointer(run->stack, run->node->saved);
    c->assembled = c->saved + l.kernel_saved;
    c->work = qdri_stack_pointer(run->stack, run->stack->net.op_work);
    c->heads = c->work + l.kernel_work;
    c->d_assembled = c->heads + l.heads;
    c->own = c->d_assembled + l.assembled;
    c->one = c->own + l.own;
    return QDR_OK;
}

/* Rows of a matrix: the address of the first, and the distance between rows. */
typedef struct rows {
    char *at;
    size_t stride;
} rows;

/* The columns of the heads from `first` on, in a matrix of n_heads queries, n_keys keys and n_keys values. */
static rows columns(const call *c, const void *matrix, int64_t n_keys, int64_t first)
{
    return (rows){(char *)(uintptr_t)matrix + (size_t)first * c->row,
                  (size_t)(c->local->n_heads + 2 * n_keys) * c->row};
}

/* Key head `number`, or its values, among all heads. */
static rows head_of(const call *c, char *heads, int64_t number, int is_value)
{
    return (rows){heads + (size_t)(2 * number + is_value) * c->head, c->row};
}

static qdr_status copy(const call *c, rows from, rows to, int64_t n_heads)
{
    qdri_kernel kernel = {.kind = QDRI_K_COPY_BLOCK, .dtype = QDR_U8};
    kernel.u.block.n_rows = c->local->n_rows;
    kernel.u.block.row_bytes = (size_t)n_heads * c->row;
    kernel.u.block.x = from.at;
    kernel.u.block.x_stride = from.stride;
    kernel.u.block.y = to.at;
    kernel.u.block.y_stride = to.stride;
    return qdri_kernel_run(c->run->stream, &kernel);
}

static qdr_status add(const call *c, rows from, rows to)
{
    qdri_kernel kernel = {.kind = QDRI_K_ADD, .dtype = c->local->dtype};
    const rows one = {c->one, c->row};
    QDR_TRY(copy(c, from, one, 1));
    kernel.u.binary.n = c->local->n_rows * c->local->head_size;
    kernel.u.binary.a = to.at;
    kernel.u.binary.b = one.at;
    kernel.u.binary.y = to.at;
    kernel.u.binary.dtype2 = c->local->dtype;
    return qdri_kernel_run(c->run->stream, &kernel);
}

/* The model's key head that is the kernel's head `slot`. */
static int64_t key_of(const call *c, int64_t slot)
{
    const int64_t each = c->local->n_heads / c->local->n_kv_heads;
    return (c->keys->first_query + slot * each) / c->keys->group;
}

static qdr_status gather(const call *c, const void *in)
{
    const qdri_key_heads *keys = c->keys;
    for (int64_t i = 0; i < 2 * keys->n_own; i++) {
        const int is_value = i >= keys->n_own;
        const rows to = head_of(c, c->heads, keys->first_own + i - is_value * keys->n_own, is_value);
        QDR_TRY(copy(c, columns(c, in, keys->n_own, c->local->n_heads + i), to, 1));
    }
    qdri_coll coll = qdri_key_heads_coll(c->local, keys, QDR_ALL_GATHER);
    coll.label = c->run->node->name;
    coll.recv = c->heads;
    return qdri_comm_launch(qdri_key_heads_comm(c->run->stack->grid, keys), &coll, c->run->stream);
}

static qdr_status assemble(const call *c, const void *in)
{
    const int64_t n_queries = c->local->n_heads, n_keys = c->local->n_kv_heads;
    QDR_TRY(copy(c, columns(c, in, c->keys->n_own, 0), columns(c, c->assembled, n_keys, 0), n_queries));
    for (int64_t i = 0; i < 2 * n_keys; i++) {
        const int is_value = i >= n_keys;
        const rows from = head_of(c, c->heads, key_of(c, i - is_value * n_keys), is_value);
        QDR_TRY(copy(c, from, columns(c, c->assembled, n_keys, n_queries + i), 1));
    }
    return QDR_OK;
}

qdr_status qdri_run_gqa_forward(const qdri_op_run *run)
{
    call c;
    QDR_TRY(open_call(run, &c));
    const void *in = qdri_stack_pointer(run->stack, run->stack->net.edges[run->node->in[0]].value);
    QDR_TRY(gather(&c, in));
    QDR_TRY(assemble(&c, in));
    return qdr_attention_forward(qdr_grid_context(run->stack->grid), c.local, c.assembled,
                                 qdri_stack_pointer(run->stack, run->stack->net.edges[run->node->out].value), c.saved,
                                 c.work, run->stream);
}

/* The gradients of the heads that this rank used; zeros for the others. */
static qdr_status take_apart(const call *c)
{
    const int64_t n_keys = c->local->n_kv_heads;
    QDR_TRY(qdri_fill_zero(c->run->stream, c->heads, 2 * (size_t)c->keys->n_all * c->head));
    for (int64_t i = 0; i < 2 * n_keys; i++) {
        const int is_value = i >= n_keys;
        const rows from = columns(c, c->d_assembled, n_keys, c->local->n_heads + i);
        const rows to = head_of(c, c->heads, key_of(c, i - is_value * n_keys), is_value);
        QDR_TRY(add(c, from, to));
    }
    return QDR_OK;
}

static qdr_status sum_up(const call *c, void *d_in)
{
    const qdri_key_heads *keys = c->keys;
    qdri_coll coll = qdri_key_heads_coll(c->local, keys, QDR_REDUCE_SCATTER);
    coll.label = c->run->node->name;
    coll.send = c->heads;
    coll.recv = c->own;
    QDR_TRY(qdri_comm_launch(qdri_key_heads_comm(c->run->stack->grid, keys), &coll, c->run->stream));
    for (int64_t i = 0; i < 2 * keys->n_own; i++) {
        const int is_value = i >= keys->n_own;
        const rows from = head_of(c, c->own, i - is_value * keys->n_own, is_value);
        QDR_TRY(copy(c, from, columns(c, d_in, keys->n_own, c->local->n_heads + i), 1));
    }
    return QDR_OK;
}

qdr_status qdri_run_gqa_backward(const qdri_op_run *run)
{
    call c;
    QDR_TRY(open_call(run, &c));
    void *d_in = qdri_stack_pointer(run->stack, run->task->writes[0]);
    const void *y = qdri_stack_pointer(run->stack, run->stack->net.edges[run->node->out].value);
    QDR_TRY(qdr_attention_backward(qdr_grid_context(run->stack->grid), c.local, c.assembled, y, c.saved,
                                   qdri_stack_pointer(run->stack, run->task->reads[0]), c.d_assembled, c.work,
                                   run->stream));
    QDR_TRY(take_apart(&c));
    QDR_TRY(copy(&c, columns(&c, c.d_assembled, c.local->n_kv_heads, 0), columns(&c, d_in, c.keys->n_own, 0),
                 c.local->n_heads));
    return sum_up(&c, d_in);
}
