/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_error.c: error codes, names and texts; the thread's last error; the end after a broken
 * assertion.
 *
 * The text of an error is made where it happens and kept per thread until the next failure, so that
 * a call can return a plain number. It is the only state here.
 */
#include <stdarg.h>
#include <unistd.h>

#include "include/internal/cn_base.h"

#define TEXT_SIZE 768

static _Thread_local char last_text[TEXT_SIZE];

CN_NORETURN void cn_panic(const char *file, int line, const char *what)
{
    /* One write, so that the lines of several threads do not mix. */
    char text[512];
    int size =
        snprintf(text, sizeof(text), "cairn: %s:%d: assertion failed: %s\n", file, line, what);

    if (size > (int)sizeof(text) - 1)
        size = (int)sizeof(text) - 1;
    if (size > 0) {
        ssize_t written = write(STDERR_FILENO, text, (size_t)size);
        (void)written;
    }
    abort();
}

int cn_fail(int code, const char *format, ...)
{
    char text[TEXT_SIZE]; /* arguments may point into the last text */
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    memcpy(last_text, text, strnlen(text, TEXT_SIZE - 1) + 1);
    return code;
}

int cn_fail_plain(int code, const char *text)
{
    size_t size = strnlen(text, TEXT_SIZE - 1);

    memmove(last_text, text, size);
    last_text[size] = '\0';
    return code;
}

void cn_error_copy(char *ret_text, size_t size)
{
    size_t length = strnlen(last_text, size - 1);

    memcpy(ret_text, last_text, length);
    ret_text[length] = '\0';
}

int cn_fail_context(int code, const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list args;
    size_t used;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    used = strnlen(text, TEXT_SIZE - 1);
    (void)snprintf(text + used, sizeof(text) - used, "%s", last_text);
    memcpy(last_text, text, strnlen(text, TEXT_SIZE - 1) + 1);
    return code;
}

const char *cairn_last_error(void)
{
    return last_text;
}

struct error_entry {
    int value;
    const char *name, *text;
};

static const struct error_entry errors[] = {
#define CAIRN_X(name, value, text) {(value), "CAIRN_E_" #name, text},
    CAIRN_ERRORS(CAIRN_X)
#undef CAIRN_X
};

static const struct error_entry *find_error(int error)
{
    for (size_t i = 0; i < CN_ARRAY_SIZE(errors); i++) {
        if (errors[i].value == error)
            return &errors[i];
    }
    return NULL;
}

const char *cairn_strerror(int error)
{
    const struct error_entry *entry = find_error(error);
    const char *text = NULL;

    if (error == 0)
        return "success";
    if (entry != NULL)
        return entry->text;
    if (error < 0 && error > -20000)
        text = strerrordesc_np(-error);
    return text != NULL ? text : "unknown error";
}

const char *cairn_error_name(int error)
{
    const struct error_entry *entry = find_error(error);
    const char *name = NULL;

    if (error == 0)
        return "OK";
    if (entry != NULL)
        return entry->name;
    if (error < 0 && error > -20000)
        name = strerrorname_np(-error);
    return name != NULL ? name : "UNKNOWN_ERROR";
}

const char *cairn_outcome_name(enum cairn_outcome outcome)
{
    switch (outcome) {
    case CAIRN_OUTCOME_NONE:
        return "NONE";
    case CAIRN_OUTCOME_COMMITTED:
        return "COMMITTED";
    case CAIRN_OUTCOME_ABORTED:
        return "ABORTED";
    case CAIRN_OUTCOME_UNKNOWN:
        return "UNKNOWN";
    }
    return "INVALID";
}

#define QUOTE(x) #x
#define QUOTE_VALUE(x) QUOTE(x)

const char *cairn_version(void)
{
    return QUOTE_VALUE(CAIRN_VERSION_MAJOR) "." QUOTE_VALUE(CAIRN_VERSION_MINOR) "." QUOTE_VALUE(
        CAIRN_VERSION_PATCH);
}
