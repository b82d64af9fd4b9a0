/* SPDX-License-Identifier: Apache-2.0 */
/* Grid arithmetic. */
#include "grid/shape.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/order.h"

/* ---- reading options ---- */

/* A grid of n ranks for the error message: n's prime factors, largest first, assigned to x, y and z in rotation. */
static void propose(int n, int sizes[QDR_N_AXES])
{
    for (int axis = 0; axis < QDR_N_AXES; axis++) sizes[axis] = 1;
    int factors[32], n_factors = 0;
    for (int factor = 2; n > 1; factor++) {
        if (factor > n / factor) factor = n; /* the rest is prime */
        for (; n % factor == 0; n /= factor) factors[n_factors++] = factor;
    }
    for (int i = 0; i < n_factors; i++) sizes[i % 3] *= factors[n_factors - 1 - i];
}

qdr_status qdri_shape_read(const qdr_grid_opts *opts, int n_ranks, qdri_grid_shape *shape)
{
    memset(shape, 0, sizeof *shape);
    const int sizes[QDR_N_AXES] = {opts->x, opts->y, opts->z, opts->d};
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        if (sizes[axis] < 1)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "grid: axis %c of %dx%dx%dx%d is %d; each axis must be 1 or more",
                            QDRI_USUAL_ORDER[axis], opts->x, opts->y, opts->z, opts->d, sizes[axis]);
    }
    memcpy(shape->sizes, sizes, sizeof sizes);
    const char *order = opts->order ? opts->order : QDRI_USUAL_ORDER;
    if (!qdri_is_order(order))
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "grid: order \"%.16s\" must be a permutation of xyzd, fastest axis first; the default is \"xyzd\"", order);
    memcpy(shape->order, order, QDR_N_AXES);
    int64_t product = 1;
    for (int axis = 0; axis < QDR_N_AXES && product <= INT32_MAX; axis++) product *= sizes[axis];
    if (product == n_ranks)
        return qdri_levels_read("grid", opts->z, opts->d, opts->gradient_parts, opts->optimizer_parts, &shape->levels);
    int h[QDR_N_AXES];
    propose(n_ranks, h);
    if (product > INT32_MAX)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "grid: %dx%dx%dx%d has more ranks than the %d of the context; choose axes "
                        "whose product is %d, such as %dx%dx%dx%d",
                        opts->x, opts->y, opts->z, opts->d, n_ranks, n_ranks, h[QDR_X], h[QDR_Y], h[QDR_Z], h[QDR_D]);
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "grid: %dx%dx%dx%d has %d ranks but the context has %d; start %d ranks (mpiexec -n %d), or choose "
                    "axes whose product is %d, such as %dx%dx%dx%d",
                    opts->x, opts->y, opts->z, opts->d, (int)product, n_ranks, (int)product, (int)product, n_ranks,
                    h[QDR_X], h[QDR_Y], h[QDR_Z], h[QDR_D]);
}

/* ---- coordinates ---- */

int qdri_shape_rank(const qdri_grid_shape *shape, const int coordinates[QDR_N_AXES])
{
    int rank = 0;
    for (int i = QDR_N_AXES - 1; i >= 0; i--) {
        const int axis = qdri_axis_of(shape->order[i]);
        rank = rank * shape->sizes[axis] + coordinates[axis];
    }
    return rank;
}

void qdri_shape_locate(const qdri_grid_shape *shape, int rank, int coordinates[QDR_N_AXES])
{
    for (int i = 0; i < QDR_N_AXES; i++) {
        const int axis = qdri_axis_of(shape->order[i]);
        coordinates[axis] = rank % shape->sizes[axis];
        rank /= shape->sizes[axis];
    }
}

void qdri_shape_position(const qdri_grid_shape *shape, int rank, qdri_position *position)
{
    memcpy(position->size, shape->sizes, sizeof position->size);
    qdri_shape_locate(shape, rank, position->coordinate);
    qdri_levels_cut(&shape->levels, position);
}

/* ---- words and pictures ---- */

static int has_levels(const qdri_grid_shape *shape)
{
    return shape->levels.of[QDR_LEVEL_OPTIMIZER] > shape->levels.of[QDR_LEVEL_WEIGHTS];
}

void qdri_shape_words(const qdri_grid_shape *shape, char *text, size_t capacity)
{
    const int *g = shape->sizes;
    const int n = snprintf(text, capacity, "%dx%dx%dx%d order %s", g[QDR_X], g[QDR_Y], g[QDR_Z], g[QDR_D],
                           shape->order);
    if (n > 0 && (size_t)n < capacity && has_levels(shape))
        snprintf(text + n, capacity - (size_t)n, " levels %d,%d", shape->levels.of[QDR_LEVEL_GRADIENTS],
                 shape->levels.of[QDR_LEVEL_OPTIMIZER]);
}

typedef struct picture {
    char *text;
    size_t capacity, length; /* length of the whole text, even if it was truncated */
} picture;

__attribute__((format(printf, 2, 3))) static void print(picture *page, const char *format, ...)
{
    const size_t room = page->length < page->capacity ? page->capacity - page->length : 0;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(room ? page->text + page->length : NULL, room, format, args);
    va_end(args);
    if (n > 0) page->length += (size_t)n;
}

size_t qdri_shape_picture(const qdri_grid_shape *shape, char *text, size_t capacity)
{
    const int *g = shape->sizes;
    picture page = {text, text ? capacity : 0, 0};
    print(&page, "grid %dx%dx%dx%d, order %s, %d ranks\n", g[QDR_X], g[QDR_Y], g[QDR_Z], g[QDR_D], shape->order,
          g[QDR_X] * g[QDR_Y] * g[QDR_Z] * g[QDR_D]);
    const int *parts = shape->levels.of;
    if (has_levels(shape))
        print(&page, "weights in %d parts, gradients in %d, optimizer state in %d\n", parts[QDR_LEVEL_WEIGHTS],
              parts[QDR_LEVEL_GRADIENTS], parts[QDR_LEVEL_OPTIMIZER]);
    for (int plane = 0; plane < g[QDR_Z] * g[QDR_D]; plane++) {
        const int z = plane % g[QDR_Z], d = plane / g[QDR_Z];
        print(&page, "z=%d d=%d\n%7s", z, d, "");
        for (int x = 0; x < g[QDR_X]; x++) {
            char label[24];
            snprintf(label, sizeof label, "x=%d", x);
            print(&page, "%7s", label);
        }
        print(&page, "\n");
        for (int y = 0; y < g[QDR_Y]; y++) {
            print(&page, "  y=%-3d", y);
            for (int x = 0; x < g[QDR_X]; x++)
                print(&page, "%7d", qdri_shape_rank(shape, (const int[QDR_N_AXES]){x, y, z, d}));
            print(&page, "\n");
        }
    }
    return page.length;
}
