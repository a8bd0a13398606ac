/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: everything that travels: hello, welcome, refusal and messages of the handshake and of
 * nodes (rd_wire.c), private data and frames of `rpma` (rd_rpma_wire.c).
 * Input: which (1), flags (1), the bytes. Flag 1: magic, version and size fields are mended.
 * Oracle: what is accepted obeys docs/wire-format.md; the rest is refused with one of the errors
 * that the header names. The same bytes get the same answer wherever they lie.
 */
#include "rdma/rd_rpma.h"
#include "rdma/rd_wire.h"
#include "tests/fuzz/fz_common.h"

static const void *place(uint8_t flags, const uint8_t *data, size_t size)
{
    return (flags & 2) != 0 ? fz_guard_begin(0, data, size) : fz_guard_end(0, data, size);
}

static bool all_zero(const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (((const uint8_t *)data)[i] != 0)
            return false;
    }
    return true;
}

static void refused(int rc)
{
    FZ_NEED(rc == CAIRN_E_PROTOCOL || rc == CAIRN_E_WIRE_VERSION, "error %d", rc);
    FZ_NEED(cairn_last_error()[0] != '\0', "no text with error %d", rc);
}

static void try_message(const uint8_t *data, uint32_t size)
{
    struct rd_message_wire h;
    int rc = rd_wire_check(data, size);

    if (rc != 0) {
        refused(rc);
        return;
    }
    FZ_NEED(size >= sizeof(h) && size <= RD_MESSAGE_SIZE_MAX, "size %u", size);
    memcpy(&h, data, sizeof(h));
    uint32_t type = le16_get(h.type), body = le16_get(h.size), due = rd_wire_body_size(type);
    FZ_NEED(le32_get(h.magic) == RD_WIRE_MAGIC && type > 0 && type < RD_MSG_TYPE_COUNT, "head");
    FZ_NEED(body == size - sizeof(h), "body");
    bool variable = type == RD_MSG_GRANT_REPLY || type == RD_MSG_STATS_REPLY;
    FZ_NEED(body == due || (body > due && variable) || (body == 0 && le32_get(h.status) != 0),
        "type %u: body of %u", type, body);
    FZ_NEED(strcmp(rd_wire_type_name(type), "unknown") != 0, "name");
    if (type == RD_MSG_GRANT) {
        struct rd_grant_wire g;
        memcpy(&g, data + sizeof(h), sizeof(g));
        FZ_NEED(le32_get(g.count) >= 1 && le32_get(g.count) <= RD_GRANT_BLOCKS_MAX, "grant");
    }
    if (type == RD_MSG_GRANT_REPLY && body != 0) {
        struct rd_grant_reply_wire g;
        memcpy(&g, data + sizeof(h), sizeof(g));
        FZ_NEED(le32_get(g.count) * 16 + 8 == body && le32_get(g.count) <= RD_GRANT_BLOCKS_MAX,
            "grant reply");
    }
}

static void try_hello(const uint8_t *data, uint32_t size)
{
    struct rd_hello_wire h;
    int rc = rd_wire_check_hello(data, size, &fz_cluster_uuid, FZ_NODE);

    if (rc != 0) {
        if (rc != CAIRN_E_WRONG_CLUSTER && rc != CAIRN_E_WRONG_NODE)
            refused(rc);
        return;
    }
    FZ_NEED(size == sizeof(h), "size %u", size);
    memcpy(&h, data, sizeof(h));
    bool coordinator = le16_get(h.role) == RD_ROLE_COORDINATOR;
    FZ_NEED(le16_get(h.role) >= 1 && le16_get(h.role) <= 3, "role");
    FZ_NEED(coordinator != cn_uuid_is_zero(&h.peer), "session");
    FZ_NEED((cn_uuid_equal(&h.cluster, &fz_cluster_uuid) && le16_get(h.node) == FZ_NODE) ||
            (le16_get(h.role) == RD_ROLE_TOOL && cn_uuid_is_zero(&h.cluster)),
        "for somebody else");
}

static void try_welcome(const uint8_t *data, uint32_t size, bool slot)
{
    struct rd_welcome_wire w;
    int rc = rd_wire_check_welcome(data, size, FZ_NODE, slot);

    if (rc != 0) {
        refused(rc);
        return;
    }
    FZ_NEED(size == sizeof(w), "size %u", size);
    memcpy(&w, data, sizeof(w));
    FZ_NEED(le16_get(w.node) == FZ_NODE && !cn_uuid_is_zero(&w.pool), "identity");
    FZ_NEED(all_zero(w.reserved, sizeof(w.reserved)) && w.durability <= RD_DURABILITY_EADR, "rest");
    if (!slot)
        return;
    __extension__ typedef unsigned __int128 wide;
    wide pool = le64_get(w.pool_size), ring = le64_get(w.ring_off);
    FZ_NEED(ring % 64 == 0 && ring + 4096 + le64_get(w.ring_size) <= pool, "ring");
    FZ_NEED((wide)le64_get(w.position_off) >= ring + 64 &&
            (wide)le64_get(w.position_off) + 16 <= ring + 4096, "position");
    FZ_NEED(le64_get(w.extent_off) <= le64_get(w.extent_end) && le64_get(w.extent_end) <= pool,
        "extents");
    FZ_NEED(le16_get(w.slot) >= 1 && le16_get(w.slot) < PM_SLOT_COUNT_MAX, "slot");
    FZ_NEED(le16_get(w.tag) >= 1 && le16_get(w.tag) <= PM_TAG_COUNT, "tag");
    FZ_NEED(le32_get(w.bytes_max) >= 1 && le32_get(w.bytes_max) <= le64_get(w.ring_size), "record");
}

