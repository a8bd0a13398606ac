/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_layout_check.c: the compiler's promise that media structs are what docs/media-format.md says.
 * A line that fails means: the layout has changed, and that takes a new layout version.
 */
#include "pmem/pm_format.h"

#define SIZE(type, size) _Static_assert(sizeof(struct type) == (size), "size of " #type)
#define AT(type, field, off)                                                                       \
    _Static_assert(offsetof(struct type, field) == (off), "offset of " #type "." #field)
#define VALUE(name, value) _Static_assert((name) == (value), "value of " #name)

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN || __BYTE_ORDER == __BIG_ENDIAN, "byte order");
_Static_assert(_Alignof(struct le64) == 8 && _Alignof(struct le32) == 4, "natural alignment");

VALUE(PM_LAYOUT_VERSION, 1);
VALUE(PM_EXTENTS_MAX, 64);
VALUE(PM_RING_HEADER_SIZE, 4096);
VALUE(PM_RECORD_ALIGN, 64);

SIZE(pm_extent_pm, 16);
AT(pm_extent_pm, off, 0);
AT(pm_extent_pm, size, 8);

SIZE(pm_root_pm, 1056);
AT(pm_root_pm, magic, 0);
AT(pm_root_pm, layout_version, 8);
AT(pm_root_pm, extent_count, 12);
AT(pm_root_pm, pool_size, 16);
AT(pm_root_pm, reserved, 24);
AT(pm_root_pm, extent, 32);

SIZE(pm_super_pm, 1280);
AT(pm_super_pm, magic, 0);
AT(pm_super_pm, layout_version, 8);
AT(pm_super_pm, crc, 12);
AT(pm_super_pm, pool, 16);
AT(pm_super_pm, cluster, 32);
AT(pm_super_pm, node, 48);
AT(pm_super_pm, chunk_shift, 52);
AT(pm_super_pm, compat, 56);
AT(pm_super_pm, incompat, 64);
AT(pm_super_pm, ro_compat, 72);
AT(pm_super_pm, pool_size, 80);
AT(pm_super_pm, created_s, 88);
AT(pm_super_pm, slot_count, 96);
AT(pm_super_pm, slot_stride, 100);
AT(pm_super_pm, window, 104);
AT(pm_super_pm, tombstone_max, 108);
AT(pm_super_pm, ring_size, 112);
AT(pm_super_pm, ring_stride, 120);
AT(pm_super_pm, retired_max, 128);
AT(pm_super_pm, extent_count, 132);
AT(pm_super_pm, slots_off, 136);
AT(pm_super_pm, retired_off, 144);
AT(pm_super_pm, chunks_off, 152);
AT(pm_super_pm, chunk_count, 160);
AT(pm_super_pm, rings_off, 168);
AT(pm_super_pm, heap_off, 176);
AT(pm_super_pm, root_map_max, 184);
AT(pm_super_pm, bucket_slots, 188);
AT(pm_super_pm, fingerprint_bits, 192);
AT(pm_super_pm, depth0, 196);
AT(pm_super_pm, reserved, 200);
AT(pm_super_pm, extent, 256);

SIZE(pm_super_dyn_pm, 128);
AT(pm_super_dyn_pm, generation, 0);
AT(pm_super_dyn_pm, crc, 8);
AT(pm_super_dyn_pm, member_state, 12);
AT(pm_super_dyn_pm, incarnation, 16);
AT(pm_super_dyn_pm, view_max, 24);
AT(pm_super_dyn_pm, opener_pid, 32);
AT(pm_super_dyn_pm, opener_start, 40);
AT(pm_super_dyn_pm, opener_boot, 48);
AT(pm_super_dyn_pm, clean, 64);
AT(pm_super_dyn_pm, reserved, 72);

SIZE(pm_scrub_pm, 64);
AT(pm_scrub_pm, goal, 0);
AT(pm_scrub_pm, cursor, 8);
AT(pm_scrub_pm, done, 16);
AT(pm_scrub_pm, reserved, 24);

SIZE(pm_slot_pm, 128);
AT(pm_slot_pm, generation, 0);
AT(pm_slot_pm, crc, 8);
AT(pm_slot_pm, state, 12);
AT(pm_slot_pm, reserved0, 14);
AT(pm_slot_pm, epoch, 16);
AT(pm_slot_pm, nonce, 24);
AT(pm_slot_pm, owner, 32);
AT(pm_slot_pm, view, 48);
AT(pm_slot_pm, position_seq, 56);
AT(pm_slot_pm, position_off, 64);
AT(pm_slot_pm, closing_seq, 72);
AT(pm_slot_pm, incarnation, 80);
AT(pm_slot_pm, closed_s, 88);
AT(pm_slot_pm, reserved, 96);

