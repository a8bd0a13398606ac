/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_gate.c: see struct bn_gate. Not a barrier: fewer threads than planned may come.
 */
#include "tools/bench/bn_drive.h"

void bn_gate_init(struct bn_gate *gate)
{
    (void)pthread_mutex_init(&gate->mutex, NULL);
    (void)pthread_cond_init(&gate->moved, NULL);
    gate->number = gate->inside = 0;
}

void bn_gate_fini(struct bn_gate *gate)
{
    (void)pthread_cond_destroy(&gate->moved);
    (void)pthread_mutex_destroy(&gate->mutex);
}

void bn_gate_open(struct bn_gate *gate, uint32_t count)
{
    (void)pthread_mutex_lock(&gate->mutex);
    gate->number++;
    gate->inside = count;
    (void)pthread_cond_broadcast(&gate->moved);
    (void)pthread_mutex_unlock(&gate->mutex);
}

void bn_gate_await(struct bn_gate *gate)
{
    (void)pthread_mutex_lock(&gate->mutex);
    while (gate->inside != 0)
        (void)pthread_cond_wait(&gate->moved, &gate->mutex);
    (void)pthread_mutex_unlock(&gate->mutex);
}

void bn_gate_enter(struct bn_gate *gate, uint32_t *number)
{
    (void)pthread_mutex_lock(&gate->mutex);
    while (gate->number == *number)
        (void)pthread_cond_wait(&gate->moved, &gate->mutex);
    *number = gate->number;
    (void)pthread_mutex_unlock(&gate->mutex);
}

void bn_gate_leave(struct bn_gate *gate)
{
    (void)pthread_mutex_lock(&gate->mutex);
    CAIRN_ASSERT(gate->inside > 0);
    gate->inside--;
    (void)pthread_cond_broadcast(&gate->moved);
    (void)pthread_mutex_unlock(&gate->mutex);
}
