/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of tasks: products and collectives have their own files, everything else is limited by memory. The bytes moved
 * count each operand once; additional traffic of a library is part of the machine's constants. */
#include "price/price.h"

#include <math.h>
#include <string.h>

#include "core/codec.h"
#include "core/coded.h"
#include "core/group.h"
#include "core/order.h"
#include "price/gemm.h"

double qdri_kernel_secs(const qdr_machine *machine, double bytes, double flops)
{
    const double moving = bytes / (machine->memory_bytes_per_sec * machine->memory_efficiency);
    const double computing = machine->kernel_flops > 0 ? flops / machine->kernel_flops : 0;
    return fmax(moving, computing);
}

/* Host time for a collective of activations. */
static double coll_host_secs(const qdr_machine *machine, const qdri_group *group)
{
    const qdr_machine_software *software = &machine->software;
    const int spans = machine->n_links > 1 && qdri_group_crosses(group, machine->n_links - 1);
    return fmax(software->collective_host_secs, spans ? software->collective_rank_secs * group->n_ranks : 0);
}

int qdri_can_gather_again(const qdr_machine *machine) { return machine->software.staged_rank_secs > 0; }

void qdri_pricing_gather_again(qdri_pricing *pricing)
{
    const double each = pricing->machine->software.staged_rank_secs;
    if (!qdri_can_gather_again(pricing->machine)) return;
    pricing->gathers_again = 1;
    /* Where states say how often ranks wait, that is not known of all runs. */
    for (int axis = 0; axis < QDR_N_AXES && !pricing->machine->n_states; axis++)
        pricing->coll_host_secs[axis] = each * pricing->ways[axis].n_ranks;
}

qdri_coding qdri_plan_coding(const qdr_plan *plan, int ranks_per_node)
{
    qdri_coding coding = {.codecs = plan->codecs};
    const qdri_position position = qdri_plan_position(plan);
    int stride[QDR_N_AXES];
    if (qdri_codecs_are_none(&plan->codecs)) return coding;
    qdri_order_strides(position.size, plan->order[0] ? plan->order : QDRI_USUAL_ORDER, stride);
    qdri_coding_place(&position, stride, ranks_per_node, &coding);
    return coding;
}

static void begin(const qdr_machine *machine, const qdr_plan *plan, qdri_pricing *pricing)
{
    pricing->machine = machine;
    pricing->plan = plan;
    pricing->coding = qdri_plan_coding(plan, machine->ranks_per_node);
    pricing->stall_secs = 0;
    pricing->gathers_again = machine->software.gathers_again ||
                             (qdri_can_gather_again(machine) && qdri_is_staged(machine, plan));
}

static void place_codecs(const int axis_stride[QDR_N_AXES], int n_ranks, qdri_pricing *p)
{
    for (int kind = 0; kind < QDRI_N_GROUPS; kind++) {
        const qdr_channel channel = qdri_group_channel(kind);
        const qdri_coded_group *group = &p->coding.groups[channel];
        const qdri_channel_group members = qdri_channel_group_of(&p->grid, channel);
        const int stride = members.stride * axis_stride[qdr_channel_axis(channel)];
        p->per_node[kind] = group->per_node > 1 ? group->per_node : 0;
        if (!p->per_node[kind]) continue;
        const qdri_group near = qdri_group_make(p->machine, group->per_node, stride, n_ranks),
                         far = qdri_group_make(p->machine, group->n_nodes, stride * group->per_node, n_ranks);
        p->inside[kind] = qdri_ways_make(p->machine, &near);
        p->between[kind] = qdri_ways_make(p->machine, &far);
    }
}

