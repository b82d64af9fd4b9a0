/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codecs_note.h"

#include <stdio.h>

void codecs_note(const qdr_codecs *codecs, int n_ranks, int is_one_node, char note[CODECS_NOTE_BYTES])
{
    int n_coded = 0;
    for (int axis = 0; axis < 4; axis++)
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++)
            n_coded += codecs->of[axis][class].kind != QDR_CODEC_RAW;
    note[0] = '\0';
    if (n_coded && n_ranks == 1)
        snprintf(note, CODECS_NOTE_BYTES, "codecs: a single rank sends nothing, so nothing is coded");
    else if (n_coded && is_one_node && !codecs->inside)
        snprintf(note, CODECS_NOTE_BYTES,
                 "codecs: all %d ranks are on one node, so nothing is coded; add ,inside to code inside nodes",
                 n_ranks);
}
