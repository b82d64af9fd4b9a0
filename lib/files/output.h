/* SPDX-License-Identifier: Apache-2.0 */
/* Needed by lib/ in addition to quadrille_private/output.h. */
#ifndef QDRI_FILES_OUTPUT_H
#define QDRI_FILES_OUTPUT_H

#include "quadrille_private/output.h"

/* For writing at any place of a file, instead of through qdr_output_file(). -1: it is a device or a FIFO. */
int qdri_output_descriptor(const qdr_output *output);

#endif