void qdri_pricing_place(const qdr_machine *machine, const qdr_plan *plan, qdri_pricing *pricing)
{
    const int n_ranks = plan->x * plan->y * plan->z * plan->d;
    const int stages = plan->pipeline > 0 ? plan->pipeline : 1;
    int stride[QDR_N_AXES];
    begin(machine, plan, pricing);
    memset(pricing->per_node, 0, sizeof pricing->per_node);
    pricing->grid = qdri_plan_position(plan);
    qdri_order_strides(pricing->grid.size, plan->order[0] ? plan->order : QDRI_USUAL_ORDER, stride);
    for (int kind = 0; kind < QDRI_N_GROUPS; kind++) {
        const int axis = (int)qdr_channel_axis(qdri_group_channel(kind));
        const qdri_group group = qdri_group_on(machine, &pricing->grid, kind, stride[axis], n_ranks * stages);
        pricing->ways[kind] = qdri_ways_make(machine, &group);
        if (kind == axis) pricing->coll_host_secs[axis] = coll_host_secs(machine, &group);
    }
    if (qdri_is_staged(machine, plan)) qdri_pricing_gather_again(pricing);
    if (!qdri_codecs_are_none(&plan->codecs)) place_codecs(stride, n_ranks * stages, pricing);
}

void qdri_pricing_sizes(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan,
                        qdri_pricing *pricing)
{
    begin(machine, plan, pricing);
    qdri_sizes_make(network, plan, &pricing->sizes);
}

void qdri_pricing_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan,
                       qdri_pricing *pricing)
{
    qdri_pricing_place(machine, plan, pricing);
    qdri_sizes_make(network, plan, &pricing->sizes);
}

/* ---- kernels ---- */

static qdri_task_price kernel_price(const qdri_pricing *p, qdri_task_work work)
{
    qdri_task_price result = {.n_kernels = work.n_kernels};
    result.price.latency_secs = work.n_kernels * p->machine->software.launch_secs;
    result.price.work_secs = qdri_kernel_secs(p->machine, work.bytes, work.flops);
    result.secs = result.price.latency_secs + result.price.work_secs;
    return result;
}

/* logit_bytes counts four passes, each of which moves a logit once; unfused, each direction launches six kernels. */
static qdri_task_work logits(const qdr_machine_software *software, const qdri_task *task)
{
    qdri_task_work work = task->work;
    const double moved = work.bytes * software->logit_bytes / (4 * (double)qdr_dtype_bytes(task->dtype));
    if (moved > 0) work = (qdri_task_work){moved, work.flops, 6 * work.n_kernels, work.cost};
    return work;
}

/* What the kernels of a task do with the machine's software. */
static qdri_task_work work_of(const qdr_machine_software *software, const qdri_task *task)
{
    qdri_task_work work = task->work;
    if (work.cost == QDRI_COST_LOGITS) return logits(software, task);
    if (work.cost == QDRI_COST_OPTIMIZER && software->optimizer_bytes > 0) {
        const double bytes = (double)task->kernel.u.adamw.n * software->optimizer_bytes;
        return qdri_task_runs(task, QDRI_K_ADAMW) ? (qdri_task_work){bytes, work.flops, 0, work.cost}
                                                  : (qdri_task_work){.n_kernels = 0};
    }
    if (work.cost == QDRI_COST_FUSED && software->fused_biases) return (qdri_task_work){.n_kernels = 0};
    if (work.cost == QDRI_COST_AFTER_FUSED && !software->fused_biases) work.n_kernels = 0;
    return work;
}

/* ---- attention ---- */

static double score_product_secs(const qdri_pricing *p, const qdri_task *task, double n_heads, int values)
{
    const double context = (double)task->kernel.u.attention.context, head = (double)task->kernel.u.attention.head_size;
    const qdri_product product = {.m = context,
                                  .n = values ? head : context,
                                  .k = values ? context : head,
                                  .n_products = n_heads,
                                  .dtype = p->plan->dtype,
                                  .mode = values ? QDRI_MODE_NN : QDRI_MODE_NT,
                                  .out_bytes = (double)qdr_dtype_bytes(task->dtype)};
    return qdri_product_secs(p->machine, &product);
}

