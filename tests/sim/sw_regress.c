/* SPDX-License-Identifier: BSD-3-Clause */
/* sw_regress.c: see sw_regress.h. */
#include "tests/sim/sw_regress.h"

#include <dirent.h>
#include <errno.h>

#include "tools/crash/workload/cr_work.h"

static int run_tape(const struct cr_tape_file *tape, struct sw_regress_outcome *ret)
{
    struct cr_setup setup;
    struct cr_result *r;
    int rc = cr_setup_parse(tape->setup, &setup);

    if (rc == 0)
        rc = cr_work_open(tape->workload, setup.workload);
    if (rc != 0)
        return rc;
    setup.replay = tape->choice;
    setup.replay_count = tape->count;
    setup.calm_rest = tape->calm_rest;
    r = sim_calloc(1, sizeof(*r));
    cr_cluster_run(&setup, tape->seed, r);
    memset(ret, 0, sizeof(*ret));
    ret->failed = r->failed;
    snprintf(ret->failure, sizeof(ret->failure), "%s", r->failure);
    snprintf(ret->failure_class, sizeof(ret->failure_class), "%s", r->failure_class);
    snprintf(ret->was, sizeof(ret->was), "%s", tape->failure);
    snprintf(ret->mutant, sizeof(ret->mutant), "%s", tape->mutant);
    ret->listed = tape->count;
    ret->used = tape->count - r->replay_unused;
    ret->hash = r->hash;
    sim_free(r);
    return 0;
}

int sw_regress_run(const char *path, struct sw_regress_outcome *ret)
{
    struct cr_tape_file *tape = sim_calloc(1, sizeof(*tape));
    int rc = cr_tape_read(path, tape);

    if (rc == 0) {
        rc = run_tape(tape, ret);
        cr_tape_release(tape);
    }
    sim_free(tape);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

static bool is_tape(const char *name)
{
    size_t n = strlen(name);

    return n > 5 && name[0] != '.' && strcmp(name + n - 5, ".tape") == 0;
}

int sw_regress_list(const char *folder, char ***ret_paths, size_t *ret_count)
{
    DIR *dir = opendir(folder);
    char **paths = NULL;
    size_t count = 0;

    if (dir == NULL)
        return cn_fail(-errno, "cannot look into %s: %s", folder, strerror(errno));
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (!is_tape(e->d_name))
            continue;
        size_t size = strlen(folder) + strlen(e->d_name) + 2;
        paths = sim_realloc(paths, (count + 1) * sizeof(*paths));
        paths[count] = sim_calloc(1, size);
        snprintf(paths[count++], size, "%s/%s", folder, e->d_name);
    }
    (void)closedir(dir);
    if (count > 0)
        qsort(paths, count, sizeof(*paths), by_name);
    *ret_paths = paths;
    *ret_count = count;
    return 0;
}
