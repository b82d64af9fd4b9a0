/* SPDX-License-Identifier: Apache-2.0 */
/* What rooms above need to keep a stack. */
#ifndef QDRI_LINEAR_LIFE_H
#define QDRI_LINEAR_LIFE_H

#include "core/life.h"
#include "quadrille/stack.h"

qdri_life *qdri_stack_life(qdr_stack *stack);

#endif
