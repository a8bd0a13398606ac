/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_timeline.c: recording a run's moments and operations; which of them are minor.
 *
 * A recording is no part of the run: it allocates outside of the actors' memory, chooses nothing,
 * and what it cannot hold is counted.
 */
#include "tools/crash/cluster/cr_timeline.h"

#include "tools/crash/cluster/cr_cluster.h"

#define CHUNK_SIZE (64u * 1024)

/* ---- memory of texts ---- */

struct cr_text_chunk {
    struct cr_text_chunk *next;
    size_t used;
    char text[CHUNK_SIZE];
};

static const char *keep_text(struct cr_timeline *t, const char *text)
{
    size_t size = strnlen(text, CHUNK_SIZE - 1) + 1;

    if (t->chunk == NULL || t->chunk->used + size > CHUNK_SIZE) {
        struct cr_text_chunk *chunk = sim_calloc(1, sizeof(*chunk));
        chunk->next = t->chunk;
        t->chunk = chunk;
    }
    char *to = t->chunk->text + t->chunk->used;
    memcpy(to, text, size - 1);
    to[size - 1] = '\0';
    t->chunk->used += size;
    return to;
}

struct cr_timeline *cr_timeline_new(void)
{
    return sim_calloc(1, sizeof(struct cr_timeline));
}

void cr_timeline_delete(struct cr_timeline **timeline)
{
    struct cr_timeline *t = *timeline;

    if (t == NULL)
        return;
    while (t->chunk != NULL) {
        struct cr_text_chunk *chunk = t->chunk;
        t->chunk = chunk->next;
        sim_free(chunk);
    }
    sim_free(t->moment);
    sim_free(t->operation);
    sim_free(t);
    *timeline = NULL;
}

/* ---- operations ---- */

static struct cr_operation *find(struct cr_timeline *t, uint32_t id)
{
    for (size_t i = t->operation_count; i > 0 && id != 0; i--)
        if (t->operation[i - 1].id == id)
            return &t->operation[i - 1];
    return NULL;
}

static void add_operation(struct cr_timeline *t, const struct sim_moment *m)
{
    if (t->operation_count == t->operation_room) {
        t->operation_room = t->operation_room == 0 ? 64 : 2 * t->operation_room;
        t->operation = sim_realloc(t->operation, t->operation_room * sizeof(*t->operation));
    }
    t->operation[t->operation_count++] = (struct cr_operation){.id = m->concern,
        .actor = (uint16_t)m->actor->id, .text = keep_text(t, m->text), .outcome = "",
        .begin_ns = m->time};
}

static struct cr_timeline *timeline_of(const struct sim *sim)
{
    return sim->watch_arg;
}

/* ---- recording ---- */

static uint16_t id_of(const struct sim_actor *actor)
{
    return actor != NULL ? (uint16_t)actor->id : SIM_NOBODY;
}

static void on_moment(struct sim *sim, const struct sim_moment *m)
{
    struct cr_timeline *t = timeline_of(sim);

    if (m->kind == SIM_MOMENT_BEGIN)
        add_operation(t, m);
    if (t->count == CR_TIMELINE_MOMENTS_MAX) {
        t->dropped++;
        return;
    }
    if (t->count == t->room) {
        t->room = t->room == 0 ? 1024 : 2 * t->room;
        t->moment = sim_realloc(t->moment, t->room * sizeof(*t->moment));
    }
    t->moment[t->count] = (struct cr_moment){.number = t->count, .ns = m->time, .kind = m->kind,
        .actor = id_of(m->actor), .peer = id_of(m->peer), .operation = m->concern,
        .request = m->request, .request_name = m->request_name, .words = m->words,
        .step = m->step, .minor = m->minor, .text = keep_text(t, m->text)};
    t->count++;
}

void cr_timeline_attach(struct cr_timeline *t, struct sim *sim)
{
    sim->watch = on_moment;
    sim->watch_arg = t;
    sim->place = cr_place;
    sim->word = cr_place_word;
}

/* ---- what is minor ---- */

static bool step_is_minor(enum cn_step step)
{
    switch (step) {
    case CN_STEP_g_zero:
    case CN_STEP_h_hint:
    case CN_STEP_h_scrub_words:
    case CN_STEP_h_scrub_cursor:
    case CN_STEP_h_scrub_done:
    case CN_STEP_s_purged:
    case CN_STEP_r_format:
    case CN_STEP_r_formatted:
    case CN_STEP_c_connect:
        return true;
    default:
        return false;
    }
}

static bool is_fault(enum sim_moment_kind kind)
{
    switch (kind) {
    case SIM_MOMENT_CRASH:
    case SIM_MOMENT_POWER:
    case SIM_MOMENT_LOST:
    case SIM_MOMENT_PARTITION:
    case SIM_MOMENT_BREAK:
    case SIM_MOMENT_PAUSE:
        return true;
    default:
        return false;
    }
}

static bool tells_the_story(enum sim_moment_kind kind)
{
    return is_fault(kind) || kind == SIM_MOMENT_VIOLATION || kind == SIM_MOMENT_PHASE ||
        kind == SIM_MOMENT_START || kind == SIM_MOMENT_VERDICT;
}

/* Those that a fault touched. None: they are all of interest. */
static void blame(struct cr_timeline *t)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct cr_moment *m = &t->moment[i];
        bool lost = m->kind == SIM_MOMENT_LOST || m->kind == SIM_MOMENT_CRASH ||
            m->kind == SIM_MOMENT_PAUSE ||
            (m->kind == SIM_MOMENT_COMPLETE && strstr(m->text, "may or may not") != NULL);
        struct cr_operation *o = lost ? find(t, m->operation) : NULL;
        if (o != NULL)
            o->blamed = true;
    }
    for (size_t i = 0; i < t->operation_count; i++) {
        struct cr_operation *o = &t->operation[i];
        o->blamed = o->blamed || o->named || o->end_ns == 0 || strcmp(o->outcome, "UNKNOWN") == 0;
    }
}

