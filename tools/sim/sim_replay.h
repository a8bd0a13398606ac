/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_replay.h: playing a tape back so that what is changed on it does not shift the rest.
 *
 * A choice is named by its label, by who asks (an actor, or the operation a client is at), and by
 * how many of that label the same one has asked before. A choice that falls away takes nothing from
 * others: those of other labels, actors and operations keep their names. So a tape may list any
 * part of the choices of a run; the others are drawn, or calm (sim_calm.h). With all choices listed
 * and nothing changed, the run is the recorded one, choice for choice.
 *
 * What cannot be kept: when an operation takes another way, its n-th delay may be another one's
 * delay. That is why a shrinker runs every candidate and records what it really chose.
 */
#ifndef SIM_REPLAY_H
#define SIM_REPLAY_H

#include "tools/sim/sim_tape.h"

/* Owner: sim_keys_delete(). `choice` may be NULL: only count. */
struct sim_keys *sim_keys_new(const struct sim_choice *choice, size_t count);
void sim_keys_delete(struct sim_keys **keys);
/* The next choice of this name: *ret_nth is its number, *ret_calm its label's place for
 * sim_calm_at(). Returns its place on the tape, or SIZE_MAX when it is not there. */
size_t sim_keys_next(struct sim_keys *keys, const char *label, uint32_t who, uint32_t *ret_nth,
    uint32_t *ret_calm);

#endif
