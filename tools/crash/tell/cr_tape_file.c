/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_tape_file.c: writes and reads tapes. Labels are few and repeat: each is kept once.
 */
#include "tools/crash/tell/cr_tape_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "cairn-tape "
#define LINE_MAX_SIZE 1280u

/* ---- write ---- */

struct writer {
    FILE *file;
    uint32_t crc;
    bool failed;
};

static void put(struct writer *w, const char *format, ...) CN_PRINTF(2, 3);
static void put(struct writer *w, const char *format, ...)
{
    char line[LINE_MAX_SIZE];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(line)) {
        w->failed = true;
        return;
    }
    w->crc = cn_crc32c(w->crc, line, (size_t)n);
    if (fwrite(line, 1, (size_t)n, w->file) != (size_t)n)
        w->failed = true;
}

static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

/* One line, plain characters. */
static void put_text(struct writer *w, const char *key, const char *text)
{
    char line[1024];
    size_t n = 0;

    for (; n < sizeof(line) - 1 && text[n] != '\0'; n++)
        line[n] = text[n] < ' ' || text[n] > '~' ? ' ' : text[n];
    line[n] = '\0';
    put(w, "%s %s\n", key, line);
}

static void put_tape(struct writer *w, const struct cr_tape_file *tape)
{
    put(w, MAGIC "%u\n", CR_TAPE_VERSION);
    put_text(w, "build", tape->build);
    put(w, "seed %" PRIu64 "\n", tape->seed);
    put_text(w, "mutant", tape->mutant);
    put_text(w, "workload", tape->workload);
    put_text(w, "setup", tape->setup);
    put_text(w, "failure", tape->failure);
    put_text(w, "rest", tape->calm_rest ? "calm" : "drawn");
    put(w, "choices %zu\n", tape->count);
    for (size_t i = 0; i < tape->count && !w->failed; i++) {
        const struct sim_choice *c = &tape->choice[i];
        put(w, "%u %u %u %u %s\n", c->value, c->bound, c->who, c->nth, c->label);
    }
    put(w, "end %08x\n", w->crc);
}

static int write_beside(const char *beside, const struct cr_tape_file *tape)
{
    struct writer w = {.file = fopen(beside, "we")};

    if (w.file == NULL)
        return cn_fail(-errno, "cannot write %s: %s", beside, strerror(errno));
    put_tape(&w, tape);
    if (fclose(w.file) != 0 || w.failed) {
        int error = errno != 0 ? errno : EIO;
        struct stat st;
        if (lstat(beside, &st) == 0 && S_ISREG(st.st_mode))
            (void)unlink(beside);
        return cn_fail(-error, "cannot write %s: %s", beside, strerror(error));
    }
    return 0;
}

int cr_tape_write(const char *path, const struct cr_tape_file *tape)
{
    char beside[4200];
    struct stat st;

    if (tape->count > CR_TAPE_CHOICES_MAX)
        return cn_fail(CAIRN_E_LIMIT, "the run took %zu choices; a tape holds %u", tape->count,
            CR_TAPE_CHOICES_MAX);
    for (size_t i = 0; i < tape->count; i++)
        if (strlen(tape->choice[i].label) > CR_TAPE_LABEL_MAX || !is_plain(tape->choice[i].label))
            return cn_fail(CAIRN_E_LIMIT, "the label of choice %zu cannot be written", i);
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return write_beside(path, tape); /* as cr_html_write(): never replaced */
    if ((size_t)snprintf(beside, sizeof(beside), "%s.part", path) >= sizeof(beside))
        return cn_fail(-ENAMETOOLONG, "the path of the tape is too long");
    int rc = write_beside(beside, tape);
    if (rc == 0 && rename(beside, path) != 0) {
        rc = cn_fail(-errno, "cannot write %s: %s", path, strerror(errno));
        (void)unlink(beside);
    }
    return rc;
}

/* ---- read ---- */

struct reader {
    const char *name, *at, *end;
    size_t line;
};

static int malformed(const struct reader *r, const char *what)
{
    return cn_fail(-EINVAL, "%s: line %zu: %s", r->name, r->line, what);
}

/* The next line without its end, into `line`; false: there is none, or it is too long or not
 * plain. */
