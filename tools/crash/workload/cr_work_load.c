/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_load.c: workloads in shared objects. One is trusted as any program that one starts is;
 * what is looked at are the mistakes of who wrote it.
 *
 * The program exports what cairn.h and workload.h declare, so a shared object needs no library; one
 * that was linked with libcairn finds these names in the program first. The table below makes the
 * linker take all of them from the archives. Where the linker put something between the program and
 * a function (--wrap, for the timeline), an object's calls are led there too: else nobody would see
 * what it reads and writes.
 */
#include "tools/crash/workload/cr_work.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE_MAX (UINT64_C(4) << 30)

typedef void (*function)(void);
#define X(name) {#name, (function)name}
static const struct { const char *name; function function; } exported[] = {
    X(cairn_abort), X(cairn_begin), X(cairn_close), X(cairn_commit), X(cairn_ctx_close),
    X(cairn_ctx_open), X(cairn_ctx_stats), X(cairn_ctx_token), X(cairn_delete),
    X(cairn_error_name), X(cairn_get), X(cairn_get_for_update), X(cairn_get_many),
    X(cairn_histogram_quantile), X(cairn_last_error), X(cairn_open), X(cairn_outcome_name),
    X(cairn_put), X(cairn_resolve), X(cairn_run), X(cairn_strerror), X(cairn_table),
    X(cairn_tx_token), X(cairn_version), X(cairn_run_state), X(cairn_run_client),
    X(cairn_run_clients), X(cairn_run_table), X(cairn_run_choose), X(cairn_run_now),
    X(cairn_run_alloc), X(cairn_run_fail), X(cairn_run_op), X(cairn_run_commit),
    X(cairn_run_aborted), X(cairn_run_outcome), X(cairn_run_history_begin),
    X(cairn_run_history_append), X(cairn_run_history_read), X(cairn_run_history_end)};
#undef X

static bool name_is_good(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
    size_t n = strlen(name);

    return n > 0 && n <= 40 && strspn(name, letters) == n && strcmp(name, "mixed") != 0;
}

int cr_work_verify(const char *path, const struct cairn_workload *w)
{
    if (w == NULL)
        return cn_fail(CAIRN_E_CONFIG, "%s: cairn_workload() returned NULL; it must return the "
            "address of a struct cairn_workload that stays", path);
    if (w->abi != CAIRN_WORKLOAD_ABI)
        return cn_fail(CAIRN_E_CONFIG, "%s: made for version %u of cairn/workload.h, this program "
            "has version %u; set .abi = CAIRN_WORKLOAD_ABI and compile it against the header of "
            "this version", path, w->abi, CAIRN_WORKLOAD_ABI);
    if (w->name == NULL || !name_is_good(w->name))
        return cn_fail(CAIRN_E_CONFIG, "%s: its .name must be up to 40 letters, digits and '-', "
            "and not \"mixed\"", path);
    const char *missing = w->summary == NULL ? "summary"
        : w->setup == NULL                   ? "setup"
        : w->step == NULL                    ? "step"
        : w->check == NULL                   ? "check"
                                             : NULL;
    if (missing != NULL)
        return cn_fail(CAIRN_E_CONFIG, "%s: workload %s has no .%s; only .describe may be NULL",
            path, w->name, missing);
    if (w->state_size > STATE_MAX)
        return cn_fail(CAIRN_E_CONFIG, "%s: workload %s wants a state of %zu bytes; at most %llu",
            path, w->name, w->state_size, (unsigned long long)STATE_MAX);
    if (w->tx_bytes > CAIRN_TX_BYTES_MAX)
        return cn_fail(CAIRN_E_CONFIG, "%s: workload %s wants to write %u bytes in a transaction; "
            "at most %u are allowed", path, w->name, w->tx_bytes, CAIRN_TX_BYTES_MAX);
    return 0;
}

/* ---- calls of an object ---- */

struct dynamic { /* what is needed of an object's dynamic section */
    const ElfW(Sym) *symbols;
    const char *strings;
    const ElfW(Rela) *relocations[2];
    size_t bytes[2];
};

