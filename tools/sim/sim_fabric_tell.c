/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_fabric_tell.c: what work requests do, what becomes durable and what a power failure takes, in
 * words, for who watches (sim_moment.h). Nothing here changes a run.
 *
 * Words are told by where they come from: those that the fabric wrote by request, those of the
 * node's CPU by place.
 */
#include "tools/sim/sim_fabric.h"

#define PLACE_SIZE 96u
#define GROUPS_MAX 24u

static const char *const op_names[] = {"read", "cas", "write", "flush", "mark", "doorbell"};

static void place_of(const struct sim_link *link, const struct sim_wr *wr, char *text)
{
    if (wr->grant == NULL)
        snprintf(text, PLACE_SIZE, "%s", link->actor[1]->name);
    else
        sim_place(link->sim, wr->grant->pool, wr->remote, text, PLACE_SIZE);
}

static void word_text(struct sim *sim, uint64_t word, char *text)
{
    if (sim->word != NULL)
        sim->word(sim, word, text, PLACE_SIZE);
    else
        snprintf(text, PLACE_SIZE, "%#lx", word);
}

static struct sim_moment moment_of(
    const struct sim_link *link, const struct sim_wr *wr, enum sim_moment_kind kind)
{
    return (struct sim_moment){.kind = kind, .peer = link->actor[1], .concern = wr->concern,
        .request = wr->number, .request_name = op_names[wr->op],
        .minor = wr->op == SIM_READ || wr->op == SIM_BELL};
}

static void remember(const struct sim_link *link, const struct sim_wr *wr)
{
    struct sim_fabric *fabric = link->sim->fabric;

    if (wr->number >= fabric->request_room) {
        uint32_t room = wr->number < 512 ? 1024 : 2 * wr->number;
        fabric->request = sim_realloc(fabric->request, room * sizeof(*fabric->request));
        memset(fabric->request + fabric->request_room, 0,
            (room - fabric->request_room) * sizeof(*fabric->request));
        fabric->request_room = room;
    }
    fabric->request[wr->number] = (struct sim_request){wr->concern, wr->op, link->actor[0]};
}

void sim_tell_post(const struct sim_link *link, const struct sim_wr *wr)
{
    struct sim *sim = link->sim;
    struct sim_moment m = moment_of(link, wr, SIM_MOMENT_POST);
    char place[PLACE_SIZE], from[PLACE_SIZE], to[PLACE_SIZE];

    remember(link, wr);
    place_of(link, wr, place);
    switch (wr->op) {
    case SIM_CAS:
        word_text(sim, wr->expected, from);
        word_text(sim, wr->desired, to);
        sim_tell(sim, link->actor[0], m, "#%u cas of the word of %s: %s -> %s", wr->number, place,
            from, to);
        break;
    case SIM_WRITE:
        sim_tell(sim, link->actor[0], m, "#%u write of %u bytes to %s", wr->number, wr->size,
            place);
        break;
    case SIM_MARK:
        sim_tell(sim, link->actor[0], m, "#%u mark (8 bytes) to %s", wr->number, place);
        break;
    case SIM_FLUSH:
        sim_tell(sim, link->actor[0], m, "#%u flush of %s", wr->number, place);
        break;
    case SIM_READ:
        sim_tell(sim, link->actor[0], m, "#%u read of %u bytes of %s", wr->number, wr->size,
            place);
        break;
    default:
        sim_tell(sim, link->actor[0], m, "#%u doorbell of %s", wr->number, place);
        break;
    }
}

void sim_tell_execute(const struct sim_link *link, const struct sim_wr *wr, uint32_t bytes)
{
    struct sim *sim = link->sim;
    struct sim_moment m = moment_of(link, wr, SIM_MOMENT_EXECUTE);
    const char *late = wr->orphan ? ", nobody waits for it any more" : "";
    char place[PLACE_SIZE], old[PLACE_SIZE];

    place_of(link, wr, place);
    if (wr->op == SIM_CAS) {
        word_text(sim, wr->old, old);
        if (wr->old == wr->expected)
            sim_tell(sim, link->actor[0], m, "#%u takes effect at %s%s", wr->number,
                link->actor[1]->name, late);
        else
            sim_tell(sim, link->actor[0], m, "#%u fails at %s: the word is %s", wr->number,
                link->actor[1]->name, old);
        return;
    }
    m.minor = m.minor || (bytes < wr->size && wr->done < wr->size);
    if (bytes < wr->size)
        sim_tell(sim, link->actor[0], m, "#%u: %u bytes %s at %s, %u of %u so far%s", wr->number,
            bytes, wr->op == SIM_READ ? "are read" : "are visible", link->actor[1]->name,
            wr->op == SIM_READ ? bytes : wr->done, wr->size, late);
    else
        sim_tell(sim, link->actor[0], m, "#%u: all %u bytes %s at %s%s", wr->number, wr->size,
            wr->op == SIM_READ ? "are read" : "are visible", link->actor[1]->name, late);
}

void sim_tell_complete(const struct sim_link *link, const struct sim_wr *wr, int status)
{
    struct sim_moment m = moment_of(link, wr, SIM_MOMENT_COMPLETE);

    if (wr->orphan && status == 0)
        return;
    m.minor = m.minor || (status == 0 && wr->op != SIM_FLUSH);
    if (status == 0)
        sim_tell(link->sim, link->actor[0], m, "#%u (%s) completes", wr->number,
            op_names[wr->op]);
    else
        sim_tell(link->sim, link->actor[0], m, "#%u (%s) may or may not have been done: %s",
            wr->number, op_names[wr->op], cairn_error_name(status));
}

