/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_timeline_text.c: a timeline for a person: the violation, the operations with what their
 * clients were told, then one line per moment: virtual time in microseconds since the clients'
 * work began, who, for which operation, what. Steps of a node in one go share a line.
 */
#include "tools/crash/tell/cr_timeline_tell.h"

#define LINES_DEFAULT 400u

/* What passing a step means; NULL: its name says it. */
static const char *step_text(enum cn_step step)
{
    static const char *const texts[CN_STEP_COUNT] = {
        [CN_STEP_c_lock] = "is about to lock",
        [CN_STEP_c_locked] = "has all its locks",
        [CN_STEP_c_validate] = "is about to validate its reads",
        [CN_STEP_c_validated] = "its reads are validated",
        [CN_STEP_c_log] = "is about to write a record",
        [CN_STEP_c_logged] = "records and flushes are posted, none awaited",
        [CN_STEP_c_flushed] = "takes every flush for completed: it is committed",
        [CN_STEP_c_mark] = "is about to post a mark",
        [CN_STEP_c_marked] = "marks are posted: about to return COMMITTED",
        [CN_STEP_c_release] = "aborts: about to release its locks",
        [CN_STEP_c_void] = "is about to fill a sequence with a void record",
        [CN_STEP_a_found] = "records found in a ring are durable",
        [CN_STEP_a_body] = "objects are durable",
        [CN_STEP_a_applied] = "\"applied\" is durable",
        [CN_STEP_a_release] = "lock words are released and durable",
        [CN_STEP_a_position] = "the ring's position is durable",
        [CN_STEP_a_tombstone] = "a tombstone is durable",
        [CN_STEP_a_unlock] = "locks of a prevented record are released",
        [CN_STEP_g_locked] = "holds a bucket and its child",
        [CN_STEP_g_record] = "a growth record is durable",
        [CN_STEP_s_handout] = "hands out a slot",
        [CN_STEP_s_fence_cut] = "a slot's peer is cut off",
        [CN_STEP_s_fence_found] = "what was in the fenced ring is durable",
        [CN_STEP_s_fence_closed] = "the slot is closed",
        [CN_STEP_s_retired] = "the slot's epoch is in the retired table",
        [CN_STEP_s_free] = "the slot is free again",
        [CN_STEP_r_incarnation] = "recovery: the incarnation is raised",
        [CN_STEP_r_scanned] = "recovery: all rings are scanned",
        [CN_STEP_r_replayed] = "recovery: marked records are replayed",
        [CN_STEP_r_relocked] = "recovery: keys in doubt are locked again",
        [CN_STEP_r_serving] = "recovery: about to serve",
        [CN_STEP_r_ask] = "is about to ask about a record in doubt",
        [CN_STEP_r_answer] = "is about to answer",
        [CN_STEP_r_verdict] = "has a verdict",
        [CN_STEP_r_told] = "is about to tell the others",
        [CN_STEP_r_clean] = "a clean close is noted",
    };

    return step < CN_STEP_COUNT ? texts[step] : NULL;
}

/* "c2.7": the 7th operation of c2. */
static void operation_name(const struct cr_timeline *t, uint32_t id, char text[16])
{
    text[0] = '\0';
    for (size_t i = 0; i < t->operation_count && id != 0; i++)
        if (t->operation[i].id == id)
            snprintf(text, 16, "%.8s.%u",
                t->operation[i].actor < t->actor_count ? t->actor[t->operation[i].actor].name : "?",
                id & 0xffff);
}

static double us(const struct cr_timeline *t, uint64_t ns)
{
    return ((double)ns - (double)t->work_ns) / 1e3;
}

