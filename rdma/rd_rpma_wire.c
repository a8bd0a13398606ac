/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_wire.c: checkers of what two endpoints of `rpma` send each other, and the static asserts
 * that fix the format (rd_rpma.h, docs/wire-format.md). A line that fails there is a change of the
 * format: RD_RPMA_VERSION goes with it.
 *
 * Invariants: a checker copies what it reads once, and looks at nothing behind the given size. What
 * passes is safe to use as far as its form goes: whether an offset was granted, or whether a frame
 * fits the connection's state, is for the receiver to check.
 */
#include "rdma/rd_rpma.h"

#define ERROR_LAST 20999u /* of CAIRN_E_*, as a positive number */
#define ERROR_FIRST 20000u

/* ---- the format ---- */

#define SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)
#define AT(type, field, off) _Static_assert(offsetof(struct type, field) == (off), #type "." #field)

SIZE(rd_rpma_cm_wire, 48);
AT(rd_rpma_cm_wire, magic, 0);
AT(rd_rpma_cm_wire, version, 4);
AT(rd_rpma_cm_wire, channel, 6);
AT(rd_rpma_cm_wire, index, 7);
AT(rd_rpma_cm_wire, cookie, 8);
AT(rd_rpma_cm_wire, beat_addr, 16);
AT(rd_rpma_cm_wire, beat_rkey, 24);
AT(rd_rpma_cm_wire, error, 28);
AT(rd_rpma_cm_wire, reserved, 32);
SIZE(rd_rpma_beat, 64);
AT(rd_rpma_beat, test, 0);
AT(rd_rpma_beat, beat, 8);

SIZE(rd_rpma_frame_wire, 16);
AT(rd_rpma_frame_wire, magic, 0);
AT(rd_rpma_frame_wire, type, 4);
AT(rd_rpma_frame_wire, count, 6);
AT(rd_rpma_frame_wire, size, 8);
AT(rd_rpma_frame_wire, returned, 12);

SIZE(rd_rpma_region_wire, 32);
AT(rd_rpma_region_wire, pool_off, 0);
AT(rd_rpma_region_wire, size, 8);
AT(rd_rpma_region_wire, addr, 16);
AT(rd_rpma_region_wire, rkey, 24);
AT(rd_rpma_region_wire, access, 28);

SIZE(rd_rpma_accept_wire, 80);
AT(rd_rpma_accept_wire, region_count, 0);
AT(rd_rpma_accept_wire, welcome_size, 4);
AT(rd_rpma_accept_wire, linger_us, 8);
AT(rd_rpma_accept_wire, durability, 12);
AT(rd_rpma_accept_wire, message_atomics, 13);
AT(rd_rpma_accept_wire, descriptor_size, 14);
AT(rd_rpma_accept_wire, reserved0, 15);
AT(rd_rpma_accept_wire, ring_off, 16);
AT(rd_rpma_accept_wire, ring_size, 24);
AT(rd_rpma_accept_wire, descriptor, 32);
AT(rd_rpma_accept_wire, reserved, 64);

SIZE(rd_rpma_persist_wire, 24);
AT(rd_rpma_persist_wire, tag, 0);
AT(rd_rpma_persist_wire, off, 8);
AT(rd_rpma_persist_wire, size, 16);
SIZE(rd_rpma_cas_wire, 32);
AT(rd_rpma_cas_wire, tag, 0);
AT(rd_rpma_cas_wire, off, 8);
AT(rd_rpma_cas_wire, expected, 16);
AT(rd_rpma_cas_wire, desired, 24);
SIZE(rd_rpma_done_wire, 24);
AT(rd_rpma_done_wire, tag, 0);
AT(rd_rpma_done_wire, old, 8);
AT(rd_rpma_done_wire, status, 16);
AT(rd_rpma_done_wire, reserved, 20);

