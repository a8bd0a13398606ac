/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_timeline_json.c: a timeline as JSON: the format is in cr_timeline_tell.h.
 */
#include "tools/crash/tell/cr_timeline_tell.h"

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *actor_or_null(uint16_t actor)
{
    return actor == SIM_NOBODY ? json_null() : number(actor);
}

/* Texts may hold what a workload wrote: what is no UTF-8 is told as such. */
static json_t *text_or_null(const char *text)
{
    json_t *s = text == NULL ? json_null() : json_string(text);

    return s != NULL ? s : json_string("(not UTF-8)");
}

static json_t *actors(const struct cr_timeline *t)
{
    static const char *const roles[] = {"node", "client", "other"};
    json_t *list = json_array();

    for (uint32_t i = 0; i < t->actor_count; i++)
        (void)json_array_append_new(list, json_pack("{s:i, s:s, s:s}", "id", (int)i, "name",
            t->actor[i].name, "role", roles[t->actor[i].role <= SIM_OTHER ? t->actor[i].role : 2]));
    return list;
}

static json_t *operations(const struct cr_timeline *t)
{
    json_t *list = json_array();

    for (size_t i = 0; i < t->operation_count; i++) {
        const struct cr_operation *o = &t->operation[i];
        (void)json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:s, s:o, s:o, s:b}", "id",
            number(o->id), "actor", actor_or_null(o->actor), "text", text_or_null(o->text),
            "outcome", o->outcome, "begin_ns", number(o->begin_ns), "end_ns",
            o->end_ns != 0 ? number(o->end_ns) : json_null(), "blamed", (int)o->blamed));
    }
    return list;
}

static json_t *moment(const struct cr_moment *m)
{
    return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o}", "number",
        number(m->number), "ns", number(m->ns), "kind", sim_moment_name(m->kind), "actor",
        actor_or_null(m->actor), "peer", actor_or_null(m->peer), "operation",
        m->operation != 0 ? number(m->operation) : json_null(), "request",
        m->request != 0 ? number(m->request) : json_null(), "request_kind",
        text_or_null(m->request_name), "step",
        m->kind == SIM_MOMENT_STEP ? json_string(cn_step_name(m->step)) : json_null(), "words",
        number(m->words), "minor", (int)m->minor, "text", text_or_null(m->text));
}

json_t *cr_timeline_json(const struct cr_timeline *t, bool all)
{
    json_t *moments = json_array();

    for (size_t i = 0; i < t->count; i++)
        if (all || !t->moment[i].minor)
            (void)json_array_append_new(moments, moment(&t->moment[i]));
    return json_pack("{s:i, s:o, s:o, s:o, s:o}", "version", 1, "violation",
        text_or_null(t->violation[0] != '\0' ? t->violation : NULL), "actors", actors(t),
        "operations", operations(t), "moments", moments);
}
