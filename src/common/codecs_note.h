/* SPDX-License-Identifier: Apache-2.0 */
#ifndef QUADRILLE_SRC_COMMON_CODECS_NOTE_H
#define QUADRILLE_SRC_COMMON_CODECS_NOTE_H

#include <quadrille/codec.h>

enum { CODECS_NOTE_BYTES = 128 };

/* Says why no message is coded although there are codecs: they are for messages between nodes. "": some may be, or
 * there are no codecs. */
void codecs_note(const qdr_codecs *codecs, int n_ranks, int is_one_node, char note[CODECS_NOTE_BYTES]);

#endif