static void read_dynamic(const ElfW(Dyn) *d, struct dynamic *ret)
{
    memset(ret, 0, sizeof(*ret));
    for (; d->d_tag != DT_NULL; d++) {
        const void *at = (const void *)d->d_un.d_ptr;
        switch (d->d_tag) {
        case DT_SYMTAB: ret->symbols = at; break;
        case DT_STRTAB: ret->strings = at; break;
        case DT_RELA: ret->relocations[0] = at; break;
        case DT_RELASZ: ret->bytes[0] = d->d_un.d_val; break;
        case DT_JMPREL: ret->relocations[1] = at; break;
        case DT_PLTRELSZ: ret->bytes[1] = d->d_un.d_val; break;
        default: break;
        }
    }
}

/* Store into a place that may be read-only after relocation. */
static void store(void *at, const void *value, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)at & ~(page - 1);

    if (mprotect((void *)first, (uintptr_t)at + size - first, PROT_READ | PROT_WRITE) == 0)
        memcpy(at, value, size);
}

static void redirect_one(const struct link_map *map, const struct dynamic *d, const ElfW(Rela) *r)
{
    const char *name = d->strings + d->symbols[ELF64_R_SYM(r->r_info)].st_name;
    void *place = (void *)(map->l_addr + r->r_offset), *now;

    if (ELF64_R_TYPE(r->r_info) != R_X86_64_JUMP_SLOT &&
        ELF64_R_TYPE(r->r_info) != R_X86_64_GLOB_DAT)
        return;
    memcpy(&now, place, sizeof(now));
    for (size_t i = 0; i < CN_ARRAY_SIZE(exported); i++)
        if (strcmp(exported[i].name, name) == 0 && now == dlsym(RTLD_DEFAULT, name) &&
            memcmp(&now, &exported[i].function, sizeof(now)) != 0)
            store(place, &exported[i].function, sizeof(now));
}

static void redirect(void *object)
{
    struct link_map *map;
    struct dynamic d;

    if (dlinfo(object, RTLD_DI_LINKMAP, &map) != 0)
        return;
    read_dynamic(map->l_ld, &d);
    for (uint32_t k = 0; k < 2 && d.symbols != NULL && d.strings != NULL; k++)
        for (size_t i = 0; i < d.bytes[k] / sizeof(ElfW(Rela)); i++)
            redirect_one(map, &d, &d.relocations[k][i]);
}

/* The loader does not look whether a file is all there: what is missing would be a SIGBUS. */
static int check_length(const char *path)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) part;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = cn_fail(CAIRN_E_CONFIG, "%s: cannot be read; make it with: cc -shared -fPIC -o %s "
            "YOUR.c", path, path);
    bool known = rc == 0 && pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
        memcmp(head.e_ident, ELFMAG, SELFMAG) == 0; /* if not, the loader says so */
    for (uint32_t i = 0; known && rc == 0 && i < head.e_phnum; i++) {
        off_t at = (off_t)(head.e_phoff + i * sizeof(part));
        if (pread(fd, &part, sizeof(part), at) != (ssize_t)sizeof(part) ||
            part.p_offset + part.p_filesz > (uint64_t)st.st_size)
            rc = cn_fail(CAIRN_E_CONFIG, "%s: its end is missing; compile it again", path);
    }
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

int cr_work_load(const char *path, const struct cairn_workload **ret_workload)
{
    const struct cairn_workload *(*get)(void);
    char with_slash[4096];

    int rc = check_length(path);
    if (rc != 0)
        return rc;
    /* Without a slash dlopen() would look in the system's folders. */
    (void)snprintf(with_slash, sizeof(with_slash), "%s%s", strchr(path, '/') != NULL ? "" : "./",
        path);
    void *object = dlopen(with_slash, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL)
        return cn_fail(CAIRN_E_CONFIG, "cannot load the workload: %s", dlerror());
    void *symbol = dlsym(object, "cairn_workload");
    if (symbol == NULL) {
        (void)dlclose(object);
        return cn_fail(CAIRN_E_CONFIG, "%s: does not define cairn_workload(); include "
            "<cairn/workload.h> and define: const struct cairn_workload *cairn_workload(void)",
            path);
    }
    redirect(object);
    memcpy(&get, &symbol, sizeof(get));
    const struct cairn_workload *w = get();
    rc = cr_work_verify(path, w);
    if (rc != 0)
        (void)dlclose(object);
    else
        *ret_workload = w;
    return rc;
}
