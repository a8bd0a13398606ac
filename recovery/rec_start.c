/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_start.c: opening a pool is recovery: one table of named steps, each of which can be run again
 * after a crash in or behind it. The order matters:
 *
 *   identity      nothing is touched in a pool of another cluster or node
 *   durability    how rings are made durable is decided, or the start refused
 *   incarnation   raised and durable: from here on old lock tags count as unlocked
 *   fabric        memory registered; nobody listens yet
 *   quarantine    what peers of earlier incarnations could still write is cut off
 *   slots         control areas durable, slot headers and retired epochs read
 *   scan          every ring that is not free: records found, made durable, sealed (R14)
 *   store         chunk descriptors; growth's own ring is replayed
 *   replay        marked records applied, releases of applied ones done again (R9)
 *   relock        keys of unresolved records locked again, before anything is granted or served
 *   tables        the configuration's tables exist
 *   serve         listen
 *
 * Cost: the control areas and the live windows of rings; no item and no bucket is read.
 */
#include "recovery/rec_internal.h"

#include <errno.h>

#include "include/internal/cn_mutant.h"

#define LOOP_WAIT_NS (2000 * REC_MS)
#define LOOP_OUTSTANDING 16u
#define NODE_OUTSTANDING 64u
#define NODE_MEMORY (64u * 1024)

/* Whatever is under way on it ends here: a late completion must not write into the next one's word.
 */
static int remake_loop(struct rec_node *node)
{
    if (node->loop != NULL)
        rd_conn_delete(node->loop);
    node->loop = NULL;
    return rd_loopback(node->loop_ep, node->extent, node->extent_count, &node->loop);
}

/* The operation did not come back: `error` says why. */
static int loop_failed(struct rec_node *node, int error)
{
    char text[256];

    cn_error_copy(text, sizeof(text));
    cn_log(node->env, CN_LOG_ERROR, "%s; the connection is made anew", text);
    if (remake_loop(node) != 0)
        cn_log(node->env, CN_LOG_ERROR, "node %u: loopback: %s", node->id, cairn_last_error());
    return cn_fail_plain(error, text);
}


/* An event of the loopback endpoint. True: the operation is over, *ret_error says how. */
static bool loop_event(struct rec_node *node, const struct rd_event *event, int *ret_error)
{
    bool mine = event->type == RD_EV_COMPLETION && event->wr_id == node->loop_id;
    const char *text = event->type == RD_EV_DOWN ? event->text : NULL;

    *ret_error = event->status;
    if (mine && event->status == 0)
        return true;
    if (!mine && event->type != RD_EV_DOWN)
        return false;
    int error = event->status != 0 ? event->status : CAIRN_E_NODE_DOWN;
    *ret_error = loop_failed(node,
        cn_fail(error, "node %u: its own fabric failed: %s", node->id,
            text != NULL ? text : cairn_error_name(error)));
    return true;
}

static int await_loop(struct rec_node *node, uint64_t deadline)
{
    const struct cn_pace *pace = &node->config->pace;
    uint32_t idle = 0;
    bool armed = false;

    for (;;) {
        struct rd_event event;
        int error;
        if (rd_poll(node->loop_ep, &event, 1) == 1) {
            if (loop_event(node, &event, &error))
                return error;
        } else if (rec_now(node) >= deadline) {
            return loop_failed(node,
                cn_fail(CAIRN_E_TIMEOUT, "node %u: its own fabric does not answer", node->id));
        } else if (armed) { /* and looked at again since */
            rd_ep_sleep(node->loop_ep, deadline);
            armed = false;
        } else if (cn_pace_may_sleep(pace, 0, LOOP_OUTSTANDING, ++idle > pace->spins)) {
            rd_ep_arm(node->loop_ep);
            armed = true;
        }
    }
}

int rec_loop_cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    struct rec_node *node = arg;
    uint64_t *old = rd_ep_memory(node->loop_ep);
    uint64_t deadline = rec_now(node) + LOOP_WAIT_NS;
    int error = node->loop == NULL ? remake_loop(node) : 0;
    if (error == 0)
        error = rd_cas(node->loop, ++node->loop_id, off, expected, desired, old, RD_SIGNALED);
    if (error == CAIRN_E_NODE_DOWN || error == CAIRN_E_FENCED)
        return loop_failed(node, error);
    if (error == 0)
        error = await_loop(node, deadline);
    if (error == 0)
        *ret_old = *old;
    return error;
}

