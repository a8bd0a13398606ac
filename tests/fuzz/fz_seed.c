/* SPDX-License-Identifier: BSD-3-Clause */
/* fz_seed.c: see fz_seed.h. Usage: fz_seed FOLDER. Here: records and rings. */
#include "tests/fuzz/fz_seed.h"

#include <errno.h>
#include <sys/stat.h>

#define RECORD_MAX 8192u

static const char *folder;
static unsigned written;

void fz_seed_put(const char *target, const char *name, const void *data, size_t size)
{
    char path[4096];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, target);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        perror(path);
        exit(2);
    }
    (void)snprintf(path, sizeof(path), "%s/%s/%s", folder, target, name);
    file = fopen(path, "we");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(2);
    }
    written++;
}

/* ---- records ---- */

static void add_writes(struct pm_record_writer *w, unsigned kind)
{
    static const uint8_t value[600] = "value";
    static const struct { uint8_t op; uint16_t key; uint32_t value; } shape[][3] = {
        {{PM_OP_UPDATE, 3, 20}}, {{PM_OP_INSERT, 8, 0}, {PM_OP_UPDATE, 255, 1}},
        {{PM_OP_MOVE, 9, 600}, {PM_OP_DELETE, 1, 0}, {PM_OP_INSERT, 16, 64}}};
    uint32_t which = kind % 3;

    for (unsigned i = 0; i < 3 && shape[which][i].op != 0; i++) {
        struct pm_write_pm write = {.op = shape[which][i].op, .class_ = 1,
            .key_size = le16_make(shape[which][i].key),
            .value_size = le32_make(shape[which][i].value), .index = le32_make(1),
            .hash = le64_make(0x1234 + i), .key_base = le64_make(5), .item = le64_make(8192),
            .block = le64_make(16384 + 64 * i), .bucket = le64_make(4096)};
        (void)pm_record_add_write(w, &write, value, value);
    }
}

static uint32_t end(struct pm_record_writer *w, enum pm_record_type type, uint64_t seq,
    const struct pm_place *place)
{
    struct cn_txid id = {.coordinator = fz_session_uuid, .count = seq};
    uint32_t size = pm_record_end(w, type, &id, seq, 1, place);

    CAIRN_ASSERT(size != 0);
    memset(w->buf + offsetof(struct pm_record_pm, crc), 0, 4);
    return size;
}

uint32_t fz_seed_record(uint8_t *buf, uint32_t size_max, unsigned kind, uint64_t seq,
    const struct pm_place *place)
{
    struct pm_record_writer w;
    struct pm_write_pm write = {.op = PM_OP_SPLIT, .value_size = le32_make(40)};

    pm_record_begin(&w, buf, size_max);
    if (kind == 6)
        return end(&w, PM_RECORD_VOID, seq, place);
    if (kind == 7) {
        (void)pm_record_add_write(&w, &write, NULL, NULL);
        return end(&w, PM_RECORD_GROWTH, seq, place);
    }
    w.done = seq - 1;
    pm_record_add_participant(&w, FZ_NODE, 0, 0, place->slot, place->epoch, seq);
    for (unsigned i = 0; i < kind / 3 * 2; i++) /* two participants more, or none */
        pm_record_add_participant(&w, (uint16_t)(2 + i), 1, 0, 3, 9, 4 + i);
    if (kind == 5) /* another shard of this node */
        pm_record_add_participant(&w, FZ_NODE, 7, 0, place->slot, place->epoch, seq);
    for (unsigned i = 0; i < (kind == 4 ? 60 : kind + 1); i++)
        pm_record_add_lock(&w, 4096 + 512 * i, 5);
    for (unsigned i = 0; i < kind; i++)
        pm_record_add_block(&w, 65536 + 64 * i, 2);
    add_writes(&w, kind);
    return end(&w, PM_RECORD_TX, seq, place);
}

static void records(void)
{
    static uint8_t bytes[RECORD_MAX] __attribute__((aligned(8)));
    static uint8_t input[RECORD_MAX + 2];
    struct pm_place place = {.pool = fz_pool_uuid, .slot = FZ_SLOT, .epoch = FZ_EPOCH,
        .nonce = FZ_NONCE, .log_off = 4096};
    char name[32];

    for (unsigned kind = 0; kind < FZ_SEED_RECORDS; kind++) {
        uint32_t size;

        place.slot = (uint16_t)(kind == 7 ? 0 : FZ_SLOT);
        size = fz_seed_record(bytes, sizeof(bytes), kind, 3, &place);
        input[0] = (uint8_t)place.slot;
        input[1] = 1;
        memcpy(input + 2, bytes, size);
        (void)snprintf(name, sizeof(name), "kind-%u", kind);
        fz_seed_put("record", name, input, size + 2);
    }
    memset(bytes, 0, sizeof(bytes));
    pm_record_make_pad(bytes, 256, &place);
    memset(bytes + offsetof(struct pm_record_pm, crc), 0, 4);
    memcpy(input + 2, bytes, 64);
    fz_seed_put("record", "pad", input, 66);
    fz_seed_put("record", "short", input, 40);
}

