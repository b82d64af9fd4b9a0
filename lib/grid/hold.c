/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that outlives the call that enqueued work on it: kept in a list of the grid, and freed when the work has
 * finished. */
#include <stdlib.h>

#include "core/size.h"
#include "grid/internal.h"

static void hold_free(qdri_dev *dev, qdri_hold *hold)
{
    qdri_mem_free(dev, &hold->device);
    qdri_event_destroy(&hold->done);
    free(hold->host);
    free(hold);
}

/* Removes finished holds (or all) from the list. */
static void holds_sweep(qdr_grid *grid, int all)
{
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(grid));
    qdri_hold **link = qdri_grid_holds(grid);
    while (*link) {
        qdri_hold *hold = *link;
        if (all || (hold->is_released && qdri_event_reached(hold->done))) {
            *link = hold->next;
            hold_free(dev, hold);
        } else {
            link = &hold->next;
        }
    }
}

qdr_status qdri_hold_create(qdr_grid *grid, size_t host_bytes, qdri_hold **hold)
{
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(grid));
    qdri_hold *made = NULL;
    *hold = NULL;
    holds_sweep(grid, 0);
    QDR_TRY(qdri_context_record_needs(qdr_grid_context(grid), qdri_grid_life(grid)));
    QDR_TRY(QDRI_NEW(1, "a hold", &made));
    qdr_status status = qdri_calloc(host_bytes, 1, "held arrays", &made->host);
    if (status == QDR_OK) status = qdri_event_create(dev, &made->done);
    if (status != QDR_OK) {
        hold_free(dev, made);
        return status;
    }
    made->next = *qdri_grid_holds(grid);
    *qdri_grid_holds(grid) = made;
    *hold = made;
    return QDR_OK;
}

void qdri_hold_release(qdr_grid *grid, qdri_hold *hold, qdr_stream *stream)
{
    /* A recorded step uses it repeatedly, and a poisoned stream runs no more work: then the hold is freed with the
     * grid. */
    if (qdri_context_is_recording(qdr_grid_context(grid))) return;
    hold->is_released = qdri_event_record(hold->done, stream) == QDR_OK;
}

void qdri_holds_free(qdr_grid *grid) { holds_sweep(grid, 1); }