/* Scores are written and read: products of whole squares, with softmax between them. */
static qdri_task_price unfused_attention(const qdri_pricing *p, const qdri_task *task)
{
    const int backward = task->work.cost == QDRI_COST_SCORES_BACKWARD;
    const double context = (double)task->kernel.u.attention.context;
    const double parts = p->plan->context_parts > 1 ? (double)p->plan->context_parts : 1;
    const double n_heads = parts * (double)task->m / context * (double)task->kernel.u.attention.n_heads;
    const double scores = n_heads * context * context;
    const double share = backward ? 0.55 : 0.45; /* softmax reads once more in backward */
    const int times = backward ? 2 : 1;
    if (task->work.n_kernels == 0) return (qdri_task_price){.secs = 0};
    const qdri_task_work softmax = {scores * share * p->machine->software.score_bytes, 0, backward ? 6 : 4,
                                    task->work.cost};
    qdri_task_price price = kernel_price(p, softmax);
    const double secs = times * (score_product_secs(p, task, n_heads, 0) + score_product_secs(p, task, n_heads, 1));
    price.price.work_secs += secs;
    price.secs += secs;
    return price;
}

/* How many times as many positions are seen as in a part of the sequence. */
static double longer(const qdri_pricing *p, const qdri_task *task)
{
    const double part = (double)task->kernel.u.attention.context, whole = part * (double)p->plan->context_parts;
    const double window = (double)task->kernel.u.attention.window;
    return window < part ? qdri_mean_seen(whole, window) / qdri_mean_seen(part, window)
                         : qdri_mean_seen(whole, whole) / qdri_mean_seen(part, part);
}

/* Keys and values pass from each rank to the next while those before are used; backward with their gradients. */
static double ring_secs(const qdri_pricing *p, const qdri_task *task)
{
    const qdr_plan *plan = p->plan;
    const int n_ranks = plan->x * plan->y * plan->z * plan->d * (plan->pipeline > 1 ? plan->pipeline : 1);
    const qdri_group ring = qdri_group_make(p->machine, (int)plan->context_parts, plan->x * plan->y, n_ranks);
    const qdri_ways ways = qdri_ways_make(p->machine, &ring);
    const double elems = 2 * (double)task->m * (double)task->kernel.u.attention.n_kv_heads *
                         (double)task->kernel.u.attention.head_size;
    const int times = task->work.cost == QDRI_COST_SCORES_BACKWARD ? 2 : 1;
    return (double)(plan->context_parts - 1) *
           qdri_coll_secs(&ways, QDR_SEND_RECV, times * elems * (double)qdr_dtype_bytes(task->dtype));
}

static qdri_task_price fused_attention(const qdri_pricing *p, const qdri_task *task)
{
    const qdr_machine_products *type = qdri_machine_products(p->machine, p->plan->dtype);
    qdri_task_price price = kernel_price(p,
                                         (qdri_task_work){task->work.bytes, 0, task->work.n_kernels, task->work.cost});
    const double alone = task->work.flops / (type->peak_flops * p->machine->attention_efficiency);
    const double secs = p->plan->context_parts > 1 ? fmax(alone * longer(p, task), ring_secs(p, task)) : alone;
    if (secs <= price.price.work_secs) return price;
    price.secs += secs - price.price.work_secs;
    price.price.work_secs = secs;
    return price;
}

/* Time that nothing hides is added. */
static qdri_task_price attention(const qdri_pricing *p, const qdri_task *task)
{
    qdri_task_price price = p->machine->attention_efficiency > 0 ? fused_attention(p, task)
                                                                 : unfused_attention(p, task);
    const qdri_task_price turns = kernel_price(p, task->turns);
    price.n_kernels += turns.n_kernels;
    price.price.latency_secs += turns.price.latency_secs;
    price.price.work_secs += turns.price.work_secs;
    price.secs += turns.secs;
    return price;
}

int qdri_task_makes_scores(const qdri_task *task)
{
    return task->work.cost == QDRI_COST_SCORES || task->work.cost == QDRI_COST_SCORES_BACKWARD;
}

/* ---- products, collectives, and others ---- */

static qdri_mode mode_of(const qdri_task *task)
{
    return task->trans_a ? QDRI_MODE_TN : task->trans_b ? QDRI_MODE_NT : QDRI_MODE_NN;
}

