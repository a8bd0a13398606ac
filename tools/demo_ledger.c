/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo_ledger.c: ledgers in mapped files.
 */
#include "tools/demo_ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *path, const char *what)
{
    int rc = -errno;
    return cn_fail(rc, "%s: cannot %s the ledger: %s", path, what, strerror(-rc));
}

static int map(const char *path, int fd, size_t size, struct dl *ret)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

    if (p == MAP_FAILED)
        return fail(path, "map");
    ret->header = p;
    ret->entry = (struct dl_entry *)(void *)((char *)p + DL_ENTRIES_OFF);
    ret->size = size;
    return 0;
}

int dl_create(const char *path, uint32_t writer, uint32_t entry_max, struct dl *ret)
{
    size_t size = DL_ENTRIES_OFF + (size_t)entry_max * sizeof(struct dl_entry);
    int rc, fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0)
        return fail(path, "make");
    rc = ftruncate(fd, (off_t)size) == 0 ? map(path, fd, size, ret) : fail(path, "size");
    (void)close(fd);
    if (rc != 0)
        return rc;
    ret->header->writer = writer;
    ret->header->entry_max = entry_max;
    ret->header->magic = DL_MAGIC;
    return 0;
}

int dl_open(const char *path, struct dl *ret)
{
    struct stat st;
    int rc, fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return fail(path, "open");
    if (fstat(fd, &st) != 0)
        rc = fail(path, "look at");
    else if ((size_t)st.st_size < DL_ENTRIES_OFF)
        rc = cn_fail(-EINVAL, "%s: is not a ledger", path);
    else
        rc = map(path, fd, (size_t)st.st_size, ret);
    (void)close(fd);
    if (rc != 0)
        return rc;
    const struct dl_header *h = ret->header;
    if (h->magic == DL_MAGIC && h->entry_count <= h->entry_max && h->token_count <= DL_TOKENS_MAX &&
        DL_ENTRIES_OFF + (size_t)h->entry_max * sizeof(struct dl_entry) <= ret->size)
        return 0;
    dl_close(ret);
    return cn_fail(-EINVAL, "%s: is not a ledger", path);
}

void dl_close(struct dl *ledger)
{
    if (ledger->header != NULL)
        (void)munmap(ledger->header, ledger->size);
    memset(ledger, 0, sizeof(*ledger));
}

struct dl_entry *dl_next(struct dl *ledger)
{
    struct dl_header *h = ledger->header;

    if (h->entry_count == h->entry_max)
        return NULL;
    struct dl_entry *entry = &ledger->entry[h->entry_count];
    memset(entry, 0, sizeof(*entry));
    entry->number = h->entry_count + 1;
    __atomic_store_n(&h->entry_count, entry->number, __ATOMIC_RELEASE);
    return entry;
}

void dl_set(struct dl_entry *entry, enum dl_state state)
{
    __atomic_store_n(&entry->state, (uint8_t)state, __ATOMIC_RELEASE);
}

void dl_keep_token(struct dl *ledger, struct dl_entry *entry, const char *token)
{
    struct dl_header *h = ledger->header;

    if (entry->token == 0) {
        if (h->token_count == DL_TOKENS_MAX)
            return;
        entry->token = ++h->token_count;
    }
    (void)snprintf(h->token[entry->token - 1], CAIRN_TOKEN_SIZE, "%s", token);
}

const char *dl_token(const struct dl *ledger, const struct dl_entry *entry)
{
    if (entry->token == 0 || entry->token > ledger->header->token_count)
        return NULL;
    return ledger->header->token[entry->token - 1];
}
