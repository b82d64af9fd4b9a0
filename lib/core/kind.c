/* SPDX-License-Identifier: Apache-2.0 */
#include "core/kind.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define SAVE_TENSORS "load it in Python, and save its tensors with safetensors.torch.save_file()"
#define SAVE_ARRAYS "load it in Python, and save it with safetensors.numpy.save_file()"
#define SAVE_TOKENS "load it in Python, and save its tokens with numpy.save()"
#define SAVE_TEXT "save it as UTF-8"

/* Kinds by the bytes with which they begin, of which the first that fits counts. */
static const struct {
    const char *begin;
    size_t n_bytes;
    const char *what;
} kinds[] = {
    {"\xff\xfe\0\0", 4, "a text in UTF-32: " SAVE_TEXT},
    {"\0\0\xfe\xff", 4, "a text in UTF-32: " SAVE_TEXT},
    {"\xff\xfe", 2, "a text in UTF-16: " SAVE_TEXT},
    {"\xfe\xff", 2, "a text in UTF-16: " SAVE_TEXT},
    {"PK\003\004", 4, "a zip archive, as PyTorch's pickles (.pt, .pth, .bin) are: " SAVE_TENSORS},
    {"\x80\x02", 2, "a Python pickle, as PyTorch's older files are: " SAVE_TENSORS},
    {"\x80\x03", 2, "a Python pickle: " SAVE_TENSORS},
    {"\x80\x04", 2, "a Python pickle: " SAVE_TENSORS},
    {"\x80\x05", 2, "a Python pickle: " SAVE_TENSORS},
    {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file, as Keras writes them: " SAVE_ARRAYS},
    {"\x93NUMPY", 6, "a NumPy array (.npy): " SAVE_ARRAYS},
    {"GGUF", 4, "a GGUF file of llama.cpp: use the safetensors files from which it was made"},
    {"PAR1", 4, "a Parquet file: " SAVE_TOKENS},
    {"ARROW1", 6, "an Arrow file: " SAVE_TOKENS},
    {"\x1f\x8b", 2, "a gzip archive: unpack it with gunzip"},
    {"\x28\xb5\x2f\xfd", 4, "a Zstandard archive: unpack it with unzstd"},
    {"\xfd"
     "7zXZ",
     5, "an xz archive: unpack it with unxz"},
    {"BZh", 3, "a bzip2 archive: unpack it with bunzip2"},
    {"\x7f"
     "ELF",
     4, "a program: name another file"},
    {"version https://git-lfs", 23, "a pointer of Git LFS, not the file itself: fetch that with git lfs pull"},
};

/* The length of a header of less than 4 GiB, and its first letter. */
static int is_safetensors(const char *bytes, size_t n_bytes)
{
    return n_bytes > 8 && memcmp(bytes + 4, "\0\0\0", 4) == 0 && bytes[8] == '{';
}

static int begins(const char *bytes, size_t n_bytes, const char *word)
{
    return n_bytes >= strlen(word) && strncasecmp(bytes, word, strlen(word)) == 0;
}

/* Two letters of ASCII in UTF-16 or UTF-32 without a mark; their zero bytes are on one side. */
static int is_wide(const char *bytes, size_t n_bytes)
{
    if (n_bytes < 4) return 0;
    const int is_little = bytes[0] > 0 && !bytes[1], is_big = !bytes[0] && bytes[1] > 0;
    return (is_little && bytes[2] > 0 && !bytes[3]) || (is_big && !bytes[2] && bytes[3] > 0) ||
           (is_little && !bytes[2] && !bytes[3] && n_bytes >= 8 && bytes[4] > 0) ||
           (!bytes[0] && !bytes[1] && !bytes[2] && bytes[3] > 0);
}

/* The first file of a NumPy archive is an array. */
static int is_npz(const char *bytes, size_t n_bytes)
{
    const size_t n_name = n_bytes > 30 ? (size_t)(unsigned char)bytes[26] : 0;
    return memcmp(bytes, "PK\003\004", 4) == 0 && n_name > 4 && 30 + n_name <= n_bytes &&
           memcmp(bytes + 30 + n_name - 4, ".npy", 4) == 0;
}

static const char *kind_of_text(const char *bytes, size_t n_bytes, int is_text)
{
    const size_t n_mark = qdri_mark_bytes(bytes, n_bytes);
    size_t at = n_mark;
    while (at < n_bytes && isspace((unsigned char)bytes[at])) at++;
    if (begins(bytes + at, n_bytes - at, "<!doctype") || begins(bytes + at, n_bytes - at, "<html"))
        return "a web page, not the file itself: download that (it may need a login)";
    if (is_text) return NULL;
    if (n_mark) return "a text with a byte order mark: name a safetensors file";
    if (at + 1 < n_bytes && bytes[at] == '{' && (isspace((unsigned char)bytes[at + 1]) || bytes[at + 1] == '"'))
        return "a text in JSON: name a safetensors file, or an index whose name ends in .json";
    return NULL;
}

size_t qdri_mark_bytes(const char *bytes, size_t n_bytes)
{
    return n_bytes >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

const char *qdri_kind_of_file(const char *bytes, size_t n_bytes, int is_text)
{
    if (is_safetensors(bytes, n_bytes))
        return is_text ? "a safetensors file, not a text: quadrille ckpt ls lists it" : NULL;
    if (n_bytes >= 4 && is_npz(bytes, n_bytes)) return "a NumPy archive (.npz): " SAVE_ARRAYS;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n_bytes >= kinds[i].n_bytes && memcmp(bytes, kinds[i].begin, kinds[i].n_bytes) == 0) return kinds[i].what;
    if (is_wide(bytes, n_bytes)) return "a text in UTF-16 or UTF-32: " SAVE_TEXT;
    if (n_bytes > 262 && memcmp(bytes + 257, "ustar", 5) == 0) return "a tar archive: unpack it with tar xf";
    return kind_of_text(bytes, n_bytes, is_text);
}
