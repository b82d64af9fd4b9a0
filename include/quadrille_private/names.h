/* SPDX-License-Identifier: Apache-2.0 */
/** @file names.h  Names that people type: which ones of a list they may have meant.
 *
 * Private (private.h). Part of libquadrille_perf. */
#ifndef QUADRILLE_PRIVATE_NAMES_H
#define QUADRILLE_PRIVATE_NAMES_H

#include <stddef.h>

#include "private.h"

/** Writes the names closest to what was typed, closest first, as "gpt2-xl, gpt2"; "" if none is close.
 *
 * Closest are the names whose beginning was typed, or whose words begin with the words that were typed, in their
 * order ("llama-70b" for "llama-2-70b", "h100" for "dgx-h100"); if there are none, those that need the fewest letters
 * inserted, removed, replaced or swapped, where two that are inserted count as one of the others. Case, dashes, dots
 * and underscores do not matter. Among equally close names the order of the list
 * decides. Only the first 64 letters of a name count. Local, thread-safe.
 *  @param typed      NULL or empty: no name is close
 *  @param most       write at most this many names
 *  @param[out] text  of `bytes` bytes including the terminating null; a name that does not fit is left out
 *  @return how many names were written */
QDR_PRIVATE_API int qdr_names_nearest(const char *typed, const char *const names[], int n_names, int most, char *text,
                                      size_t bytes);

#endif
