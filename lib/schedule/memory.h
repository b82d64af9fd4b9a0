/* SPDX-License-Identifier: Apache-2.0 */
/* The memory pass: the values of a finished list get their places in the workspace. Two values may have the same place
 * if one is used only after the other; the tasks of the later one then wait for those of the earlier one. Places depend
 * on the list alone: whoever builds it gets the same. */
#ifndef QDRI_SCHEDULE_MEMORY_H
#define QDRI_SCHEDULE_MEMORY_H

#include "schedule/schedule.h"

/* Places the values of a list in the buffer `workspace`, to which its operands then refer; of the places found that
 * need the least memory, takes those that add few waits. The waits of the list must be set afterwards. */
QDR_NODISCARD qdr_status qdri_schedule_allocate(qdri_schedule *schedule, qdri_ref workspace);

#endif