/* ---- rings ---- */

/* flags, window - 4, slot, position sequence, position / 64 (2), closing - position, 5 spare */
struct ring_head { uint8_t b[12]; };

static size_t begin_ring(uint8_t *input, struct ring_head head)
{
    memcpy(input, head.b, sizeof(head.b));
    return sizeof(head.b);
}

static struct pm_place ring_place(uint8_t slot, uint64_t log_off)
{
    return (struct pm_place){.pool = fz_pool_uuid, .slot = slot, .epoch = FZ_EPOCH,
        .nonce = FZ_NONCE, .log_off = log_off};
}

/* A ring full of records, the position at `position`, sequences from 1 at it. */
static void ring(const char *name, uint8_t flags, uint64_t position, uint32_t size, unsigned kinds)
{
    static uint8_t input[12 + RECORD_MAX], bytes[RECORD_MAX] __attribute__((aligned(8)));
    struct ring_head head = {{flags, 4, (uint8_t)(kinds == 7 ? 0 : FZ_SLOT), 0,
        (uint8_t)(position / 64), (uint8_t)(position / 64 >> 8), 3}};
    uint8_t *log = input + begin_ring(input, head);
    uint64_t at = position, seq = 1;

    memset(log, 0, size);
    for (unsigned n = 0; at < position + size; n++) {
        struct pm_place place = ring_place(head.b[2], at);
        unsigned kind = kinds == 7 ? 7 : kinds == 8 ? n % 7 : kinds;
        uint64_t to_end = size - at % size;
        uint32_t one = fz_seed_record(bytes, sizeof(bytes), kind, seq, &place);

        if (one > to_end) {
            pm_record_make_pad(bytes, (uint32_t)to_end, &place);
            memset(bytes + offsetof(struct pm_record_pm, crc), 0, 4);
            memcpy(log + at % size, bytes, 64);
            at += to_end;
            continue;
        }
        if (at + one > position + size)
            break;
        memcpy(log + at % size, bytes, one);
        at += one;
        seq++;
    }
    fz_seed_put("ring", name, input, 12 + size);
}

/* Records with what the scan must pass over between them. */
static void strange_ring(void)
{
    static uint8_t input[12 + 4096], bytes[RECORD_MAX] __attribute__((aligned(8)));
    static const struct { uint64_t off, seq; uint32_t mend; } place_of[] = {
        {0, 1, FZ_MEND_RIGHT}, {256, 2, FZ_MEND_EARLIER_LAP}, {640, 3, FZ_MEND_RIGHT},
        {1024, 3, FZ_MEND_RIGHT}, {1408, 4, FZ_MEND_OTHER_NONCE}, {1792, 200, FZ_MEND_RIGHT},
        {2176, 5, FZ_MEND_CRC_ONLY}, {2560, 6, FZ_MEND_OTHER_EPOCH}, {2944, 7, FZ_MEND_RIGHT}};
    struct ring_head head = {{1, 20, FZ_SLOT, 0, 0, 0, 6}};
    uint8_t *log = input + begin_ring(input, head);

    memset(log, 0, 4096);
    for (unsigned i = 0; i < CN_ARRAY_SIZE(place_of); i++) {
        struct pm_place place = ring_place(FZ_SLOT, place_of[i].off);
        uint32_t size = fz_seed_record(bytes, sizeof(bytes), 0, place_of[i].seq, &place);
        struct le32 mend = le32_make(place_of[i].mend);

        memcpy(log + place_of[i].off, bytes, size);
        memcpy(log + place_of[i].off + offsetof(struct pm_record_pm, crc), &mend, 4);
    }
    fz_seed_put("ring", "strange", input, sizeof(input));
}

static void rings(void)
{
    ring("plain", 0, 0, 2048, 0);
    ring("wrapped", 0, 1024 + 4 * 2048, 2048, 0);
    ring("closed", 1, 640, 1536, 6);
    ring("mixed", 0, 64 * 40, 4096, 8);
    ring("growth", 0, 128, 1024, 7);
    ring("several", 0, 704, 4096, 3);
    ring("near-the-end", 4, 64 * 60, 1024, 6);
    ring("interesting", 2, 0, 1024, 0);
    strange_ring();
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    (void)mkdir(folder, 0777);
    records();
    rings();
    fz_seed_wire();
    fz_seed_text();
    fz_seed_pool();
    printf("%u seeds\n", written);
    return 0;
}
