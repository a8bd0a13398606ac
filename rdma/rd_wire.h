/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_wire.h: every struct that travels between processes: handshake and messages. Little-endian,
 * naturally aligned, reserved bytes written zero and checked zero. docs/wire-format.md explains
 * them. Redo records travel too, but are media structs (pmem/pm_layout.h).
 *
 * Handshake: `hello` goes with the connect, `welcome` or `refusal` with the answer.
 * Messages: a header and a body of the type's size; requests carry an id that the reply repeats.
 */
#ifndef RD_WIRE_H
#define RD_WIRE_H

#include "include/internal/cn_base.h"

#define RD_WIRE_MAGIC UINT32_C(0x31574e43) /* "CNW1" */
#define RD_WIRE_VERSION 1u

enum rd_wire_role { RD_ROLE_COORDINATOR = 1, RD_ROLE_NODE = 2, RD_ROLE_TOOL = 3 };

struct rd_hello_wire { /* 48 bytes */
    struct le32 magic;
    struct le16 version;
    struct le16 role;       /* enum rd_wire_role */
    struct cn_uuid cluster; /* 8: zero, with node 0: a tool that takes whoever answers */
    struct cn_uuid peer;    /* 24: coordinator session; zero for a node or tool */
    struct le32 view;       /* 40 */
    struct le16 node;       /* 44: the node asked for: a wrong one is refused */
    struct le16 from_node;  /* 46: 0 unless role is NODE */
};

struct rd_welcome_wire { /* 168 bytes */
    struct le32 magic;
    struct le16 version;
    struct le16 node;
    struct cn_uuid pool;         /* 8 */
    struct le64 incarnation;     /* 24 */
    struct le64 slot_epoch;      /* 32: the rest is zero for peers without a slot */
    struct le64 nonce;           /* 40 */
    struct le64 ring_off;        /* 48: pool offset of the ring region, its header page included */
    struct le64 ring_size; /* 56: bytes of log in it, a multiple of 64, after the header page */
    struct le64 position_off;    /* 64: pool offset of struct rd_position_wire */
    struct le64 pool_size;       /* 72 */
    struct le64 extent_off;      /* 80: lowest and ... */
    struct le64 extent_end;      /* 88: ... end of the pool offsets that objects may lie at */
    struct le32 window;          /* 96: records that may be outstanding in the ring */
    struct le16 slot;            /* 100 */
    struct le16 tag;             /* 102: incarnation tag for lock words */
    struct le32 view;            /* 104 */
    struct le32 lease_ms;        /* 108 */
    uint8_t chunk_shift;         /* 112 */
    uint8_t durability;          /* 113: enum rd_durability (rd.h) */
    uint8_t reserved0[2];
    struct le32 bytes_max;       /* 116: largest record accepted */
    uint8_t reserved[48];        /* 120 */
};

struct rd_refusal_wire { /* 136 bytes */
    struct le32 magic;
    struct le32 error;  /* -(CAIRN_E_*) as a positive number */
    char text[128];     /* zero-terminated */
};

/* Published by the node after the fence of `a_position`, in its ring's header page at byte 64; each
 * word only grows, so a torn read of the pair is harmless. */
struct rd_position_wire {
    struct le64 seq; /* every sequence up to it is applied or has a durable tombstone */
    struct le64 off; /* log offset up to which ring space may be reused */
};

enum rd_message_type {
    RD_MSG_GRANT = 1,      /* coordinator: blocks of a class */
    RD_MSG_GRANT_REPLY,
    RD_MSG_ROOM,           /* coordinator: make room in a bucket */
    RD_MSG_ROOM_REPLY,
    RD_MSG_TABLE,          /* coordinator: where is a table's root */
    RD_MSG_TABLE_REPLY,
    RD_MSG_WORD,           /* coordinator: this word is locked too long (R13) */
    RD_MSG_WORD_REPLY,
    RD_MSG_PING,           /* node: does the owner still live */
    RD_MSG_PONG,
    RD_MSG_CLOSE,          /* coordinator: clean close, no lock held, nothing will be posted */
    RD_MSG_CLOSE_REPLY,
    RD_MSG_RESOLVE,        /* coordinator or tool: the verdict on a token */
    RD_MSG_RESOLVE_REPLY,
    RD_MSG_ASK,            /* node: find or prevent */
    RD_MSG_ANSWER,
    RD_MSG_TOLD,           /* node: a verdict computed by another; no reply */
    RD_MSG_PURGE,          /* node: may I forget this retired epoch */
    RD_MSG_PURGE_REPLY,
    RD_MSG_STATS,          /* tool: live statistics */
    RD_MSG_STATS_REPLY,    /* body: JSON text, not zero-terminated */
    RD_MSG_TYPE_COUNT,
};