_Static_assert(sizeof(struct rd_rpma_cm_wire) <= 56, "what rdma_cm carries with a connect");
_Static_assert(RD_RPMA_FRAME_SIZE_MAX <= NIC_FRAME_STRIDE, "a frame in its buffer");
_Static_assert(NIC_FRAME_STRIDE % RD_CACHE_LINE == 0, "aligned buffers");
_Static_assert(sizeof(struct rd_rpma_accept_wire) +
                       RD_REGIONS_MAX * sizeof(struct rd_rpma_region_wire) +
                       RD_WELCOME_SIZE_MAX <= RD_RPMA_PAYLOAD_MAX,
    "accept frame");
_Static_assert(NIC_RX <= 32 && NIC_TX <= 32, "bit sets of buffers");

/* ---- parts ---- */

static bool is_zero(const void *data, size_t size)
{
    const uint8_t *p = data;
    uint8_t any = 0;
    for (size_t i = 0; i < size; i++)
        any |= p[i];
    return any == 0;
}

static bool is_error(uint32_t error)
{
    return error >= ERROR_FIRST && error <= ERROR_LAST;
}

static int fail_reserved(const char *what)
{
    return cn_fail(CAIRN_E_PROTOCOL, "%s: reserved bytes are not zero", what);
}

/* ---- private data ---- */

static int check_beat(const struct rd_rpma_cm_wire *wire)
{
    uint64_t addr = le64_get(wire->beat_addr);
    if (wire->channel == RD_RPMA_CHANNEL_FIRST) {
        if (addr == 0 || addr % 8 != 0 || addr > UINT64_MAX - sizeof(struct rd_rpma_beat))
            return cn_fail(CAIRN_E_PROTOCOL, "private data: a beat at %#llx cannot be",
                (unsigned long long)addr);
        return 0;
    }
    if (addr != 0 || le32_get(wire->beat_rkey) != 0)
        return cn_fail(CAIRN_E_PROTOCOL, "private data: a beat with channel %u", wire->channel);
    if (le64_get(wire->cookie) == 0)
        return cn_fail(CAIRN_E_PROTOCOL, "private data: no cookie with channel %u", wire->channel);
    return 0;
}

static int check_channel(const struct rd_rpma_cm_wire *wire)
{
    if (wire->channel < RD_RPMA_CHANNEL_FIRST || wire->channel > RD_RPMA_CHANNEL_LOG)
        return cn_fail(CAIRN_E_PROTOCOL, "private data: unknown channel %u", wire->channel);
    bool further = wire->channel == RD_RPMA_CHANNEL_FURTHER;
    if (further ? wire->index == 0 || wire->index >= NIC_QPS_MAX : wire->index != 0)
        return cn_fail(CAIRN_E_PROTOCOL, "private data: index %u with channel %u", wire->index,
            wire->channel);
    return 0;
}

int rd_rpma_check_cm(const void *data, uint32_t size, struct rd_rpma_cm_wire *ret_wire)
{
    struct rd_rpma_cm_wire wire;
    if (data == NULL || size < sizeof(wire))
        return cn_fail(CAIRN_E_PROTOCOL, "private data: %u bytes, %zu are needed",
            data == NULL ? 0 : size, sizeof(wire));
    memcpy(&wire, data, sizeof(wire));
    if (le32_get(wire.magic) != RD_RPMA_MAGIC)
        return cn_fail(CAIRN_E_WIRE_VERSION, "private data: magic %#x is not Cairn's; is the port "
            "that of another service?", le32_get(wire.magic));
    if (le16_get(wire.version) != RD_RPMA_VERSION)
        return cn_fail(CAIRN_E_WIRE_VERSION, "the peer speaks version %u of the transport, we %u: "
            "update the older one", le16_get(wire.version), RD_RPMA_VERSION);
    if (!is_zero(wire.reserved, sizeof(wire.reserved)) ||
        !is_zero((const uint8_t *)data + sizeof(wire), size - sizeof(wire)))
        return fail_reserved("private data");
    int err = check_channel(&wire);
    if (err != 0)
        return err;
    uint32_t error = le32_get(wire.error);
    if (error != 0 && !is_error(error))
        return cn_fail(CAIRN_E_PROTOCOL, "private data: unknown error %u", error);
    err = error == 0 ? check_beat(&wire) : 0; /* a reject carries its reason alone */
    if (err != 0)
        return err;
    *ret_wire = wire;
    return 0;
}

