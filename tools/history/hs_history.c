/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hs_history.c: recording, logging and merging of histories; owns the log format of hs_history.h.
 * Invariant: outside an event, everything a log holds is whole events, but for the last one of a
 * process that was killed inside write(2).
 */
#include "tools/history/hs_history.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define EVENT_HEAD 24u /* bytes of an event after size and crc, before the micro-operations */
#define MOP_HEAD 24u
#define EVENT_SIZE_MAX (1u << 26)

static void *grow(void *array, uint64_t need, uint64_t *room, size_t item)
{
    uint64_t n = *room == 0 ? 64 : *room;

    if (need <= *room)
        return array;
    while (n < need)
        n += n / 2;
    array = realloc(array, n * item);
    if (array == NULL)
        cn_panic(__FILE__, __LINE__, "out of memory for a history");
    *room = n;
    return array;
}

struct hs_history *hs_history_new(void)
{
    struct hs_history *h = calloc(1, sizeof(*h));

    if (h == NULL)
        cn_panic(__FILE__, __LINE__, "out of memory for a history");
    h->fd = -1;
    h->keep = true;
    return h;
}

void hs_history_delete(struct hs_history **history)
{
    struct hs_history *h = *history;

    *history = NULL;
    if (h == NULL)
        return;
    if (h->fd >= 0)
        (void)close(h->fd);
    free(h->events);
    free(h->mops);
    free(h->elements);
    free(h);
}

int hs_history_log_to(struct hs_history *h, const char *path, bool keep)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

    if (fd < 0)
        return cn_fail(-errno, "%s: cannot open the log: %s", path, strerror(errno));
    CAIRN_ASSERT(h->fd < 0 && !h->in_event);
    h->fd = fd;
    h->keep = keep;
    return 0;
}

/* ---- recording ---- */

void hs_event_begin(struct hs_history *h, enum hs_type type, enum hs_f f, uint64_t process,
    uint64_t time_ns)
{
    CAIRN_ASSERT(!h->in_event);
    h->events = grow(h->events, h->event_count + 1, &h->event_room, sizeof(*h->events));
    h->events[h->event_count] = (struct hs_event){
        .time_ns = time_ns,
        .process = process,
        .mop_first = h->mop_count,
        .type = (uint8_t)type,
        .f = (uint8_t)f,
    };
    h->in_event = true;
}

static void add_mop(struct hs_history *h, const struct hs_mop *mop)
{
    CAIRN_ASSERT(h->in_event);
    h->mops = grow(h->mops, h->mop_count + 1, &h->mop_room, sizeof(*h->mops));
    h->mops[h->mop_count++] = *mop;
    h->events[h->event_count].mop_count++;
}

void hs_event_append(struct hs_history *h, uint64_t key, uint32_t element)
{
    add_mop(h, &(struct hs_mop){.key = key, .value = element, .kind = HS_APPEND});
}

void hs_event_read(struct hs_history *h, uint64_t key, const uint32_t *elements, uint32_t count)
{
    add_mop(h,
        &(struct hs_mop){.key = key, .value = h->element_count, .kind = HS_READ, .count = count});
    if (count == HS_UNREAD || count == 0)
        return;
    h->elements = grow(
        h->elements, h->element_count + count, &h->element_room, sizeof(*h->elements));
    memcpy(h->elements + h->element_count, elements, (size_t)count * sizeof(*elements));
    h->element_count += count;
}

void hs_event_balance(struct hs_history *h, uint64_t account, int64_t balance)
{
    add_mop(h,
        &(struct hs_mop){.key = account, .value = (uint64_t)balance, .kind = HS_BALANCE});
}

void hs_event_transfer(struct hs_history *h, uint64_t from, uint32_t to, uint64_t amount)
{
    add_mop(h,
        &(struct hs_mop){.key = from, .value = amount, .kind = HS_TRANSFER, .count = to});
}

/* ---- the log format ---- */

static uint8_t *put32(uint8_t *p, uint32_t v)
{
    const struct le32 le = le32_make(v);

    memcpy(p, &le, sizeof(le));
    return p + sizeof(le);
}

static uint8_t *put64(uint8_t *p, uint64_t v)
{
    const struct le64 le = le64_make(v);

    memcpy(p, &le, sizeof(le));
    return p + sizeof(le);
}

static uint32_t get32(const uint8_t *p)
{
    struct le32 le;

    memcpy(&le, p, sizeof(le));
    return le32_get(le);
}

static uint64_t get64(const uint8_t *p)
{
    struct le64 le;

    memcpy(&le, p, sizeof(le));
    return le64_get(le);
}

static uint32_t elements_of(const struct hs_mop *mop)
{
    return mop->kind == HS_READ && mop->count != HS_UNREAD ? mop->count : 0;
}

