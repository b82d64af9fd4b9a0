/* SPDX-License-Identifier: Apache-2.0 */
/* Coded collectives as numbers: among whom messages are coded, which are, and how long they are. Pure functions. */
#ifndef QDRI_CORE_CODED_H
#define QDRI_CORE_CODED_H

#include "core/codec.h"
#include "core/layout.h"
#include "quadrille/grid.h"

/* Messages are padded to whole ones of these bytes. */
#define QDRI_CODED_ALIGN 16
/* Of qdr_codecs.least_bytes. */
#define QDRI_CODED_LEAST_BYTES (16 << 10)

/* The members of a group, by node, as many on each: member k · per_node + i is number i of node k. Only counterparts,
 * the members with the same number, exchange coded messages. per_node = 1: all members are counterparts. */
typedef struct qdri_coded_group {
    int n_nodes, per_node, node, index; /* node, index: this member's */
    int is_one_node; /* all are on one: then n_nodes counts members */
} qdri_coded_group;

/* nodes: by member, the number of its node. By node, if members are numbered node by node, as many on each of several
 * nodes; otherwise all are counterparts. */
qdri_coded_group qdri_coded_group_of(const int *nodes, int size, int rank);

/* What is to be coded in a channel. */
typedef struct qdri_coding {
    qdr_codecs codecs;
    qdri_coded_group groups[QDR_N_CHANNELS];
} qdri_coding;

/* Sets the groups of a position in a grid whose ranks are numbered by strides, with so many consecutive ranks on each
 * node. */
void qdri_coding_place(const qdri_position *position, const int stride[QDR_N_AXES], int ranks_per_node,
                       qdri_coding *coding);
/* The codec of a collective of a class on a channel, of `total` elements of all members together; NULL: its elements
 * travel as they are. */
const qdr_codec *qdri_coding_find(const qdri_coding *coding, qdr_channel channel, qdr_traffic_class class,
                                  qdr_dtype dtype, int64_t total);
/* Whether anything on the channel may be coded. */
int qdri_coding_has(const qdri_coding *coding, qdr_channel channel);

/* Messages travel in chunks of so many bytes of elements, all parts together. On a GPU sending a chunk, in messages of
 * half its bytes, takes longer than enqueueing its 16 tasks (three kernels, two collectives, and the events that order
 * them) of 6.5 us each, as docs/benchmarks/gpu has them, where a link carries 400 Gb/s. The same on all ranks. Lossless
 * chunks are longer by a factor: their lengths travel before them, and each time all members wait for one another. */
enum { QDRI_CODED_CHUNK_BYTES = 1 << 20, QDRI_CODED_GPU_CHUNK_BYTES = 1 << 24 };
int qdri_coded_chunk_factor(const qdr_codec *codec);

/* Bytes of the message of n elements, in rows of so many (0: one row); of LOSSLESS, at most. The second: padded. */
int64_t qdri_coded_row_bytes(const qdr_codec *codec, qdr_dtype dtype, int64_t n_elems, int64_t row_elems);
int64_t qdri_coded_bytes(const qdr_codec *codec, qdr_dtype dtype, int64_t n_elems, int64_t row_elems);

/* A coded collective: its elements are divided into parts of whole units, as by qdri_split(); those of an all-reduce
 * into whole rows. */
typedef struct qdri_coded_coll {
    const qdr_codec *codec;
    qdr_coll_kind kind; /* ALL_GATHER, REDUCE_SCATTER or ALL_REDUCE */
    qdr_dtype dtype;
    int64_t total, unit, row_elems;
} qdri_coded_coll;
/* Elements of a part that travel in a chunk, between n_parts counterparts. */
int64_t qdri_coded_chunk_elems(const qdri_coded_coll *coll, int n_parts, int64_t chunk_bytes);
/* Kernels and transfers that a GPU's host enqueues for all chunks: those of a step are coded by one kernel. */
int64_t qdri_coded_launches(const qdri_coded_coll *coll, int n_parts, int64_t chunk_bytes);
/* Bytes that this member sends: messages, and to members of its node elements as they are. */
int64_t qdri_coded_sent(const qdri_coded_group *group, const qdri_coded_coll *coll);

#endif