/* ---- frames ---- */

static const struct frame_kind {
    const char *name;
    uint32_t element;  /* bytes: an array of those; 0: `min` to `max` bytes */
    uint32_t min, max;
} kinds[RD_RPMA_FRAME_TYPE_COUNT] = {
    [RD_RPMA_HELLO] = {"hello", 0, 0, RD_HELLO_SIZE_MAX},
    [RD_RPMA_ACCEPT] = {"accept", 0, sizeof(struct rd_rpma_accept_wire), RD_RPMA_PAYLOAD_MAX},
    [RD_RPMA_REJECT] = {"reject", 0, 0, RD_WELCOME_SIZE_MAX},
    [RD_RPMA_READY] = {"ready", 0, 0, 0},
    [RD_RPMA_MESSAGE] = {"message", 0, 1, RD_MESSAGE_SIZE_MAX},
    [RD_RPMA_BELL] = {"bell", 0, 0, 0},
    [RD_RPMA_PERSIST] = {"persist", sizeof(struct rd_rpma_persist_wire), 0, 0},
    [RD_RPMA_PERSISTED] = {"persisted", sizeof(struct rd_rpma_done_wire), 0, 0},
    [RD_RPMA_CAS] = {"cas", sizeof(struct rd_rpma_cas_wire), 0, 0},
    [RD_RPMA_CAS_DONE] = {"cas_done", sizeof(struct rd_rpma_done_wire), 0, 0},
    [RD_RPMA_CREDIT] = {"credit", 0, 0, 0},
};

const char *rd_rpma_frame_name(uint32_t type)
{
    if (type >= RD_RPMA_FRAME_TYPE_COUNT || kinds[type].name == NULL)
        return "unknown";
    return kinds[type].name;
}

static int check_sizes(const struct rd_rpma_frame_wire *head)
{
    const struct frame_kind *kind = &kinds[le16_get(head->type)];
    uint32_t size = le32_get(head->size), count = le16_get(head->count);
    if (kind->element != 0) {
        if (count == 0 || size != count * kind->element)
            return cn_fail(CAIRN_E_PROTOCOL, "frame %s: %u bytes do not hold %u elements",
                kind->name, size, count);
        return 0;
    }
    if (count != 0)
        return cn_fail(CAIRN_E_PROTOCOL, "frame %s: a count of %u", kind->name, count);
    if (size < kind->min || size > kind->max)
        return cn_fail(CAIRN_E_PROTOCOL, "frame %s: %u bytes, %u to %u are allowed", kind->name,
            size, kind->min, kind->max);
    return 0;
}

int rd_rpma_check_frame(const void *frame, uint32_t size, struct rd_rpma_frame_wire *ret_head)
{
    struct rd_rpma_frame_wire head;
    if (size < sizeof(head) || size > RD_RPMA_FRAME_SIZE_MAX)
        return cn_fail(CAIRN_E_PROTOCOL, "frame: %u bytes, %zu to %zu are allowed", size,
            sizeof(head), (size_t)RD_RPMA_FRAME_SIZE_MAX);
    memcpy(&head, frame, sizeof(head));
    uint32_t type = le16_get(head.type);
    if (le32_get(head.magic) != RD_RPMA_MAGIC)
        return cn_fail(CAIRN_E_PROTOCOL, "frame: magic %#x", le32_get(head.magic));
    if (type >= RD_RPMA_FRAME_TYPE_COUNT || kinds[type].name == NULL)
        return cn_fail(CAIRN_E_PROTOCOL, "frame: unknown type %u", type);
    if (le32_get(head.size) != size - sizeof(head))
        return cn_fail(CAIRN_E_PROTOCOL, "frame %s: says %u bytes of payload, has %zu",
            kinds[type].name, le32_get(head.size), size - sizeof(head));
    int err = check_sizes(&head);
    if (err != 0)
        return err;
    *ret_head = head;
    return 0;
}

