/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that were recorded as XML. */
#ifndef QDRI_TOPO_XML_HWLOC_H
#define QDRI_TOPO_XML_HWLOC_H

#include <hwloc.h>

#include "core/status.h"

/* Loads the recorded machine into an initialised topology. hwloc would read the file without limits of size and time,
 * also when HWLOC_XMLFILE names it. */
QDR_NODISCARD qdr_status qdri_topo_load_xml(hwloc_topology_t hwloc, const char *path);

#endif
