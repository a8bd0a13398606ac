/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo_say.c: what the demo shows: events, the live line, the verdict.
 */
#include <inttypes.h>
#include <stdarg.h>

#include "tools/demo.h"

#define LIVE_EVERY_NS UINT64_C(200000000)
#define LOG_EVERY_NS UINT64_C(2000000000)

static double seconds_since(uint64_t ns)
{
    return ns == 0 ? 0 : (double)(cn_now_ns(cn_env_system()) - ns) / 1e9;
}

void demo_say(struct demo *d, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s%6.1f s  ", d->terminal ? "\r\033[K" : "", seconds_since(d->begin_ns));
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

static struct demo_counters sum(const struct demo *d)
{
    struct demo_counters s = {0};

    for (uint32_t i = 0; i < DEMO_WRITERS_MAX; i++) {
        const struct demo_counters *w = &d->control->writer[i];
        s.committed += __atomic_load_n(&w->committed, __ATOMIC_RELAXED);
        s.aborted += __atomic_load_n(&w->aborted, __ATOMIC_RELAXED);
        s.unknown += __atomic_load_n(&w->unknown, __ATOMIC_RELAXED);
        s.resolved += __atomic_load_n(&w->resolved, __ATOMIC_RELAXED);
    }
    return s;
}

void demo_tick(struct demo *d)
{
    uint64_t now = cn_now_ns(cn_env_system());
    char a[32], b[32];

    if (d->control == NULL || now - d->spoke_ns < (d->terminal ? LIVE_EVERY_NS : LOG_EVERY_NS))
        return;
    d->spoke_ns = now;
    struct demo_counters s = sum(d);
    fprintf(stderr, "%s%6.1f s  ", d->terminal ? "\r\033[K" : "", seconds_since(d->begin_ns));
    if (d->run_ns == 0)
        fprintf(stderr, "%s: %s of %s accounts", d->state,
            tl_count(__atomic_load_n(&d->control->loaded, __ATOMIC_RELAXED), a),
            tl_count(d->accounts, b));
    else
        fprintf(stderr, "%s committed, %s aborted, %" PRIu64 " unknown, %" PRIu64 " resolved  [%s]",
            tl_count(s.committed, a), tl_count(s.aborted, b), s.unknown, s.resolved, d->state);
    (void)fputs(d->terminal ? "" : "\n", stderr);
}

bool demo_is_good(const struct demo *d)
{
    return demo_check_is_good(&d->result) && d->result.committed > 0 &&
        d->totals.leaked_locks == 0 && d->totals.ring_records == 0 && d->totals.damages == 0 &&
        d->totals.unclean_pools == 0;
}

static void report_json(const struct demo *d, const char *verdict, int error)
{
    const struct dc_result *r = &d->result;
    const struct demo_event_totals *t = &d->totals;
    json_t *o = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "verdict",
        verdict, "seed", tl_json_u64(d->seed), "committed", tl_json_u64(r->committed), "aborted",
        tl_json_u64(r->aborted), "unknown", tl_json_u64(r->unknown), "resolved",
        tl_json_u64(r->resolved), "lost", tl_json_u64(r->lost), "torn", tl_json_u64(r->torn),
        "leaked_locks", tl_json_u64(t->leaked_locks), "kills", tl_json_u64(t->kills), "recoveries",
        tl_json_u64(t->recoveries));

    (void)json_object_update_new(o,
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "recovery_ms_max",
            tl_json_u64((t->recovery_ns_max + 999999) / 1000000), "ghosts", tl_json_u64(r->ghosts),
            "lost_updates", tl_json_u64(r->lost_updates), "fractured", tl_json_u64(r->fractured),
            "wrong_verdicts", tl_json_u64(r->wrong_verdicts), "foreign_values",
            tl_json_u64(r->foreign_values), "ring_records", tl_json_u64(t->ring_records), "money",
            (json_int_t)r->money, "money_expected", (json_int_t)r->money_expected));
    (void)json_object_set_new(o, "damages", tl_json_u64(t->damages));
    (void)json_object_set_new(o, "accounts", tl_json_u64(d->accounts));
    (void)json_object_set_new(
        o, "seconds", json_real((double)(long)(seconds_since(d->begin_ns) * 1000) / 1000));
    if (error != 0) {
        (void)json_object_set_new(o, "error", json_string(cairn_error_name(error)));
        (void)json_object_set_new(o, "text", json_string(cairn_last_error()));
    }
    tl_json_print(o);
}

static void report_text(const struct demo *d, const char *verdict)
{
    const struct dc_result *r = &d->result;
    const struct demo_event_totals *t = &d->totals;
    char a[32], b[32];

    printf("%s committed, %s aborted, %" PRIu64 " unknown (%" PRIu64 " resolved: %" PRIu64
           " committed); money %" PRId64 ", expected %" PRId64 "\n",
        tl_count(r->committed, a), tl_count(r->aborted, b), r->unknown, r->resolved,
        r->resolved_committed, r->money, r->money_expected);
    printf("%s: seed %" PRIu64 ": %" PRIu64 " processes killed, %" PRIu64
           " nodes recovered (%" PRIu64 " ms at most): %" PRIu64 " lost, %" PRIu64 " torn, %" PRIu64
           " other violations, %" PRIu64 " locks leaked, %" PRIu64 " records left in rings\n",
        verdict, d->seed, t->kills, t->recoveries, (t->recovery_ns_max + 999999) / 1000000, r->lost,
        r->torn,
        r->ghosts + r->lost_updates + r->fractured + r->wrong_verdicts + r->foreign_values +
            t->damages + t->unclean_pools,
        t->leaked_locks, t->ring_records);
}

void demo_report(struct demo *d, int error)
{
    const char *verdict = error != 0 ? "ERROR" : demo_is_good(d) ? "PASS" : "FAIL";

    if (d->terminal)
        fprintf(stderr, "\r\033[K");
    if (error != 0)
        (void)tl_error(d->self, "%s", cairn_last_error());
    if (d->json)
        report_json(d, verdict, error);
    else if (error == 0)
        report_text(d, verdict);
    else
        printf("ERROR: seed %" PRIu64 ": the demo could not come to a verdict\n", d->seed);
    (void)fflush(stdout);
}