/* ---- what a node grants ---- */

static int check_ring(const struct rd_rpma_accept_wire *accept)
{
    uint64_t off = le64_get(accept->ring_off), size = le64_get(accept->ring_size);
    uint8_t descriptor_size = accept->descriptor_size;
    if (accept->durability == 0) {
        if (descriptor_size != 0 || off != 0 || size != 0 ||
            !is_zero(accept->descriptor, sizeof(accept->descriptor)))
            return cn_fail(CAIRN_E_PROTOCOL, "accept: parts of a ring without a durability");
        return 0;
    }
    if (accept->durability > RD_DURABILITY_EADR)
        return cn_fail(CAIRN_E_PROTOCOL, "accept: unknown durability %u", accept->durability);
    if (descriptor_size == 0 || descriptor_size > sizeof(accept->descriptor) ||
        !is_zero(accept->descriptor + descriptor_size,
            sizeof(accept->descriptor) - descriptor_size))
        return cn_fail(
            CAIRN_E_PROTOCOL, "accept: a ring's descriptor of %u bytes", descriptor_size);
    if (off % RD_CACHE_LINE != 0 || size % RD_CACHE_LINE != 0 || size <= RD_RING_HEADER_SIZE ||
        off > UINT64_MAX - size)
        return cn_fail(CAIRN_E_PROTOCOL, "accept: a ring of %llu bytes at %#llx cannot be",
            (unsigned long long)size, (unsigned long long)off);
    return 0;
}

static int check_region(const struct nic_grant *g)
{
    if (g->size == 0 || g->pool_off > UINT64_MAX - g->size || g->addr > UINT64_MAX - g->size)
        return cn_fail(CAIRN_E_PROTOCOL, "accept: an extent of %llu bytes at %#llx (%#llx) wraps",
            (unsigned long long)g->size, (unsigned long long)g->pool_off,
            (unsigned long long)g->addr);
    if (g->access == 0 || (g->access & ~(unsigned)(RD_ACCESS_READ | RD_ACCESS_ATOMIC)) != 0)
        return cn_fail(CAIRN_E_PROTOCOL, "accept: an extent with access %#x", g->access);
    if ((g->access & RD_ACCESS_ATOMIC) != 0 && (g->pool_off - g->addr) % 8 != 0)
        return cn_fail(CAIRN_E_PROTOCOL, "accept: an extent's words are not aligned");
    return 0;
}

static bool overlap(const struct nic_grant *g, uint64_t off, uint64_t size)
{
    return g->pool_off < off + size && off < g->pool_off + g->size;
}

/* Insert by pool_off. Neighbours that do not overlap: none do. */
static int add_grant(struct nic_grant *grants, uint32_t count, const struct nic_grant *g)
{
    uint32_t at = count;
    while (at > 0 && grants[at - 1].pool_off > g->pool_off)
        at--;
    if ((at > 0 && overlap(&grants[at - 1], g->pool_off, g->size)) ||
        (at < count && overlap(&grants[at], g->pool_off, g->size)))
        return cn_fail(CAIRN_E_PROTOCOL, "accept: two extents overlap at %#llx",
            (unsigned long long)g->pool_off);
    memmove(grants + at + 1, grants + at, (count - at) * sizeof(*grants));
    grants[at] = *g;
    return 0;
}

