/* SPDX-License-Identifier: Apache-2.0 */
/** @file data.h  Where the data files that come with the program lie: those of models and machines, which network.h and
 * machine.h read, and others.
 *
 *  Part of libquadrille_perf. Local and blocking; thread-safe as long as nobody changes the environment. */
#ifndef QUADRILLE_DATA_H
#define QUADRILLE_DATA_H

#include <stddef.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The file that a person means: what has a slash, ends in ".json" or is "-" is a path and left as it is, everything
 * else the name of KIND/NAME.json in a folder of QDR_DATA_PATH (parted by colons), in the folder that was installed, or
 * in the sources that this was built from.
 *  @param[out] path  its path, of `bytes` bytes with its end; "" after an error
 *  @retval QDR_ERR_ARGUMENT  NULL; no such name (the sentence has the nearest ones); it is too long
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_API QDR_NODISCARD qdr_status qdr_data_find(const char *kind, const char *name_or_path, char *path, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
