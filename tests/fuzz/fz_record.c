/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: one redo record: peek, check, and what is done with it afterwards.
 * Input: slot number (1), a byte that places the copy, then the record; its crc field says how it
 * is mended (fz_common.h).
 * Oracles: the reference (fz_ref.h) says the same; what is accepted obeys the limits, lies inside,
 * and is written again by the encoder byte by byte, for a record has one encoding.
 */
#include "pmem/pm_record.h"

#include "tests/fuzz/fz_common.h"
#include "tests/fuzz/fz_ref.h"

static bool inside(const struct pm_record *r, const void *at, uint64_t size)
{
    return cn_range_inside((uintptr_t)at, size, (uintptr_t)r->head, r->size);
}

static void write_again(const struct pm_record *r, const struct pm_place *place)
{
    static uint8_t buf[FZ_GUARD_MAX] __attribute__((aligned(8)));
    struct pm_record_writer w;
    struct pm_record_write one;
    uint32_t cursor = r->writes_off, writes = 0, size;
    uint8_t *mark = buf + offsetof(struct pm_record_pm, mark);

    pm_record_begin(&w, buf, sizeof(buf));
    for (uint32_t i = 0; i < r->participant_count; i++) {
        const struct pm_participant_pm *p = &r->participant[i];
        pm_record_add_participant(&w, le16_get(p->node), le16_get(p->shard), p->role,
            le16_get(p->slot), le64_get(p->epoch), le64_get(p->seq));
    }
    for (uint32_t i = 0; i < r->lock_count; i++)
        pm_record_add_lock(&w, le64_get(r->lock[i].off), le64_get(r->lock[i].base));
    for (uint32_t i = 0; i < r->block_count; i++)
        pm_record_add_block(&w, le64_get(r->block[i].off), le64_get(r->block[i].base));
    for (; pm_record_next_write(r, &cursor, &one); writes++) {
        struct pm_write_pm m = {.op = (uint8_t)one.op, .class_ = one.class_,
            .key_size = le16_make(one.key_size), .value_size = le32_make(one.value_size),
            .index = le32_make(one.index), .hash = le64_make(one.hash),
            .key_base = le64_make(one.key_base), .item = le64_make(one.item),
            .block = le64_make(one.block), .bucket = le64_make(one.bucket)};

        FZ_NEED(inside(r, one.key, one.key_size) && inside(r, one.value, one.value_size), "write");
        FZ_NEED(one.key_size <= CAIRN_KEY_SIZE_MAX && one.value_size <= CAIRN_VALUE_SIZE_MAX,
            "key of %u, value of %u", one.key_size, one.value_size);
        FZ_NEED(pm_record_add_write(&w, &m, one.key, one.value) != NULL, "no room");
    }
    FZ_NEED(writes == r->write_count, "%u writes of %u", writes, r->write_count);
    w.done = r->done;
    size = pm_record_end(&w, r->type, &r->txid, r->seq, r->view, place);
    FZ_NEED(size == r->size, "%u bytes became %u", r->size, size);
    if (r->participant_count != 1 || r->type != PM_RECORD_TX) /* any mark is allowed */
        memcpy(mark, &r->head->mark, sizeof(r->head->mark));
    FZ_NEED(memcmp(buf, r->head, size) == 0, "another encoding of one record");
}

static void check(const uint8_t *copy, uint32_t size, const struct pm_place *place)
{
    struct ref_place at = {.slot = place->slot, .epoch = place->epoch, .nonce = place->nonce,
        .log_off = place->log_off, .node = FZ_NODE};
    struct ref_record ref = {.size = 0};
    struct pm_record r;
    bool good;
    int rc = pm_record_check(copy, size, place, FZ_NODE, &r);

    memcpy(at.pool, place->pool.b, sizeof(at.pool));
    /* For a pad the first line is enough, so its room is not known here. */
    good = ref_record_at(copy, size >= 64 && copy[12] == PM_RECORD_PAD ? UINT32_MAX : size, &at,
        &ref);
    if (good && (ref.type == PM_RECORD_PAD ? size > ref.size : ref.size != size))
        good = false; /* asked about another number of bytes than it has */
    FZ_NEED((rc == 0) == good, "check says %d (%s), the reference %d", rc,
        rc == 0 ? "" : cairn_last_error(), good);
    FZ_NEED(rc == 0 || rc == CAIRN_E_CORRUPT_RECORD, "error %d", rc);
    if (rc != 0)
        return;
    FZ_NEED(r.type == ref.type && r.seq == ref.seq && r.size == ref.size, "read differently");
    if (r.type != PM_RECORD_PAD)
        write_again(&r, place);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fz_input in = {data, size};
    uint8_t slot = fz_u8(&in), how = fz_u8(&in);
    struct pm_place place = {.pool = fz_pool_uuid, .slot = slot, .epoch = FZ_EPOCH,
        .nonce = FZ_NONCE, .log_off = 4096};
    uint8_t *copy;

    size = in.left <= PM_RECORD_SIZE_MAX ? in.left : PM_RECORD_SIZE_MAX;
    if ((how & 1) != 0) /* only whole records end at a guard page: they are aligned */
        size = size / PM_RECORD_ALIGN * PM_RECORD_ALIGN;
    copy = (how & 1) != 0 ? fz_guard_end(0, in.at, size) : fz_guard_begin(0, in.at, size);
    if (size >= PM_RECORD_ALIGN) {
        fz_mend_record(copy, (uint32_t)size, &place, 1024);
        (void)pm_record_peek(copy, size);
    }
    check(copy, (uint32_t)size, &place);
    return 0;
}
