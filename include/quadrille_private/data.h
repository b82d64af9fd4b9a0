/* SPDX-License-Identifier: Apache-2.0 */
/** @file data.h  Where the data files that come with the program are: the models and machines that network.h and
 * machine.h read, and others.
 *
 * Private (private.h). Part of libquadrille_perf. Local and blocking; thread-safe as long as nobody changes the
 * environment. */
#ifndef QUADRILLE_PRIVATE_DATA_H
#define QUADRILLE_PRIVATE_DATA_H

#include <stddef.h>

#include "private.h"

/** Finds a data file by path or by name: an argument that contains a slash, ends in ".json" or is "-" is a path and
 * returned unchanged; everything else is the name of KIND/NAME.json in a folder of QDR_DATA_PATH (separated by colons),
 * in the installed data folder, or in the sources from which this was built.
 *  @param[out] path  its path, a buffer of `bytes` bytes including the terminating null; "" after an error
 *  @retval QDR_ERR_ARGUMENT  NULL; an unknown name (the sentence lists the nearest ones); the path is too long
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_data_find(const char *kind, const char *name_or_path, char *path,
                                                       size_t bytes);

/** The machine file that `quadrille calibrate` leaves for this host: hosts/HOST.json in the folder quadrille of
 * XDG_DATA_HOME, else of ~/.local/share. qdr_machine_load("here") loads it. It may not exist.
 *  @param[out] path  its path, a buffer of `bytes` bytes including the terminating null; "" after an error
 *  @retval QDR_ERR_ARGUMENT  NULL; neither variable has an absolute path; the path is too long */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_data_host_file(char *path, size_t bytes);

#endif
