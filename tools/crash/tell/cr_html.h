/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_html.h: what a campaign did, as one web page that needs nothing else: no script, no network,
 * styles and pictures inside. What was found; what was reached: a grid of named steps by what
 * happened there; images explored beside those that were admissible; and a failing run as a
 * picture, a lane per actor, in the order of events.
 */
#ifndef CR_HTML_H
#define CR_HTML_H

#include "tools/crash/tell/cr_report.h"
#include "tools/crash/cluster/cr_timeline.h"

struct cr_html {
    const struct cr_report *report;       /* closed */
    const struct cr_timeline *timeline;   /* of the first failure; NULL: none is shown */
    const char *build;                    /* what was tested */
    const char *command;                  /* what shows it again */
};
/*
 * Write the page: to a file beside it first, then renamed, so that no half page is ever there.
 * Errors: -errno, the text names the file.
 */
CN_MUST_CHECK int cr_html_write(const struct cr_html *html, const char *path);

#endif