static void try_refusal(const uint8_t *data, uint32_t size)
{
    struct rd_refusal_wire again;
    char text[200];
    int rc = rd_wire_refusal(data, size);

    FZ_NEED(rc < 0, "a refusal without error: %d", rc);
    (void)snprintf(text, sizeof(text), "%s", cairn_last_error());
    for (const char *p = text; *p != '\0'; p++)
        FZ_NEED((unsigned char)*p >= 0x20 && *p != 0x7f, "a control character for the terminal");
    rd_wire_make_refusal(&again, rc, text);
    FZ_NEED(rd_wire_refusal(&again, sizeof(again)) == rc, "not the same error");
    FZ_NEED(strncmp(text, cairn_last_error(), sizeof(again.text) - 1) == 0, "not the same text");
}

static void try_accept(const uint8_t *data, uint32_t size)
{
    struct rd_rpma_accept_wire accept;
    struct nic_grant grants[RD_REGIONS_MAX];
    uint32_t welcome_off;
    int rc = rd_rpma_check_accept(data, size, &accept, grants, &welcome_off);

    if (rc != 0) {
        refused(rc);
        return;
    }
    uint32_t count = le32_get(accept.region_count), welcome = le32_get(accept.welcome_size);
    FZ_NEED(count <= RD_REGIONS_MAX && welcome_off + welcome == size, "sizes");
    for (uint32_t i = 0; i < count; i++) {
        FZ_NEED(grants[i].size > 0 && grants[i].pool_off + grants[i].size > grants[i].pool_off,
            "extent %u wraps", i);
        FZ_NEED(i == 0 || grants[i - 1].pool_off + grants[i - 1].size <= grants[i].pool_off,
            "extents overlap or are not sorted");
    }
}

static void try_rpma(uint8_t what, const uint8_t *data, uint32_t size)
{
    struct rd_rpma_cm_wire cm;
    struct rd_rpma_frame_wire head;
    uint64_t old;
    int status, rc;

    if (what == 0) {
        rc = rd_rpma_check_cm(data, size, &cm);
    } else if (what == 1) {
        rc = rd_rpma_check_frame(data, size, &head);
        FZ_NEED(rc != 0 || (le32_get(head.size) + sizeof(head) == size &&
                    strcmp(rd_rpma_frame_name(le16_get(head.type)), "unknown") != 0), "frame");
    } else {
        if (size < sizeof(struct rd_rpma_done_wire))
            return;
        rc = rd_rpma_check_done(data, what == 2, 5, &old, &status);
        FZ_NEED(rc != 0 || (status <= 0 && ((what != 2 && status == 0) || old == 0)), "done");
    }
    if (rc != 0)
        refused(rc);
}

/* Magic, version and what states the size. */
static void mend(uint8_t which, uint8_t *data, size_t size)
{
    static const uint8_t version[2] = {RD_WIRE_VERSION, 0}, rpma_version[2] = {RD_RPMA_VERSION, 0};
    struct le32 magic = le32_make(which >= 5 && which <= 7 ? RD_RPMA_MAGIC : RD_WIRE_MAGIC);
    struct le32 rest = le32_make((uint32_t)(size - 16));

    if (size < 48 && which != 0 && which != 6)
        return;
    if (size < 16 || which >= 7)
        return;
    memcpy(data, &magic, sizeof(magic));
    if (which >= 1 && which <= 3)
        memcpy(data + 4, version, 2);
    if (which == 5)
        memcpy(data + 4, rpma_version, 2);
    if (which == 0)
        memcpy(data + 6, &rest, 2);
    if (which == 6)
        memcpy(data + 8, &rest, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t mended[RD_MESSAGE_SIZE_MAX + 256];
    struct fz_input in = {data, size};
    uint8_t which = fz_u8(&in) % 10, flags = fz_u8(&in);
    const uint8_t *at;
    uint32_t n;

    n = (uint32_t)cn_min64(in.left, sizeof(mended));
    if (n > 0)
        memcpy(mended, in.at, n);
    if ((flags & 1) != 0)
        mend(which, mended, n);
    at = place(flags, mended, n);
    switch (which) {
    case 0: try_message(at, n); break;
    case 1: try_hello(at, n); break;
    case 2:
    case 3: try_welcome(at, n, which == 2); break;
    case 4: try_refusal(at, n); break;
    case 5: try_rpma(0, at, n); break;
    case 6: try_rpma(1, at, n); break;
    case 7: try_accept(at, n); break;
    default: try_rpma((uint8_t)(which - 6), at, n); break;
    }
    return 0;
}
