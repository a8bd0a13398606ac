/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_fabric_fail.c: calls of the fabric that fail by themselves, as rdma/rd.h says they may: the
 * device has no memory, no queue pair, no registration left. A plan names one call of one actor, by
 * kind and number. What the caller asked for is not done; a connection that a post or a message
 * failed on is lost.
 */
#include "tools/sim/sim_fabric.h"

#include <errno.h>

static const struct { const char *name; int error; } calls[SIM_CALL_COUNT] = {
    [SIM_CALL_NONE] = {"none", 0},
    [SIM_CALL_EP_OPEN] = {"endpoint", CAIRN_E_FABRIC},
    [SIM_CALL_LISTEN] = {"listen", -EADDRINUSE},
    [SIM_CALL_REGION] = {"region", CAIRN_E_MEMLOCK},
    [SIM_CALL_ACCEPT] = {"accept", CAIRN_E_FABRIC},
    [SIM_CALL_REJECT] = {"reject", CAIRN_E_FABRIC},
    [SIM_CALL_FENCE] = {"fence", CAIRN_E_FABRIC},
    [SIM_CALL_REVOKE] = {"revoke", CAIRN_E_FABRIC},
    [SIM_CALL_REARM] = {"rearm", CAIRN_E_MEMLOCK},
    [SIM_CALL_CONNECT] = {"connect", -ENOMEM},
    [SIM_CALL_LOOPBACK] = {"loopback", CAIRN_E_FABRIC},
    [SIM_CALL_SEND] = {"send", CAIRN_E_NODE_DOWN},
    [SIM_CALL_LOOP_POST] = {"loopback post", CAIRN_E_NODE_DOWN},
    [SIM_CALL_LOOP_ERROR] = {"loopback completion", CAIRN_E_NODE_DOWN},
    [SIM_CALL_LOOP_SILENT] = {"loopback silence", CAIRN_E_TIMEOUT},
};

const char *sim_call_name(enum sim_call call)
{
    return calls[call].name;
}

bool sim_call_hits(struct sim *sim, enum sim_call call)
{
    struct sim_failure *f = sim->running != NULL ? &sim->fabric->failure[sim->running->id] : NULL;

    if (f == NULL || f->call != call || ++f->made != f->at)
        return false;
    sim_trace(sim, "its call %lu of %s fails", f->made, calls[call].name);
    *f = (struct sim_failure){.call = f->then, .at = 1, .hit = true};
    return true;
}

int sim_call(struct sim *sim, enum sim_call call)
{
    if (!sim_call_hits(sim, call))
        return 0;
    return cn_fail(calls[call].error, "the fabric's %s failed", calls[call].name);
}

int sim_call_on(struct sim_link *link, enum sim_call call)
{
    int rc = sim_call(link->sim, call);

    if (rc != 0)
        sim_link_break(link, CAIRN_E_NODE_DOWN, CAIRN_E_NODE_DOWN);
    return rc;
}
