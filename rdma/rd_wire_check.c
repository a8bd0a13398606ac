/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_wire_check.c: the size of every wire struct and the offset of its fields, fixed. A line that
 * fails here is a change of the wire format: RD_WIRE_VERSION and docs/wire-format.md go with it.
 */
#include "rdma/rd_emu.h"
#include "rdma/rd_wire.h"

#define SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)
#define AT(type, field, off) _Static_assert(offsetof(struct type, field) == (off), #type "." #field)

SIZE(rd_hello_wire, 48);
AT(rd_hello_wire, magic, 0);
AT(rd_hello_wire, version, 4);
AT(rd_hello_wire, role, 6);
AT(rd_hello_wire, cluster, 8);
AT(rd_hello_wire, peer, 24);
AT(rd_hello_wire, view, 40);
AT(rd_hello_wire, node, 44);
AT(rd_hello_wire, from_node, 46);

SIZE(rd_welcome_wire, 168);
AT(rd_welcome_wire, magic, 0);
AT(rd_welcome_wire, version, 4);
AT(rd_welcome_wire, node, 6);
AT(rd_welcome_wire, pool, 8);
AT(rd_welcome_wire, incarnation, 24);
AT(rd_welcome_wire, slot_epoch, 32);
AT(rd_welcome_wire, nonce, 40);
AT(rd_welcome_wire, ring_off, 48);
AT(rd_welcome_wire, ring_size, 56);
AT(rd_welcome_wire, position_off, 64);
AT(rd_welcome_wire, pool_size, 72);
AT(rd_welcome_wire, extent_off, 80);
AT(rd_welcome_wire, extent_end, 88);
AT(rd_welcome_wire, window, 96);
AT(rd_welcome_wire, slot, 100);
AT(rd_welcome_wire, tag, 102);
AT(rd_welcome_wire, view, 104);
AT(rd_welcome_wire, lease_ms, 108);
AT(rd_welcome_wire, chunk_shift, 112);
AT(rd_welcome_wire, durability, 113);
AT(rd_welcome_wire, reserved0, 114);
AT(rd_welcome_wire, bytes_max, 116);
AT(rd_welcome_wire, reserved, 120);

SIZE(rd_refusal_wire, 136);
AT(rd_refusal_wire, magic, 0);
AT(rd_refusal_wire, error, 4);
AT(rd_refusal_wire, text, 8);

SIZE(rd_position_wire, 16);
AT(rd_position_wire, seq, 0);
AT(rd_position_wire, off, 8);

SIZE(rd_message_wire, 16);
AT(rd_message_wire, magic, 0);
AT(rd_message_wire, type, 4);
AT(rd_message_wire, size, 6);
AT(rd_message_wire, id, 8);
AT(rd_message_wire, status, 12);

SIZE(rd_grant_wire, 8);
AT(rd_grant_wire, class_, 0);
AT(rd_grant_wire, reserved, 1);
AT(rd_grant_wire, count, 4);
SIZE(rd_block_wire, 16);
AT(rd_block_wire, off, 0);
AT(rd_block_wire, version, 8);
SIZE(rd_grant_reply_wire, 8);
AT(rd_grant_reply_wire, count, 0);
AT(rd_grant_reply_wire, reserved, 4);
AT(rd_grant_reply_wire, block, 8);
SIZE(rd_room_wire, 24);
AT(rd_room_wire, root_off, 0);
AT(rd_room_wire, hash, 8);
AT(rd_room_wire, count, 16);
AT(rd_room_wire, reserved, 20);
SIZE(rd_table_wire, 8);
AT(rd_table_wire, table, 0);
AT(rd_table_wire, shard, 2);
AT(rd_table_wire, reserved, 4);
SIZE(rd_table_reply_wire, 16);
AT(rd_table_reply_wire, root_off, 0);
AT(rd_table_reply_wire, index, 8);
AT(rd_table_reply_wire, reserved, 12);
SIZE(rd_word_wire, 16);
AT(rd_word_wire, off, 0);
AT(rd_word_wire, word, 8);
SIZE(rd_word_reply_wire, 8);
AT(rd_word_reply_wire, answer, 0);
AT(rd_word_reply_wire, reserved, 4);

SIZE(rd_place_wire, 48);
AT(rd_place_wire, coordinator, 0);
AT(rd_place_wire, count, 16);
AT(rd_place_wire, epoch, 24);
AT(rd_place_wire, seq, 32);
AT(rd_place_wire, view, 40);
AT(rd_place_wire, slot, 44);
AT(rd_place_wire, node, 46);
SIZE(rd_ask_wire, 48);
AT(rd_ask_wire, place, 0);
SIZE(rd_answer_wire, 56);
AT(rd_answer_wire, place, 0);
AT(rd_answer_wire, verdict, 48);
AT(rd_answer_wire, reserved, 52);
SIZE(rd_purge_wire, 32);
AT(rd_purge_wire, coordinator, 0);
AT(rd_purge_wire, epoch, 16);
AT(rd_purge_wire, node, 24);
AT(rd_purge_wire, reserved, 26);

SIZE(rd_emu_frame_wire, 16);
AT(rd_emu_frame_wire, magic, 0);
AT(rd_emu_frame_wire, type, 4);
AT(rd_emu_frame_wire, reserved0, 6);
AT(rd_emu_frame_wire, size, 8);
AT(rd_emu_frame_wire, reserved, 12);
SIZE(rd_emu_region_wire, 32);
AT(rd_emu_region_wire, pool_off, 0);
AT(rd_emu_region_wire, size, 8);
AT(rd_emu_region_wire, base, 16);
AT(rd_emu_region_wire, access, 24);
AT(rd_emu_region_wire, durability, 26);
AT(rd_emu_region_wire, file, 28);
AT(rd_emu_region_wire, ring, 30);
SIZE(rd_emu_accept_wire, 16);
AT(rd_emu_accept_wire, pid, 0);
AT(rd_emu_accept_wire, region_count, 4);
AT(rd_emu_accept_wire, file_count, 8);
AT(rd_emu_accept_wire, welcome_size, 12);

/* What fits where. */
_Static_assert(sizeof(struct rd_hello_wire) <= RD_HELLO_SIZE_MAX, "hello");
_Static_assert(sizeof(struct rd_welcome_wire) <= RD_WELCOME_SIZE_MAX, "welcome");
_Static_assert(sizeof(struct rd_refusal_wire) <= RD_WELCOME_SIZE_MAX, "refusal");
_Static_assert(sizeof(struct rd_message_wire) + sizeof(struct rd_grant_reply_wire) +
                       RD_GRANT_BLOCKS_MAX * sizeof(struct rd_block_wire) <= RD_MESSAGE_SIZE_MAX,
    "grant reply");
_Static_assert(sizeof(struct rd_emu_accept_wire) +
                       RD_EMU_REGIONS_MAX * sizeof(struct rd_emu_region_wire) +
                       RD_WELCOME_SIZE_MAX <= RD_MESSAGE_SIZE_MAX,
    "accept frame");
_Static_assert(64 + sizeof(struct rd_position_wire) <= RD_RING_HEADER_SIZE, "ring header page");
_Static_assert(sizeof(struct emu_ring_header) <= 64, "the fabric's part of the ring header page");
