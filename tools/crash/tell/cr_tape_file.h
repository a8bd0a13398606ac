/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_tape_file.h: a run in a file: everything that replays it. Text, a line each:
 *
 *   cairn-tape 1
 *   build 5f1c...            the program that made it
 *   seed 17
 *   mutant none              the rule that was broken on purpose
 *   workload mixed           as --workload
 *   setup nodes=2 ops=20     as cr_setup_text.h
 *   failure the bank's total is 297, should be 300
 *   rest drawn               choices that are not listed: drawn from the seed, or calm
 *   choices 4711
 *   3 8 2 0 node             value, bound, who, nth, label: once per choice, in order
 *   ...
 *   end 1a2b3c4d             crc32c of all bytes before this line
 *
 * The parser trusts nothing: sizes are bounded, texts are plain characters, the checksum is
 * compared, and whatever follows the last line is an error.
 */
#ifndef CR_TAPE_FILE_H
#define CR_TAPE_FILE_H

#include "tools/crash/tell/cr_setup_text.h"
#include "tools/sim/sim_tape.h"

#define CR_TAPE_VERSION 1u
#define CR_TAPE_CHOICES_MAX (1u << 24)
#define CR_TAPE_SIZE_MAX (UINT64_C(1) << 30)
#define CR_TAPE_LABELS_MAX 1024u
#define CR_TAPE_LABEL_MAX 63u

struct cr_tape_file {
    char build[48], mutant[64], workload[512];
    uint64_t seed;
    char setup[CR_SETUP_TEXT_MAX];
    char failure[1024]; /* empty: the run passed */
    bool calm_rest;
    const struct sim_choice *choice; /* all of the run, or what a shrinker left; sim_replay.h */
    size_t count;
    /* of cr_tape_read(); NULL in one that was not read */
    struct sim_choice *own_choice;
    char *label[CR_TAPE_LABELS_MAX];
    uint32_t label_count;
};

/* Writes beside it and renames. Errors: -errno; CAIRN_E_LIMIT: a text or the tape is too long. */
CN_MUST_CHECK int cr_tape_write(const char *path, const struct cr_tape_file *tape);
/*
 * Owner: the caller, cr_tape_release(). Errors: -errno; -EINVAL: no tape, or malformed, with the
 * line; CAIRN_E_WIRE_VERSION: of another version of the format; -EBADMSG: the checksum differs.
 */
CN_MUST_CHECK int cr_tape_read(const char *path, struct cr_tape_file *ret_tape);
/* The same from memory; `name` for messages. */
CN_MUST_CHECK int cr_tape_parse(
    const char *name, const char *text, size_t size, struct cr_tape_file *ret_tape);
void cr_tape_release(struct cr_tape_file *tape);

#endif