static uint64_t encoded_size(const struct hs_history *h, const struct hs_event *e)
{
    uint64_t size = EVENT_HEAD;

    for (uint32_t i = 0; i < e->mop_count; i++)
        size += MOP_HEAD + 4 * (uint64_t)elements_of(&h->mops[e->mop_first + i]);
    return size;
}

static void encode(
    const struct hs_history *h, const struct hs_event *e, uint8_t *buf, uint32_t size)
{
    uint8_t *p = buf + 8;

    p = put64(p, e->time_ns);
    p = put64(p, e->process);
    *p++ = e->type;
    *p++ = e->f;
    *p++ = 0;
    *p++ = 0;
    p = put32(p, e->mop_count);
    for (uint32_t i = 0; i < e->mop_count; i++) {
        const struct hs_mop *mop = &h->mops[e->mop_first + i];
        p = put64(p, mop->key);
        p = put64(p, mop->kind == HS_READ ? 0 : mop->value);
        p = put32(p, mop->kind);
        p = put32(p, mop->count);
        for (uint32_t j = 0; j < elements_of(mop); j++)
            p = put32(p, h->elements[mop->value + j]);
    }
    CAIRN_ASSERT(p == buf + 8 + size);
    put32(buf, size);
    put32(buf + 4, cn_crc32c(0, buf + 8, size));
}

