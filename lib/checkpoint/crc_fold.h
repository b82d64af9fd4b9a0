/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 by carry-less multiplication, several times as fast as tables, where the processor has it. */
#ifndef QDRI_CHECKPOINT_CRC_FOLD_H
#define QDRI_CHECKPOINT_CRC_FOLD_H

#include <stddef.h>
#include <stdint.h>

enum { QDRI_CRC_FOLD_LEAST = 64, QDRI_CRC_FOLD_STEP = 16 /* bytes */ };

/* 1: this processor has what qdri_crc_fold() needs. */
int qdri_crc_can_fold(void);
/* As qdri_crc(), of a multiple of QDRI_CRC_FOLD_STEP bytes, at least QDRI_CRC_FOLD_LEAST. */
uint32_t qdri_crc_fold(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