#define FEW_OPERATIONS 12u

/* Operations that nothing happened to say little where there are many and something happened to
 * others. */
static bool leaves_out(const struct cr_timeline *t)
{
    size_t blamed = 0;

    for (size_t i = 0; i < t->operation_count; i++)
        blamed += t->operation[i].blamed;
    return t->operation_count > FEW_OPERATIONS && blamed > 0;
}

static bool is_client(const struct cr_timeline *t, uint16_t actor)
{
    return actor < t->actor_count && t->actor[actor].role == SIM_CLIENT;
}

/* It went wrong before the clients began: then setting up is the story. */
static bool fails_early(const struct cr_timeline *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->moment[i].kind == SIM_MOMENT_VIOLATION)
            return t->work_ns == 0 || t->moment[i].ns <= t->work_ns;
    return false;
}

static void settle(struct cr_timeline *t, struct cr_moment *m, bool narrow, bool early)
{
    const struct cr_operation *o = narrow ? find(t, m->operation) : NULL;

    if (tells_the_story(m->kind)) {
        m->minor = m->minor && m->kind != SIM_MOMENT_VIOLATION;
        return;
    }
    m->minor = m->minor || (m->kind == SIM_MOMENT_STEP && step_is_minor(m->step)) ||
        (o != NULL && !o->blamed);
    if (early)
        return;
    /* setting up, and reading in the end: what no operation does */
    m->minor = m->minor || t->work_ns == 0 || m->ns < t->work_ns ||
        (is_client(t, m->actor) && m->operation == 0);
}

void cr_timeline_close(struct cr_timeline *t, struct sim *sim)
{
    t->actor_count = sim->actor_count;
    for (uint32_t i = 0; i < sim->actor_count && i < CR_TIMELINE_ACTORS_MAX; i++) {
        snprintf(t->actor[i].name, sizeof(t->actor[i].name), "%s", sim->actor[i].name);
        t->actor[i].role = sim->actor[i].role;
    }
    snprintf(t->violation, sizeof(t->violation), "%s", sim->failed ? sim->failure : "");
    blame(t);
    bool narrow = leaves_out(t), early = fails_early(t);
    for (size_t i = 0; i < t->count; i++)
        settle(t, &t->moment[i], narrow, early);
    sim->watch = NULL;
    sim->watch_arg = NULL;
}

/* ---- told by the cluster and the workloads ---- */

static struct sim *sim_of(const struct cr_client *client)
{
    return &client->cluster->sim;
}

void cr_tell_begin(struct cr_client *client, const char *what)
{
    struct sim_actor *actor = client->actor;

    client->operation++;
    sim_actor_concern(actor, (client->index + 1) << 16 | (client->operation & 0xffff));
    sim_tell(sim_of(client), actor, (struct sim_moment){.kind = SIM_MOMENT_BEGIN, .minor = true},
        "%s", what);
}

void cr_tell_about(struct cr_client *client, const char *text)
{
    struct sim *sim = sim_of(client);

    if (!sim_is_watched(sim))
        return;
    sim_tell(sim, client->actor, (struct sim_moment){.kind = SIM_MOMENT_SAY}, "wants to %s", text);
    struct cr_operation *o =
        sim->watch != NULL ? find(timeline_of(sim), client->actor->concern) : NULL;
    if (o != NULL)
        o->text = keep_text(timeline_of(sim), text);
}

void cr_tell_outcome(struct cr_client *client, const char *outcome)
{
    struct sim *sim = sim_of(client);

    if (!sim_is_watched(sim) || client->actor->concern == 0)
        return;
    sim_tell(sim, client->actor, (struct sim_moment){.kind = SIM_MOMENT_END}, "is told: %s",
        outcome);
    struct cr_operation *o =
        sim->watch != NULL ? find(timeline_of(sim), client->actor->concern) : NULL;
    if (o != NULL) {
        o->outcome = outcome;
        o->end_ns = sim->now;
    }
}

void cr_tell_end(struct cr_client *client)
{
    struct sim *sim = sim_of(client);
    struct cr_operation *o =
        sim->watch != NULL ? find(timeline_of(sim), client->actor->concern) : NULL;

    if (o != NULL && o->end_ns == 0)
        o->end_ns = sim->now;
    sim_actor_concern(client->actor, 0);
}

void cr_tell_verdict(
    struct cr_client *client, uint32_t concern, const char *text, const char *outcome)
{
    struct sim *sim = sim_of(client);

    if (!sim_is_watched(sim))
        return;
    sim_tell(sim, client->actor,
        (struct sim_moment){.kind = SIM_MOMENT_VERDICT, .concern = concern},
        "learns the verdict on \"%s\": %s", text, outcome);
}

void cr_timeline_point_at(struct sim *sim, uint32_t concern)
{
    struct cr_operation *o = sim->watch != NULL ? find(timeline_of(sim), concern) : NULL;

    if (o != NULL)
        o->named = true;
}

void cr_tell_phase(struct sim *sim, enum cr_phase phase, const char *text)
{
    if (!sim_is_watched(sim))
        return;
    sim_tell(sim, NULL,
        (struct sim_moment){.kind = SIM_MOMENT_PHASE, .minor = phase == CR_PHASE_SETUP}, "-- %s",
        text);
    if (sim->watch == NULL)
        return;
    if (phase == CR_PHASE_WORK)
        timeline_of(sim)->work_ns = sim->now;
    if (phase == CR_PHASE_HEAL)
        timeline_of(sim)->heal_ns = sim->now;
}
