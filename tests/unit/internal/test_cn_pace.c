/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the rule of when a waiting thread may sleep. Method: the whole table of modes, load around
 * the threshold, and whether the while after the last work is over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "include/internal/cn_pace.h"

static void cn_pace_may_sleep__poll__never(void **state)
{
    const struct cn_pace pace = {CN_PACE_POLL, 700, 10, 10};

    (void)state;
    assert_false(cn_pace_may_sleep(&pace, 0, 100, false));
    assert_false(cn_pace_may_sleep(&pace, 0, 100, true));
    assert_false(cn_pace_may_sleep(&pace, 100, 100, true));
}

static void cn_pace_may_sleep__event__always(void **state)
{
    const struct cn_pace pace = {CN_PACE_EVENT, 700, 10, 10};

    (void)state;
    assert_true(cn_pace_may_sleep(&pace, 0, 100, false));
    assert_true(cn_pace_may_sleep(&pace, 0, 100, true));
    assert_true(cn_pace_may_sleep(&pace, 100, 100, false));
}

static void cn_pace_may_sleep__adaptive__lingers_and_polls_under_load(void **state)
{
    const struct cn_pace pace = CN_PACE_DEFAULT;

    (void)state;
    assert_int_equal(pace.mode, CN_PACE_ADAPTIVE);
    assert_false(cn_pace_may_sleep(&pace, 0, 100, false));
    assert_true(cn_pace_may_sleep(&pace, 0, 100, true));
    assert_true(cn_pace_may_sleep(&pace, 70, 100, true));
    assert_false(cn_pace_may_sleep(&pace, 71, 100, true));
    assert_false(cn_pace_may_sleep(&pace, 70, 100, false));
}

static void cn_pace_may_sleep__extreme_thresholds__never_and_any_load(void **state)
{
    struct cn_pace pace = CN_PACE_DEFAULT;

    (void)state;
    pace.threshold = 0;
    assert_true(cn_pace_may_sleep(&pace, 0, 1024, true));
    assert_false(cn_pace_may_sleep(&pace, 1, 1024, true));
    pace.threshold = 1000;
    assert_true(cn_pace_may_sleep(&pace, 1024, 1024, true));
    assert_true(cn_pace_may_sleep(&pace, UINT32_MAX, UINT32_MAX, true)); /* no overflow */
    assert_false(cn_pace_may_sleep(&pace, UINT32_MAX, UINT32_MAX - 1, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cn_pace_may_sleep__poll__never),
        cmocka_unit_test(cn_pace_may_sleep__event__always),
        cmocka_unit_test(cn_pace_may_sleep__adaptive__lingers_and_polls_under_load),
        cmocka_unit_test(cn_pace_may_sleep__extreme_thresholds__never_and_any_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
