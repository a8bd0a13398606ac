/* SPDX-License-Identifier: BSD-3-Clause */
/* rec_stats.c: a node's counters, and their JSON for `cairn inspect --node`. */
#include <jansson.h>

#include "recovery/rec_internal.h"

void rec_node_stats(const struct rec_node *node, struct rec_node_stats *ret)
{
    *ret = node->stats;
    ret->slots_open = 0;
    ret->slots_closed = 0;
    ret->slots_free = 0;
    ret->slots_quarantined = 0;
    for (uint32_t i = 1; i < node->part.slot_count; i++) {
        enum pm_slot_state state = node->part.slot[i].media.state;
        ret->slots_open += state == PM_SLOT_OPEN;
        ret->slots_closed += state == PM_SLOT_CLOSED;
        ret->slots_free += state == PM_SLOT_FREE;
        ret->slots_quarantined += node->slot[i].quarantined;
    }
    ret->in_doubt = 0;
    for (const struct rec_doubt *doubt = node->doubts; doubt != NULL; doubt = doubt->next)
        ret->in_doubt++;
    ret->applied = node->part.stats.applied;
    ret->tombstones = node->part.stats.tombstones;
    ret->records_rejected = node->part.stats.rejected;
    ret->durability = node->durability;
    pm_store_stats(node->store, &ret->store);
    rd_ep_counters(node->ep, &ret->fabric);
}

static json_t *counter(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *slots_json(const struct rec_node_stats *s)
{
    json_t *slots = json_object();
    json_object_set_new(slots, "open", counter(s->slots_open));
    json_object_set_new(slots, "closed", counter(s->slots_closed));
    json_object_set_new(slots, "free", counter(s->slots_free));
    json_object_set_new(slots, "quarantined", counter(s->slots_quarantined));
    return slots;
}

static json_t *space_json(const struct rec_node_stats *s)
{
    json_t *space = json_object();
    json_object_set_new(space, "chunks_total", counter(s->store.chunks_total));
    json_object_set_new(space, "chunks_free", counter(s->store.chunks_free));
    json_object_set_new(space, "chunks_slab", counter(s->store.chunks_slab));
    json_object_set_new(space, "chunks_buckets", counter(s->store.chunks_buckets));
    json_object_set_new(space, "splits",
        counter(s->store.splits_early + s->store.splits_sweep + s->store.splits_room));
    json_object_set_new(space, "grants", counter(s->store.grants));
    json_object_set_new(space, "grants_full", counter(s->store.grants_full));
    return space;
}

char *rec_stats_json(const struct rec_node *node)
{
    struct rec_node_stats s;
    rec_node_stats(node, &s);
    json_t *root = json_object();
    json_object_set_new(root, "node", json_integer(node->id));
    json_object_set_new(root, "incarnation", counter(s.incarnation));
    json_object_set_new(root, "durability", json_string(rd_durability_name(s.durability)));
    json_object_set_new(root, "open_us", counter(s.open_ns / 1000));
    json_object_set_new(root, "slots", slots_json(&s));
    json_object_set_new(root, "space", space_json(&s));
    json_object_set_new(root, "in_doubt", counter(s.in_doubt));
    json_object_set_new(root, "quiet", json_boolean(rec_node_is_quiet(node)));
    json_object_set_new(root, "records_found_at_start", counter(s.records_found));
    json_object_set_new(root, "records_replayed_at_start", counter(s.records_replayed));
    json_object_set_new(root, "records_in_doubt_at_start", counter(s.records_in_doubt_at_start));
    json_object_set_new(root, "applied", counter(s.applied));
    json_object_set_new(root, "tombstones", counter(s.tombstones));
    json_object_set_new(root, "fences", counter(s.fences));
    json_object_set_new(root, "resolved_committed", counter(s.resolved_committed));
    json_object_set_new(root, "resolved_aborted", counter(s.resolved_aborted));
    json_object_set_new(root, "records_rejected", counter(s.records_rejected));
    json_object_set_new(root, "locks_freed", counter(s.locks_freed));
    json_object_set_new(root, "messages_received", counter(s.fabric.messages_received));
    json_object_set_new(root, "turns", counter(s.turns));
    json_object_set_new(root, "sleeps", counter(s.sleeps));
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}
