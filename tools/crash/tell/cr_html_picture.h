/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_html_picture.h: a timeline as a picture inside the page of cr_html.h.
 */
#ifndef CR_HTML_PICTURE_H
#define CR_HTML_PICTURE_H

#include "tools/crash/cluster/cr_timeline.h"

/* A section with an SVG and, below it, its moments as a table. */
void cr_html_picture(FILE *to, const struct cr_timeline *timeline);
/* Text of others, as text. */
void cr_html_text(FILE *to, const char *text);

#endif