static qdri_task_price product(const qdri_pricing *p, const qdri_task *task)
{
    const qdri_product what = {.m = (double)task->m,
                               .n = (double)task->n,
                               .k = (double)task->k,
                               .n_products = 1,
                               .dtype = p->plan->dtype,
                               .mode = mode_of(task),
                               .out_bytes = (double)qdr_dtype_bytes(task->out_dtype),
                               .accumulate = task->accumulate != 0};
    const double more_bytes = task->parameter_gradient ? what.m * what.n * p->machine->software.weight_gradient_bytes
                                                       : 0;
    qdri_task_price price = kernel_price(p, (qdri_task_work){more_bytes, 0, 1, QDRI_COST_PLAIN});
    const double secs = qdri_product_secs(p->machine, &what);
    price.price.work_secs += secs;
    price.secs += secs;
    return price;
}

/* By one rank, over all its flows. */
static double bytes_sent(const qdri_price *price, const qdri_ways *ways)
{
    return price->work_secs * price->flow_bytes_per_sec * ways->n_flows;
}

/* Of the whole vector. */
static double coll_elems(const qdri_task *task, int n_ranks)
{
    return (double)task->count * (qdri_task_counts_part(task) ? n_ranks : 1);
}

/* The part of a bucket of gradients that is summed over a channel: what the sums over others leave. */
static double bucket_bytes(const qdri_pricing *p, qdr_channel channel)
{
    const int kind = qdri_group_kind_of(channel);
    double bytes = p->machine->software.bucket_bytes;
    if (kind == QDRI_OF_FAR || kind == QDRI_OF_COPIES) bytes /= p->ways[QDRI_OF_NEAR].n_ranks;
    if (kind == QDRI_OF_COPIES) bytes /= p->ways[QDRI_OF_FAR].n_ranks;
    return bytes;
}

/* ---- coded collectives ---- */

/* Seconds to encode, and to decode, elements of so many bytes once. */
typedef struct codec_cost {
    double encode_secs, decode_secs;
} codec_cost;

static codec_cost cost_of(const qdr_machine *machine, const qdr_codec *codec, double bytes, double wire)
{
    const qdr_machine_codecs *codecs = &machine->codecs;
    const double encode_rate = codecs->encode_bytes_per_sec[codec->kind],
                 decode_rate = codecs->decode_bytes_per_sec[codec->kind];
    codec_cost cost = {encode_rate > 0 ? bytes / encode_rate : qdri_kernel_secs(machine, bytes + wire, 0),
                       decode_rate > 0 ? bytes / decode_rate : qdri_kernel_secs(machine, 2 * bytes + wire, 0)};
    if (codec->flags & QDR_CODEC_HADAMARD) {
        const double factor = codecs->rotated_factor > 0 ? codecs->rotated_factor : 0.6;
        cost.encode_secs /= factor;
        cost.decode_secs /= factor;
    }
    if (codec->flags & QDR_CODEC_FEEDBACK)
        cost.encode_secs /= codecs->feedback_factor > 0 ? codecs->feedback_factor : 0.6;
    return cost;
}

/* Of a rank among n counterparts, which own one part each (docs/model.md). */
static double coding_secs(qdr_coll_kind kind, int n, codec_cost whole)
{
    const double own = 1.0 / n, others = 1 - own;
    if (kind == QDR_ALL_GATHER) return own * whole.encode_secs + whole.decode_secs;
    if (kind != QDR_ALL_REDUCE) return others * (whole.encode_secs + whole.decode_secs);
    if (n == 2) return whole.encode_secs + 2 * whole.decode_secs;
    return whole.encode_secs + 2 * others * whole.decode_secs;
}

/* Bytes of messages for each byte of elements. */
static double wire_ratio(const qdr_codec *codec, qdr_dtype dtype, int64_t row_elems)
{
    static const int64_t many = 1 << 20;
    const int64_t n = row_elems > 0 && row_elems < many ? row_elems : many;
    const double ratio = (double)qdr_codec_bytes(codec, dtype, n) / (double)(n * (int64_t)qdr_dtype_bytes(dtype));
    if (codec->kind != QDR_CODEC_LOSSLESS) return ratio;
    return dtype == QDR_F32 ? 1 / 1.14 : 1 / 1.32; /* Gaussian elements */
}

/* n of them, one after the other, of so many bytes in all. */
static void add_stage(qdri_task_price *all, const qdri_ways *ways, qdr_coll_kind kind, int n, double bytes)
{
    const qdri_price price = qdri_coll_price(ways, kind, bytes / n);
    all->price.latency_secs += n * (price.latency_secs + price.work_secs);
    all->n_kernels += n;
}