static void print_operations(
    const struct cr_timeline *t, const struct cr_timeline_options *options, FILE *to)
{
    size_t blamed = 0, left = 0;

    for (size_t i = 0; i < t->operation_count; i++)
        blamed += t->operation[i].blamed;
    if (t->operation_count == 0)
        return;
    fprintf(to, "Operations:\n");
    for (size_t i = 0; i < t->operation_count; i++) {
        const struct cr_operation *o = &t->operation[i];
        char name[16];
        if (!options->all && blamed > 0 && t->operation_count > 12 && !o->blamed) {
            left++;
            continue;
        }
        operation_name(t, o->id, name);
        fprintf(to, "%s %-6s %-10s %s\n", o->named ? "->" : "  ", name,
            o->outcome[0] != '\0'  ? o->outcome
                : o->end_ns == 0 ? "(no word)"
                                 : "-",
            o->text);
    }
    if (left > 0)
        fprintf(to, "  and %zu more that no fault touched (--all shows them)\n", left);
}

/* Steps that a node passes in one go are told in one line. */
static bool joins(const struct cr_moment *a, const struct cr_moment *b)
{
    return a->kind == SIM_MOMENT_STEP && b->kind == SIM_MOMENT_STEP && a->actor == b->actor &&
        a->operation == 0 && b->operation == 0;
}

static void print_step(const struct cr_moment *m, bool first, FILE *to)
{
    const char *text = step_text(m->step);

    fprintf(to, "%s%s", first ? "" : "; ", cn_step_name(m->step));
    if (text != NULL)
        fprintf(to, " (%s)", text);
}

struct cursor {
    const struct cr_timeline *t;
    const struct cr_timeline_options *options;
    FILE *to;
    const struct cr_moment *last; /* on the line that is not ended */
    uint32_t in_line, again;
};

static void end_step(struct cursor *c)
{
    if (c->again > 0)
        fprintf(c->to, " x%u", c->again + 1);
    c->again = 0;
}

static void end_line(struct cursor *c)
{
    end_step(c);
    if (c->last != NULL)
        fputc('\n', c->to);
    c->last = NULL;
}

static void print_moment(struct cursor *c, const struct cr_moment *m)
{
    const struct cr_timeline *t = c->t;
    char name[16];

    if (c->last != NULL && joins(c->last, m)) {
        if (c->last->step == m->step) {
            c->again++;
            c->last = m;
            return;
        }
        if (c->in_line < 2) {
            end_step(c);
            print_step(m, false, c->to);
            c->in_line++;
            c->last = m;
            return;
        }
    }
    end_line(c);
    operation_name(t, m->operation, name);
    fprintf(c->to, "%12.3f  %-5s %-6s ", us(t, m->ns),
        m->actor < t->actor_count ? t->actor[m->actor].name : "-", name);
    if (m->kind == SIM_MOMENT_STEP)
        print_step(m, true, c->to);
    else
        fprintf(c->to, "%s%s", m->kind == SIM_MOMENT_CRASH || m->kind == SIM_MOMENT_POWER ? "*** "
            : m->kind == SIM_MOMENT_LOST ? "    " : "", m->text);
    c->in_line = 0;
    c->last = m;
}

static bool is_shown(const struct cr_moment *m, const struct cr_timeline_options *options)
{
    return options->all || !m->minor;
}

void cr_timeline_print(
    const struct cr_timeline *t, const struct cr_timeline_options *options, FILE *to)
{
    struct cursor c = {.t = t, .options = options, .to = to};
    size_t shown = 0, lines = options->lines != 0 ? options->lines : LINES_DEFAULT;

    for (size_t i = 0; i < t->count; i++)
        shown += is_shown(&t->moment[i], options);
    fprintf(to, "%s%s\n", t->violation[0] != '\0' ? "VIOLATION: " : "No violation.", t->violation);
    print_operations(t, options, to);
    fprintf(to, "%12s  %-5s %-6s %s\n", "us", "who", "for", "what");
    if (shown > lines)
        fprintf(to, "%12s  (%zu earlier lines are left out)\n", "...", shown - lines);
    size_t skip = shown > lines ? shown - lines : 0;
    for (size_t i = 0; i < t->count; i++) {
        if (!is_shown(&t->moment[i], options))
            continue;
        if (skip > 0)
            skip--;
        else
            print_moment(&c, &t->moment[i]);
    }
    end_line(&c);
    if (t->dropped > 0)
        fprintf(to, "%zu moments behind these were not recorded\n", t->dropped);
}