SIZE(pm_tombstone_pm, 16);
AT(pm_tombstone_pm, seq, 0);
AT(pm_tombstone_pm, check, 8);

SIZE(pm_retired_pm, 64);
AT(pm_retired_pm, crc, 0);
AT(pm_retired_pm, type, 4);
AT(pm_retired_pm, slot, 6);
AT(pm_retired_pm, epoch, 8);
AT(pm_retired_pm, u.e.owner, 16);
AT(pm_retired_pm, u.e.closing_seq, 32);
AT(pm_retired_pm, u.e.retired_s, 40);
AT(pm_retired_pm, u.e.tombstone_count, 48);
AT(pm_retired_pm, u.e.view, 52);
AT(pm_retired_pm, u.e.reserved, 56);
AT(pm_retired_pm, u.t.seq, 16);
AT(pm_retired_pm, u.t.reserved, 56);

SIZE(pm_record_pm, 80);
AT(pm_record_pm, magic, 0);
AT(pm_record_pm, size, 4);
AT(pm_record_pm, crc, 8);
AT(pm_record_pm, type, 12);
AT(pm_record_pm, reserved0, 13);
AT(pm_record_pm, seq, 16);
AT(pm_record_pm, mark, 24);
AT(pm_record_pm, coordinator, 32);
AT(pm_record_pm, count, 48);
AT(pm_record_pm, view, 56);
AT(pm_record_pm, participant_count, 64);
AT(pm_record_pm, lock_count, 66);
AT(pm_record_pm, block_count, 68);
AT(pm_record_pm, write_count, 70);
AT(pm_record_pm, done, 72);

SIZE(pm_record_seed_pm, 48);
AT(pm_record_seed_pm, pool, 0);
AT(pm_record_seed_pm, slot, 16);
AT(pm_record_seed_pm, epoch, 24);
AT(pm_record_seed_pm, nonce, 32);
AT(pm_record_seed_pm, log_off, 40);

SIZE(pm_participant_pm, 24);
AT(pm_participant_pm, node, 0);
AT(pm_participant_pm, shard, 2);
AT(pm_participant_pm, slot, 4);
AT(pm_participant_pm, role, 6);
AT(pm_participant_pm, reserved, 7);
AT(pm_participant_pm, epoch, 8);
AT(pm_participant_pm, seq, 16);

SIZE(pm_lock_pm, 16);
AT(pm_lock_pm, off, 0);
AT(pm_lock_pm, base, 8);

SIZE(pm_write_pm, 56);
AT(pm_write_pm, op, 0);
AT(pm_write_pm, class_, 1);
AT(pm_write_pm, key_size, 2);
AT(pm_write_pm, value_size, 4);
AT(pm_write_pm, index, 8);
AT(pm_write_pm, reserved, 12);
AT(pm_write_pm, hash, 16);
AT(pm_write_pm, key_base, 24);
AT(pm_write_pm, item, 32);
AT(pm_write_pm, block, 40);
AT(pm_write_pm, bucket, 48);

SIZE(pm_object_pm, 24);
AT(pm_object_pm, word, 0);
AT(pm_object_pm, meta, 8);
AT(pm_object_pm, crc, 16);
AT(pm_object_pm, index, 20);

SIZE(pm_bucket_pm, 512);
AT(pm_bucket_pm, head, 0);
AT(pm_bucket_pm, number, 24);
AT(pm_bucket_pm, count, 32);
AT(pm_bucket_pm, reserved, 34);
AT(pm_bucket_pm, slot, 64);

SIZE(pm_item_pm, 40);
AT(pm_item_pm, head, 0);
AT(pm_item_pm, value_size, 24);
AT(pm_item_pm, key_size, 28);
AT(pm_item_pm, reserved, 30);
AT(pm_item_pm, hash, 32);

SIZE(pm_chunk_pm, 16);
AT(pm_chunk_pm, kind, 0);
AT(pm_chunk_pm, class_, 1);
AT(pm_chunk_pm, free_hint, 2);
AT(pm_chunk_pm, index, 4);
AT(pm_chunk_pm, seq, 8);
AT(pm_chunk_pm, crc, 12);

