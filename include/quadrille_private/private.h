/* SPDX-License-Identifier: Apache-2.0 */
/** @file private.h  What the headers of this folder share. They are for the command and the examples of the same build,
 * are not installed, and may change with every release. */
#ifndef QUADRILLE_PRIVATE_PRIVATE_H
#define QUADRILLE_PRIVATE_PRIVATE_H

#include "../quadrille/status.h"

/** Exported with the version QDR_PRIVATE_ and the release's number, so that the loader keeps the command of one release
 * from the library of another. */
#define QDR_PRIVATE_API QDR_API

#endif
