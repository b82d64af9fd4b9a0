/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs of a stack: which, among whom, and communicators that have them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/run.h"
#include "core/environment.h"
#include "core/group.h"
#include "core/sized.h"
#include "linear/describe.h"
#include "quadrille/report.h"

enum { TEXT_BYTES = 512 };

static const char who[] = "codec", set_who[] = "set codecs";

/* Whether any is used, and can be. */
static qdr_status check(const qdr_stack *stack, const qdr_codecs *codecs)
{
    const qdri_dev *dev = qdri_context_dev(qdr_grid_context(stack->grid));
    const qdr_dtype dtype = stack->net.opts.dtype;
    QDR_TRY(qdri_codecs_check_for(codecs, dtype, who));
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++) {
            const qdr_codec *codec = &codecs->of[axis][class];
            const int is_gradient = class == QDR_TRAFFIC_GRADIENT;
            if (codec->kind == QDR_CODEC_RAW) continue;
            QDR_TRY(qdri_codec_check_dev(codec, is_gradient ? stack->net.grad_dtype : dtype, dev, who));
        }
    return QDR_OK;
}

qdr_status qdri_stack_take_codecs(const qdr_stack *stack, const qdr_codecs *given, qdr_codecs *codecs)
{
    if (!given) return QDR_OK;
    QDR_TRY(QDRI_TAKE(qdr_codecs, given, codecs));
    return check(stack, codecs);
}

/* What rank 0's environment says, of which a stack of f64 takes nothing. */
static qdr_status read_environment(qdr_stack *stack)
{
    qdr_context *ctx = qdr_grid_context(stack->grid);
    const char *mine = qdr_context_rank(ctx) == 0 ? qdri_environment_text(QDRI_VARIABLE_CODEC) : NULL;
    char text[TEXT_BYTES] = "none";
    qdr_status status = QDR_OK;
    if (mine && strlen(mine) >= sizeof text)
        status = QDR_FAIL(QDR_ERR_ARGUMENT, "%s: QDR_CODEC has %zu characters; use at most %d", who, strlen(mine),
                          TEXT_BYTES - 1);
    QDR_TRY(qdr_agree(ctx, status));
    if (mine) memcpy(text, mine, strlen(mine) + 1);
    QDR_TRY(qdr_broadcast(ctx, 0, text, sizeof text));
    qdr_codecs codecs;
    status = qdr_codecs_parse(text, &codecs);
    if (status == QDR_OK && stack->net.opts.dtype == QDR_F64) codecs = (qdr_codecs){QDR_INIT(qdr_codecs)};
    if (status == QDR_OK) status = check(stack, &codecs);
    if (status != QDR_OK) {
        char sentence[QDRI_ERROR_BYTES];
        snprintf(sentence, sizeof sentence, "%s", qdr_last_error());
        status = qdri_fail(status, __FILE__, __LINE__, "QDR_CODEC=%.100s: %.300s", text, sentence);
    }
    QDR_TRY(qdr_agree(ctx, status));
    stack->codecs = codecs;
    return QDR_OK;
}

static qdr_status find_groups(const qdr_stack *stack, qdri_coding *coding)
{
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        if (!qdri_is_statistics((qdr_channel)channel))
            QDR_TRY(qdri_grid_coded_group(stack->grid, (qdr_channel)channel, &coding->groups[channel]));
    return QDR_OK;
}

/* Collective, agrees. */
static qdr_status compress(const qdr_stack *stack, qdri_coding *coding)
{
    qdr_context *ctx = qdr_grid_context(stack->grid);
    qdr_status status = QDR_OK;
    QDR_TRY(qdr_agree(ctx, find_groups(stack, coding)));
    /* A rank in whose group it fails takes part in the others: their members wait for it. */
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
        if (!qdri_coding_has(coding, (qdr_channel)channel)) continue;
        const qdr_status made = qdri_grid_compress(stack->grid, (qdr_channel)channel);
        if (status == QDR_OK) status = made;
    }
    return qdr_agree(ctx, status);
}

qdr_status qdri_stack_settle_codecs(qdr_stack *stack)
{
    if (stack->codecs.size == 0) QDR_TRY(read_environment(stack));
    qdri_coding coding = {.codecs = stack->codecs};
    QDR_TRY(compress(stack, &coding));
    qdri_net_set_coding(&stack->net, &coding);
    return QDR_OK;
}

/* ---- other codecs ---- */

static qdr_status check_change(const qdr_stack *stack, const qdr_codecs *given, qdr_codecs *codecs)
{
    QDR_TRY(qdri_stack_ready(stack, set_who));
    QDR_TRY(qdri_stack_take_codecs(stack, given, codecs));
    if (qdri_context_is_recording(qdr_grid_context(stack->grid)))
        return QDR_FAIL(QDR_ERR_STATE, "%s: a step is being recorded; call it before or after", set_who);
    return QDR_OK;
}

