/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_read.c: bounded reading of small files under a root.
 *
 * Paths are resolved by the kernel as if the root were "/" (openat2, RESOLVE_IN_ROOT): a link in a
 * captured tree leads nowhere else. Only regular files are read, without blocking: a tree may hold
 * a FIFO. A file that is too long or has bytes that are no printable ASCII is malformed: it is
 * noted, and has no value.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/dr.h"

#define FILE_SIZE_MAX (1u << 20)
#define LIST_SCAN_MAX 4096u

static int open_at(struct dr_root *root, const char *path, int flags)
{
    struct open_how how = {
        .flags = (unsigned)flags | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, root->fd, path, &how, sizeof(how));
    if (fd < 0 && errno == ENOSYS && root->live) /* an old kernel; the root is "/" */
        fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : (int)fd;
}

int dr_root_open(const char *path, struct dr_root *ret_root)
{
    struct dr_root root = {.live = path == NULL};

    root.fd = open(path == NULL ? "/" : path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root.fd < 0) {
        int rc = -errno;
        return cn_fail(rc, "%s: cannot open the root of a captured tree: %s",
            path == NULL ? "/" : path, strerror(-rc));
    }
    int fd = open_at(&root, "/", O_PATH);
    if (fd < 0) {
        (void)close(root.fd);
        return cn_fail(fd, "%s: links in it cannot be kept inside: %s (Linux 5.6 or newer can)",
            path == NULL ? "/" : path, strerror(-fd));
    }
    (void)close(fd);
    *ret_root = root;
    return 0;
}

void dr_root_close(struct dr_root *root)
{
    (void)close(root->fd);
    root->fd = -1;
}

static void note_malformed(struct dr_root *root, const char *path)
{
    if (root->malformed_count < DR_MALFORMED_MAX)
        dr_copy_printable(root->malformed[root->malformed_count], DR_PATH_SIZE, path);
    root->malformed_count++;
}

int dr_open_path(struct dr_root *root, const char *path)
{
    return open_at(root, path, O_PATH);
}

/* Up to `size` bytes; *ret_more: there are more. */
static int read_bytes(
    struct dr_root *root, const char *path, char *bytes, size_t size, bool *ret_more)
{
    struct stat st;
    size_t used = 0;
    ssize_t n = 0;
    int fd = open_at(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return fd;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        (void)close(fd);
        return -EINVAL;
    }
    while (used < size && (n = read(fd, bytes + used, size - used)) > 0)
        used += (size_t)n;
    int rc = n < 0 ? -errno : (int)used;
    char next;
    *ret_more = n > 0 && used == size && read(fd, &next, 1) == 1;
    (void)close(fd);
    return rc;
}

/* A path too long is no path: -ENAMETOOLONG as the kernel would say. */
static int make_path(char path[DR_PATH_SIZE], const char *format, va_list args) CN_PRINTF(2, 0);
static int make_path(char path[DR_PATH_SIZE], const char *format, va_list args)
{
    int n = vsnprintf(path, DR_PATH_SIZE, format, args);
    return n < 0 || n >= (int)DR_PATH_SIZE ? -ENAMETOOLONG : 0;
}

static bool is_printable(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\n' && c != '\t') || c >= 0x7f)
            return false;
    }
    return true;
}

static size_t trim(char *text, size_t size)
{
    size_t begin = 0;

    while (size > 0 && isspace((unsigned char)text[size - 1]))
        size--;
    while (begin < size && isspace((unsigned char)text[begin]))
        begin++;
    memmove(text, text + begin, size - begin);
    size -= begin;
    text[size] = '\0';
    for (size_t i = 0; i < size; i++) /* one line: what was several is joined */
        if (text[i] == '\n' || text[i] == '\t')
            text[i] = ' ';
    return size;
}

static int read_text(struct dr_root *root, char *text, size_t size, const char *path)
{
    bool more = false;
    int n = read_bytes(root, path, text, size - 1, &more);

    if (n < 0) {
        text[0] = '\0';
        return n;
    }
    if (more || !is_printable(text, (size_t)n)) {
        note_malformed(root, path);
        text[0] = '\0';
        return more ? -EFBIG : -EILSEQ;
    }
    return (int)trim(text, (size_t)n);
}

int dr_read(struct dr_root *root, char *text, size_t size, const char *format, ...)
{
    char path[DR_PATH_SIZE];
    va_list args;

    text[0] = '\0';
    va_start(args, format);
    int rc = make_path(path, format, args);
    va_end(args);
    return rc != 0 ? rc : read_text(root, text, size, path);
}

