/* SPDX-License-Identifier: Apache-2.0 */
/** @file safetensors.h  Files of named tensors in the safetensors format, for any program: no context, no ranks.
 *
 * A file is 8 bytes (the header's length, little-endian), a header in JSON, and the tensors' elements, row-major and
 * little-endian, without holes. The header names type, shape and place of each tensor, and has `__metadata__`, strings
 * by key. Files written here have a checksum of each tensor in the metadata: `crc32`, a JSON text of eight hexadecimal
 * digits by name, that of zlib and gzip; and `header_crc32`, the same of the header with these eight digits as zeros.
 *
 * Readers of the format ignore both. A file with the first is only read here with the second, and if it fits.
 *
 * All functions are local and blocking. Different files may be used by different threads at once; one file by several
 * threads only for reading. Sentences name the file, and the tensor where there is one. */
#ifndef QUADRILLE_SAFETENSORS_H
#define QUADRILLE_SAFETENSORS_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { QDR_TENSOR_MAX_DIMS = 8 };

/** A tensor of a file. No members will be added: lists of it are passed. */
typedef struct qdr_tensor {
    const char *name; /**< UTF-8; lives as long as the file */
    const char *type; /**< as the format writes it: "F32", "BF16", "I64", … */
    int dtype; /**< the qdr_dtype of this type; -1: none */
    int n_dims; /**< 0: a single element */
    int64_t shape[QDR_TENSOR_MAX_DIMS];
    int64_t n_elems;
    int64_t begin; /**< byte of its first element, from the first tensor's */
    int64_t bytes;
    int has_crc; /**< 1: the file names its checksum */
    uint32_t crc;
} qdr_tensor;

/** A file that is open for reading, or one that is being written. */
typedef struct qdr_safetensors qdr_safetensors;

/** The file or index that a path means: itself, or in a folder model.safetensors or model.safetensors.index.json;
 * without these the only index, or the only file NAME.safetensors.
 *  @param[out] file  `bytes` bytes; "" after an error
 *  @retval QDR_ERR_ARGUMENT  NULL; a folder with none, with several of them, which are named, or with one of several
 *                            files and no index; it is too long
 *  @retval QDR_ERR_IO        a folder that cannot be read */
QDR_API QDR_NODISCARD qdr_status qdr_safetensors_locate(const char *path, char *file, size_t bytes);
/** Opens a file for reading and checks its header: the data have no holes, do not overlap and are all there. Reads no
 * elements.
 *
 *  @param path       a file, or the `….safetensors.index.json` that says which of several files has which tensor; those
 *                    lie in the same folder, and are opened as well. An index that does not list exactly the tensors
 *                    of its files, each where it is, or whose `total_size` is another, is refused. A folder means the
 *                    file that qdr_safetensors_locate() finds
 *  @param[out] file  to be closed by qdr_safetensors_close(); NULL after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, or this is no such file: empty, truncated, a header that is too long (100 MB), not
 *                            JSON, or contradicts itself; an unknown type; more than 8 dimensions; a folder with none
 *                            or several. Files of other programs (pickles, GGUF, ...) are named
 *  @retval QDR_ERR_IO        it cannot be opened or read
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_API QDR_NODISCARD qdr_status qdr_safetensors_open(const char *path, qdr_safetensors **file);
/** The number of tensors; 0 for NULL. */
QDR_API int qdr_safetensors_count(const qdr_safetensors *file);
/** A tensor by number, in the order of their elements in the file; NULL if there is none. Lives as long as the file. */
QDR_API const qdr_tensor *qdr_safetensors_tensor(const qdr_safetensors *file, int index);
/** The number of the tensor of this name; -1: there is none. */
QDR_API int qdr_safetensors_find(const qdr_safetensors *file, const char *name);
/** A string of the metadata; NULL: there is none. Of several files, the first that has it. Lives as long as the
 * file. */
QDR_API const char *qdr_safetensors_metadata(const qdr_safetensors *file, const char *key);
/** The key of a string of the metadata by number, in the order of the files; those of a file that an earlier one has as
 * well count once. NULL: there are no more, or the file is being written. Lives as long as the file. */
QDR_API const char *qdr_safetensors_metadata_key(const qdr_safetensors *file, int index);
/** The path of the file, or of one of several, by number; an index is not among them. NULL: there are no more, or the
 * file is being written. Lives as long as the file. */
