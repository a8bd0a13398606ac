/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_proc.h: processes of Cairn's programs, started by a subcommand (`demo`, `bench`, `crash`):
 * they write into a log in a folder, die with their starter (PR_SET_PDEATHSIG), however it ends,
 * and a node says when it serves.
 */
#ifndef TL_PROC_H
#define TL_PROC_H

#include <sys/types.h>

#include "tools/tl.h"

#define TL_PATH_MAX 512

struct tl_child {
    pid_t pid; /* 0: none */
    const char *program;     /* NULL: this one */
    uint32_t id, generation; /* the starter's */
    int ready_fd;            /* -1: none */
    uint64_t started_ns;
    char name[32];
};

/* A fresh folder BASE/NAME-PROCESS-XXXXXX in /dev/shm if that has `needed` bytes, else in $TMPDIR
 * or /tmp. Errors: -ENOSPC, -ENAMETOOLONG (for sockets in it), -errno. */
CN_MUST_CHECK int tl_folder_make(const char *name, uint64_t needed, char ret_folder[256]);
/* Remove it and the files in it. */
void tl_folder_remove(const char *folder);

/* Another program of Cairn: beside this one, or where they are installed (bin, libexec/cairn).
 * Errors: -ENOENT, the text says where it was looked for. */
CN_MUST_CHECK int tl_program_find(const char *name, char ret_path[TL_PATH_MAX]);

/*
 * Start a program with `argv`; its output goes to FOLDER/<name with dashes>.log. With `ready` it
 * gets the end of a pipe as descriptor 3. The child's id and name are the caller's. Errors: -errno.
 */
CN_MUST_CHECK int tl_proc_start(
    struct tl_child *child, const char *folder, char *const argv[], bool ready);
/* Start `cairn node` as node `id`; it answers at ready_fd. With `quiet` it logs warnings only. */
CN_MUST_CHECK int tl_proc_start_node(
    struct tl_child *child, const char *folder, const char *config, uint32_t id, bool quiet);
/* Wait up to `wait_ms` for a node's line: 1 and the line, 0 not yet. Errors: CAIRN_E_STATE (it has
 * ended; the text says how). After an answer ready_fd is closed. */
CN_MUST_CHECK int tl_proc_ready(
    struct tl_child *child, const char *folder, int wait_ms, char *line, size_t line_size);
/* A child that ended by itself is an error: CAIRN_E_STATE. */
CN_MUST_CHECK int tl_proc_check(struct tl_child *child, const char *folder);
/* SIGKILL, and reap. True: it was alive. */
bool tl_proc_kill(struct tl_child *child);
/* Has it ended? 1 cleanly, 0 not yet. Errors: CAIRN_E_STATE (it failed). */
CN_MUST_CHECK int tl_proc_ended(struct tl_child *child, const char *folder);

#endif
