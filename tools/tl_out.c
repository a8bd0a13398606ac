/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_out.c: what the subcommands print: errors on stderr, results on stdout as text or as one JSON
 * object.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <unistd.h>

#include "tools/tl.h"

void tl_guard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) != -1 || errno != EBADF)
            continue;
        /* The wrong way round: using it fails, as it did while it was closed. */
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(TL_USAGE);
    }
}

int tl_error(const struct tl_command *self, const char *format, ...)
{
    va_list args;

    (void)fflush(stdout);
    fprintf(stderr, "cairn %s: ", self->name);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    return TL_USAGE;
}

/* 1: the data says so; 2: the environment. */
int tl_exit(int error)
{
    if (error == 0)
        return TL_OK;
    bool damage = error <= CAIRN_E_CORRUPT_SUPER && error >= CAIRN_E_CORRUPT_INDEX;
    return damage || error == CAIRN_E_IN_DOUBT ? TL_BAD : TL_USAGE;
}

int tl_cairn_error(const struct tl_command *self, int error, bool json)
{
    const char *text = cairn_last_error();

    if (text[0] == '\0')
        text = cairn_strerror(error);
    if (json)
        tl_json_print(json_pack("{s:s, s:s}", "error", cairn_error_name(error), "text", text));
    (void)tl_error(self, "%s", text);
    return tl_exit(error);
}

void tl_json_print(json_t *object)
{
    if (object == NULL) {
        (void)fputs("{\"error\": \"ENOMEM\"}\n", stdout);
        return;
    }
    (void)json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    (void)fputc('\n', stdout);
    json_decref(object);
}

json_t *tl_json_uuid(const struct cn_uuid *uuid)
{
    char text[CN_UUID_TEXT_SIZE];

    cn_uuid_format(uuid, text);
    return json_string(text);
}

json_t *tl_json_u64(uint64_t value)
{
    char text[24];

    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    return json_string(text);
}

static void print_scalar(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: printf("%s\n", json_string_value(value)); break;
    case JSON_INTEGER: printf("%" JSON_INTEGER_FORMAT "\n", json_integer_value(value)); break;
    case JSON_REAL: printf("%g\n", json_real_value(value)); break;
    case JSON_TRUE: printf("yes\n"); break;
    case JSON_FALSE: printf("no\n"); break;
    default: printf("none\n"); break;
    }
}

static bool is_flat(const json_t *object)
{
    const char *key;
    json_t *child;

    json_object_foreach((json_t *)(uintptr_t)object, key, child)
    {
        if (json_is_object(child) || json_is_array(child))
            return false;
    }
    return true;
}

/* One line: "a 1, b 2". */
static void print_flat(const json_t *object)
{
    const char *key, *comma = "";
    json_t *child;

    json_object_foreach((json_t *)(uintptr_t)object, key, child)
    {
        printf("%s%s ", comma, key);
        comma = ", ";
        if (json_is_string(child))
            printf("%s", json_string_value(child));
        else if (json_is_integer(child))
            printf("%" JSON_INTEGER_FORMAT, json_integer_value(child));
        else if (json_is_boolean(child))
            printf("%s", json_is_true(child) ? "yes" : "no");
        else
            printf("%g", json_number_value(child));
    }
    printf("\n");
}

static void print_array(const json_t *array, int indent)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *child = json_array_get(array, i);
        printf("%*s- ", indent, "");
        if (json_is_object(child) && is_flat(child)) {
            print_flat(child);
        } else if (json_is_object(child)) {
            printf("\n");
            tl_print_tree(child, indent + 2);
        } else {
            print_scalar(child);
        }
    }
}

void tl_print_tree(const json_t *value, int indent)
{
    const char *key;
    json_t *child;

    json_object_foreach((json_t *)(uintptr_t)value, key, child)
    {
        if (json_is_array(child) && json_array_size(child) == 0) {
            printf("%*s%s: none\n", indent, "", key);
        } else if (json_is_array(child)) {
            printf("%*s%s:\n", indent, "", key);
            print_array(child, indent + 2);
        } else if (json_is_object(child)) {
            printf("%*s%s:\n", indent, "", key);
            tl_print_tree(child, indent + 2);
        } else {
            printf("%*s%s: ", indent, "", key);
            print_scalar(child);
        }
    }
}

const char *tl_count(uint64_t value, char text[32])
{
    char digits[24];
    int n = snprintf(digits, sizeof(digits), "%" PRIu64, value), out = 0;

    for (int i = 0; i < n; i++) {
        if (i != 0 && (n - i) % 3 == 0)
            text[out++] = ',';
        text[out++] = digits[i];
    }
    text[out] = '\0';
    return text;
}

const char *tl_bytes(uint64_t value, char text[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)value;
    size_t u = 0;

    while (v >= 1024 && u + 1 < CN_ARRAY_SIZE(unit)) {
        v /= 1024;
        u++;
    }
    (void)snprintf(text, 32, u == 0 ? "%.0f %s" : "%.1f %s", v, unit[u]);
    return text;
}

void tl_print_bytes(const void *data, size_t size)
{
    const unsigned char *p = data;
    bool printable = true;

    for (size_t i = 0; i < size; i++)
        printable = printable && isprint(p[i]);
    if (!printable)
        printf("hex:");
    for (size_t i = 0; i < size; i++)
        printf(printable ? "%c" : "%02x", p[i]);
    printf("\n");
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool tl_parse_hex(const char *text, uint8_t *ret, size_t size_max, size_t *ret_size)
{
    size_t size = strlen(text);

    if (size % 2 != 0 || size / 2 > size_max)
        return false;
    for (size_t i = 0; i < size; i += 2) {
        int high = digit_of(text[i]), low = digit_of(text[i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret[i / 2] = (uint8_t)(high << 4 | low);
    }
    *ret_size = size / 2;
    return true;
}