bool dr_read_u64(struct dr_root *root, uint64_t *ret_value, const char *format, ...)
{
    char path[DR_PATH_SIZE], text[32], *end;
    va_list args;

    va_start(args, format);
    int rc = make_path(path, format, args);
    va_end(args);
    if (rc != 0 || read_text(root, text, sizeof(text), path) <= 0)
        return false;
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const char *digits = hex ? text + 2 : text;
    errno = 0;
    uint64_t value = strtoull(digits, &end, hex ? 16 : 10);
    if (!isxdigit((unsigned char)digits[0]) || *end != '\0' || errno != 0) {
        note_malformed(root, path);
        return false;
    }
    *ret_value = value;
    return true;
}

char *dr_read_file(struct dr_root *root, const char *path)
{
    bool more = false;
    char *text = malloc(FILE_SIZE_MAX + 1);
    int n = text == NULL ? -ENOMEM : read_bytes(root, path, text, FILE_SIZE_MAX, &more);

    if (n < 0) {
        free(text);
        return NULL;
    }
    if (more)
        note_malformed(root, path);
    for (int i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\n' && c != '\t') || c >= 0x7f)
            text[i] = '?';
    }
    text[n] = '\0';
    return text;
}

bool dr_name_is_plain(const char *name)
{
    if (name[0] == '\0' || name[0] == '-' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    for (; *name != '\0'; name++) {
        if (!isalnum((unsigned char)*name) && strchr("_.:-", *name) == NULL)
            return false;
    }
    return true;
}

void dr_copy_printable(char *to, size_t size, const char *from)
{
    size_t i;

    for (i = 0; i + 1 < size && from[i] != '\0'; i++) {
        unsigned char c = (unsigned char)from[i];
        to[i] = c < 0x20 || c >= 0x7f ? '?' : (char)c;
    }
    to[i] = '\0';
}

static int compare_names(const void *a, const void *b)
{
    return strverscmp(a, b);
}

static bool is_wanted(struct dr_root *root, const char *path, const char *name)
{
    if (name[0] == '.')
        return false;
    if (strlen(name) < DR_NAME_SIZE && dr_name_is_plain(name))
        return true;
    char full[DR_PATH_SIZE];
    (void)snprintf(full, sizeof(full), "%.120s/%.120s", path, name);
    note_malformed(root, full);
    return false;
}

unsigned dr_list(
    struct dr_root *root, char (*names)[DR_NAME_SIZE], unsigned max, const char *format, ...)
{
    char path[DR_PATH_SIZE];
    unsigned count = 0, scanned = 0;
    va_list args;

    va_start(args, format);
    int rc = make_path(path, format, args);
    va_end(args);
    int fd = rc != 0 ? rc : open_at(root, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return 0;
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        (void)close(fd);
        return 0;
    }
    for (struct dirent *e; count < max && scanned < LIST_SCAN_MAX && (e = readdir(dir)) != NULL;
         scanned++) {
        if (!is_wanted(root, path, e->d_name))
            continue;
        memcpy(names[count], e->d_name, strlen(e->d_name) + 1);
        count++;
    }
    (void)closedir(dir);
    qsort(names, count, DR_NAME_SIZE, compare_names);
    return count;
}

bool dr_link(struct dr_root *root, char *text, size_t size, const char *format, ...)
{
    char path[DR_PATH_SIZE], target[4096];
    va_list args;

    text[0] = '\0';
    va_start(args, format);
    int rc = make_path(path, format, args);
    va_end(args);
    int fd = rc != 0 ? rc : open_at(root, path, O_PATH | O_NOFOLLOW);
    if (fd < 0)
        return false;
    ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);
    (void)close(fd);
    if (n <= 0)
        return false;
    target[n] = '\0';
    if ((size_t)n >= size || !is_printable(target, (size_t)n)) {
        note_malformed(root, path);
        return false;
    }
    memcpy(text, target, (size_t)n + 1);
    return true;
}

const char *dr_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

bool dr_exists(struct dr_root *root, const char *format, ...)
{
    char path[DR_PATH_SIZE];
    va_list args;

    va_start(args, format);
    int rc = make_path(path, format, args);
    va_end(args);
    int fd = rc != 0 ? rc : open_at(root, path, O_PATH);
    if (fd < 0)
        return false;
    (void)close(fd);
    return true;
}
