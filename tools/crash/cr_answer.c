/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_answer.c: first line, report, last line.
 */
#include "tools/crash/cr_answer.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "tools/crash/campaign/cr_build.h"
#include "tools/crash/tell/cr_html.h"
#include "tools/crash/cluster/cr_timeline.h"

int cr_answer_check(const struct tl_command *self, const struct cr_args *args)
{
    char folder[4096];

    if (args->html == NULL)
        return -1;
    (void)snprintf(folder, sizeof(folder), "%s", args->html);
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        (void)snprintf(folder, sizeof(folder), ".");
    else
        slash[slash == folder] = '\0';
    return access(folder, W_OK) == 0
        ? -1
        : tl_error(self, "--html: cannot write into %s: %s", folder, strerror(errno));
}

void cr_answer_begin(const struct cr_args *args, const char *mode, const char *again)
{
    if (args->json)
        return;
    printf("cairn crash: seed %" PRIu64 ", mode %s, build %s; again: %s\n", args->seed, mode,
        cr_build_id(), again);
    (void)fflush(stdout);
}

void cr_answer_end(
    const struct cr_args *args, uint32_t verdict, const char *mode, const char *again)
{
    if (args->json)
        return;
    printf("%s: seed %" PRIu64 ", mode %s, build %s; again: %s\n", cr_verdict_name(verdict),
        args->seed, mode, cr_build_id(), again);
}

/* ---- the page: in a worker, which runs the failing run again for its picture ---- */

struct page {
    const struct cr_report *report;
    const struct cr_setup *failing;
    const char *path, *command;
    bool written;
    char why[256];
};

struct written { bool done; char why[256]; };

static void write_it(const struct page *p, struct cr_timeline *timeline, struct written *ret)
{
    struct cr_html html = {.report = p->report, .timeline = timeline, .build = cr_build_id(),
        .command = p->command};

    ret->done = cr_html_write(&html, p->path) == 0;
    if (!ret->done)
        (void)snprintf(ret->why, sizeof(ret->why), "%.255s", cairn_last_error());
}

static void run_page(void *arg, uint64_t item, struct cr_note *note, void *result)
{
    const struct page *p = arg;
    struct cr_timeline *timeline = NULL;

    (void)item;
    note->beats++;
    if (p->failing != NULL) {
        struct cr_result *r = sim_calloc(1, sizeof(*r));
        struct cr_setup setup = *p->failing;
        timeline = cr_timeline_new();
        setup.timeline = timeline;
        cr_cluster_run(&setup, p->report->failure[0].seed, r);
        sim_free(r);
    }
    write_it(p, timeline, result);
    if (timeline != NULL)
        cr_timeline_delete(&timeline);
}

/* The run dies: no picture. */
static void on_death(
    void *arg, uint64_t item, const struct cr_note *note, const char *how, bool stuck, void *result)
{
    (void)item;
    (void)note;
    (void)how;
    (void)stuck;
    write_it(arg, NULL, result);
}

static bool on_result(void *arg, uint64_t item, const void *result)
{
    struct page *p = arg;
    const struct written *w = result;

    (void)item;
    p->written = w->done;
    memcpy(p->why, w->why, sizeof(p->why));
    return true;
}

/* One that cannot be written: that is said, and nothing passes. */
static void write_page(const struct tl_command *self, const struct cr_args *args,
    struct cr_report *report, const struct cr_setup *failing, const char *again)
{
    struct page p = {.report = report, .failing = report->failure_count != 0 ? failing : NULL,
        .path = args->html,
        .command = report->failure_count != 0 ? report->failure[0].replay : again};
    struct cr_jobs jobs = {.jobs = 1, .items = 1, .result_size = sizeof(struct written),
        .patient = true, .run = run_page, .died = on_death, .add = on_result, .arg = &p};

    if (args->html == NULL)
        return;
    if (cr_jobs_interrupted()) { /* no more workers */
        struct written w;
        write_it(&p, NULL, &w);
        (void)on_result(&p, 0, &w);
    } else if (cr_jobs_run(&jobs) != 0) {
        (void)snprintf(p.why, sizeof(p.why), "%.255s", cairn_last_error());
    }
    if (p.written)
        return;
    (void)tl_error(self, "%s", p.why);
    cr_report_doubt(report, "%s", p.why);
    if (report->verdict == CR_PASS)
        report->verdict = CR_INCONCLUSIVE;
}

/* ---- the report ---- */

int cr_answer_report(const struct tl_command *self, const struct cr_args *args,
    struct cr_report *report, const struct cr_setup *failing, const char *again)
{
    write_page(self, args, report, failing, again);
    if (args->json) {
        json_t *o = cr_report_json(report);
        (void)json_object_set_new(o, "build", json_string(cr_build_id()));
        (void)json_object_set_new(o, "replay", json_string_nocheck(again));
        tl_json_print(o);
    } else {
        cr_report_print(report, stdout);
    }
    cr_answer_end(args, report->verdict, report->mode, again);
    return (int)report->verdict;
}