static int check_identity(struct rec_node *node)
{
    const struct pm_super *super = &node->pool->super;
    char have[CN_UUID_TEXT_SIZE], want[CN_UUID_TEXT_SIZE];
    const char *path = node->pool->path == NULL ? "pool" : node->pool->path;
    node->shard = UINT32_MAX;
    for (uint32_t i = 0; i < node->config->node_count; i++)
        if (node->config->node[i].id == node->id)
            node->shard = i;
    if (node->shard == UINT32_MAX)
        return cn_fail(CAIRN_E_CONFIG,
            "%s: no node %u", node->config->path, node->id);
    if (!cn_uuid_equal(&super->cluster, &node->config->cluster)) {
        cn_uuid_format(&super->cluster, have);
        cn_uuid_format(&node->config->cluster, want);
        return cn_fail(CAIRN_E_WRONG_CLUSTER,
            "%s belongs to cluster %s, the configuration is of %s", path, have, want);
    }
    if (super->node != node->id)
        return cn_fail(CAIRN_E_WRONG_NODE, "%s belongs to node %u, not to node %u", path,
            super->node, node->id);
    return 0;
}

static int raise_incarnation(struct rec_node *node)
{
    int error = pm_pool_raise_incarnation(node->pool);
    node->stats.incarnation = node->pool->incarnation;
    return error;
}

static int region(struct rec_node *node, uint64_t off, uint64_t size, unsigned access,
    struct rd_region **ret_region)
{
    struct rd_memory memory = {
        .base = node->pool->pm.base + off,
        .pool_off = off,
        .size = size,
        .fd = node->pool->fd,
        .durability = access & RD_ACCESS_WRITE ? node->durability : 0,
    };
    return rd_region_new(node->ep, &memory, access, ret_region);
}

static int open_endpoints(struct rec_node *node)
{
    struct rd_ep_config config = {
        .env = node->env,
        .connections_max = node->part.slot_count + 2 * node->config->node_count + 32,
        .outstanding_max = NODE_OUTSTANDING,
        .memory_size = NODE_MEMORY, /* for compare-and-swaps: nothing of it is for rings */
        .name = "node",
        .address = node->config->node[node->shard].address,
    };
    config.connections_max += node->pool->super.geometry.slot_count;
    int error = rd_ep_open(node->fabric, &config, &node->ep);
    if (error != 0)
        return error;
    config.connections_max = 1;
    config.outstanding_max = LOOP_OUTSTANDING;
    config.name = "node-loopback";
    return rd_ep_open(node->fabric, &config, &node->loop_ep);
}

/* Objects can be read and locked; only a ring can be written, and only by its owner. */
static int open_fabric(struct rec_node *node)
{
    const struct pm_super *super = &node->pool->super;
    int error = open_endpoints(node);
    for (uint32_t i = 0; error == 0 && i < super->extent_count; i++) {
        uint64_t off = i == 0 ? super->heap_off : super->extent[i].off;
        uint64_t end = super->extent[i].off + super->extent[i].size;
        error = region(node, off, end - off, RD_ACCESS_READ | RD_ACCESS_ATOMIC, &node->extent[i]);
        node->extent_count += error == 0;
    }
    node->slot = calloc(super->geometry.slot_count, sizeof(*node->slot));
    if (node->slot == NULL)
        return cn_fail(-ENOMEM, "no memory for %u slots", super->geometry.slot_count);
    for (uint32_t i = 1; error == 0 && i < super->geometry.slot_count; i++)
        error = region(node, pm_ring_off(node->pool, i),
            PM_RING_HEADER_SIZE + super->geometry.ring_size, RD_ACCESS_READ | RD_ACCESS_WRITE,
            &node->slot[i].ring);
    if (error != 0)
        return error;
    return rd_loopback(node->loop_ep, node->extent, node->extent_count, &node->loop);
}

static int quarantine(struct rec_node *node)
{
    for (uint32_t i = 1; i < node->pool->super.geometry.slot_count; i++) {
        bool busy = false;
        int error = CN_MUTANT(n_no_start_revoke) ? 0 : rd_ring_revoke(node->slot[i].ring, &busy);
        if (error != 0)
            return error;
        node->slot[i].quarantined = busy;
        node->stats.slots_quarantined += busy;
    }
    cn_step(node->env, CN_STEP_s_fence_cut);
    return 0;
}

static int load_slots(struct rec_node *node)
{
    int error = txn_part_open(&node->part, node->pool, node->env);
    if (error != 0)
        return error;
    for (uint32_t i = 0; i < node->part.slot_count; i++)
        node->slot[i].part = &node->part.slot[i];
    return pm_retired_open(node->pool, &node->retired);
}

/* The record of a committed transaction is damaged and was not applied: which keys it wrote is not
 * known, so any key may be answered with a value from before what was acknowledged. */
static int refuse_damaged(struct rec_node *node)
{
    const char *path = node->pool->path == NULL ? "pool" : node->pool->path;

    for (uint32_t i = 1; i < node->part.slot_count && !node->serve_damaged; i++)
        if (node->part.slot[i].damaged)
            return cn_fail(CAIRN_E_CORRUPT_RECORD,
                "%s: %s. What it committed is lost, and which keys it wrote is not known: the node "
                "does not serve. `cairn inspect` shows more; to serve the rest, with those keys as "
                "they were before, start it with --serve-damaged",
                path, node->part.slot[i].broken_text);
    return 0;
}