static int check_regions(const uint8_t *data, const struct rd_rpma_accept_wire *accept,
    struct nic_grant grants[RD_REGIONS_MAX])
{
    uint64_t ring_off = le64_get(accept->ring_off), ring_size = le64_get(accept->ring_size);
    for (uint32_t i = 0; i < le32_get(accept->region_count); i++) {
        struct rd_rpma_region_wire wire;
        memcpy(&wire, data + i * sizeof(wire), sizeof(wire));
        struct nic_grant g = {
            .pool_off = le64_get(wire.pool_off),
            .size = le64_get(wire.size),
            .addr = le64_get(wire.addr),
            .rkey = le32_get(wire.rkey),
            .access = le32_get(wire.access),
        };
        int err = check_region(&g);
        if (err == 0 && ring_size > 0 && overlap(&g, ring_off, ring_size))
            err = cn_fail(CAIRN_E_PROTOCOL, "accept: an extent at %#llx overlaps the ring",
                (unsigned long long)g.pool_off);
        if (err == 0)
            err = add_grant(grants, i, &g);
        if (err != 0)
            return err;
    }
    return 0;
}

int rd_rpma_check_accept(const void *payload, uint32_t size, struct rd_rpma_accept_wire *ret_accept,
    struct nic_grant grants[RD_REGIONS_MAX], uint32_t *ret_welcome_off)
{
    struct rd_rpma_accept_wire accept;
    struct nic_grant found[RD_REGIONS_MAX];
    if (size < sizeof(accept))
        return cn_fail(CAIRN_E_PROTOCOL, "accept: %u bytes", size);
    memcpy(&accept, payload, sizeof(accept));
    uint32_t count = le32_get(accept.region_count), welcome = le32_get(accept.welcome_size);
    if (count > RD_REGIONS_MAX || welcome > RD_WELCOME_SIZE_MAX)
        return cn_fail(CAIRN_E_PROTOCOL, "accept: %u extents and %u bytes of welcome, at most %u "
            "and %u are allowed", count, welcome, RD_REGIONS_MAX, RD_WELCOME_SIZE_MAX);
    uint32_t welcome_off =
        (uint32_t)(sizeof(accept) + count * sizeof(struct rd_rpma_region_wire));
    if (size != welcome_off + welcome)
        return cn_fail(CAIRN_E_PROTOCOL, "accept: %u bytes do not hold %u extents and a welcome of "
            "%u bytes", size, count, welcome);
    if (accept.reserved0 != 0 || !is_zero(accept.reserved, sizeof(accept.reserved)))
        return fail_reserved("accept");
    if (accept.message_atomics > 1)
        return cn_fail(CAIRN_E_PROTOCOL, "accept: message_atomics %u", accept.message_atomics);
    int err = check_ring(&accept);
    if (err == 0)
        err = check_regions((const uint8_t *)payload + sizeof(accept), &accept, found);
    if (err != 0)
        return err;
    *ret_accept = accept;
    memcpy(grants, found, count * sizeof(*found));
    *ret_welcome_off = welcome_off;
    return 0;
}

int rd_rpma_check_done(
    const void *element, bool persisted, uint64_t tag, uint64_t *ret_old, int *ret_status)
{
    struct rd_rpma_done_wire done;
    memcpy(&done, element, sizeof(done));
    const char *what = persisted ? "persisted" : "cas_done";
    uint32_t status = le32_get(done.status);
    if (!is_zero(done.reserved, sizeof(done.reserved)))
        return fail_reserved(what);
    if (le64_get(done.tag) != tag)
        return cn_fail(CAIRN_E_PROTOCOL, "frame %s: answers %llu, %llu is due", what,
            (unsigned long long)le64_get(done.tag), (unsigned long long)tag);
    if (status != 0 && !is_error(status))
        return cn_fail(CAIRN_E_PROTOCOL, "frame %s: unknown status %u", what, status);
    if ((persisted || status != 0) && le64_get(done.old) != 0)
        return cn_fail(CAIRN_E_PROTOCOL, "frame %s: an old value that cannot be", what);
    *ret_old = le64_get(done.old);
    *ret_status = -(int)status;
    return 0;
}
