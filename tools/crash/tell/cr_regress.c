/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_regress.c: tapes as regression tests.
 */
#include "tools/crash/tell/cr_regress.h"

#include <errno.h>

#define PATH_SIZE 4096u

static bool is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

    return name[0] != '\0' && strspn(name, allowed) == strlen(name);
}

int cr_regress_write(const char *folder, const char *name, const struct cr_tape_file *tape)
{
    char path[PATH_SIZE];

    if (!is_name(name))
        return cn_fail(-EINVAL, "\"%.60s\" is no name for a test: use letters, digits, - and _",
            name);
    if (tape->failure[0] == '\0')
        return cn_fail(-EINVAL, "the run passed: there is no failure to keep as %s", name);
    if ((size_t)snprintf(path, sizeof(path), "%s/%s.tape", folder, name) >= sizeof(path))
        return cn_fail(-ENAMETOOLONG, "the path of %s is too long", name);
    return cr_tape_write(path, tape);
}