static int scan_rings(struct rec_node *node)
{
    uint64_t begin = rec_now(node);
    for (uint32_t i = 1; i < node->part.slot_count; i++) {
        struct txn_part_slot *slot = &node->part.slot[i];
        if (slot->media.state == PM_SLOT_FREE)
            continue;
        /* Where no peer can write any more, records are used where they lie. */
        bool still = !node->slot[i].quarantined && !CN_MUTANT(n_no_start_revoke);
        int error = still ? txn_part_scan_still(&node->part, slot)
                          : txn_part_scan(&node->part, slot);
        if (error == 0)
            error = txn_part_seal(&node->part, slot);
        if (error != 0)
            return error;
    }
    node->stats.records_found = node->part.stats.found;
    node->stats.scan_ns = rec_now(node) - begin;
    cn_step(node->env, CN_STEP_r_scanned);
    return refuse_damaged(node);
}

static int open_store(struct rec_node *node)
{
    struct pm_cas cas = {node, rec_loop_cas};
    int error = pm_store_open(node->pool, &cas, &node->store);
    if (error != 0)
        return error;
    node->part.store = node->store;
    return pm_growth_start(node->store);
}

static int replay(struct rec_node *node)
{
    uint64_t begin = rec_now(node);
    for (uint32_t i = 1; i < node->part.slot_count; i++) {
        const struct txn_part_slot *slot = &node->part.slot[i];
        node->stats.records_replayed += slot->count[TXN_ENTRY_COMMITTED];
        node->stats.releases_redone += slot->count[TXN_ENTRY_APPLIED];
        node->stats.records_in_doubt_at_start += slot->count[TXN_ENTRY_FOUND];
    }
    txn_part_finish_aborted(&node->part);
    while (txn_part_apply(&node->part) != 0)
        continue; /* each call moves entries on, and nobody adds any */
    node->stats.replay_ns = rec_now(node) - begin;
    cn_step(node->env, CN_STEP_r_replayed);
    return 0;
}

static int relock(struct rec_node *node)
{
    if (!CN_MUTANT(n_no_relock))
        txn_part_relock(&node->part);
    return 0;
}

static int make_tables(struct rec_node *node)
{
    for (uint32_t i = 0; i < node->config->table_count; i++) {
        int error = pm_store_create_index(
            node->store, node->config->table[i].id, (uint16_t)node->shard);
        if (error != 0)
            return cn_fail_context(error, "table %s: ", node->config->table[i].name);
    }
    return 0;
}

static int serve(struct rec_node *node)
{
    cn_step(node->env, CN_STEP_r_serving);
    rec_peer_init(node);
    int error = rd_listen(node->ep, node->config->node[node->shard].address);
    node->serving = error == 0;
    return error;
}

static const struct {
    const char *name;
    int (*run)(struct rec_node *node);
} start_steps[] = {
    {"identity", check_identity},
    {"durability", rec_durability_decide},
    {"incarnation", raise_incarnation},
    {"fabric", open_fabric},
    {"quarantine", quarantine},
    {"slots", load_slots},
    {"scan", scan_rings},
    {"store", open_store},
    {"replay", replay},
    {"relock", relock},
    {"tables", make_tables},
    {"serve", serve},
};

int rec_start(struct rec_node *node)
{
    uint64_t begin = rec_now(node);
    for (size_t i = 0; i < CN_ARRAY_SIZE(start_steps); i++) {
        int error = start_steps[i].run(node);
        if (error != 0)
            return cn_fail_context(
                error, "node %u: start, step %s: ", node->id, start_steps[i].name);
    }
    node->stats.open_ns = rec_now(node) - begin;
    cn_log(node->env, CN_LOG_INFO,
        "node %u serves: durability %s, incarnation %llu, %llu records found, %llu replayed, %llu "
        "in doubt, %.1f ms",
        node->id, rd_durability_name(node->durability),
        (unsigned long long)node->stats.incarnation,
        (unsigned long long)node->stats.records_found,
        (unsigned long long)node->stats.records_replayed,
        (unsigned long long)node->stats.records_in_doubt_at_start,
        (double)node->stats.open_ns / (double)REC_MS);
    return 0;
}

/* Undo in reverse, whatever was reached. */
void rec_stop(struct rec_node *node)
{
    pm_store_close(&node->store);
    pm_retired_close(&node->retired);
    txn_part_close(&node->part);
    if (node->loop != NULL)
        rd_conn_delete(node->loop);
    for (uint32_t i = 1; node->slot != NULL && i < node->pool->super.geometry.slot_count; i++)
        if (node->slot[i].ring != NULL)
            rd_region_delete(node->slot[i].ring);
    for (uint32_t i = 0; i < node->extent_count; i++)
        rd_region_delete(node->extent[i]);
    if (node->loop_ep != NULL)
        rd_ep_close(node->loop_ep);
    if (node->ep != NULL)
        rd_ep_close(node->ep);
    free(node->slot);
    node->slot = NULL;
}