/* The same bytes within `secs`, of which codecs work codec_secs, beside products with a share of the processor. */
static void stretch(qdri_price *price, double secs, double codec_secs, double processor_share)
{
    const double share = price->work_secs / secs, works = codec_secs / secs;
    price->work_secs = secs;
    price->flow_bytes_per_sec *= share;
    for (int link = 0; link < QDR_MAX_LINKS; link++) price->use[link] *= share;
    price->processor_slowdown = processor_share * works;
    price->own_slowdown = fmax(0, works * (1 + processor_share) - 1); /* slower codecs may stay hidden by the wire */
}

/* Members of a node first, as they are; their counterparts; members of a node again. Messages and codecs pass through a
 * pipeline of chunks: the longer of the two, and a chunk of the other. */
static qdri_task_price coded_collective(const qdri_pricing *p, const qdri_task *task, double bytes)
{
    const int chunk = p->machine->is_gpu ? QDRI_CODED_GPU_CHUNK_BYTES : QDRI_CODED_CHUNK_BYTES; /* of up to 8 parts */
    const double chunk_bytes = (double)chunk * qdri_coded_chunk_factor(&task->codec);
    const int kind = qdri_group_kind_of(task->channel), inside = p->per_node[kind];
    const qdri_ways *ways = inside ? &p->between[kind] : &p->ways[kind];
    const double slice = inside ? bytes / inside : bytes;
    const double wire = slice * wire_ratio(&task->codec, task->dtype, task->row_elems);
    const double secs = coding_secs(task->coll, ways->n_ranks, cost_of(p->machine, &task->codec, slice, wire));
    const int64_t n_elems = (int64_t)(slice / (double)qdr_dtype_bytes(task->dtype));
    const qdri_coded_coll coll = {&task->codec, task->coll, task->dtype, n_elems, 1, task->row_elems};
    qdri_task_price all = {.n_kernels = (int)qdri_coded_launches(&coll, ways->n_ranks, chunk), .codec_secs = secs};
    all.price = qdri_coll_price(ways, task->coll, wire);
    all.bytes_sent = bytes_sent(&all.price, ways);
    all.bytes_plain = all.bytes_sent * slice / wire;
    const double sending = all.price.work_secs, longer = fmax(secs, sending);
    if (longer > 0) stretch(&all.price, longer, secs, p->machine->codecs.processor_share);
    all.price.latency_secs += fmin(1, chunk_bytes * fmax(1, ways->n_ranks / 8.0) / slice) * fmin(secs, sending);
    const int n_stages = task->coll == QDR_ALL_REDUCE ? 1 : ways->n_ranks; /* for the parts of each node */
    if (inside && task->coll != QDR_ALL_GATHER) add_stage(&all, &p->inside[kind], QDR_REDUCE_SCATTER, n_stages, bytes);
    if (inside && task->coll != QDR_REDUCE_SCATTER) add_stage(&all, &p->inside[kind], QDR_ALL_GATHER, n_stages, bytes);
    all.secs = all.price.latency_secs + all.price.work_secs;
    return all;
}

static qdri_task_price collective(const qdri_pricing *p, const qdri_task *task)
{
    const qdr_axis axis = qdr_channel_axis(task->channel);
    const qdri_ways *ways = &p->ways[qdri_group_kind_of(task->channel)];
    const double n_elems = coll_elems(task, ways->n_ranks);
    const int sums_gradients = task->parameter_gradient;
    const double gradient = p->machine->software.gradient_bytes;
    const double elem_bytes = sums_gradients && gradient > 0 ? gradient : (double)qdr_dtype_bytes(task->dtype);
    const double bytes = n_elems * elem_bytes;
    qdri_task_price price = {.n_kernels = 1};
    if (task->codec.kind != QDR_CODEC_RAW) return coded_collective(p, task, bytes);
    const double bucket = bucket_bytes(p, task->channel);
    const int in_bucket = bucket > bytes && axis == QDR_D && sums_gradients;
    const double share = in_bucket ? bytes / bucket : 1; /* of the sum of one whole bucket */
    price.price = qdri_coll_price(ways, task->coll, in_bucket ? bucket : bytes);
    price.bytes_sent = price.bytes_plain = bytes_sent(&price.price, ways) * share;
    price.price.latency_secs *= share;
    price.price.work_secs *= share;
    price.secs = price.price.latency_secs + price.price.work_secs;
    return price;
}

