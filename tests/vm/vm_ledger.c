/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vm_ledger.c: lines of the ledger; see vm_load.h. A ledger comes from a file that a power failure
 * may have cut, and from test scripts: whatever is read is checked.
 */
#include "tests/vm/vm_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <unistd.h>

int vl_ledger_write(int fd, const char *format, ...)
{
    char line[VL_LINE_MAX];
    va_list args;

    va_start(args, format);
    int size = vsnprintf(line, sizeof(line) - 3, format, args);
    va_end(args);
    if (size < 0 || (size_t)size >= sizeof(line) - 3)
        return cn_fail(CAIRN_E_LIMIT, "a line of the ledger is too long");
    memcpy(line + size, " ;\n", 3);
    ssize_t done = write(fd, line, (size_t)size + 3);
    if (done == size + 3)
        return 0;
    return done < 0 ? cn_fail(-errno, "the ledger cannot be written: %s", strerror(errno))
                    : cn_fail(-EIO, "the ledger took only a part of a line");
}

static int parse_place(const char *text, struct vl_line *l)
{
    int end = 0;

    if (sscanf(text, " %" SCNu32 " %" SCNu32 " %c%n", &l->group, &l->slot, &l->op, &end) != 3)
        return -1;
    if (l->group >= VL_GROUPS || l->slot >= VL_SLOTS || strchr("+-.", l->op) == NULL)
        return -1;
    return end;
}

static bool parse_rest(const char *rest, struct vl_line *l)
{
    char word[CAIRN_TOKEN_SIZE + 8], more[4];
    int used;

    switch (l->kind) {
    case VL_OK:
        used = parse_place(rest, l);
        return used >= 0 && sscanf(rest + used, " %2s", more) == 1 && strcmp(more, ";") == 0;
    case VL_UNKNOWN:
        used = parse_place(rest, l);
        if (used < 0 || sscanf(rest + used, " %100s %2s", word, more) != 2 ||
            strcmp(more, ";") != 0 || strlen(word) >= CAIRN_TOKEN_SIZE)
            return false;
        memcpy(l->token, word, strlen(word) + 1);
        return true;
    case VL_VERDICT:
        if (sscanf(rest, " %16s %2s", word, more) != 2 || strcmp(more, ";") != 0)
            return false;
        l->committed = strcmp(word, "committed") == 0;
        return l->committed || strcmp(word, "aborted") == 0;
    default: return true;
    }
}

int vl_line_parse(const char *text, struct vl_line *ret)
{
    static const char *const names[] = {"run", "ok", "unknown", "verdict", "bad", "end"};
    size_t size = strcspn(text, "\n");
    char name[12];
    int used = 0;

    memset(ret, 0, sizeof(*ret));
    ret->kind = VL_CUT;
    if (size < 2 || strncmp(text + size - 2, " ;", 2) != 0)
        return 0;
    if (sscanf(text, "%11s %" SCNu64 " %" SCNu32 "%n", name, &ret->writer.seed, &ret->writer.thread,
            &used) != 3)
        return cn_fail(CAIRN_E_PROTOCOL, "no line of a ledger: %.80s", text);
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(names); i++) {
        if (strcmp(name, names[i]) == 0)
            ret->kind = (enum vl_line_kind)i;
    }
    if (ret->kind == VL_RUN)
        return 0;
    int more = 0;
    if (ret->kind == VL_CUT || ret->writer.thread >= VL_THREADS_MAX ||
        sscanf(text + used, " %" SCNu64 "%n", &ret->number, &more) != 1 ||
        !parse_rest(text + used + more, ret))
        return cn_fail(CAIRN_E_PROTOCOL, "no line of a ledger: %.80s", text);
    return 0;
}
