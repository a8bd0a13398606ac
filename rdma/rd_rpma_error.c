/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_error.c: causes of failures as librpma, verbs and rdma_cm give them, as our errors.
 *
 * librpma returns one number for every failed system call; which it was and errno are only in its
 * log. So its log is captured per thread, and what was said since the last rd_rpma_log_clear() goes
 * into the text of our error. This and the "once" are the only state here.
 *
 * A system cause that a caller can do something about keeps its errno; one of the fabric's own
 * becomes a CAIRN_E_*; everything else is CAIRN_E_FABRIC with the cause in its text.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/resource.h>

#include "rdma/rd_rpma.h"

#define LOG_TEXT_SIZE 320u

static _Thread_local char log_text[LOG_TEXT_SIZE];
static _Thread_local int log_errno; /* errno when librpma first spoke since the last clear */
static pthread_once_t log_once = PTHREAD_ONCE_INIT;

/* ---- librpma's log ---- */

static void __attribute__((format(printf, 5, 6))) capture(enum rpma_log_level level,
    const char *file, const int line, const char *function, const char *format, ...)
{
    int error = errno;
    (void)file;
    (void)line;
    (void)function;
    if (level > RPMA_LOG_LEVEL_ERROR)
        return;
    size_t used = strnlen(log_text, LOG_TEXT_SIZE);
    if (used == 0)
        log_errno = error;
    else if (used + 2 < LOG_TEXT_SIZE) {
        memcpy(log_text + used, "; ", 3);
        used += 2;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(log_text + used, LOG_TEXT_SIZE - used, format, args);
    va_end(args);
    for (size_t end = strnlen(log_text, LOG_TEXT_SIZE); end > 0 && log_text[end - 1] == '\n';)
        log_text[--end] = 0;
    errno = error;
}

static void set_capture(void)
{
    (void)rpma_log_set_function(capture);
    (void)rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_LEVEL_ERROR);
}

void rd_rpma_log_capture(void)
{
    (void)pthread_once(&log_once, set_capture);
}

void rd_rpma_log_clear(void)
{
    log_text[0] = 0;
    log_errno = 0;
    errno = 0;
}

const char *rd_rpma_log_text(void)
{
    return log_text;
}

/* ---- errno ---- */

static int map_errno(int error)
{
    switch (error) {
    case ENODEV:
        return CAIRN_E_NO_DEVICE;
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
        return CAIRN_E_UNREACHABLE;
    case ETIMEDOUT:
        return CAIRN_E_TIMEOUT;
    case ECONNREFUSED:
        return CAIRN_E_REJECTED;
    case ECONNRESET:
    case ENOTCONN:
    case ESHUTDOWN:
        return CAIRN_E_NODE_DOWN;
    case EAGAIN:
        return CAIRN_E_AGAIN;
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case EACCES:
    case EPERM:
    case EMFILE:
    case ENFILE:
        return -error;
    default:
        return CAIRN_E_FABRIC;
    }
}

static uint64_t memlock_limit(void)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    return limit.rlim_cur;
}

/* Queues and the like are locked too, by the provider: where there is a limit, that is the cause
 * that can be mended. */
static int fail_no_memory(const char *what, const char *cause)
{
    uint64_t limit = memlock_limit();
    if (limit == RLIM_INFINITY)
        return cn_fail(-ENOMEM, "%s: %s", what, cause);
    return cn_fail(CAIRN_E_MEMLOCK,
        "%s: %s; what a device uses is locked, and this process may lock %llu bytes in all; raise "
        "that: `ulimit -l`, LimitMEMLOCK= of the service, or memlock in /etc/security/limits.conf",
        what, cause, (unsigned long long)limit);
}

int rd_rpma_fail_errno(int error, const char *what)
{
    if (error < 0)
        error = -error;
    const char *cause = error != 0 ? strerrordesc_np(error) : "no cause given";
    if (cause == NULL)
        cause = "unknown error";
    if (error == ENODEV)
        return cn_fail(CAIRN_E_NO_DEVICE,
            "%s: no RDMA device serves this address; see `cairn doctor`", what);
    return error == ENOMEM ? fail_no_memory(what, cause)
                           : cn_fail(map_errno(error), "%s: %s", what, cause);
}

int rd_rpma_fail_register(int error, const char *what, uint64_t size)
{
    if (error < 0)
        error = -error;
    uint64_t limit = memlock_limit();
    switch (error) {
    case ENOMEM:
        if (limit == RLIM_INFINITY)
            return cn_fail(-ENOMEM,
                "%s: neither host nor device has the memory to register %llu bytes", what,
                (unsigned long long)size);
        return cn_fail(CAIRN_E_MEMLOCK,
            "%s: cannot lock %llu more bytes, the limit of this process is %llu in all; raise it: "
            "`ulimit -l`, LimitMEMLOCK= of the service, or memlock in /etc/security/limits.conf",
            what, (unsigned long long)size, (unsigned long long)limit);
    case EOPNOTSUPP:
        return cn_fail(CAIRN_E_FABRIC,
            "%s: the device cannot register this kind of memory: a file of a dax file system needs "
            "on-demand paging; use a devdax device, tmpfs or an ordinary file",
            what);
    case EFAULT:
    case EACCES:
        return cn_fail(-error, "%s: the memory is not mapped, or not writable", what);
    default:
        return rd_rpma_fail_errno(error, what);
    }
}

/* ---- librpma ---- */

int rd_rpma_fail(int rc, const char *what)
{
    const char *text = log_text[0] != 0 ? log_text : rpma_err_2str(rc);
    int error = log_text[0] != 0 ? log_errno : errno;
    switch (rc) {
    case RPMA_E_NOMEM:
        return cn_fail(-ENOMEM, "%s: %s", what, text);
    case RPMA_E_AGAIN:
        return cn_fail(CAIRN_E_AGAIN, "%s: %s", what, text);
    case RPMA_E_PROVIDER:
        if (error == 0) /* Soft-iWARP's library: its queues' room in a process is used up */
            return cn_fail(CAIRN_E_FABRIC,
                "%s: %s; the device's library gives no cause: it may be a limit of its own, as of "
                "queues in a process", what, text);
        return error == ENOMEM ? fail_no_memory(what, text)
                               : cn_fail(map_errno(error), "%s: %s", what, text);
    default:
        return cn_fail(CAIRN_E_FABRIC, "%s: %s", what, text);
    }
}

int rd_rpma_errno(int rc)
{
    if (rc == RPMA_E_NOMEM)
        return ENOMEM;
    int error = log_text[0] != 0 ? log_errno : errno;
    return rc == RPMA_E_PROVIDER && error != 0 ? error : EIO;
}

/* ---- work completions ---- */

int rd_rpma_wc_error(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return 0;
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
        return CAIRN_E_NODE_DOWN;
    case IBV_WC_REM_ACCESS_ERR:
        return CAIRN_E_FENCED; /* we ask only for what was granted: it has been taken away */
    default:
        return CAIRN_E_FABRIC;
    }
}

const char *rd_rpma_wc_text(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return "success";
    case IBV_WC_WR_FLUSH_ERR:
        return "the connection broke before the operation was done";
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
        return "the peer does not answer: it or the way to it is down";
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return "the peer has no receive buffer left";
    case IBV_WC_REM_ACCESS_ERR:
        return "the peer has taken the access away";
    case IBV_WC_REM_INV_REQ_ERR:
        return "the peer's device refuses the request: no remote atomics, or misaligned";
    case IBV_WC_REM_OP_ERR:
        return "the peer's device failed";
    default:
        return ibv_wc_status_str(status);
    }
}
