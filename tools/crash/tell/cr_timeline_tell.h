/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_timeline_tell.h: a recorded timeline (cr_timeline.h) as text, or as JSON for a picture.
 *
 * By default what does not help to find the cause is left out: the run before the first operation
 * and what the final reads do, reads and completions, node steps that move nothing, operations of
 * other clients that have nothing to do with the violation. `all` shows every moment.
 *
 * JSON (stable; keys are only added):
 *   {"version": 1, "violation": TEXT or null,
 *    "actors": [{"id": 0, "name": "n1", "role": "node" | "client" | "other"}, ...],
 *    "operations": [{"id": 65537, "actor": 2, "text": TEXT, "outcome": "COMMITTED" ...,
 *                    "begin_ns": 1, "end_ns": 2 or null, "blamed": BOOL}, ...],
 *    "moments": [{"number": 0, "ns": 1, "kind": KIND (sim_moment.h), "actor": 0 or null,
 *                 "peer": 1 or null, "operation": 65537 or null, "request": 12 or null,
 *                 "request_kind": "write" or null, "step": "c_log" or null, "words": 3,
 *                 "minor": BOOL, "text": TEXT}, ...]}
 * `minor` moments are those that the text leaves out. A lane per actor; a request's post, execute
 * and complete carry the same number, so they can be joined by arrows.
 */
#ifndef CR_TIMELINE_TELL_H
#define CR_TIMELINE_TELL_H

#include <stdio.h>

#include <jansson.h>

#include "tools/crash/cluster/cr_timeline.h"

struct cr_timeline_options {
    bool all;       /* leave nothing out */
    uint32_t lines; /* at most so many lines, the last ones: 0: 400; what is cut is said */
};
void cr_timeline_print(
    const struct cr_timeline *timeline, const struct cr_timeline_options *options, FILE *to);
/* Owner: the caller. With `all` false minor moments are left out. */
json_t *cr_timeline_json(const struct cr_timeline *timeline, bool all);

#endif
