/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_setup_text.h: the shape of a run as one line of text, so that a command and a tape can say it:
 *
 *   nodes=2 clients=3 ops=12 faults=process+client work=bank plan=node:a_body:2:power
 *
 * Only what differs from all zero is written; no character needs quotes in a shell's '...'. What
 * the user names with --workload is not part of it. And the names of faults and platform modes.
 */
#ifndef CR_SETUP_TEXT_H
#define CR_SETUP_TEXT_H

#include "tools/crash/cluster/cr_cluster.h"

#define CR_SETUP_TEXT_MAX 640u

/* Returns `text`. */
const char *cr_setup_print(const struct cr_setup *setup, char text[CR_SETUP_TEXT_MAX]);
/* Hostile text. Errors: -EINVAL, which word and why; *ret_setup is untouched then. */
CN_MUST_CHECK int cr_setup_parse(const char *text, struct cr_setup *ret_setup);

/*
 * "process,power": these; "+pause,-partition": `base` with changes; "all", "none". Errors:
 * -EINVAL, with the names that there are.
 */
CN_MUST_CHECK int cr_faults_parse(const char *text, unsigned base, unsigned *ret_faults);
/* "mixed", "adr", "adr_gpspm", "adr_ddio", "eadr", "adr_ddio_apm": into durability and mode.
 * Errors: -EINVAL. */
CN_MUST_CHECK int cr_mode_parse(const char *text, struct cr_setup *setup);
const char *cr_mode_name(const struct cr_setup *setup);
/* " WORD" behind the text, in quotes where a shell needs them. */
void cr_word_append(char *text, size_t size, const char *word);
CN_MUST_CHECK int cr_step_parse(const char *text, enum cn_step *ret_step);

#endif
