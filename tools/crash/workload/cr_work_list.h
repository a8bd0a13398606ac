/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work_list.h: the workloads that are built in: one list makes enum, declarations and table.
 */
#ifndef CR_WORK_LIST_H
#define CR_WORK_LIST_H

#include "include/cairn/workload.h"

#define CR_WORKLOADS(X)                                                                            \
    X(BANK, bank)                                                                                  \
    X(APPEND, append)                                                                              \
    X(REGISTER, register)                                                                          \
    X(CYCLE, cycle)                                                                                \
    X(CHURN, churn)                                                                                \
    X(LARGE, large)                                                                                \
    X(SKEW, skew)                                                                                  \
    X(COUNTER, counter)                                                                            \
    X(SMALLBANK, smallbank)

enum cr_work {
#define CR_X(upper, lower) CR_WORK_##upper,
    CR_WORKLOADS(CR_X)
#undef CR_X
    CR_WORK_COUNT,
};

#define CR_X(upper, lower) extern const struct cairn_workload cr_work_##lower;
CR_WORKLOADS(CR_X)
#undef CR_X

#endif
