/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_tree.h: small trees of files for tests of the doctor's readers, in a temporary folder.
 */
#ifndef DR_TREE_H
#define DR_TREE_H

#include "tools/dr.h"

struct dr_tree {
    char dir[64];
    struct dr_root root;
};
/* All fail the process when the file system does not let them; make exits with 77 where trees
 * cannot be examined. */
void dr_tree_make(struct dr_tree *tree);
void dr_tree_remove(struct dr_tree *tree);
/* A file with a newline behind `text`; its folders are made. Replaces what is there. */
void dr_tree_file(struct dr_tree *tree, const char *path, const char *text);
void dr_tree_bytes(struct dr_tree *tree, const char *path, const void *bytes, size_t size);
void dr_tree_link(struct dr_tree *tree, const char *path, const char *target);
void dr_tree_fifo(struct dr_tree *tree, const char *path);

#endif