void sim_tell_flushed(const struct sim_link *link, const struct sim_wr *flush)
{
    struct sim_moment m = moment_of(link, flush, SIM_MOMENT_DURABLE);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < link->range_count; i++)
        if (link->range[i].seq <= flush->flush_seq)
            bytes += link->range[i].size;
    m.words = (uint32_t)(bytes / 8);
    m.minor = true; /* its completion tells */
    sim_tell(link->sim, link->actor[1], m, "%u words that %s wrote are durable (#%u)", m.words,
        link->actor[0]->name, flush->number);
}

void sim_tell_dropped(const struct sim_link *link)
{
    for (const struct sim_wr *wr = link->queue[SIM_Q_LOG].first; wr != NULL; wr = wr->next) {
        struct sim_moment m = moment_of(link, wr, SIM_MOMENT_LOST);
        if (wr->op == SIM_WRITE)
            sim_tell(link->sim, link->actor[0], m, "#%u (write): %u of %u bytes got to %s, the "
                "rest never does", wr->number, wr->done, wr->size, link->actor[1]->name);
        else
            sim_tell(link->sim, link->actor[0], m, "#%u (%s) never gets to %s", wr->number,
                op_names[wr->op], link->actor[1]->name);
    }
}

/* ---- words by where they come from ---- */

struct group {
    uint32_t origin;         /* a request; 0: the CPU, at `place` */
    char place[PLACE_SIZE];
    uint32_t words;
};
struct groups { uint32_t count, more; struct group group[GROUPS_MAX]; };

static void add(struct groups *g, const struct sim_pool *pool, uint64_t off, uint32_t origin)
{
    char place[PLACE_SIZE] = "";
    uint32_t i = 0;

    if (origin == 0)
        sim_place(pool->sim, pool, off, place, sizeof(place));
    while (i < g->count &&
        (g->group[i].origin != origin || strcmp(g->group[i].place, place) != 0))
        i++;
    if (i == GROUPS_MAX) {
        g->more++;
        return;
    }
    if (i == g->count) {
        g->count++;
        g->group[i].origin = origin;
        g->group[i].words = 0;
        memcpy(g->group[i].place, place, sizeof(place));
    }
    g->group[i].words++;
}

static const struct sim_request *request_of(const struct sim_pool *pool, uint32_t origin)
{
    static const struct sim_request unknown;
    const struct sim_fabric *fabric = pool->sim->fabric;

    return fabric != NULL && origin < fabric->request_room ? &fabric->request[origin] : &unknown;
}

static void tell_group(
    const struct sim_pool *pool, const struct group *g, enum sim_moment_kind kind, const char *what)
{
    struct sim_moment m = {.kind = kind, .words = g->words};
    const char *s = g->words == 1 ? "" : "s";

    if (g->origin == 0) {
        sim_tell(pool->sim, pool->owner, m, "%s %u word%s that its CPU stored: %s", what, g->words,
            s, g->place);
        return;
    }
    const struct sim_request *r = request_of(pool, g->origin);
    m.concern = r->concern;
    m.request = g->origin;
    m.request_name = op_names[r->op];
    m.peer = r->actor;
    m.minor = kind == SIM_MOMENT_DURABLE && (r->actor == pool->owner || r->op == SIM_CAS);
    sim_tell(pool->sim, pool->owner, m, "%s %u word%s of %s's %s #%u", what, g->words, s,
        r->actor != NULL ? r->actor->name : "a peer", op_names[r->op], g->origin);
}

void sim_tell_fence(const struct sim_pool *pool)
{
    struct groups *g = sim_calloc(1, sizeof(*g));

    for (uint32_t i = 0; i < pool->writeback_count; i++) {
        const struct sim_line *line = &pool->line[pool->writeback[i].line];
        for (uint16_t v = 0; v < line->count; v++)
            if (line->version[v].nic && line->version[v].seq <= pool->writeback[i].seq)
                add(g, pool, 0, line->version[v].origin);
    }
    for (uint32_t i = 0; i < g->count; i++)
        tell_group(pool, &g->group[i], SIM_MOMENT_DURABLE, "makes durable");
    sim_free(g);
}

static uint64_t load(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return v;
}

/* The newest writer of a word of a line; UINT32_MAX: none. */
static uint32_t newest(const struct sim_line *line, uint8_t word)
{
    for (uint32_t i = line->count; i > 0; i--)
        if (line->version[i - 1].word == word)
            return line->version[i - 1].nic ? line->version[i - 1].origin : 0;
    return UINT32_MAX;
}

void sim_tell_loss(const struct sim_pool *pool)
{
    struct groups *g = sim_calloc(1, sizeof(*g));
    struct sim_moment m = {.kind = SIM_MOMENT_LOST};

    for (uint32_t i = 0; i < pool->dirty_count; i++) {
        uint64_t off = (uint64_t)pool->dirty[i] * 64;
        for (uint8_t word = 0; word < 8; word++, off += 8) {
            uint32_t origin = newest(&pool->line[pool->dirty[i]], word);
            if (origin != UINT32_MAX && load(pool->visible + off) != load(pool->persistent + off)) {
                add(g, pool, off, origin);
                m.words++;
            }
        }
    }
    for (uint32_t i = 0; i < g->count; i++)
        tell_group(pool, &g->group[i], SIM_MOMENT_LOST, "loses");
    m.minor = g->count > 0;
    if (g->more > 0 || g->count == 0)
        sim_tell(pool->sim, pool->owner, m, "%u words are lost in all%s", m.words,
            m.words == 0 ? ": everything that was visible stays" : "");
    sim_free(g);
}