static qdr_status change(qdr_stack *stack, const qdri_coding *coding)
{
    QDR_TRY(qdri_net_change_coding(&stack->net, &stack->lists, coding));
    return qdri_stack_reserve_staging(stack);
}

/* What was measured, and what was lost, with the earlier codecs is forgotten. */
static qdr_status forget(qdr_stack *stack)
{
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    qdri_measures_restart(stack->measures);
    return qdri_fill_zero(stream, stack->memory[QDRI_FEEDBACK], stack->net.buffers.region_bytes[QDRI_FEEDBACK]);
}

qdr_status qdr_stack_set_codecs(qdr_stack *stack, const qdr_codecs *codecs)
{
    if (!stack) return qdri_stack_ready(stack, set_who);
    qdr_context *ctx = qdr_grid_context(stack->grid);
    qdri_coding coding = {.codecs = {QDR_INIT(qdr_codecs)}};
    qdri_facts facts = {0};
    qdr_status status = check_change(stack, codecs, &coding.codecs);
    qdri_describe_codecs(&facts, set_who, codecs ? &coding.codecs : NULL);
    status = qdri_context_agree_same(ctx, status, &facts, set_who, QDRI_SAME_CALL);
    qdri_facts_free(&facts);
    QDR_TRY(status);
    QDR_TRY(qdr_agree(ctx, qdri_stack_drain(stack)));
    const qdri_coding before = stack->net.coding;
    QDR_TRY(compress(stack, &coding));
    status = qdr_agree(ctx, change(stack, &coding));
    if (status != QDR_OK) {
        const qdr_status undone = qdri_net_change_coding(&stack->net, &stack->lists, &before);
        (void)undone; /* it had the feedback for these */
        return status;
    }
    stack->codecs = coding.codecs;
    return forget(stack);
}

qdr_status qdr_stack_get_codecs(const qdr_stack *stack, qdr_codecs *codecs)
{
    if (!codecs) return QDR_FAIL(QDR_ERR_ARGUMENT, "get codecs: the result pointer is NULL");
    if (!stack || !stack->built) return qdri_stack_ready(stack, "get codecs");
    *codecs = stack->codecs;
    return QDR_OK;
}

/* ---- QDR_CODEC_CHECK ---- */

static const qdri_coded_errors *errors_of(const qdr_stack *stack, int channel)
{
    if (qdri_is_statistics((qdr_channel)channel)) return NULL; /* other calls' */
    return qdri_comm_coded_errors(qdri_grid_comm(stack->grid, (qdr_channel)channel));
}

static int has_errors(const qdr_stack *stack)
{
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        if (errors_of(stack, channel)) return 1;
    return 0;
}

/* The oldest first. */
static void print_errors(FILE *file, qdr_channel channel, const qdri_coded_errors *first)
{
    if (!first) return;
    print_errors(file, channel, first->next);
    const qdri_message_errors *errors = &first->errors;
    char codec[64];
    qdr_codec_text(&first->codec, codec, sizeof codec);
    const char *class = first->traffic ? qdri_traffic_name((qdr_traffic_class)(first->traffic - 1)) : "-";
    fprintf(file, "%-24s %-8s %-19s %-26s %9" PRId64 " %12" PRId64 " %11.3g", first->label, qdr_channel_name(channel),
            class, codec, errors->n_messages, errors->n_elems,
            errors->squares > 0 ? sqrt(errors->errors / errors->squares) : 0);
    if (errors->of_bound > 0)
        fprintf(file, " %8.2f\n", errors->of_bound);
    else
        fprintf(file, " %8s\n", "-");
}

qdr_status qdr_stack_codec_report(qdr_stack *stack, FILE *file)
{
    if (!stack || !file) return QDR_FAIL(QDR_ERR_ARGUMENT, "codec report: the stack or the file is NULL");
    QDR_TRY(qdri_stack_drain(stack));
    if (!has_errors(stack))
        return QDR_FAIL(QDR_ERR_STATE,
                        "codec report: no message was checked; set QDR_CODEC_CHECK=1, name codecs in the "
                        "stack's options, and run it");
    const qdr_context *ctx = qdr_grid_context(stack->grid);
    fprintf(file, "codecs, checked on rank %d of %d: what they changed in its messages\n", qdr_context_rank(ctx),
            qdr_context_size(ctx));
    fprintf(file, "%-24s %-8s %-19s %-26s %9s %12s %11s %8s\n", "layer", "channel", "class", "codec", "messages",
            "elements", "relative L2", "of bound");
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        print_errors(file, (qdr_channel)channel, errors_of(stack, channel));
    return QDR_OK;
}

void qdri_codec_report_end(qdr_stack *stack)
{
    if (stack->owner || qdr_context_rank(qdr_grid_context(stack->grid)) != 0 || !has_errors(stack)) return;
    const qdr_status status = qdr_stack_codec_report(stack, stderr);
    (void)status; /* it has just been seen that there is something */
}
