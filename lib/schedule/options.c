/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and names of options that stacks and nodes have. */
#include "schedule/net_parts.h"

qdr_status qdri_check_layout(qdr_layout layout, const char *who)
{
    if (layout == QDR_REPLICATED || layout == QDR_SCATTERED) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %d is not a layout; use QDR_REPLICATED or QDR_SCATTERED", who, (int)layout);
}

const char *qdri_layout_name(qdr_layout layout) { return layout == QDR_SCATTERED ? "QDR_SCATTERED" : "QDR_REPLICATED"; }

qdr_status qdri_check_product_type(qdr_product_type type, qdr_dtype dtype, const char *who)
{
    if (type != QDR_PRODUCT_DEFAULT && type != QDR_PRODUCT_AS_STORED && type != QDR_PRODUCT_FP8)
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "%s: %d is not a product type; use QDR_PRODUCT_AS_STORED, QDR_PRODUCT_FP8 or QDR_PRODUCT_DEFAULT", who,
            (int)type);
    if (type != QDR_PRODUCT_FP8 || dtype == QDR_BF16 || dtype == QDR_F32) return QDR_OK;
    return QDR_FAIL(QDR_ERR_DTYPE, "%s: products in fp8 need a stack of bf16 or f32; this one is %s", who,
                    qdr_dtype_name(dtype));
}

const char *qdri_product_type_name(qdr_product_type type)
{
    static const char *const names[] = {"QDR_PRODUCT_DEFAULT", "QDR_PRODUCT_AS_STORED", "QDR_PRODUCT_FP8"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "unknown";
}