QDR_API const char *qdr_safetensors_path(const qdr_safetensors *file, int index);
/** Reads the elements [first, first + n) of a tensor. Needs up to 1 MiB of memory where the type changes.
 *
 *  @param as    the tensor's own type, or between F32, F64, BF16 and F16: rounded to nearest. U8: the bytes as they
 *               are, of any type; then first and n count bytes
 *  @param host  n elements of the type `as`
 *  @retval QDR_ERR_ARGUMENT  NULL, no such tensor, or elements that it does not have
 *  @retval QDR_ERR_DTYPE     the type cannot be converted
 *  @retval QDR_ERR_STATE     the file is being written
 *  @retval QDR_ERR_IO        it cannot be read */
QDR_API QDR_NODISCARD qdr_status qdr_safetensors_read(const qdr_safetensors *file, int index, int64_t first, int64_t n,
                                                      qdr_dtype as, void *host);
/** Reads all of a tensor and compares its checksum with the file's, in 1 MiB of memory.
 *  @retval QDR_ERR_IO           they differ, and the sentence has both; or it cannot be read
 *  @retval QDR_ERR_UNSUPPORTED  the file has no checksum of this tensor
 *  @retval QDR_ERR_ARGUMENT, QDR_ERR_STATE, QDR_ERR_MEMORY  as above */
QDR_API QDR_NODISCARD qdr_status qdr_safetensors_verify(const qdr_safetensors *file, int index);

/** Begins a file, which appears under its name when it is closed, and then replaces an older one. The elements begin at
 * a multiple of 4,096 bytes.
 *
 *  @param path      a regular file, or a name that does not exist yet. Symbolic links are followed
 *  @param tensors   n tensors, in the order of their elements. Of each are used: name, which must be unique; shape;
 *                   and type, or dtype if type is NULL
 *  @param metadata  keys and values in turn, NULL after the last; NULL: none. `crc32` and `header_crc32` are added
 *  @param[out] file  to be closed by qdr_safetensors_close(); NULL after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, a name twice, an unknown type, a shape without elements' number, or a path that
 *                            cannot be written
 *  @retval QDR_ERR_IO        the disk is full or failed
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_API QDR_NODISCARD qdr_status qdr_safetensors_create(const char *path, const qdr_tensor *tensors, int n,
                                                        const char *const *metadata, qdr_safetensors **file);
/** Writes the elements [first, first + n) of a tensor, of its own type. In any order, each element once. Remembers
 * in memory what was written: 16 bytes for each run of elements that does not follow another.
 *  @retval QDR_ERR_ARGUMENT  NULL, no such tensor, elements that it does not have or that were written before, or parts
 *                            of a byte: nothing was written
 *  @retval QDR_ERR_STATE     the file is open for reading, or finished
 *  @retval QDR_ERR_IO        the disk is full or failed: closing the file discards it
 *  @retval QDR_ERR_MEMORY    out of memory: nothing was written */
QDR_API QDR_NODISCARD qdr_status qdr_safetensors_write(qdr_safetensors *file, int index, int64_t first, int64_t n,
                                                       const void *host);
/** Completes a file that is being written, on the disk, without giving it its name: for files that are to appear
 * together. Then qdr_safetensors_close() only renames. Calling it again does nothing.
 *  @retval QDR_ERR_ARGUMENT  NULL
 *  @retval QDR_ERR_STATE     elements are missing, and can still be written; or the file is open for reading
 *  @retval QDR_ERR_IO        it could not be written, now or earlier: closing the file discards it
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_API QDR_NODISCARD qdr_status qdr_safetensors_finish(qdr_safetensors *file);
/** Closes a file and frees it; *file becomes NULL in any case. NULL and a pointer to NULL do nothing. One that is being
 * written is completed, and takes its name; if elements are missing or something failed, it is discarded, and what had
 * the name stays.
 *  @retval QDR_ERR_STATE   elements are missing; the sentence names the first tensor
 *  @retval QDR_ERR_IO      it could not be written, now or earlier
 *  @retval QDR_ERR_MEMORY  out of memory */
QDR_API QDR_NODISCARD qdr_status qdr_safetensors_close(qdr_safetensors **file);
/** Closes a file without completing it: one that is being written is removed. */
QDR_API void qdr_safetensors_discard(qdr_safetensors **file);

#ifdef __cplusplus
}
#endif
#endif
