/* SPDX-License-Identifier: Apache-2.0 */
/* Which build of the library runs: the version is the same for all commits between two releases. */
#define _GNU_SOURCE 1 /* dl_iterate_phdr */
#include <link.h>
#include <quadrille/version.h>
#include <stdint.h>
#include <string.h>

#include "doctor/nodes.h"

/* Bytes of the build ID that are shown; a SHA-1 ID has 20. */
enum { SHOWN_BYTES = 4 };

typedef struct build_id {
    uintptr_t inside; /* an address in the object that is wanted */
    int is_found;
    unsigned char bytes[SHOWN_BYTES];
} build_id;

static int holds(const struct dl_phdr_info *object, uintptr_t address)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && address - object->dlpi_addr - part->p_vaddr < part->p_memsz) return 1;
    }
    return 0;
}

static size_t padded(size_t bytes, size_t align) { return (bytes + align - 1) / align * align; }

/* Looks for the ID among the notes: each is a header with a name, padded, and its bytes, padded. */
static void read_notes(const unsigned char *notes, size_t n_bytes, size_t align, build_id *id)
{
    static const char owner[] = ELF_NOTE_GNU;
    ElfW(Nhdr) note;
    for (size_t at = 0; at <= n_bytes && n_bytes - at >= sizeof note && !id->is_found;) {
        memcpy(&note, notes + at, sizeof note);
        const size_t name = at + sizeof note, bytes = at + padded(sizeof note + note.n_namesz, align);
        if (bytes > n_bytes || note.n_descsz > n_bytes - bytes) return;
        at = bytes + padded(note.n_descsz, align);
        if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof owner || note.n_descsz < SHOWN_BYTES) continue;
        if (memcmp(notes + name, owner, sizeof owner) != 0) continue;
        memcpy(id->bytes, notes + bytes, SHOWN_BYTES);
        id->is_found = 1;
    }
}

static int read_object(struct dl_phdr_info *object, size_t bytes, void *user)
{
    build_id *id = user;
    (void)bytes;
    if (!holds(object, id->inside)) return 0;
    for (int i = 0; i < object->dlpi_phnum && !id->is_found; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const uintptr_t begin = object->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_NOTE)
            read_notes((const unsigned char *)begin, part->p_memsz, part->p_align == 8 ? 8 : 4, id);
    }
    return 1;
}

void doctor_library_text(char *text, size_t bytes)
{
    /* The address of a string inside the library; that of a function could be a PLT entry of this program. */
    build_id id = {.inside = (uintptr_t)qdr_status_name(QDR_OK)};
    dl_iterate_phdr(read_object, &id);
    int length = snprintf(text, bytes, "%s%s", qdr_get_versions()->quadrille, id.is_found ? ", build " : "");
    for (int i = 0; id.is_found && i < SHOWN_BYTES && (size_t)length < bytes; i++)
        length += snprintf(text + length, bytes - (size_t)length, "%02x", id.bytes[i]);
}
