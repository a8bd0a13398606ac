/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_html_picture.c: a lane per actor from left to right, one column per moment: what matters
 * happens within nanoseconds and then not for milliseconds, so columns stand for order, not for
 * time; the time is told with each. Operations are bars on their client's lane; a work request is
 * an arrow from where it is posted to where it takes effect. Only moments that the text of a
 * timeline shows, and of these the last ones: as many as fit beside each other in the picture,
 * WORDS_MAX in the words below it, numbered alike.
 */
#include "tools/crash/tell/cr_html_picture.h"

#include "tools/sim/sim.h"

#define WORDS_MAX 300u
#define COLUMNS_MAX 84u /* what a page is wide */
#define COLUMN 13u      /* pixels */
#define LANE 44u
#define LEFT 70u
#define TOP 30u

struct picture {
    FILE *to;
    const struct cr_timeline *t;
    const struct cr_moment *word[WORDS_MAX];
    uint32_t words;
    const struct cr_moment **moment; /* the last `count` words */
    uint32_t count, before;          /* words that are not in the picture */
    uint32_t lane[CR_TIMELINE_ACTORS_MAX + 1]; /* by actor; UINT32_MAX: not in the picture */
    uint32_t lanes;
};

static bool is_shown(const struct cr_moment *m)
{
    return !m->minor && m->actor != SIM_NOBODY && m->actor < CR_TIMELINE_ACTORS_MAX;
}

static void choose(struct picture *p)
{
    bool used[CR_TIMELINE_ACTORS_MAX] = {false};
    size_t first = p->t->count;
    uint32_t wanted = 0;

    while (first > 0 && wanted < WORDS_MAX)
        wanted += is_shown(&p->t->moment[--first]);
    for (size_t i = first; i < p->t->count; i++)
        if (is_shown(&p->t->moment[i]))
            p->word[p->words++] = &p->t->moment[i];
    p->count = p->words < COLUMNS_MAX ? p->words : COLUMNS_MAX;
    p->before = p->words - p->count;
    p->moment = p->word + p->before;
    for (uint32_t c = 0; c < p->count; c++) {
        const struct cr_moment *m = p->moment[c];
        used[m->actor] = true;
        if (m->peer < CR_TIMELINE_ACTORS_MAX)
            used[m->peer] = true;
    }
    for (uint32_t a = 0; a <= CR_TIMELINE_ACTORS_MAX; a++)
        p->lane[a] = UINT32_MAX;
    for (uint32_t a = 0; a < p->t->actor_count && a < CR_TIMELINE_ACTORS_MAX; a++)
        if (used[a])
            p->lane[a] = p->lanes++;
}

static uint32_t column_x(uint32_t column)
{
    return LEFT + COLUMN * column + COLUMN / 2;
}

static uint32_t lane_y(const struct picture *p, uint16_t actor)
{
    return TOP + LANE * p->lane[actor] + LANE / 2;
}

static const char *colour(enum sim_moment_kind kind)
{
    switch (kind) {
    case SIM_MOMENT_CRASH:
    case SIM_MOMENT_POWER:
    case SIM_MOMENT_LOST:
    case SIM_MOMENT_VIOLATION:
        return "var(--bad)";
    case SIM_MOMENT_DURABLE:
    case SIM_MOMENT_START:
    case SIM_MOMENT_HEAL:
        return "var(--good)";
    case SIM_MOMENT_PAUSE:
    case SIM_MOMENT_PARTITION:
    case SIM_MOMENT_BREAK:
    case SIM_MOMENT_FENCE:
        return "var(--mid)";
    case SIM_MOMENT_STEP:
        return "var(--soft)";
    default:
        return "rgb(var(--cell))";
    }
}

static void draw_lanes(const struct picture *p)
{
    for (uint16_t a = 0; a < CR_TIMELINE_ACTORS_MAX; a++) {
        if (p->lane[a] == UINT32_MAX)
            continue;
        fprintf(p->to, "<text x=\"4\" y=\"%u\">", lane_y(p, a) + 4);
        cr_html_text(p->to, p->t->actor[a].name);
        fprintf(p->to, "</text><line class=\"lane\" x1=\"%u\" x2=\"%u\" y1=\"%u\" y2=\"%u\"/>\n",
            LEFT, LEFT + COLUMN * p->count, lane_y(p, a), lane_y(p, a));
    }
}

/* From its first moment in the picture to its last. */
static void draw_operations(const struct picture *p)
{
    for (size_t i = 0; i < p->t->operation_count; i++) {
        const struct cr_operation *o = &p->t->operation[i];
        uint32_t first = UINT32_MAX, last = 0;
        if (o->actor >= CR_TIMELINE_ACTORS_MAX || p->lane[o->actor] == UINT32_MAX)
            continue;
        for (uint32_t c = 0; c < p->count; c++) {
            if (p->moment[c]->operation != o->id || p->moment[c]->actor != o->actor)
                continue;
            first = first == UINT32_MAX ? c : first;
            last = c;
        }
        if (first == UINT32_MAX)
            continue;
        fprintf(p->to,
            "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" rx=\"5\" "
            "fill=\"rgba(var(--cell),.15)\" stroke=\"%s\"><title>",
            column_x(first) - COLUMN / 2 + 2, lane_y(p, o->actor) - 13,
            COLUMN * (last - first + 1) - 4, 26u, o->blamed ? "var(--bad)" : "none");
        cr_html_text(p->to, o->text);
        fputs(" ", p->to);
        cr_html_text(p->to, o->outcome);
        fputs("</title></rect>\n", p->to);
    }
}

