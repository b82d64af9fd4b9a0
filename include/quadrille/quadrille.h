/* SPDX-License-Identifier: Apache-2.0 */
/** @file quadrille.h  All of Quadrille except contexts on MPI (quadrille/mpi.h). */
#ifndef QUADRILLE_QUADRILLE_H
#define QUADRILLE_QUADRILLE_H

#include "auto.h"
#include "checkpoint.h"
#include "codec.h"
#include "coll.h"
#include "context.h"
#include "convert.h"
#include "cuda.h"
#include "environment.h"
#include "gpu.h"
#include "graph.h"
#include "grid.h"
#include "launch.h"
#include "levels.h"
#include "linear.h"
#include "machine.h"
#include "matrix.h"
#include "network.h"
#include "operations.h"
#include "optim.h"
#include "plan.h"
#include "report.h"
#include "safetensors.h"
#include "stack.h"
#include "status.h"
#include "tokens.h"
#include "topo.h"
#include "types.h"
#include "version.h"

#endif
