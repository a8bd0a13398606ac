/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_build.h: which program this is: the linker's hash of it (the build-id note). A seed or a tape
 * says what happens in this program; in another one it is another run.
 */
#ifndef CR_BUILD_H
#define CR_BUILD_H

#define CR_BUILD_MAX 48

/* 16 hexadecimal digits; "unknown" without a note. */
const char *cr_build_id(void);

#endif
