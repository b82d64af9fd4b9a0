/* SPDX-License-Identifier: Apache-2.0 */
/* Used by higher modules to keep a stack alive. */
#ifndef QDRI_LINEAR_LIFE_H
#define QDRI_LINEAR_LIFE_H

#include "core/life.h"
#include "quadrille/stack.h"

qdri_life *qdri_stack_life(qdr_stack *stack);

#endif