SIZE(pm_index_pm, 256);
AT(pm_index_pm, magic, 0);
AT(pm_index_pm, layout_version, 8);
AT(pm_index_pm, crc, 12);
AT(pm_index_pm, index, 16);
AT(pm_index_pm, table, 20);
AT(pm_index_pm, shard, 22);
AT(pm_index_pm, kind, 24);
AT(pm_index_pm, depth0, 25);
AT(pm_index_pm, bucket_slots, 26);
AT(pm_index_pm, fingerprint_bits, 27);
AT(pm_index_pm, map_max, 28);
AT(pm_index_pm, hash_key, 32);
AT(pm_index_pm, reserved, 48);
AT(pm_index_pm, grow, 128);
AT(pm_index_pm, items, 136);
AT(pm_index_pm, reserved2, 144);

SIZE(pm_split_pm, 1040);
AT(pm_split_pm, parent, 0);
AT(pm_split_pm, child, 8);
AT(pm_split_pm, image, 16);
SIZE(pm_chunk_op_pm, 40);
AT(pm_chunk_op_pm, chunk, 0);
AT(pm_chunk_op_pm, descriptor, 8);
AT(pm_chunk_op_pm, root, 24);
AT(pm_chunk_op_pm, map_entry, 32);
SIZE(pm_root_op_pm, 288);
AT(pm_root_op_pm, root, 0);
AT(pm_root_op_pm, chunk, 8);
AT(pm_root_op_pm, descriptor, 16);
AT(pm_root_op_pm, image, 32);

/* Numbers on media. */
VALUE(PM_RECORD_MAGIC, UINT32_C(0x44455243));
VALUE(PM_ROOT_MAGIC, UINT64_C(0x31544f4f52524143));
VALUE(PM_SUPER_MAGIC, UINT64_C(0x314253424e524143));
VALUE(PM_INDEX_MAGIC, UINT64_C(0x3158444e49524143));
VALUE(PM_RECORD_TX, 1);
VALUE(PM_RECORD_VOID, 2);
VALUE(PM_RECORD_PAD, 3);
VALUE(PM_RECORD_GROWTH, 4);
VALUE(PM_WORD_MARK, 1);
VALUE(PM_WORD_APPLIED, 2);
VALUE(PM_WORD_TOMBSTONE, 3);
VALUE(PM_SLOT_FREE, 0);
VALUE(PM_SLOT_OPEN, 1);
VALUE(PM_SLOT_CLOSED, 2);
VALUE(PM_RETIRED_EPOCH, 1);
VALUE(PM_RETIRED_TOMBSTONES, 2);
VALUE(PM_MEMBER_FULL, 1);
VALUE(PM_MEMBER_JOINING, 2);
VALUE(PM_KIND_BUCKET, 1);
VALUE(PM_KIND_ITEM, 2);
VALUE(PM_KIND_DEAD, 3);
VALUE(PM_KIND_MOVED, 4);
VALUE(PM_CHUNK_FREE, 0);
VALUE(PM_CHUNK_SLAB, 1);
VALUE(PM_CHUNK_BUCKETS, 2);
VALUE(PM_CHUNK_ROOTS, 3);
VALUE(PM_OP_UPDATE, 1);
VALUE(PM_OP_INSERT, 2);
VALUE(PM_OP_MOVE, 3);
VALUE(PM_OP_DELETE, 4);
VALUE(PM_OP_SPLIT, 5);
VALUE(PM_OP_CHUNK, 6);
VALUE(PM_OP_ROOT, 7);

/* Fields stored alone lie within one line. */
_Static_assert(offsetof(struct pm_record_pm, mark) % 8 == 0, "a mark is stored alone");
_Static_assert(PM_SUPER_DYN_STRIDE >= sizeof(struct pm_super_dyn_pm), "copies do not overlap");
_Static_assert(PM_SUPER_DYN_OFF >= sizeof(struct pm_super_pm), "parts do not overlap");
_Static_assert(PM_SUPER_DYN_OFF + 2 * PM_SUPER_DYN_STRIDE <= PM_SCRUB_OFF, "parts do not overlap");
_Static_assert(PM_SCRUB_OFF + sizeof(struct pm_scrub_pm) <= PM_SUPER_AREA_SIZE, "parts overlap");
_Static_assert(2 * sizeof(struct pm_slot_pm) <= PM_SLOT_HEADER_SIZE, "header copies overlap");
