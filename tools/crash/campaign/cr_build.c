/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_build.c: finds the build-id note among the program headers of the running program.
 */
#include "tools/crash/campaign/cr_build.h"

#include <link.h>

#include "include/internal/cn_base.h"

#define BUILD_BYTES 8u

static char id[CR_BUILD_MAX];

static bool take_note(const uint8_t *at, const uint8_t *end)
{
    while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const void *)at;
        size_t name = cn_align_up(note->n_namesz, 4), desc = cn_align_up(note->n_descsz, 4);
        at += sizeof(*note);
        if (name > (size_t)(end - at) || desc > (size_t)(end - at) - name)
            return false;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(at, "GNU", 4) == 0 &&
            note->n_descsz >= BUILD_BYTES) {
            for (size_t i = 0; i < BUILD_BYTES; i++)
                (void)snprintf(id + 2 * i, 3, "%02x", at[name + i]);
            return true;
        }
        at += name + desc;
    }
    return false;
}

/* The first object is the program itself. */
static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_NOTE)
            continue;
        const uint8_t *at = (const void *)(uintptr_t)(info->dlpi_addr + h->p_vaddr);
        if (take_note(at, at + h->p_memsz))
            break;
    }
    return 1;
}

const char *cr_build_id(void)
{
    if (id[0] == '\0') {
        (void)dl_iterate_phdr(look, NULL);
        if (id[0] == '\0')
            (void)snprintf(id, sizeof(id), "unknown");
    }
    return id;
}
