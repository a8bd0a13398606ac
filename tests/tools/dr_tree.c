/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_tree.c: see dr_tree.h. The folder is removed with everything in it.
 */
#include "tests/tools/dr_tree.h"

#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

void dr_tree_make(struct dr_tree *tree)
{
    (void)snprintf(tree->dir, sizeof(tree->dir), "/tmp/dr-tree-XXXXXX");
    CAIRN_ASSERT(mkdtemp(tree->dir) != NULL);
    int rc = dr_root_open(tree->dir, &tree->root);
    if (rc == -ENOSYS) { /* an old kernel, or valgrind: the whole program is skipped */
        (void)rmdir(tree->dir);
        exit(77);
    }
    CAIRN_ASSERT(rc == 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void dr_tree_remove(struct dr_tree *tree)
{
    dr_root_close(&tree->root);
    (void)nftw(tree->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The full path, its folders made and itself removed. */
static void prepare(struct dr_tree *tree, const char *path, char full[512])
{
    int n = snprintf(full, 512, "%s/%s", tree->dir, path);
    CAIRN_ASSERT(n > 0 && n < 512);
    for (char *slash = full + strlen(tree->dir) + 1; (slash = strchr(slash, '/')) != NULL;
         slash++) {
        *slash = '\0';
        CAIRN_ASSERT(mkdir(full, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    (void)unlink(full);
}

void dr_tree_bytes(struct dr_tree *tree, const char *path, const void *bytes, size_t size)
{
    char full[512];

    prepare(tree, path, full);
    FILE *file = fopen(full, "we");
    CAIRN_ASSERT(file != NULL);
    CAIRN_ASSERT(fwrite(bytes, 1, size, file) == size);
    CAIRN_ASSERT(fclose(file) == 0);
}

void dr_tree_file(struct dr_tree *tree, const char *path, const char *text)
{
    char line[2048];
    int n = snprintf(line, sizeof(line), "%s\n", text);

    CAIRN_ASSERT(n > 0 && n < (int)sizeof(line));
    dr_tree_bytes(tree, path, line, (size_t)n);
}

void dr_tree_link(struct dr_tree *tree, const char *path, const char *target)
{
    char full[512];

    prepare(tree, path, full);
    CAIRN_ASSERT(symlink(target, full) == 0);
}

void dr_tree_fifo(struct dr_tree *tree, const char *path)
{
    char full[512];

    prepare(tree, path, full);
    CAIRN_ASSERT(mkfifo(full, 0600) == 0);
}
