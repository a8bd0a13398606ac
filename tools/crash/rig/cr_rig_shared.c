/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_rig_shared.c: making and mapping the shared file, and the logs in it. The file is sparse: what
 * nobody writes takes no memory.
 */
#include "tools/crash/rig/cr_rig_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/crash/workload/cr_work.h"

#define PAGE UINT64_C(4096)
#define START_OPS 1000 /* ahead of time */

int rig_parts(
    const char *text, const struct cairn_workload *ret_part[RIG_PARTS_MAX], uint32_t *ret_count)
{
    const struct cairn_workload *found[CR_PARTS_MAX + 1];
    int rc = cr_work_open(text, found);

    *ret_count = 0;
    if (rc != 0)
        return rc;
    for (; *ret_count < RIG_PARTS_MAX && found[*ret_count] != NULL; (*ret_count)++)
        ret_part[*ret_count] = found[*ret_count];
    if (*ret_count > 0)
        return 0;
    const struct cairn_workload *next; /* mixed: all that are built in */
    while (*ret_count < RIG_PARTS_MAX && (next = cr_work_at(*ret_count)) != NULL)
        ret_part[(*ret_count)++] = next;
    return 0;
}

static int map(const char *path, int fd, uint64_t size, struct rig_shared **ret)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    int error = errno;

    (void)close(fd);
    if (p == MAP_FAILED)
        return cn_fail(-error, "%s: cannot map: %s", path, strerror(error));
    *ret = p;
    return 0;
}

static uint64_t log_size(double seconds)
{
    double size = seconds * (double)RIG_LOG_PER_SECOND;

    return size < (double)RIG_LOG_MIN ? RIG_LOG_MIN
        : size > (double)RIG_LOG_MAX  ? RIG_LOG_MAX
                                      : cn_align_up((uint64_t)size, PAGE);
}

/* Places of everything; returns the size. */
static uint64_t place(
    struct rig_shared *s, const struct cairn_workload *const *parts, double seconds)
{
    uint64_t at = cn_align_up(sizeof(*s), PAGE);

    for (uint32_t i = 0; i < s->parts; i++) {
        struct rig_part *p = &s->part[i];
        (void)snprintf(p->name, sizeof(p->name), "%s", parts[i]->name);
        p->state_off = at;
        p->state_size = parts[i]->state_size;
        at += cn_align_up(p->state_size, PAGE);
        p->ops_off = at;
        p->op_room = cr_work_find(parts[i]->name) == parts[i] ? RIG_OPS_BUILT_IN + RIG_OPS_SPARE
                                                              : RIG_OPS_MAX;
        at += cn_align_up(p->op_room * sizeof(struct rig_op), PAGE);
    }
    for (uint32_t i = 0; i <= s->clients; i++) {
        s->client[i].log_off = at;
        s->client[i].log_size = log_size(seconds);
        at += s->client[i].log_size;
    }
    return at;
}

static struct rig_shared header(const struct rig_shape *shape)
{
    struct rig_shared s = {.magic = RIG_MAGIC, .seed = shape->seed, .clients = shape->clients,
        .parts = shape->part_count};

    CAIRN_ASSERT(shape->clients <= RIG_CLIENTS_MAX && shape->part_count <= RIG_PARTS_MAX);
    (void)snprintf(s.workload, sizeof(s.workload), "%s", shape->workload);
    s.size = place(&s, shape->parts, shape->seconds);
    return s;
}

uint64_t rig_shared_size(const struct rig_shape *shape)
{
    return header(shape).size;
}

int rig_shared_make(const char *path, const struct rig_shape *shape, struct rig_shared **ret)
{
    const struct rig_shared s = header(shape);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return cn_fail(-errno, "%s: cannot make: %s", path, strerror(errno));
    if (ftruncate(fd, (off_t)s.size) != 0) {
        int error = errno;
        (void)close(fd);
        return cn_fail(-error, "%s: cannot make: %s", path, strerror(error));
    }
    int rc = map(path, fd, s.size, ret);
    if (rc == 0)
        memcpy(*ret, &s, sizeof(s));
    return rc;
}

int rig_shared_map(const char *path, struct rig_shared **ret)
{
    struct stat st;
    uint64_t head[2] = {0};
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return cn_fail(-errno, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || pread(fd, head, sizeof(head), 0) != sizeof(head) ||
        head[0] != RIG_MAGIC || head[1] != (uint64_t)st.st_size ||
        head[1] < sizeof(struct rig_shared)) {
        (void)close(fd);
        return cn_fail(-EINVAL, "%s: is not the shared memory of a rig of this build", path);
    }
    return map(path, fd, head[1], ret);
}

void rig_shared_unmap(struct rig_shared **shared)
{
    if (*shared != NULL)
        (void)munmap(*shared, (*shared)->size);
    *shared = NULL;
}