static qdri_task_price price_of(const qdri_pricing *p, const qdri_task *task)
{
    if (task->kind == QDRI_TASK_PRODUCT) return product(p, task);
    if (task->kind == QDRI_TASK_COLLECTIVE) {
        qdri_task_price price = collective(p, task);
        if (task->stream != QDRI_STREAM_OF_COMPUTE) return price;
        /* Nothing else runs there meanwhile: all its time is latency. */
        if (!(price.secs > 0)) price.n_kernels = 0;
        price.price = (qdri_price){.latency_secs = price.secs};
        return price;
    }
    if (!qdri_task_makes_scores(task)) return kernel_price(p, work_of(&p->machine->software, task));
    return attention(p, task);
}

qdri_task_price qdri_task_price_of(const qdri_pricing *p, const qdri_task *task)
{
    qdri_task_price price = price_of(p, task);
    price.host_secs = price.n_kernels * p->machine->software.host_secs;
    if (task->kind == QDRI_TASK_COLLECTIVE && task->overlap_class == QDRI_CLASS_ROWS && price.secs > 0)
        price.host_secs += p->coll_host_secs[qdr_channel_axis(task->channel)];
    return price;
}

/* ---- the work of a task, to be measured ---- */

static int collective_sample(const qdri_task *task, const qdri_position *grid, const char *order, qdr_sample *sample)
{
    const qdri_channel_group group = qdri_channel_group_of(grid, task->channel);
    const int *size = grid->size;
    int stride[QDR_N_AXES];
    qdri_order_strides(size, order, stride);
    sample->kind = QDR_SAMPLE_COLLECTIVE;
    sample->coll = task->coll;
    sample->n_ranks = group.size;
    sample->stride = stride[qdr_channel_axis(task->channel)] * group.stride;
    sample->n_ranks_all = size[QDR_X] * size[QDR_Y] * size[QDR_Z] * size[QDR_D];
    sample->bytes = coll_elems(task, group.size) * (double)qdr_dtype_bytes(task->dtype);
    return sample->n_ranks > 1 && sample->bytes > 0;
}

int qdri_task_sample(const qdri_task *task, const qdri_position *grid, const char *order, qdr_sample *sample)
{
    static const qdr_machine_software plain = {.launch_secs = 0};
    *sample = (qdr_sample){QDR_INIT(qdr_sample), .dtype = task->dtype};
    if (task->kind == QDRI_TASK_COLLECTIVE) return collective_sample(task, grid, order, sample);
    if (task->kind == QDRI_TASK_PRODUCT) {
        sample->kind = QDR_SAMPLE_PRODUCT;
        sample->mode = (qdr_product_mode)mode_of(task);
        sample->m = (double)task->m;
        sample->n = (double)task->n;
        sample->k = (double)task->k;
        return sample->m * sample->n * sample->k > 0;
    }
    if (task->work.cost == QDRI_COST_CALLER) return 0;
    const qdri_task_work work = work_of(&plain, task);
    sample->kind = qdri_task_makes_scores(task) ? QDR_SAMPLE_ATTENTION : QDR_SAMPLE_KERNEL;
    sample->bytes = work.bytes;
    sample->flops = work.flops;
    sample->n_kernels = work.n_kernels + task->turns.n_kernels;
    sample->turn_bytes = task->turns.bytes;
    sample->turn_flops = task->turns.flops;
    return work.bytes > 0;
}

double qdri_secs_with_host(const qdr_machine_software *software, double secs, double host_secs)
{
    if (!(software->host_power > 0) || !(host_secs > 0)) return secs;
    const double power = fmax(software->host_power, 1); /* 1: one after the other, the slowest case */
    const double most = fmax(host_secs, secs);
    return most * pow(pow(host_secs / most, power) + pow(secs / most, power), 1 / power);
}