static void write_event(const struct hs_history *h, const struct hs_event *e)
{
    const uint64_t size = encoded_size(h, e);
    uint8_t stack[4096], *buf = stack;
    uint64_t done = 0;

    CAIRN_ASSERT(size <= EVENT_SIZE_MAX);
    if (size + 8 > sizeof(stack))
        buf = malloc(size + 8);
    if (buf == NULL)
        cn_panic(__FILE__, __LINE__, "out of memory for an event");
    encode(h, e, buf, (uint32_t)size);
    while (done < size + 8) {
        const ssize_t n = write(h->fd, buf + done, size + 8 - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            cn_panic(__FILE__, __LINE__, "a history log cannot be written");
        done += (uint64_t)n;
    }
    if (buf != stack)
        free(buf);
}

void hs_event_end(struct hs_history *h)
{
    CAIRN_ASSERT(h->in_event);
    h->in_event = false;
    if (h->fd >= 0)
        write_event(h, &h->events[h->event_count]);
    if (h->keep) {
        h->event_count++;
    } else {
        h->mop_count = h->events[h->event_count].mop_first;
        h->element_count = 0;
    }
}

/* ---- loading ---- */

/* What each f is made of, for whoever reads the micro-operations goes by f. */
static bool is_of(uint32_t kind, uint8_t f)
{
    if (f == HS_F_TRANSFER)
        return kind == HS_TRANSFER;
    if (f == HS_F_BANK_READ)
        return kind == HS_BALANCE;
    return kind == HS_APPEND || kind == HS_READ;
}

static bool decode_mops(struct hs_history *h, const uint8_t *p, const uint8_t *end, uint32_t count,
    uint8_t f)
{
    uint32_t elements[256];

    for (uint32_t i = 0; i < count; i++) {
        if ((size_t)(end - p) < MOP_HEAD)
            return false;
        struct hs_mop mop = {.key = get64(p), .value = get64(p + 8), .kind = get32(p + 16),
            .count = get32(p + 20)};
        const uint32_t n = elements_of(&mop);
        p += MOP_HEAD;
        if (!is_of(mop.kind, f) || (uint64_t)(end - p) < 4 * (uint64_t)n)
            return false;
        if (mop.kind != HS_READ) {
            add_mop(h, &mop);
            continue;
        }
        hs_event_read(h, mop.key, NULL, n == 0 ? mop.count : 0);
        h->mops[h->mop_count - 1].count = mop.count;
        for (uint32_t j = 0; j < n; j += 256) {
            const uint32_t part = n - j < 256 ? n - j : 256;
            for (uint32_t k = 0; k < part; k++)
                elements[k] = get32(p + 4 * (size_t)(j + k));
            h->elements = grow(
                h->elements, h->element_count + part, &h->element_room, sizeof(*h->elements));
            memcpy(h->elements + h->element_count, elements, part * sizeof(*elements));
            h->element_count += part;
        }
        p += 4 * (size_t)n;
    }
    return p == end;
}

/* 1: one event taken, *ret_size bytes; 0: the rest is a torn event; -1: damage. */
static int decode_event(
    struct hs_history *h, const uint8_t *p, uint64_t left, uint64_t *ret_size)
{
    uint32_t size;

    if (left < 8)
        return 0;
    size = get32(p);
    if (size < EVENT_HEAD || size > EVENT_SIZE_MAX)
        return -1;
    if (left - 8 < size)
        return 0;
    if (cn_crc32c(0, p + 8, size) != get32(p + 4))
        return -1;
    const uint8_t *q = p + 8;
    if (q[16] > HS_INFO || q[17] > HS_F_BANK_READ || q[18] != 0 || q[19] != 0)
        return -1;
    hs_event_begin(h, (enum hs_type)q[16], (enum hs_f)q[17], get64(q + 8), get64(q));
    h->in_event = true;
    const bool good = decode_mops(h, q + EVENT_HEAD, q + size, get32(q + 20), q[17]);
    h->in_event = false;
    if (!good)
        return -1;
    h->event_count++;
    *ret_size = (uint64_t)size + 8;
    return 1;
}

static int read_file(const char *path, uint8_t **ret_data, uint64_t *ret_size)
{
    FILE *file = fopen(path, "rbe");
    uint64_t room = 0, size = 0;
    uint8_t *data = NULL;
    size_t n;

    if (file == NULL)
        return cn_fail(-errno, "%s: cannot open the log: %s", path, strerror(errno));
    do {
        data = grow(data, size + 65536, &room, 1);
        n = fread(data + size, 1, room - size, file);
        size += n;
    } while (n > 0);
    if (ferror(file)) {
        free(data);
        (void)fclose(file);
        return cn_fail(-EIO, "%s: cannot read the log", path);
    }
    (void)fclose(file);
    *ret_data = data;
    *ret_size = size;
    return 0;
}

int hs_history_load(struct hs_history *h, const char *path, bool *ret_torn)
{
    uint64_t size = 0, at = 0, step;
    uint8_t *data = NULL;
    int r = read_file(path, &data, &size);

    if (r != 0)
        return r;
    CAIRN_ASSERT(h->fd < 0);
    *ret_torn = false;
    while (at < size) {
        r = decode_event(h, data + at, size - at, &step);
        if (r <= 0)
            break;
        at += step;
    }
    free(data);
    if (at == size || r == 0) {
        *ret_torn = at != size;
        return 0;
    }
    return cn_fail(CAIRN_E_PROTOCOL, "%s: the log is damaged at byte %llu", path,
        (unsigned long long)at);
}

/* ---- merging ---- */

static void copy_event(struct hs_history *to, const struct hs_history *from, uint64_t index)
{
    const struct hs_event *e = &from->events[index];

    hs_event_begin(to, (enum hs_type)e->type, (enum hs_f)e->f, e->process, e->time_ns);
    for (uint32_t i = 0; i < e->mop_count; i++) {
        const struct hs_mop *mop = &from->mops[e->mop_first + i];
        if (mop->kind == HS_READ)
            hs_event_read(to, mop->key,
                elements_of(mop) > 0 ? from->elements + mop->value : NULL, mop->count);
        else
            add_mop(to, mop);
    }
    hs_event_end(to);
}

static bool goes_before(const struct hs_event *a, const struct hs_event *b)
{
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns;
    return a->type == HS_INVOKE && b->type != HS_INVOKE;
}

struct merge {
    const struct hs_history *const *parts;
    uint64_t *next;
    uint32_t *heap; /* indices of parts that have events left; heap[0] goes first */
    uint32_t count;
};

static bool part_before(const struct merge *m, uint32_t a, uint32_t b)
{
    const struct hs_event *ea = &m->parts[a]->events[m->next[a]];
    const struct hs_event *eb = &m->parts[b]->events[m->next[b]];

    if (goes_before(ea, eb))
        return true;
    return !goes_before(eb, ea) && a < b;
}

static void sift_down(struct merge *m, uint32_t i)
{
    for (;;) {
        uint32_t first = i;
        for (uint32_t c = 2 * i + 1; c <= 2 * i + 2 && c < m->count; c++)
            if (part_before(m, m->heap[c], m->heap[first]))
                first = c;
        if (first == i)
            return;
        const uint32_t swap = m->heap[i];
        m->heap[i] = m->heap[first];
        m->heap[first] = swap;
        i = first;
    }
}

struct hs_history *hs_history_merge(const struct hs_history *const *parts, uint32_t count)
{
    struct hs_history *all = hs_history_new();
    struct merge m = {.parts = parts};

    m.next = calloc(count + 1, sizeof(*m.next));
    m.heap = calloc(count + 1, sizeof(*m.heap));
    if (m.next == NULL || m.heap == NULL)
        cn_panic(__FILE__, __LINE__, "out of memory for merging");
    for (uint32_t i = 0; i < count; i++)
        if (parts[i]->event_count > 0)
            m.heap[m.count++] = i;
    for (uint32_t i = m.count; i-- > 0;)
        sift_down(&m, i);
    while (m.count > 0) {
        const uint32_t part = m.heap[0];
        copy_event(all, parts[part], m.next[part]++);
        if (m.next[part] == parts[part]->event_count)
            m.heap[0] = m.heap[--m.count];
        sift_down(&m, 0);
    }
    free(m.next);
    free(m.heap);
    return all;
}