struct rd_message_wire { /* header, 16 bytes; the body follows */
    struct le32 magic;
    struct le16 type;
    struct le16 size;    /* of the body */
    struct le32 id;      /* request id; the reply repeats it */
    struct le32 status;  /* replies: 0 or -(CAIRN_E_*) as a positive number; requests: 0 */
};

#define RD_GRANT_BLOCKS_MAX 64u
struct rd_grant_wire { uint8_t class_; uint8_t reserved[3]; struct le32 count; };
struct rd_block_wire { struct le64 off; struct le64 version; };
struct rd_grant_reply_wire { /* `count` blocks follow; fewer than asked = scarce */
    struct le32 count;
    uint8_t reserved[4];
    struct rd_block_wire block[];
};
struct rd_room_wire {
    struct le64 root_off;
    struct le64 hash;
    struct le32 count;
    uint8_t reserved[4];
};
struct rd_table_wire { struct le16 table; struct le16 shard; uint8_t reserved[4]; };
struct rd_table_reply_wire { struct le64 root_off; struct le32 index; uint8_t reserved[4]; };
struct rd_word_wire { struct le64 off; struct le64 word; };
enum rd_word_answer {
    RD_WORD_CHANGED = 1,  /* the word is another one by now: read again */
    RD_WORD_FREED = 2,    /* the owner was dead, the word is free now: read again */
    RD_WORD_ALIVE = 3,    /* the owner answered lately: back off */
    RD_WORD_IN_DOUBT = 4, /* held by a record in doubt: it takes a participant that is down */
    RD_WORD_CHECKING = 5, /* the owner is being asked or resolved: ask again in a while */
};
struct rd_word_reply_wire { struct le32 answer; uint8_t reserved[4]; };

/* Names a transaction's place at one participant. */
struct rd_place_wire { /* 48 bytes */
    struct cn_uuid coordinator;
    struct le64 count;
    struct le64 epoch;
    struct le64 seq;
    struct le32 view;
    struct le16 slot;
    struct le16 node; /* the participant the place is at */
};
enum rd_verdict {
    RD_VERDICT_NONE = 0,
    RD_VERDICT_COMMITTED = 1,
    RD_VERDICT_ABORTED = 2,
    RD_VERDICT_PRESENT = 3,   /* ANSWER only: a valid record, durable, undecided here */
    RD_VERDICT_FORGOTTEN = 4, /* the epoch is no longer known: never a verdict */
    RD_VERDICT_IN_DOUBT = 5,  /* RESOLVE_REPLY only */
};
struct rd_ask_wire { struct rd_place_wire place; };         /* RESOLVE too */
struct rd_answer_wire { struct rd_place_wire place; struct le32 verdict; uint8_t reserved[4]; };
                                                            /* RESOLVE_REPLY and TOLD too */
struct rd_purge_wire {
    struct cn_uuid coordinator;
    struct le64 epoch;
    struct le16 node;
    uint8_t reserved[6];
};

/* Body size of a fixed-size message type; UINT32_MAX for unknown, minimum for variable ones. */
uint32_t rd_wire_body_size(uint32_t type);
const char *rd_wire_type_name(uint32_t type);
/*
 * Check a received message: magic, known type, header and body sizes, reserved bytes, grant counts.
 * On success the body is at message + sizeof(struct rd_message_wire). Errors: CAIRN_E_PROTOCOL
 * (text says which check), CAIRN_E_WIRE_VERSION for a bad magic.
 */
CN_MUST_CHECK int rd_wire_check(const void *message, uint32_t size);
/* Errors: CAIRN_E_PROTOCOL, _WIRE_VERSION, _WRONG_CLUSTER, _WRONG_NODE. */
CN_MUST_CHECK int rd_wire_check_hello(
    const void *hello, uint32_t size, const struct cn_uuid *cluster, uint16_t node);
/* Errors: CAIRN_E_PROTOCOL, _WIRE_VERSION. Checks every range in it against pool_size. */
CN_MUST_CHECK int rd_wire_check_welcome(
    const void *welcome, uint32_t size, uint16_t node, bool slot);
/* Error carried by a refusal: its code, with its text as the thread's error text. */
int rd_wire_refusal(const void *refusal, uint32_t size);
void rd_wire_make_refusal(struct rd_refusal_wire *refusal, int error, const char *text);

#endif
