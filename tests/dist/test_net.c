/* SPDX-License-Identifier: Apache-2.0 */
/* A stack on a grid of ranks compared with a net that was described without a grid or ranks: the same sizes, the same
 * task lists. */

#include "../../examples/common/gpt.h"
#include "dist.h"
#include "gpt_net.h"
#include "linear/internal.h"

static char *text_of_stack(const qdr_stack *stack, qdr_list list)
{
    char *text = NULL;
    size_t n_chars = 0;
    FILE *file = open_memstream(&text, &n_chars);
    DIST_CHECK(file != NULL, "no memory");
    DIST_OK(qdr_stack_print(stack, list, file));
    fclose(file);
    return text;
}

static char *text_of_list(const qdri_schedule *schedule)
{
    char *text = NULL;
    size_t n_chars = 0;
    FILE *file = open_memstream(&text, &n_chars);
    DIST_CHECK(file != NULL, "no memory");
    qdri_schedule_print(schedule, file);
    fclose(file);
    return text;
}

static void compare_lists(const qdr_stack *stack, qdr_list list, const qdri_schedule *schedule)
{
    char *ran = text_of_stack(stack, list), *said = text_of_list(schedule);
    DIST_CHECK(ran[0] != 0 && strcmp(ran, said) == 0, "list %d\nthe stack's:\n%s\nthe net's:\n%s", (int)list, ran,
               said);
    free(ran);
    free(said);
}

static void compare(const qdr_stack *stack, const qdri_net *net, const qdri_net_lists *lists)
{
    const size_t *bytes = net->buffers.region_bytes;
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    DIST_OK(qdr_stack_get_sizes(stack, &sizes));
#define COMPARE(constant, name)                                                                                        \
    DIST_CHECK(sizes.name == bytes[QDRI_##constant], #name ": %zu bytes; the net says %zu", sizes.name,                \
               bytes[QDRI_##constant]);
    QDRI_STACK_REGIONS(COMPARE)
    compare_lists(stack, QDR_LIST_FORWARD, &lists->forward);
    compare_lists(stack, QDR_LIST_BACKWARD, &lists->backward[0]);
}

static void check_model(qdr_grid *grid, const gpt_net *described)
{
    const gpt_config config = {.network = gpt_network((qdr_network){.layers = GPT_NET_LAYERS,
                                                                    .hidden = described->hidden,
                                                                    .heads = described->n_heads,
                                                                    .vocab = described->vocab,
                                                                    .tied = described->tied,
                                                                    .context = described->context}),
                               .context = described->context,
                               .n_sequences = described->n_sequences,
                               .layout = described->layout,
                               .dtype = described->dtype,
                               .overlap = described->overlap,
                               .panels = described->panels,
                               .batch_parts = described->batch_parts};
    gpt model;
    qdri_net net = {0};
    qdri_net_lists lists = {0};
    const qdri_position position = dist_position(grid);
    DIST_OK(gpt_create(grid, &config, &model));
    DIST_OK(gpt_net_describe(&net, described, &position));
    DIST_OK(qdri_net_place(&net));
    qdri_net_set_panels(&net, model.stack->net.opts.panels, model.stack->net.opts.batch_parts);
    DIST_OK(qdri_net_build(&net, &lists));
    compare(model.stack, &net, &lists);
    qdri_net_lists_free(&lists);
    qdri_net_free(&net);
    gpt_destroy(&model);
}

/* Widths and sequences that no axis divides, too. */
static void check_grid(qdr_grid *grid, void *user)
{
    (void)user;
    for (int i = 0; i < 8; i++) {
        const int even = i / 2 % 2;
        check_model(grid, &(gpt_net){.hidden = even ? 64 : 30,
                                     .n_heads = even ? 8 : 5,
                                     .context = 4,
                                     .vocab = even ? 96 : 61,
                                     .n_sequences = even ? 16 : 11,
                                     .tied = i / 4 % 2,
                                     .layout = i % 2 ? QDR_SCATTERED : QDR_REPLICATED,
                                     .dtype = i == 7  ? QDR_F16
                                              : i / 4 ? QDR_BF16
                                                      : QDR_F32,
                                     .overlap = i == 5 ? QDR_OVERLAP_NONE : 0,
                                     .panels = i / 3,
                                     .batch_parts = i / 2});
    }
}

DIST_TEST(stacks_are_what_nets_say) { dist_every_grid(ctx, 1, check_grid, NULL); }