struct rig_op *rig_op_at(struct rig_shared *s, uint32_t part, uint64_t op)
{
    struct rig_part *p = &s->part[part];

    if (op == 0 || op > __atomic_load_n(&p->op_count, __ATOMIC_ACQUIRE) || op > p->op_room)
        return NULL;
    return (struct rig_op *)rig_at(s, p->ops_off) + (op - 1);
}

bool rig_is_ahead(const struct rig_shared *s, uint32_t part, bool built_in, uint64_t now)
{
    double all = built_in ? RIG_OPS_BUILT_IN : 0.9 * RIG_OPS_MAX;
    double gone = s->work_ns == 0 || now < s->work_begin_ns
        ? 1
        : (double)(now - s->work_begin_ns) / (double)s->work_ns;
    uint64_t taken = __atomic_load_n(&s->part[part].op_count, __ATOMIC_RELAXED);

    return (double)taken > all * (gone < 1 ? gone : 1) + START_OPS;
}

void rig_op_set_token(struct rig_op *op, const char token[CAIRN_TOKEN_SIZE])
{
    __atomic_store_n(&op->token[0], '\0', __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    memcpy(op->token + 1, token + 1, CAIRN_TOKEN_SIZE - 1);
    __atomic_store_n(&op->token[0], token[0], __ATOMIC_RELEASE);
}

void rig_fail(struct rig_shared *s, const char *text)
{
    uint32_t none = 0;

    if (!__atomic_compare_exchange_n(
            &s->failed, &none, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    (void)snprintf(s->failure, sizeof(s->failure), "%s", text);
    __atomic_store_n(&s->failed, 2, __ATOMIC_RELEASE);
}

const char *rig_failure(const struct rig_shared *s)
{
    switch (__atomic_load_n(&s->failed, __ATOMIC_ACQUIRE)) {
    case 0:
        return NULL;
    case 2:
        return s->failure;
    default:
        return "a client found a violation, and was killed before it had written which";
    }
}

/* ---- logs ---- */

static void *room(struct rig_shared *s, struct rig_client *c, uint64_t size)
{
    if (c->used + size > c->log_size) {
        c->full = 1;
        return NULL;
    }
    return rig_at(s, c->log_off + c->used);
}

/* Whatever was written before is there from here on, even if the next instruction is never reached.
 */
static void publish(uint64_t *where, uint64_t value)
{
    __atomic_store_n(where, value, __ATOMIC_RELEASE);
}

/* `size` of the event moves before `used`, and `open` after it. */
void rig_log_resume(struct rig_shared *s, uint32_t client)
{
    struct rig_client *c = &s->client[client];

    if (c->open == 0)
        return;
    const struct rig_event *e = rig_at(s, c->log_off + c->open - 1);
    publish(&c->used, c->open - 1 + e->size);
    publish(&c->open, 0);
}

bool rig_event_begin(struct rig_shared *s, uint32_t client, uint32_t part, uint64_t process,
    uint64_t now, bool final)
{
    struct rig_client *c = &s->client[client];
    struct rig_event *e = room(s, c, sizeof(*e));

    if (e == NULL)
        return false;
    *e = (struct rig_event){.begin_ns = now, .process = process, .part = part, .final = final,
        .outcome = CAIRN_OUTCOME_NONE, .size = sizeof(*e)};
    uint64_t at = c->used;
    publish(&c->used, at + sizeof(*e));
    publish(&c->open, at + 1);
    return true;
}

bool rig_event_mop(struct rig_shared *s, uint32_t client, enum rig_mop_kind kind, uint64_t key,
    const uint32_t *elements, uint32_t count)
{
    struct rig_client *c = &s->client[client];
    uint64_t size = sizeof(struct rig_mop) + cn_align_up((uint64_t)count * 4, 8);
    struct rig_mop *m = room(s, c, size);

    if (m == NULL || c->open == 0)
        return false;
    struct rig_event *e = rig_at(s, c->log_off + c->open - 1);
    *m = (struct rig_mop){.key = key, .kind = kind, .count = count};
    if (count > 0)
        memcpy(m + 1, elements, (size_t)count * 4);
    publish(&e->size, e->size + size);
    publish(&c->used, c->used + size);
    return true;
}

void rig_event_end(
    struct rig_shared *s, uint32_t client, enum cairn_outcome outcome, uint64_t now)
{
    struct rig_client *c = &s->client[client];

    if (c->open == 0)
        return;
    struct rig_event *e = rig_at(s, c->log_off + c->open - 1);
    e->end_ns = now;
    __atomic_store_n(&e->outcome, (uint32_t)outcome, __ATOMIC_RELEASE);
    publish(&c->open, 0);
}
