/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wp_plugin.c: shared objects for test_cr_work.c, by WP_KIND: a workload that is built in, as an
 * object of its own, and objects that are wrong.
 */
#include "include/cairn/workload.h"

#define WP_BUILT_IN 1
#define WP_ABI 2
#define WP_NO_SYMBOL 3
#define WP_NO_STEP 4
#define WP_NULL 5
#define WP_NAME 6
#define WP_UNDEFINED 7

#if WP_KIND == WP_BUILT_IN
extern const struct cairn_workload cr_work_bank;

const struct cairn_workload *cairn_workload(void)
{
    return &cr_work_bank;
}
#else
static int nothing(struct cairn_run *run, struct cairn_ctx *ctx)
{
    (void)run;
    (void)ctx;
    return 0;
}

static const struct cairn_workload wrong = {
    .abi = WP_KIND == WP_ABI ? CAIRN_WORKLOAD_ABI + 1 : CAIRN_WORKLOAD_ABI,
    .name = WP_KIND == WP_NAME ? "two words" : "wrong",
    .summary = "wrong",
    .setup = nothing,
    .step = WP_KIND == WP_NO_STEP ? NULL : nothing,
    .check = nothing,
};

#if WP_KIND == WP_UNDEFINED
extern int nobody_defines_this(void);
#endif

#if WP_KIND == WP_NO_SYMBOL
CAIRN_API const struct cairn_workload *cairn_work(void);
const struct cairn_workload *cairn_work(void)
#else
const struct cairn_workload *cairn_workload(void)
#endif
{
#if WP_KIND == WP_UNDEFINED
    (void)nobody_defines_this();
#endif
    return WP_KIND == WP_NULL ? NULL : &wrong;
}
#endif
