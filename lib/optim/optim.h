/* SPDX-License-Identifier: Apache-2.0 */
/* The part of optimizers that is visible to higher modules. */
#ifndef QDRI_OPTIM_OPTIM_H
#define QDRI_OPTIM_OPTIM_H

#include "schedule/net.h"

/* What an optimizer keeps of one parameter, in device memory: n_state elements each. */
typedef struct qdri_adamw_state {
    void *m, *v; /* F32, F64 for F64 */
    void *master; /* F32, of BF16 and F16; else NULL */
} qdri_adamw_state;

const qdr_stack *qdri_adamw_stack(const qdr_adamw *optimizer);
/* With the defaults filled in. */
const qdr_adamw_opts *qdri_adamw_options(const qdr_adamw *optimizer);
/* Those of all parameters, by number. */
void qdri_adamw_get_states(const qdr_adamw *optimizer, qdri_adamw_state *states);
/* The list of a step that does not begin with a backward pass. */
const qdri_schedule *qdri_adamw_list(const qdr_adamw *optimizer);
/* Steps begun, and those that were not skipped. Blocking. */
QDR_NODISCARD qdr_status qdri_adamw_get_steps(const qdr_adamw *optimizer, int64_t *n_begun, int64_t *n_steps);
QDR_NODISCARD qdr_status qdri_adamw_set_steps(qdr_adamw *optimizer, int64_t n_begun, int64_t n_steps);

#endif