static bool next_line(struct reader *r, char line[LINE_MAX_SIZE])
{
    const char *end = memchr(r->at, '\n', (size_t)(r->end - r->at));

    r->line++;
    if (end == NULL || (size_t)(end - r->at) >= LINE_MAX_SIZE)
        return false;
    memcpy(line, r->at, (size_t)(end - r->at));
    line[end - r->at] = '\0';
    if (strlen(line) != (size_t)(end - r->at) || !is_plain(line))
        return false;
    r->at = end + 1;
    return true;
}

/* A decimal number at *at, which moves behind it. */
static bool take_u64(const char **at, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;
    const char *p = *at;

    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (v > (max - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *at = p;
    *ret = v;
    return true;
}

/* "KEY TEXT" into ret. */
static int take_text(struct reader *r, const char *key, char *ret, size_t room)
{
    char line[LINE_MAX_SIZE];
    size_t n = strlen(key);

    if (!next_line(r, line) || strncmp(line, key, n) != 0 || line[n] != ' ')
        return cn_fail(-EINVAL, "%s: line %zu: \"%s ...\" is missing", r->name, r->line, key);
    if (strlen(line + n + 1) >= room)
        return malformed(r, "too long");
    memcpy(ret, line + n + 1, strlen(line + n + 1) + 1);
    return 0;
}

static int take_number_line(struct reader *r, const char *key, uint64_t max, uint64_t *ret)
{
    char text[32];
    const char *at = text;
    int rc = take_text(r, key, text, sizeof(text));

    if (rc != 0)
        return rc;
    return take_u64(&at, max, ret) && *at == '\0' ? 0 : malformed(r, "not a number that fits");
}

/* Kept once; NULL: too many, or no memory. */
static const char *intern(struct cr_tape_file *tape, const char *label)
{
    uint32_t n = tape->label_count;

    for (uint32_t i = 0; i < n; i++)
        if (strcmp(tape->label[i], label) == 0)
            return tape->label[i];
    if (n == CR_TAPE_LABELS_MAX || (tape->label[n] = strdup(label)) == NULL)
        return NULL;
    tape->label_count++;
    return tape->label[n];
}

static int take_choice(struct reader *r, struct cr_tape_file *tape, struct sim_choice *ret)
{
    char line[LINE_MAX_SIZE];
    const char *at = line;
    uint64_t v[4]; /* value, bound, who, nth */

    if (!next_line(r, line))
        return malformed(r, "a choice is missing");
    for (uint32_t i = 0; i < 4; i++)
        if (!take_u64(&at, UINT32_MAX, &v[i]) || *at++ != ' ')
            return malformed(r, "a choice is VALUE BOUND WHO NTH LABEL");
    if (v[1] == 0 || v[0] >= v[1])
        return malformed(r, "the value is not below its bound");
    if (*at == '\0' || strlen(at) > CR_TAPE_LABEL_MAX)
        return malformed(r, "bad label");
    const char *label = intern(tape, at);
    if (label == NULL)
        return malformed(r, "too many labels");
    *ret = (struct sim_choice){.label = label, .value = (uint32_t)v[0], .bound = (uint32_t)v[1],
        .who = (uint32_t)v[2], .nth = (uint32_t)v[3]};
    return 0;
}

static int take_rest(struct reader *r, bool *ret_calm)
{
    char text[16];
    int rc = take_text(r, "rest", text, sizeof(text));

    if (rc != 0)
        return rc;
    *ret_calm = strcmp(text, "calm") == 0;
    return *ret_calm || strcmp(text, "drawn") == 0 ? 0 : malformed(r, "must be calm or drawn");
}

static int take_choices(struct reader *r, struct cr_tape_file *tape)
{
    uint64_t count;
    int rc = take_number_line(r, "choices", CR_TAPE_CHOICES_MAX, &count);

    if (rc != 0)
        return rc;
    /* The shortest line is "0 1 0 0 x": a count that cannot be true takes no memory. */
    if (count > (uint64_t)(r->end - r->at) / 10)
        return malformed(r, "more choices than the file has room for");
    tape->own_choice = calloc(count + 1, sizeof(*tape->own_choice));
    if (tape->own_choice == NULL)
        return cn_fail(-ENOMEM, "%s: no memory for %" PRIu64 " choices", r->name, count);
    for (uint64_t i = 0; i < count && rc == 0; i++)
        rc = take_choice(r, tape, &tape->own_choice[i]);
    tape->choice = tape->own_choice;
    tape->count = (size_t)count;
    return rc;
}

static int take_end(struct reader *r, const char *begin)
{
    uint32_t crc = cn_crc32c(0, begin, (size_t)(r->at - begin));
    char text[16], want[16];
    int rc = take_text(r, "end", text, sizeof(text));

    if (rc != 0)
        return rc;
    (void)snprintf(want, sizeof(want), "%08x", crc);
    if (strcmp(text, want) != 0)
        return cn_fail(-EBADMSG, "%s: its checksum is %s, its content's is %s: it was changed",
            r->name, text, want);
    return r->at == r->end ? 0 : malformed(r, "something follows the end");
}

static int take_head(struct reader *r)
{
    char line[LINE_MAX_SIZE], want[32];

    (void)snprintf(want, sizeof(want), MAGIC "%u", CR_TAPE_VERSION);
    if (!next_line(r, line) || strncmp(line, MAGIC, strlen(MAGIC)) != 0)
        return cn_fail(-EINVAL, "%s: not a tape (it does not begin with \"%s\")", r->name, want);
    if (strcmp(line, want) != 0)
        return cn_fail(CAIRN_E_WIRE_VERSION, "%s: a tape of version %.16s; this program reads %u",
            r->name, line + strlen(MAGIC), CR_TAPE_VERSION);
    return 0;
}

int cr_tape_parse(const char *name, const char *text, size_t size, struct cr_tape_file *ret_tape)
{
    struct cr_tape_file *tape = calloc(1, sizeof(*tape));
    struct reader r = {.name = name, .at = text, .end = text + size};

    if (tape == NULL)
        return cn_fail(-ENOMEM, "%s: no memory", name);
    int rc = take_head(&r);
    if (rc == 0)
        rc = take_text(&r, "build", tape->build, sizeof(tape->build));
    if (rc == 0)
        rc = take_number_line(&r, "seed", UINT64_MAX, &tape->seed);
    if (rc == 0)
        rc = take_text(&r, "mutant", tape->mutant, sizeof(tape->mutant));
    if (rc == 0)
        rc = take_text(&r, "workload", tape->workload, sizeof(tape->workload));
    if (rc == 0)
        rc = take_text(&r, "setup", tape->setup, sizeof(tape->setup));
    if (rc == 0)
        rc = take_text(&r, "failure", tape->failure, sizeof(tape->failure));
    if (rc == 0)
        rc = take_rest(&r, &tape->calm_rest);
    if (rc == 0)
        rc = take_choices(&r, tape);
    if (rc == 0)
        rc = take_end(&r, text);
    if (rc == 0)
        *ret_tape = *tape;
    else
        cr_tape_release(tape);
    free(tape);
    return rc;
}

static int read_all(int fd, const char *path, char **ret_text, size_t *ret_size)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return cn_fail(-errno, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > CR_TAPE_SIZE_MAX)
        return cn_fail(-EINVAL, "%s: not a tape (no file, or larger than any tape)", path);
    size_t size = (size_t)st.st_size, done = 0;
    char *text = malloc(size + 1);
    if (text == NULL)
        return cn_fail(-ENOMEM, "%s: no memory for %zu bytes", path, size);
    while (done < size) {
        ssize_t n = read(fd, text + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(text);
            return cn_fail(-errno, "cannot read %s: %s", path, strerror(errno));
        }
        if (n == 0)
            break;
        done += (size_t)n;
    }
    *ret_text = text;
    *ret_size = done;
    return 0;
}

int cr_tape_read(const char *path, struct cr_tape_file *ret_tape)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = NULL;
    size_t size = 0;

    if (fd < 0)
        return cn_fail(-errno, "cannot read %s: %s", path, strerror(errno));
    int rc = read_all(fd, path, &text, &size);
    (void)close(fd);
    if (rc == 0)
        rc = cr_tape_parse(path, text, size, ret_tape);
    free(text);
    return rc;
}

void cr_tape_release(struct cr_tape_file *tape)
{
    for (uint32_t i = 0; i < tape->label_count; i++)
        free(tape->label[i]);
    free(tape->own_choice);
    tape->label_count = 0;
    tape->own_choice = NULL;
    tape->choice = NULL;
    tape->count = 0;
}
