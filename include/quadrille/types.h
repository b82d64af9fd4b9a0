/* SPDX-License-Identifier: Apache-2.0 */
/** @file types.h  Definitions used by every Quadrille header: export macros, element types, axes, layouts.
 *
 * Letters: a layer computes Y[M,N] = X[M,K] · W[N,K]ᵀ + b on a grid of gx·gy·gz·gd ranks. All matrices are row-major.
 * M = rows (tokens) of the global batch, K = in_features, N = out_features. */
#ifndef QUADRILLE_TYPES_H
#define QUADRILLE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define QDR_API __attribute__((visibility("default")))
#define QDR_NODISCARD __attribute__((warn_unused_result))
#else
#define QDR_API
#define QDR_NODISCARD
#endif

#define QDR_VERSION_MAJOR 0
#define QDR_VERSION_MINOR 1
#define QDR_VERSION_PATCH 0
#define QDR_VERSION_STRING "0.1.0"

/** Begins every initializer of a struct whose first member is `size`:
 * `(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 2}` in C, `qdr_grid_opts{QDR_INIT(qdr_grid_opts), .x = 2}` in C++20.
 * In C++17, which has no designators, set `opts.size = sizeof opts` in a struct of zeros.
 *
 * All other members may stay zero, which means the documented default. Later releases may add members at the end: a
 * program works with every later library of the same name (libquadrille.so.0) without being compiled again. Structs
 * that the library fills begin in the same way, and are filled as far as the caller's size reaches.
 *
 * QDR_ERR_ARGUMENT: the size was not set. QDR_ERR_UNSUPPORTED: the program sets a member that the library, an older
 * one than its headers, does not have. */
#define QDR_INIT(type) .size = sizeof(type)

/** Element types. Layers compute in F32, F64, BF16 or F16, IEEE's half (sums of the last two in fp32); I32 holds tokens
 * and U8 plain bytes. */
typedef enum qdr_dtype { QDR_F32 = 0, QDR_F64 = 1, QDR_BF16 = 2, QDR_I32 = 3, QDR_U8 = 4, QDR_F16 = 5 } qdr_dtype;

/** Axes of the grid. In a normal layer x splits K, y splits N; z splits rows and the storage of W; d splits rows. */
typedef enum qdr_axis { QDR_X = 0, QDR_Y = 1, QDR_Z = 2, QDR_D = 3 } qdr_axis;
#define QDR_N_AXES 4

/** How the rows of an edge between layers are distributed over the axis that does not split its columns: replicated or
 * scattered. */
typedef enum qdr_layout { QDR_REPLICATED = 0, QDR_SCATTERED = 1 } qdr_layout;

/** Norms of rows. */
typedef enum qdr_norm_kind {
    QDR_NORM_LAYER = 0, /**< layer norm: gamma, and beta unless it is left out */
    QDR_NORM_RMS = 1 /**< RMS norm: gamma */
} qdr_norm_kind;

/** Element-wise reductions. */
typedef enum qdr_reduce { QDR_SUM = 0, QDR_MAX = 1, QDR_MIN = 2 } qdr_reduce;

/** A run of columns (features) that is split on its own, in whole units (a head, say). unit 0 means 1. No members will
 * be added. */
typedef struct qdr_block {
    int64_t width; /**< total number of features, over all parts */
    int64_t unit; /**< features that stay together; divides width */
} qdr_block;

/** Most blocks on one side of a layer. A list ends at the first block of width 0. */
#define QDR_MAX_BLOCKS 4

typedef struct qdr_context qdr_context;
typedef struct qdr_grid qdr_grid;
typedef struct qdr_stream qdr_stream;
typedef struct qdr_event qdr_event;
typedef struct qdr_stack qdr_stack;
typedef struct qdr_linear qdr_linear;

#ifdef __cplusplus
extern "C" {
#endif
/** Bytes of one element of `dtype`; 0 for an unknown type. Local, thread-safe. */
QDR_API size_t qdr_dtype_bytes(qdr_dtype dtype);
/** "f32", "f64", "bf16", "i32", "u8", "f16"; "?" for an unknown type. Local, thread-safe. */
QDR_API const char *qdr_dtype_name(qdr_dtype dtype);
#ifdef __cplusplus
}
#endif
#endif