/* From the moment that posted the request to the one at which it takes effect at the peer. */
static void draw_arrow(const struct picture *p, uint32_t column)
{
    const struct cr_moment *m = p->moment[column];

    if (m->kind != SIM_MOMENT_EXECUTE || m->request == 0 || m->peer >= CR_TIMELINE_ACTORS_MAX)
        return;
    for (uint32_t c = column; c-- > 0;) {
        const struct cr_moment *post = p->moment[c];
        if (post->kind != SIM_MOMENT_POST || post->request != m->request ||
            post->actor >= CR_TIMELINE_ACTORS_MAX)
            continue;
        uint16_t target = m->actor == post->actor ? m->peer : m->actor;
        fprintf(p->to,
            "<line x1=\"%u\" y1=\"%u\" x2=\"%u\" y2=\"%u\" stroke=\"rgb(var(--cell))\" "
            "stroke-width=\"1.2\" marker-end=\"url(#arrow)\"/>\n",
            column_x(c), lane_y(p, post->actor), column_x(column), lane_y(p, target));
        return;
    }
}

static void draw_moment(const struct picture *p, uint32_t column)
{
    const struct cr_moment *m = p->moment[column];
    uint32_t x = column_x(column), y = lane_y(p, m->actor);

    switch (m->kind) {
    case SIM_MOMENT_CRASH:
    case SIM_MOMENT_POWER:
    case SIM_MOMENT_VIOLATION:
        fprintf(p->to, "<path d=\"M%u %ul12 12m0 -12l-12 12\" stroke=\"%s\" stroke-width=\"3\">",
            x - 6, y - 6, colour(m->kind));
        break;
    default:
        fprintf(p->to, "<circle cx=\"%u\" cy=\"%u\" r=\"%u\" fill=\"%s\">", x, y,
            m->kind == SIM_MOMENT_STEP ? 2u : 4u, colour(m->kind));
    }
    fprintf(p->to, "<title>%u  %.3f us  %s: ", p->before + column + 1, (double)m->ns / 1e3,
        sim_moment_name(m->kind));
    cr_html_text(p->to, m->text);
    fprintf(p->to, "</title>%s\n",
        m->kind == SIM_MOMENT_CRASH || m->kind == SIM_MOMENT_POWER ||
                m->kind == SIM_MOMENT_VIOLATION
            ? "</path>"
            : "</circle>");
    if ((p->before + column) % 5 == 4)
        fprintf(p->to, "<text class=\"soft\" x=\"%u\" y=\"16\" text-anchor=\"middle\">%u</text>\n",
            x, p->before + column + 1);
}

static void write_table(const struct picture *p)
{
    fputs("<details><summary>The same in words</summary><div class=\"wide\"><table><tbody>\n",
        p->to);
    for (uint32_t c = 0; c < p->words; c++) {
        const struct cr_moment *m = p->word[c];
        fprintf(p->to, "<tr><th>%u</th><td>%.3f us</td><th>", c + 1, (double)m->ns / 1e3);
        cr_html_text(p->to, p->t->actor[m->actor].name);
        fprintf(p->to, "</th><th style=\"color:%s\">%s</th><th style=\"font-weight:400\">",
            colour(m->kind), sim_moment_name(m->kind));
        cr_html_text(p->to, m->text);
        fputs("</th></tr>\n", p->to);
    }
    fputs("</tbody></table></div></details>\n", p->to);
}

void cr_html_picture(FILE *to, const struct cr_timeline *t)
{
    struct picture p = {.to = to, .t = t};

    choose(&p);
    if (p.count == 0)
        return;
    uint32_t width = LEFT + COLUMN * p.count + 10, height = TOP + LANE * p.lanes + 6;
    fputs("<section id=\"timeline\"><h2>The first violation</h2>\n<pre class=\"violation\">", to);
    cr_html_text(to, t->violation);
    fprintf(to,
        "</pre><p class=\"soft\">A lane per actor; columns stand for order, not for time. Arrows: "
        "work requests from post to effect. Bars: operations. Point at a mark to read it.</p>\n"
        "<div class=\"wide\"><svg role=\"img\" aria-label=\"timeline of the first violation\" "
        "width=\"%u\" height=\"%u\" viewBox=\"0 0 %u %u\">\n<defs><marker id=\"arrow\" "
        "viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
        "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"rgb(var(--cell))\"/></marker></defs>\n",
        width, height, width, height);
    draw_lanes(&p);
    draw_operations(&p);
    for (uint32_t c = 0; c < p.count; c++)
        draw_arrow(&p, c);
    for (uint32_t c = 0; c < p.count; c++)
        draw_moment(&p, c);
    fputs("</svg></div>\n", to);
    write_table(&p);
    fputs("</section>\n", to);
}
