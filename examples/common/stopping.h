/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that ask a run to stop. */
#ifndef EXAMPLES_STOPPING_H
#define EXAMPLES_STOPPING_H

#include <quadrille/context.h>

/* From now on SIGTERM, SIGINT and SIGUSR1 only ask the run to stop; a second SIGTERM or SIGINT ends the program. Once
 * per process. */
void stop_on_signals(void);
/* All is saved: SIGTERM and SIGINT have again the effect that they had before, and SIGUSR1, which asks for no more than
 * a save, has none: it may reach a run that is just ending. */
void stop_by_default(void);
/* Whether some rank was asked to stop. Collective. */
qdr_status stop_is_requested(qdr_context *ctx, int *stops);

#endif
